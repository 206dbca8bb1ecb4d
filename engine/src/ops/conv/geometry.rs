//! Shapes of a convolution, checked once.

use std::fmt;

use crate::{Error, Result};

/// How a kernel moves over the grid; axes are depth, height, width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvOptions {
    pub stride: [usize; 3],
    /// Zeros on either side of each axis.
    pub padding: [usize; 3],
    /// Voxels from one tap to the next.
    pub dilation: [usize; 3],
    /// Output channel `c` sees the input channels of its group only.
    pub groups: usize,
}

impl Default for ConvOptions {
    fn default() -> Self {
        Self { stride: [1; 3], padding: [0; 3], dilation: [1; 3], groups: 1 }
    }
}

/// Geometry of a convolution: `x [B, in, sides_in] * weight [out, in / groups, kernel] -> y [B, out, sides_out]`.
///
/// A transposed convolution is the input gradient of the convolution of the same geometry: there `y` goes in and `x`
/// comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvGeometry {
    pub batch: usize,
    pub channels_in: usize,
    pub channels_out: usize,
    pub groups: usize,
    pub sides_in: [usize; 3],
    pub sides_out: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub padding: [usize; 3],
    pub dilation: [usize; 3],
}

impl ConvGeometry {
    /// Of a convolution with input `x` `[B, in, D, H, W]` and `weight` `[out, in / groups, kernel]`.
    ///
    /// # Errors
    /// [`Error::Usage`] when channels and groups do not fit together, something is zero that cannot be, or the kernel is
    /// larger than the padded grid.
    pub fn new(x: [usize; 5], weight: [usize; 5], options: &ConvOptions) -> Result<Self> {
        let [batch, channels_in, sides_in @ ..] = x;
        let [channels_out, channels_group, kernel @ ..] = weight;
        let refuse = |found: String| {
            let (x, weight) = (by(&x), by(&weight));
            Err(Error::Usage(format!("convolution of {x} (batch, channels, sides), weights {weight}: {found}")))
        };
        if let Some(found) = not_positive(weight, options) {
            return refuse(found);
        }
        // With enough padding there would be an output, of nothing.
        if sides_in.contains(&0) {
            return refuse("found a side of 0, expected at least 1".into());
        }
        if channels_group.checked_mul(options.groups) != Some(channels_in) || channels_out % options.groups != 0 {
            return refuse(format!(
                "found {channels_in} input and {channels_out} output channels in {} groups, expected {channels_group} input \
                 channels a group and as many output channels in each",
                options.groups
            ));
        }
        let mut sides_out = [0; 3];
        for axis in 0..3 {
            let padded = options.padding[axis].checked_mul(2).and_then(|zeros| zeros.checked_add(sides_in[axis]));
            let reach = (kernel[axis] - 1).checked_mul(options.dilation[axis]);
            let room = padded.zip(reach).and_then(|(padded, reach)| padded.checked_sub(reach)?.checked_sub(1));
            let Some(room) = room else {
                return refuse(format!(
                    "the kernel with dilation {} is larger than the grid with padding {}",
                    by(&options.dilation),
                    by(&options.padding)
                ));
            };
            sides_out[axis] = room / options.stride[axis] + 1;
        }
        let ConvOptions { stride, padding, dilation, groups } = *options;
        Ok(Self { batch, channels_in, channels_out, groups, sides_in, sides_out, kernel, stride, padding, dilation })
    }

    /// Of a transposed convolution with input `[B, in, D, H, W]` and weight `[in, out / groups, kernel]`: the geometry of
    /// the convolution whose input gradient it is, so its input is [`Self::output`] and its output [`Self::input`].
    ///
    /// `output_padding` adds to the sides of the output what the stride leaves open; it is less than the stride.
    ///
    /// # Errors
    /// [`Error::Usage`] as [`Self::new`].
    pub fn transposed(
        x: [usize; 5],
        weight: [usize; 5],
        options: &ConvOptions,
        output_padding: [usize; 3],
    ) -> Result<Self> {
        let [batch, channels_out, sides_out @ ..] = x;
        let [weight_in, channels_group, kernel @ ..] = weight;
        let ConvOptions { stride, padding, dilation, groups } = *options;
        let refuse = |found: String| {
            let (x, weight) = (by(&x), by(&weight));
            Err(Error::Usage(format!(
                "transposed convolution of {x} (batch, channels, sides), weights {weight}: {found}"
            )))
        };
        if let Some(found) = not_positive(weight, options) {
            return refuse(found);
        }
        if weight_in != channels_out || channels_out % groups != 0 {
            return refuse(format!("found {channels_out} input channels in {groups} groups, expected {weight_in}"));
        }
        let mut sides_in = [0; 3];
        for axis in 0..3 {
            if output_padding[axis] >= stride[axis] {
                let (padding, stride) = (by(&output_padding), by(&stride));
                return refuse(format!("output padding {padding}, expected less than the stride {stride}"));
            }
            let size = || {
                let strides = sides_out[axis].checked_sub(1)?.checked_mul(stride[axis])?;
                let reach = (kernel[axis] - 1).checked_mul(dilation[axis])?;
                let side = strides.checked_add(reach)?.checked_add(1 + output_padding[axis])?;
                side.checked_sub(padding[axis].checked_mul(2)?).filter(|side| *side > 0)
            };
            let Some(side) = size() else {
                return refuse(format!("nothing is left of the output after padding {}", by(&padding)));
            };
            sides_in[axis] = side;
        }
        let Some(channels_in) = channels_group.checked_mul(groups) else {
            return refuse(format!("{channels_group} channels in {groups} groups are too many"));
        };
        Ok(Self { batch, channels_in, channels_out, groups, sides_in, sides_out, kernel, stride, padding, dilation })
    }

