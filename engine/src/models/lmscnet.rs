//! LMSCNet (Roldão, de Charette, Verroust-Blondet: "LMSCNet: Lightweight Multiscale 3D Semantic Completion", 3DV 2020,
//! arXiv 2008.10559): a 2D U-Net over the bird's eye view with the height as channels, and a small 3D head a scale.

use burn::module::Module;
use burn::nn::BatchNorm;
use burn::nn::conv::{Conv2d, Conv3d, ConvTranspose2d};
use burn::tensor::Tensor;

use super::network::{check_classes, check_sides, set_bias};
use super::weights::{WeightsFile, WeightsInfo};
use crate::nn::{Init, conv_transpose2d, conv2d, conv3d, conv3d_inside, conv3d_norm, halve2d, norm_before, relu_first};
use crate::ops::Activation::{Identity, Relu};
use crate::tape::{Classifier, Head, Input, Planes, Tape, Value, Var};
use crate::{Error, Result};

/// Channels inside a 3D head.
const HEAD_CHANNELS: usize = 8;
/// Dilations of a head's branches.
const DILATIONS: [usize; 3] = [1, 2, 3];

/// Voxels along z at most: the weights then hold about 1.3 GiB.
const MAX_HEIGHT: usize = 1024;

/// What shape of LMSCNet to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LmscNetConfig {
    /// Voxels along x, y, z; each divides by 8. The widths of the network follow z.
    pub counts: [usize; 3],
    /// Features a voxel, the first of them occupancy. The authors' network has this one only.
    pub channels: usize,
    /// Classes, free space included.
    pub classes: usize,
    /// Predict at 1/2, 1/4 and 1/8 too (the paper's LMSCNet); else at full scale only (LMSCNet-SS).
    pub multiscale: bool,
}

impl LmscNetConfig {
    /// # Errors
    /// [`Error::Usage`] for a side that does not divide by 8, for no channel and for fewer than two classes;
    /// [`Error::TooLarge`] for a grid so high that the weights alone fill the memory.
    pub fn init(&self, init: &mut Init) -> Result<LmscNet> {
        check_sides(self.counts, 8, "LMSCNet halves its sides three times")?;
        check_classes(self.channels, self.classes)?;
        let z = self.counts[2];
        if z > MAX_HEIGHT {
            return Err(Error::TooLarge(format!(
                "the grid has {z} voxels along z, expected at most {MAX_HEIGHT}: the weights of LMSCNet grow with the \
                 square of the height. Use a lower grid or higher voxels"
            )));
        }
        let [one, two, four, eight] = [z, z * 3 / 2, z * 2, z * 5 / 2];
        let pair = |init: &mut Init, from: usize, to: usize| vec![init.conv2d(from, to), init.conv2d(to, to)];
        let head = |init: &mut Init, wanted: bool| wanted.then(|| SegmentationHead::new(self.classes, init));
        Ok(LmscNet {
            // Further channels begin unheard: drawn as the rest, a dense one such as visibility drowns the few occupied
            // voxels, and a short run ends 1 to 3 IoU points lower.
            encoder_block1: vec![init.conv2d_widened(z, (self.channels - 1) * z, one), init.conv2d(one, one)],
            encoder_block2: pair(init, one, two),
            encoder_block3: pair(init, two, four),
            encoder_block4: pair(init, four, eight),
            conv_out_scale_1_8: init.conv2d(eight, z / 8),
            deconv_1_8_to_1_2: init.conv_transpose2d(z / 8, 4, 4, 0),
            deconv_1_8_to_1_1: init.conv_transpose2d(z / 8, 8, 8, 0),
            deconv1_8: init.conv_transpose2d(z / 8, 6, 2, 2),
            conv1_4: init.conv2d(four + z / 8, four),
            conv_out_scale_1_4: init.conv2d(four, z / 4),
            deconv_1_4_to_1_1: init.conv_transpose2d(z / 4, 4, 4, 0),
            deconv1_4: init.conv_transpose2d(z / 4, 6, 2, 2),
            conv1_2: init.conv2d(two + z / 4 + z / 8, two),
            conv_out_scale_1_2: init.conv2d(two, z / 2),
            deconv1_2: init.conv_transpose2d(z / 2, 6, 2, 2),
            conv1_1: init.conv2d(one + z / 2 + z / 4 + z / 8, one),
            seg_head_1_1: SegmentationHead::new(self.classes, init),
            seg_head_1_2: head(init, self.multiscale),
            seg_head_1_4: head(init, self.multiscale),
            seg_head_1_8: head(init, self.multiscale),
        })
    }
}

