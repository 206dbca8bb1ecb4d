//! The paths of the block: convolutions of 3, 5 and 7 voxels side by side, twice, and the 1x1x1 layer that joins them.
//!
//! ```text
//! x1 = a1(x)     x2 = a2(x1)   x3 = a3(x1)   x4 = a4(x1)     of 3; 3, 5 and 7 voxels
//!                x5 = a5(t)    x6 = a6(t)    x7 = a7(t)      of 3, 5 and 7, t = x2 x3 x4
//! y0 = ch(x1 x2 x3 x4 x5 x6 x7)                              of 1; all with ReLU
//! ```

use burn::nn::conv::Conv3d;
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor};

use super::ScpNet;
use crate::Result;
use crate::nn::Part;
use crate::ops::Activation::{Identity, Relu};
use crate::ops::{relu_bits, relu_bits_apply};
use crate::tape::{ByHand, Keeps, Mode, Value, add_gradient};

/// Tensors that the second paths read, and as many paths.
const NEAR: usize = 3;
/// Tensors that are joined.
const JOINED: usize = 7;

/// `y0` of the features that `x` is made of.
///
/// A tensor of the block's width is one unit. Going forward, at most 6 live: the sum, x2 to x4, and two of a sum that is
/// added to. Back, too, for what the sum's gradient and one bit a voxel and channel say need not be held: the gradient of x5
/// is that of the sum times the part's 1x1x1 weights, where the ReLU passed. It is made three times, each time for one of
/// x4, x3, x2, whose gradient then is complete and goes on to x1 before the next one begins.
pub struct Completion;

pub struct Kept {
    /// Where the ReLU of `y0` passes.
    positive: Tensor<1, Int>,
    /// x1 to x7.
    paths: Option<[Value; JOINED]>,
}

/// The parameters as the text above numbers them.
struct Layers<'n> {
    network: &'n ScpNet,
}

impl<'n> Layers<'n> {
    /// Of x2 to x4.
    fn near(&self, index: usize) -> &'n Conv3d {
        let net = self.network;
        [&net.a_conv2, &net.a_conv3, &net.a_conv4][index]
    }

    /// Of x5 to x7.
    fn far(&self, index: usize) -> &'n Conv3d {
        let net = self.network;
        [&net.a_conv5, &net.a_conv6, &net.a_conv7][index]
    }

    /// The part of `far` that one of x2 to x4 meets.
    fn far_part(&self, index: usize, near: usize) -> Part<'n> {
        Part::of(self.far(index), near, NEAR)
    }

    /// The part of the joining layer that `x{index + 1}` meets.
    fn join(&self, index: usize) -> Part<'n> {
        Part::of(&self.network.ch_conv1, index, JOINED)
    }

    fn x1(&self, features: &Value) -> Result<Value> {
        Part::whole(&self.network.a_conv1).forward(self.network.embedded(features.clone())?, None, Relu)
    }

    fn x_near(&self, index: usize, x1: &Value) -> Result<Value> {
        Part::whole(self.near(index)).forward(x1.clone(), None, Relu)
    }

    fn x_far(&self, index: usize, near: &[Value; NEAR]) -> Result<Value> {
        let [x2, x3, x4] = near;
        let sum = self.far_part(index, 0).forward(x2.clone(), None, Identity)?;
        let sum = self.far_part(index, 1).forward(x3.clone(), Some(sum), Identity)?;
        self.far_part(index, 2).forward(x4.clone(), Some(sum), Relu)
    }

    /// `keep` sees x1 to x7.
    fn y0(&self, features: &Value, mut keep: impl FnMut(&Value)) -> Result<Value> {
        let x1 = self.x1(features)?;
        keep(&x1);
        let mut sum = self.join(0).forward(x1.clone(), None, Identity)?;
        let near = [self.x_near(0, &x1)?, self.x_near(1, &x1)?, self.x_near(2, &x1)?];
        drop(x1);
        for (index, x) in near.iter().enumerate() {
            keep(x);
            sum = self.join(1 + index).forward(x.clone(), Some(sum), Identity)?;
        }
        for index in 0..NEAR {
            let x = self.x_far(index, &near)?;
            keep(&x);
            let activation = if index + 1 == NEAR { Relu } else { Identity };
            sum = self.join(1 + NEAR + index).forward(x, Some(sum), activation)?;
        }
        Ok(sum)
    }
}

impl ByHand<ScpNet, 1> for Completion {
    type Kept = Kept;

    fn run(&self, network: &ScpNet, [features]: [Value; 1]) -> Result<Value> {
        Layers { network }.y0(&features, |_| ())
    }

