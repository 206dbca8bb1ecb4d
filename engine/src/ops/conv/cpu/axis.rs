//! How output positions, input positions and taps meet along one axis.
//!
//! A convolution and its input gradient are the same walk: position `q` reads the source at `q * source_step + offset` for
//! every tap and writes the target at `q * phases + phase`. A convolution steps through its source by the stride and has
//! one phase. An input gradient steps by one and has as many phases as the stride, each with the taps that reach it:
//! none is multiplied with zeros between the source's values.

use super::ConvGeometry;

#[derive(Debug, Clone)]
pub struct Axis {
    /// Sides of the grid that is read and of the one that is written.
    pub source: usize,
    pub target: usize,
    pub source_step: usize,
    /// Taps of each phase.
    pub phases: Vec<Vec<Tap>>,
    /// Positions further on that read again what a position has read.
    pub period: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tap {
    /// Index in the kernel.
    pub index: usize,
    pub offset: isize,
}

impl Axis {
    pub fn forward(geometry: &ConvGeometry, axis: usize) -> Self {
        let [kernel, stride, dilation] = [geometry.kernel[axis], geometry.stride[axis], geometry.dilation[axis]];
        let offset = |index: usize| (index * dilation) as isize - geometry.padding[axis] as isize;
        Self {
            source: geometry.sides_in[axis],
            target: geometry.sides_out[axis],
            source_step: stride,
            phases: vec![(0..kernel).map(|index| Tap { index, offset: offset(index) }).collect()],
            period: dilation / common_divisor(dilation, stride),
        }
    }

    pub fn input_gradient(geometry: &ConvGeometry, axis: usize) -> Self {
        let [kernel, stride, dilation] = [geometry.kernel[axis], geometry.stride[axis], geometry.dilation[axis]];
        let taps = |phase: usize| -> Vec<Tap> {
            let distance = |index: usize| (phase + geometry.padding[axis]) as isize - (index * dilation) as isize;
            let reaches = (0..kernel).filter(|&index| distance(index) % stride as isize == 0);
            reaches.map(|index| Tap { index, offset: distance(index) / stride as isize }).collect()
        };
        Self {
            source: geometry.sides_out[axis],
            target: geometry.sides_in[axis],
            source_step: 1,
            phases: (0..stride.min(geometry.sides_in[axis])).map(taps).collect(),
            period: dilation / common_divisor(dilation, stride),
        }
    }

    /// Number of positions.
    pub fn positions(&self) -> usize {
        self.target.div_ceil(self.phases.len().max(1))
    }

    /// The source position that `position` reads; outside the grid when negative or beyond the side.
    pub fn read(&self, position: usize, offset: isize) -> isize {
        (position * self.source_step) as isize + offset
    }

    /// Offsets of the taps of every phase, ascending.
    pub fn offsets(&self) -> Vec<isize> {
        let mut offsets: Vec<isize> = self.phases.iter().flatten().map(|tap| tap.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