/// The network; fields carry the names of the authors' code (github.com/astra-vision/LMSCNet).
#[derive(Module, Debug)]
pub struct LmscNet {
    pub(crate) encoder_block1: Vec<Conv2d>,
    pub(crate) encoder_block2: Vec<Conv2d>,
    pub(crate) encoder_block3: Vec<Conv2d>,
    pub(crate) encoder_block4: Vec<Conv2d>,
    pub(crate) conv_out_scale_1_8: Conv2d,
    pub(crate) deconv_1_8_to_1_2: ConvTranspose2d,
    pub(crate) deconv_1_8_to_1_1: ConvTranspose2d,
    pub(crate) deconv1_8: ConvTranspose2d,
    pub(crate) conv1_4: Conv2d,
    pub(crate) conv_out_scale_1_4: Conv2d,
    pub(crate) deconv_1_4_to_1_1: ConvTranspose2d,
    pub(crate) deconv1_4: ConvTranspose2d,
    pub(crate) conv1_2: Conv2d,
    pub(crate) conv_out_scale_1_2: Conv2d,
    pub(crate) deconv1_2: ConvTranspose2d,
    pub(crate) conv1_1: Conv2d,
    pub(crate) seg_head_1_1: SegmentationHead,
    pub(crate) seg_head_1_2: Option<SegmentationHead>,
    pub(crate) seg_head_1_4: Option<SegmentationHead>,
    pub(crate) seg_head_1_8: Option<SegmentationHead>,
}

impl LmscNet {
    /// Beginnings of parameter names here and in the authors' code: their blocks are sequences that also count pooling
    /// and ReLU, and three names hold double underscores.
    pub(super) const ORIGINAL_NAMES: [(&str, &str); 11] = [
        ("encoder_block1.0.", "Encoder_block1.0."),
        ("encoder_block1.1.", "Encoder_block1.2."),
        ("encoder_block2.0.", "Encoder_block2.1."),
        ("encoder_block2.1.", "Encoder_block2.3."),
        ("encoder_block3.0.", "Encoder_block3.1."),
        ("encoder_block3.1.", "Encoder_block3.3."),
        ("encoder_block4.0.", "Encoder_block4.1."),
        ("encoder_block4.1.", "Encoder_block4.3."),
        ("deconv_1_8_to_1_2.", "deconv_1_8__1_2."),
        ("deconv_1_8_to_1_1.", "deconv_1_8__1_1."),
        ("deconv_1_4_to_1_1.", "deconv_1_4__1_1."),
    ];

    /// Which LMSCNet a file of the authors' names holds, if one.
    pub(super) fn recognise(file: &WeightsFile) -> Result<Option<WeightsInfo>> {
        let [first, class_bias] = ["Encoder_block1.0.weight", "seg_head_1_1.conv_classes.bias"];
        let Some(tensors) = file.network(&[first, "Encoder_block1.0.bias", class_bias])? else { return Ok(None) };
        let shape = |name: &str| tensors.get(name).map(|tensor| tensor.shape.to_vec()).unwrap_or_default();
        let (&[height, inputs, ..], &[classes]) = (&*shape(first), &*shape(class_bias)) else { return Ok(None) };
        let network = if tensors.contains_key("seg_head_1_2.conv_classes.bias") { "lmscnet" } else { "lmscnet-ss" };
        // Each channel comes with all heights.
        Ok(Some(WeightsInfo { network, channels: inputs / height.max(1), height: Some(height), classes }))
    }

