//! Three convolutions of the block's input beside its paths, and the sum of all.

use burn::nn::conv::Conv3d;
use burn::optim::GradientsParams;
use burn::tensor::{Int, Tensor};

use super::ScpNet;
use crate::Result;
use crate::nn::Part;
use crate::ops::Activation::Relu;
use crate::ops::{relu_bits, relu_bits_apply};
use crate::tape::{ByHand, Keeps, Mode, Value, add_gradient};

/// `y0 + x + y1 + y2 + y3` of the features that `x` is made of and the sum `y0` of the paths.
pub struct Residual;

pub struct Kept {
    /// Where the ReLU of each convolution passes.
    positive: [Tensor<1, Int>; 3],
    /// What they convolve; made again where it was not kept.
    x: Option<Value>,
}

impl Residual {
    fn layers(network: &ScpNet) -> [&Conv3d; 3] {
        [&network.res_1, &network.res_2, &network.res_3]
    }
}

impl ByHand<ScpNet, 2> for Residual {
    type Kept = Kept;

    fn run(&self, network: &ScpNet, [features, sum]: [Value; 2]) -> Result<Value> {
        let x = network.embedded(features)?;
        let mut sum = sum + x.clone();
        for layer in Self::layers(network) {
            sum = sum + Part::whole(layer).forward(x.clone(), None, Relu)?;
        }
        Ok(sum)
    }

    fn forward(&self, network: &ScpNet, [features, sum]: [Value; 2], mode: Mode) -> Result<(Value, Kept)> {
        let x = network.embedded(features)?;
        let mut sum = sum + x.clone();
        let mut positive = Vec::with_capacity(3);
        for layer in Self::layers(network) {
            let y = Part::whole(layer).forward(x.clone(), None, Relu)?;
            positive.push(relu_bits(y.clone()));
            sum = sum + y;
        }
        let positive = positive.try_into().expect("one for each layer");
        Ok((sum, Kept { positive, x: (mode == Mode::Keep).then_some(x) }))
    }

    fn backward(
        &self,
        network: &ScpNet,
        [features, _]: [Option<Value>; 2],
        kept: Kept,
        gradient: Value,
        sums: &mut GradientsParams,
    ) -> Result<[Option<Value>; 2]> {
        let features = features.expect("a value");
        let x = match kept.x {
            Some(x) => x,
            None => network.embedded(features.clone())?,
        };
        let embedded = relu_bits(x.clone());
        let mut by_x = gradient.clone();
        for (layer, positive) in Self::layers(network).into_iter().zip(kept.positive) {
            let part = Part::whole(layer);
            let gradient = relu_bits_apply(gradient.clone(), positive);
            add_gradient(sums, &layer.weight, part.weight_gradient(&x, &gradient)?);
            by_x = part.input_gradient(gradient, Some(by_x))?;
        }
        drop((x, gradient));
        let by_x = relu_bits_apply(by_x, embedded);
        add_gradient(sums, &network.embed.weight, Part::whole(&network.embed).weight_gradient(&features, &by_x)?);
        Ok([None, None])
    }

    fn keeps(&self, _: &ScpNet, [_, sum]: [[usize; 5]; 2], size: usize) -> Keeps {
        // x, which is there at both peaks anyway and made in no time.
        Keeps { bytes: (sum.iter().product::<usize>() * size) as u64, ..Keeps::default() }
    }
}