    /// Shape of `x`.
    pub fn input(&self) -> [usize; 5] {
        let [d, h, w] = self.sides_in;
        [self.batch, self.channels_in, d, h, w]
    }

    /// Shape of `y`.
    pub fn output(&self) -> [usize; 5] {
        let [d, h, w] = self.sides_out;
        [self.batch, self.channels_out, d, h, w]
    }

    /// Shape of the weights.
    pub fn weight(&self) -> [usize; 5] {
        let [d, h, w] = self.kernel;
        [self.channels_out, self.channels_in / self.groups, d, h, w]
    }

    /// Voxels of one channel of one sample of `x`.
    pub fn volume_in(&self) -> usize {
        self.sides_in.iter().product()
    }

    /// Voxels of one channel of one sample of `y`.
    pub fn volume_out(&self) -> usize {
        self.sides_out.iter().product()
    }

    /// Sides of the larger grid with everything that the kernel touches around it.
    pub(super) fn reach(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| {
            let kernel = (self.kernel[axis] - 1).saturating_mul(self.dilation[axis]);
            let around = self.padding[axis].saturating_mul(2).saturating_add(kernel);
            self.sides_in[axis].max(self.sides_out[axis]).saturating_add(around)
        })
    }

    /// Values of the kernel between two channels.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
}

/// `1x32x1x128x128, weights 32x32x1x3x3, stride 1x1x1, padding 0x1x1, dilation 1x1x1, 1 group`.
impl fmt::Display for ConvGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &self.input())
    }
}

impl ConvGeometry {
    fn write(&self, f: &mut fmt::Formatter<'_>, goes_in: &[usize]) -> fmt::Result {
        let Self { stride, padding, dilation, groups, .. } = self;
        write!(f, "{}, weights {}, stride {}, ", by(goes_in), by(&self.weight()), by(stride))?;
        write!(f, "padding {}, dilation {}, {groups} group", by(padding), by(dilation))?;
        f.write_str(if *groups == 1 { "" } else { "s" })
    }
}

/// An operation as errors name it, by what goes in; the geometry is that of the convolution either way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation<'a> {
    Convolution(&'a ConvGeometry),
    Transposed(&'a ConvGeometry),
}

impl fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convolution(geometry) => write!(f, "convolution of {geometry}"),
            Self::Transposed(geometry) => {
                f.write_str("transposed convolution of ")?;
                geometry.write(f, &geometry.output())
            }
        }
    }
}

/// Sides as errors write them: `2x3x4`.
pub(in crate::ops) fn by(sides: &[usize]) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        sides.iter().enumerate().try_for_each(|(i, side)| write!(f, "{}{side}", if i == 0 { "" } else { "x" }))
    })
}

/// What is zero and must not be.
fn not_positive(weight: [usize; 5], options: &ConvOptions) -> Option<String> {
    let ConvOptions { stride, dilation, groups, .. } = *options;
    let parts: [(&str, &[usize]); 4] =
        [("weights of", &weight), ("stride", &stride), ("dilation", &dilation), ("groups", &[groups])];
    let (name, sizes) = parts.into_iter().find(|(_, sizes)| sizes.contains(&0))?;
    Some(format!("found {name} {}, expected at least 1 each", by(sizes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_follow_the_formula_of_pytorch() {
        // floor((side + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.
        let options = ConvOptions { stride: [2, 1, 3], padding: [3, 2, 0], dilation: [1, 2, 1], groups: 2 };
        let geometry = ConvGeometry::new([1, 4, 15, 9, 10], [6, 2, 7, 3, 2], &options).unwrap();
        assert_eq!(geometry.output(), [1, 6, 8, 9, 3]);
        // (side - 1) stride - 2 padding + dilation (kernel - 1) + 1 + output padding.
        let geometry = ConvGeometry::transposed([1, 6, 8, 9, 3], [6, 2, 7, 3, 2], &options, [0, 0, 2]).unwrap();
        assert_eq!(geometry.input(), [1, 4, 15, 9, 10]);
        assert_eq!(geometry.weight(), [6, 2, 7, 3, 2]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_shapes() {
        let options = ConvOptions::default();
        let refused = |x, weight, options: &ConvOptions| ConvGeometry::new(x, weight, options).unwrap_err().to_string();
        let text = refused([1, 3, 4, 4, 4], [8, 4, 3, 3, 3], &options);
        assert!(text.contains("1x3x4x4x4") && text.contains("8x4x3x3x3") && text.contains("4 input"), "{text}");
        let text = refused([1, 4, 4, 4, 4], [8, 4, 3, 5, 3], &options);
        assert!(text.contains("larger than the grid"), "{text}");
        let text = refused([1, 4, 4, 4, 4], [8, 4, 1, 1, 1], &ConvOptions { stride: [1, 0, 1], ..options });
        assert!(text.contains("stride 1x0x1"), "{text}");
        let text = ConvGeometry::transposed([1, 4, 4, 4, 4], [4, 2, 1, 1, 1], &options, [0, 1, 0]).unwrap_err();
        assert!(text.to_string().contains("output padding 0x1x0"), "{text}");
    }
}