    /// Heads at full scale and, of the multiscale network, at 1/2, 1/4 and 1/8, in that order, for features
    /// `[B, channels, Z, X, Y]`.
    ///
    /// The first convolution sees all heights of channel 0, then all of channel 1, and so on.
    ///
    /// # Errors
    /// [`Error::Usage`] when the features do not fit the network, [`Error::TooLarge`] when a tensor does not fit on the
    /// device.
    pub fn run(tape: &mut Tape<'_, Self>, features: Var) -> Result<Vec<Head<Self>>> {
        let [skip_1_1] = tape.segment("encoder 1:1", [features.into()], |net, _, [features]| {
            let [batch, channels, z, x, y] = features.dims();
            Ok([flat(conv_relu_all(&net.encoder_block1, features.reshape([batch, channels * z, x, y]))?)])
        })?;
        let [skip_1_2] = tape.segment("encoder 1:2", [(&skip_1_1).into()], |net, _, [x]| {
            Ok([flat(conv_relu_all(&net.encoder_block2, halve2d(map(x))?)?)])
        })?;
        let [skip_1_4] = tape.segment("encoder 1:4", [(&skip_1_2).into()], |net, _, [x]| {
            Ok([flat(conv_relu_all(&net.encoder_block3, halve2d(map(x))?)?)])
        })?;
        let [out_1_8] = tape.segment("encoder 1:8", [(&skip_1_4).into()], |net, _, [x]| {
            let x = conv_relu_all(&net.encoder_block4, halve2d(map(x))?)?;
            Ok([flat(conv2d(&net.conv_out_scale_1_8, x, Identity)?)])
        })?;
        let [out_1_4] =
            tape.segment("decoder 1:4", [(&out_1_8).into(), skip_1_4.into()], |net, _, [out_1_8, skip]| {
                let joined = Tensor::cat(vec![conv_transpose2d(&net.deconv1_8, map(out_1_8))?, map(skip)], 1);
                Ok([flat(conv2d(&net.conv_out_scale_1_4, conv2d(&net.conv1_4, joined, Relu)?, Identity)?)])
            })?;
        let inputs = [(&out_1_4).into(), skip_1_2.into(), (&out_1_8).into()];
        let [out_1_2] = tape.segment("decoder 1:2", inputs, |net, _, [out_1_4, skip, out_1_8]| {
            let joined = vec![
                conv_transpose2d(&net.deconv1_4, map(out_1_4))?,
                map(skip),
                conv_transpose2d(&net.deconv_1_8_to_1_2, map(out_1_8))?,
            ];
            let x = conv2d(&net.conv1_2, Tensor::cat(joined, 1), Relu)?;
            Ok([flat(conv2d(&net.conv_out_scale_1_2, x, Identity)?)])
        })?;
        let inputs = [(&out_1_2).into(), skip_1_1.into(), (&out_1_4).into(), (&out_1_8).into()];
        let [out_1_1] = tape.segment("decoder 1:1", inputs, |net, _, [out_1_2, skip, out_1_4, out_1_8]| {
            let joined = vec![
                conv_transpose2d(&net.deconv1_2, map(out_1_2))?,
                map(skip),
                conv_transpose2d(&net.deconv_1_4_to_1_1, map(out_1_4))?,
                conv_transpose2d(&net.deconv_1_8_to_1_1, map(out_1_8))?,
            ];
            Ok([flat(conv2d(&net.conv1_1, Tensor::cat(joined, 1), Relu)?)])
        })?;

        let mut heads = Vec::new();
        if tape.network().seg_head_1_2.is_some() {
            heads.push(SegmentationHead::run(tape, "1:2", |net| coarse(net.seg_head_1_2.as_ref()), out_1_2)?);
            heads.push(SegmentationHead::run(tape, "1:4", |net| coarse(net.seg_head_1_4.as_ref()), out_1_4)?);
            heads.push(SegmentationHead::run(tape, "1:8", |net| coarse(net.seg_head_1_8.as_ref()), out_1_8)?);
        }
        // Largest last: its backward pass is the first.
        heads.insert(0, SegmentationHead::run(tape, "1:1", |net| &net.seg_head_1_1, out_1_1)?);
        Ok(heads)
    }

    /// Sets the last biases, so that an untrained network predicts these logits where its features are zero.
    pub fn set_class_bias(&mut self, logits: &[f32]) {
        let coarse = [&mut self.seg_head_1_2, &mut self.seg_head_1_4, &mut self.seg_head_1_8];
        for head in std::iter::once(&mut self.seg_head_1_1).chain(coarse.into_iter().flatten()) {
            set_bias(&mut head.conv_classes.bias, logits);
        }
    }