    fn forward(&self, network: &ScpNet, [features]: [Value; 1], mode: Mode) -> Result<(Value, Kept)> {
        let mut paths = Vec::new();
        let keep = |x: &Value| {
            if mode == Mode::Keep {
                paths.push(x.clone());
            }
        };
        let y0 = Layers { network }.y0(&features, keep)?;
        Ok((y0.clone(), Kept { positive: relu_bits(y0), paths: paths.try_into().ok() }))
    }

    fn backward(
        &self,
        network: &ScpNet,
        [features]: [Option<Value>; 1],
        Kept { positive, paths }: Kept,
        gradient: Value,
        sums: &mut GradientsParams,
    ) -> Result<[Option<Value>; 1]> {
        let features = features.expect("a value");
        let layers = Layers { network };
        let gradient = relu_bits_apply(gradient, positive);

        // The joining layer reads all, from first to last, and of x5 to x7 nothing else does.
        let keep = paths.is_some();
        let (mut x1, near, mut far) = if let Some([x1, x2, x3, x4, x5, x6, x7]) = paths {
            (Some(x1), [x2, x3, x4], [Some(x5), Some(x6), Some(x7)])
        } else {
            let x1 = layers.x1(&features)?;
            let near = [layers.x_near(0, &x1)?, layers.x_near(1, &x1)?, layers.x_near(2, &x1)?];
            (Some(x1), near, [None, None, None])
        };
        let mut join = Vec::with_capacity(JOINED);
        for (index, x) in x1.iter().chain(&near).enumerate() {
            join.push(layers.join(index).weight_gradient(x, &gradient)?);
        }
        if !keep {
            x1 = None;
        }
        let mut passes = Vec::with_capacity(NEAR);
        for (index, kept) in far.iter_mut().enumerate() {
            let x = match kept.take() {
                Some(x) => x,
                None => layers.x_far(index, &near)?,
            };
            join.push(layers.join(1 + NEAR + index).weight_gradient(&x, &gradient)?);
            passes.push(relu_bits(x));
        }
        add_gradient(sums, &network.ch_conv1.weight, Tensor::cat(join, 1));

        let mut near = near.map(Some);
        if !keep {
            // Made again in few steps.
            near[0] = None;
        }
        let mut far_gradients: [Vec<Value>; NEAR] = [const { Vec::new() }; NEAR];
        let mut by_x1 = None;
        for index in (0..NEAR).rev() {
            let x = match near[index].take() {
                Some(x) => x,
                None => layers.x_near(index, &layers.x1(&features)?)?,
            };
            let mut by_x = None;
            for (far, passes) in passes.iter().enumerate().rev() {
                let gradient = layers.join(1 + NEAR + far).input_gradient(gradient.clone(), None)?;
                let gradient = relu_bits_apply(gradient, passes.clone());
                let part = layers.far_part(far, index);
                far_gradients[far].push(part.weight_gradient(&x, &gradient)?);
                by_x = Some(part.input_gradient(gradient, by_x)?);
            }
            let by_x = layers.join(1 + index).input_gradient(gradient.clone(), by_x)?;
            let by_x = relu_bits_apply(by_x, relu_bits(x));
            let part = Part::whole(layers.near(index));
            let x1 = match &x1 {
                Some(x1) => x1.clone(),
                None => layers.x1(&features)?,
            };
            add_gradient(sums, &layers.near(index).weight, part.weight_gradient(&x1, &by_x)?);
            drop(x1);
            by_x1 = Some(part.input_gradient(by_x, by_x1)?);
        }
        for (index, mut parts) in far_gradients.into_iter().enumerate() {
            parts.reverse();
            add_gradient(sums, &layers.far(index).weight, Tensor::cat(parts, 1));
        }
        let by_x1 = layers.join(0).input_gradient(gradient, by_x1)?;

        let first = Part::whole(&network.a_conv1);
        let x = network.embedded(features.clone())?;
        let x1 = match x1 {
            Some(x1) => x1,
            None => first.forward(x.clone(), None, Relu)?,
        };
        let by_x1 = relu_bits_apply(by_x1, relu_bits(x1));
        add_gradient(sums, &network.a_conv1.weight, first.weight_gradient(&x, &by_x1)?);
        let by_x = relu_bits_apply(first.input_gradient(by_x1, None)?, relu_bits(x));
        add_gradient(sums, &network.embed.weight, Part::whole(&network.embed).weight_gradient(&features, &by_x)?);
        Ok([None])
    }

    fn keeps(&self, network: &ScpNet, [features]: [[usize; 5]; 1], size: usize) -> Keeps {
        let [batch, _, z, x, y] = features;
        let unit = (batch * network.width() * z * x * y * size) as u64;
        // x1 to x7. Forward x1, x5 and x6 stay beside what lives at the peak, back x1 and x2 do.
        Keeps { bytes: JOINED as u64 * unit, forward_bytes: 3 * unit, backward_bytes: 2 * unit, saves: 1.0 }
    }
}
