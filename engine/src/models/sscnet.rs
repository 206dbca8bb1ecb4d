//! SSCNet (Song, Yu, Zeng, Chang, Savva, Funkhouser: "Semantic Scene Completion from a Single Depth Image", CVPR 2017,
//! arXiv 1611.08974), as LMSCNet's authors compare with it under the name SSCNet-full: dilated 3D convolutions at a
//! quarter of the resolution, and a transposed convolution back to all of it.

use burn::module::Module;
use burn::nn::conv::{Conv3d, ConvTranspose3d};
use burn::tensor::Tensor;

use super::network::{check_classes, check_sides};
use super::weights::{WeightsFile, WeightsInfo};
use crate::Result;
use crate::nn::{Init, conv_transpose3d, conv3d, halve3d, relu_first};
use crate::ops::Activation::{Identity, Relu};
use crate::tape::{Classifier, Head, Planes, Tape, Value, Var};

/// What shape of SSCNet to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SscNetConfig {
    /// Voxels along x, y, z; each divides by 4. The weights do not depend on them.
    pub counts: [usize; 3],
    /// Features a voxel, the first of them occupancy. The authors' network has this one only.
    pub channels: usize,
    /// Classes, free space included.
    pub classes: usize,
}

impl SscNetConfig {
    /// # Errors
    /// [`crate::Error::Usage`] for a side that does not divide by 4, for no channel and for fewer than two classes.
    pub fn init(&self, init: &mut Init) -> Result<SscNet> {
        check_sides(self.counts, 4, "SSCNet halves its sides twice")?;
        check_classes(self.channels, self.classes)?;
        Ok(SscNet {
            conv1_1: init.conv3d_strided(self.channels, 16, 7, 2),
            reduction2_1: init.conv3d_strided(16, 32, 1, 1),
            conv2_1: init.conv3d(16, 32, 1, true),
            conv2_2: init.conv3d(32, 32, 1, true),
            reduction3_1: init.conv3d_strided(64, 64, 1, 1),
            conv3_1: init.conv3d(32, 64, 1, true),
            conv3_2: init.conv3d(64, 64, 1, true),
            conv3_3: init.conv3d(64, 64, 1, true),
            conv3_4: init.conv3d(64, 64, 1, true),
            conv3_5: init.conv3d(64, 64, 2, true),
            conv3_6: init.conv3d(64, 64, 2, true),
            conv3_7: init.conv3d(64, 64, 2, true),
            conv3_8: init.conv3d(64, 64, 2, true),
            conv4_1: init.conv3d_strided(192, 128, 1, 1),
            conv4_2: init.conv3d_strided(128, 128, 1, 1),
            deconv_classes: init.conv_transpose3d(128, self.classes, 4),
        })
    }
}

/// The network; fields carry the names of the code by LMSCNet's authors (github.com/astra-vision/LMSCNet).
#[derive(Module, Debug)]
pub struct SscNet {
    conv1_1: Conv3d,
    reduction2_1: Conv3d,
    conv2_1: Conv3d,
    conv2_2: Conv3d,
    reduction3_1: Conv3d,
    conv3_1: Conv3d,
    conv3_2: Conv3d,
    conv3_3: Conv3d,
    conv3_4: Conv3d,
    conv3_5: Conv3d,
    conv3_6: Conv3d,
    conv3_7: Conv3d,
    conv3_8: Conv3d,
    conv4_1: Conv3d,
    conv4_2: Conv3d,
    deconv_classes: ConvTranspose3d,
}

impl SscNet {
    /// Whether a file holds SSCNet-full, and for how many classes.
    pub(super) fn recognise(file: &WeightsFile) -> Result<Option<WeightsInfo>> {
        let [first, class_bias] = ["conv1_1.weight", "deconv_classes.bias"];
        let Some(tensors) = file.network(&[class_bias, "deconv_classes.weight"])? else { return Ok(None) };
        let shape = |name: &str| tensors.get(name).map(|tensor| tensor.shape.to_vec()).unwrap_or_default();
        let (&[_, channels, ..], &[classes]) = (&*shape(first), &*shape(class_bias)) else { return Ok(None) };
        Ok(Some(WeightsInfo { network: "sscnet", channels, height: None, classes }))
    }

    /// The one head for features `[B, channels, Z, X, Y]`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] when the features do not fit the network, [`crate::Error::TooLarge`] when a tensor does not
    /// fit on the device.
    pub fn run(tape: &mut Tape<'_, Self>, features: Var) -> Result<Vec<Head<Self>>> {
        let [x] = tape.segment("1:2", [features.into()], |net, _, [features]| {
            Ok([conv3d(&net.conv1_1, features, None, None, Relu)?])
        })?;
        let [x] = tape.segment("1:2 residual", [x.into()], |net, _, [x]| {
            let shortcut = conv3d(&net.reduction2_1, x.clone(), None, None, Identity)?;
            let x = conv3d(&net.conv2_1, x, None, None, Relu)?;
            Ok([halve3d(conv3d(&net.conv2_2, x, None, Some(shortcut), Relu)?)?])
        })?;
        let [x] = tape.segment("1:4 widened", [x.into()], |net, _, [x]| {
            let x = conv3d(&net.conv3_1, x, None, None, Relu)?;
            let shortcut = conv3d(&net.reduction3_1, x.clone(), None, None, Identity)?;
            Ok([conv3d(&net.conv3_2, x, None, Some(shortcut), Relu)?])
        })?;
        let [near] =
            tape.segment("1:4 near", [x.into()], |net, _, [x]| Ok([residual(&net.conv3_3, &net.conv3_4, x)?]))?;
        let [middle] =
            tape.segment("1:4 middle", [(&near).into()], |net, _, [x]| Ok([residual(&net.conv3_5, &net.conv3_6, x)?]))?;
        let [far] =
            tape.segment("1:4 far", [(&middle).into()], |net, _, [x]| Ok([residual(&net.conv3_7, &net.conv3_8, x)?]))?;
        let inputs = [far.into(), middle.into(), near.into()];
        let [features] = tape.segment("1:4 joined", inputs, |net, _, parts| {
            let x = conv3d(&net.conv4_1, Tensor::cat(parts.into(), 1), None, None, Relu)?;
            Ok([conv3d(&net.conv4_2, x, None, None, Relu)?])
        })?;
        let run = |net: &Self, x: Value, _: Planes| conv_transpose3d(&net.deconv_classes, x);
        Ok(vec![Head { features, classifier: Classifier { run, halo: 0, scale: 4 } }])
    }

    /// Sets the last biases, so that an untrained network predicts these logits where its features are zero.
    pub fn set_class_bias(&mut self, logits: &[f32]) {
        super::network::set_bias(&mut self.deconv_classes.bias, logits);
    }
}

fn residual(first: &Conv3d, second: &Conv3d, x: Tensor<5>) -> Result<Tensor<5>> {
    let x = conv3d(first, x, None, None, Identity)?;
    let relu = relu_first(&x);
    conv3d(second, x.clone(), Some(relu), Some(x), Relu)
}