    pub fn scales(&self) -> &'static [usize] {
        if self.seg_head_1_2.is_some() { &[1, 2, 4, 8] } else { &[1] }
    }
}

/// From one volume to logits: branches of dilated convolutions, summed with what went in.
#[derive(Module, Debug)]
pub struct SegmentationHead {
    pub(crate) conv0: Conv3d,
    pub(crate) conv1: Vec<Conv3d>,
    pub(crate) bn1: Vec<BatchNorm>,
    pub(crate) conv2: Vec<Conv3d>,
    pub(crate) bn2: Vec<BatchNorm>,
    pub(crate) conv_classes: Conv3d,
}

impl SegmentationHead {
    fn new(classes: usize, init: &mut Init) -> Self {
        let dilated = |init: &mut Init| -> Vec<Conv3d> {
            DILATIONS.iter().map(|&d| init.conv3d(HEAD_CHANNELS, HEAD_CHANNELS, d, false)).collect()
        };
        let norms =
            |init: &Init| -> Vec<BatchNorm> { DILATIONS.iter().map(|_| init.batch_norm(HEAD_CHANNELS)).collect() };
        Self {
            conv0: init.conv3d(1, HEAD_CHANNELS, 1, true),
            conv1: dilated(init),
            bn1: norms(init),
            conv2: dilated(init),
            bn2: norms(init),
            conv_classes: init.conv3d(HEAD_CHANNELS, classes, 1, true),
        }
    }

    /// The features before the last layer, for the volume `[B, Z, 1, X, Y]`, and that layer. `find` says which head.
    fn run(
        tape: &mut Tape<'_, LmscNet>,
        scale: &str,
        find: fn(&LmscNet) -> &Self,
        volume: Var,
    ) -> Result<Head<LmscNet>> {
        let [x] = tape.segment(&format!("head {scale} conv0"), [volume.into()], move |net, _, [volume]| {
            Ok([conv3d(&find(net).conv0, map(volume).unsqueeze_dim(1), None, None, Relu)?])
        })?;
        let mut sum = x.clone();
        for (branch, dilation) in DILATIONS.iter().enumerate() {
            let name = format!("head {scale} dilation {dilation}");
            let inputs = [(&x).into(), Input::Addend(sum)];
            [sum] = tape.segment(&name, inputs, move |net, pass, [x, sum]| {
                let head = find(net);
                let inner = conv3d(&head.conv1[branch], x, None, None, Identity)?;
                let norm = norm_before(&head.bn1[branch], &inner, Relu, pass)?;
                Ok([conv3d_norm(&head.conv2[branch], &head.bn2[branch], inner, norm, sum, pass)?])
            })?;
        }
        let classifier = match scale {
            "1:2" => |net: &LmscNet, x, planes| coarse(net.seg_head_1_2.as_ref()).classify(x, planes),
            "1:4" => |net: &LmscNet, x, planes| coarse(net.seg_head_1_4.as_ref()).classify(x, planes),
            "1:8" => |net: &LmscNet, x, planes| coarse(net.seg_head_1_8.as_ref()).classify(x, planes),
            _ => |net: &LmscNet, x, planes| net.seg_head_1_1.classify(x, planes),
        };
        Ok(Head { features: sum, classifier: Classifier { run: classifier, halo: 1, scale: 1 } })
    }

    fn classify(&self, x: Value, planes: Planes) -> Result<Value> {
        let relu = Some(relu_first(&x));
        match planes {
            Planes::All => conv3d(&self.conv_classes, x, relu, None, Identity),
            Planes::Some => conv3d_inside(&self.conv_classes, x, relu),
        }
    }
}

/// A head of the multiscale network.
fn coarse(head: Option<&SegmentationHead>) -> &SegmentationHead {
    head.expect("the multiscale network")
}

/// `[B, C, X, Y]` as a value of a tape.
fn flat(map: Tensor<4>) -> Value {
    map.unsqueeze_dim(2)
}

/// And back.
fn map(value: Value) -> Tensor<4> {
    value.squeeze_dim(2)
}

fn conv_relu_all(convs: &[Conv2d], x: Tensor<4>) -> Result<Tensor<4>> {
    convs.iter().try_fold(x, |x, conv| conv2d(conv, x, Relu))
}
