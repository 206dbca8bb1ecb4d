//! The completion block of SCPNet (Xia, Liu, Li, Zhu, Ma, Li, Hou, Qiao: "SCPNet: Semantic Scene Completion on Point Cloud",
//! CVPR 2023, arXiv 2303.06884): dense convolutions of 3, 5 and 7 voxels side by side over the grid at full resolution.
//!
//! The authors take the voxels that are not zero out of the block's output and go on with a sparse U-Net, which gives the
//! classes. Here a 1x1x1 layer gives them, and the network is the block: the part that nobody trains on a small card. In
//! front of the block they have a PointNet over the points of a voxel; here a 1x1x1 layer widens the voxel's features, and
//! zero stays zero, as there. No layer of the block has a bias or a norm.
//!
//! Nearly all memory is tensors of [`WIDTH`] channels at full resolution. What the authors concatenate is never made: a
//! layer over it is the sum of its parts ([`Part`]). And the network's input has few channels, so that what is made of it in
//! few steps is made again rather than held.

mod completion;
mod residual;

use burn::module::Module;
use burn::nn::conv::Conv3d;

use super::network::{check_classes, check_sides};
use super::weights::{WeightsFile, WeightsInfo};
use crate::Result;
use crate::nn::{Init, Part, conv3d};
use crate::ops::Activation::{Identity, Relu};
use crate::tape::{Classifier, Head, Input, Planes, Tape, Value, Var};

use completion::Completion;
use residual::Residual;

/// The authors' number of channels.
pub const WIDTH: usize = 32;

/// What shape of the block to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScpNetConfig {
    /// Voxels along x, y, z. The weights do not depend on them.
    pub counts: [usize; 3],
    /// Features a voxel, the first of them occupancy.
    pub channels: usize,
    /// Classes, free space included.
    pub classes: usize,
    /// Channels of the block; [`WIDTH`] in the paper.
    pub width: usize,
}

impl ScpNetConfig {
    /// # Errors
    /// [`crate::Error::Usage`] for a grid without voxels, for no channel and for fewer than two classes.
    pub fn init(&self, init: &mut Init) -> Result<ScpNet> {
        check_sides(self.counts, 1, "a grid has voxels")?;
        check_classes(self.channels, self.classes)?;
        let width = self.width;
        let mut layer = |tensors: usize, kernel: usize| init.conv3d_bare(tensors * width, width, kernel);
        let (a_conv1, a_conv2, a_conv3, a_conv4) = (layer(1, 3), layer(1, 3), layer(1, 5), layer(1, 7));
        let (a_conv5, a_conv6, a_conv7) = (layer(3, 3), layer(3, 5), layer(3, 7));
        let (ch_conv1, res_1, res_2, res_3) = (layer(7, 1), layer(1, 3), layer(1, 5), layer(1, 7));
        Ok(ScpNet {
            embed: init.conv3d_bare(self.channels, width, 1),
            a_conv1,
            a_conv2,
            a_conv3,
            a_conv4,
            a_conv5,
            a_conv6,
            a_conv7,
            ch_conv1,
            res_1,
            res_2,
            res_3,
            conv_classes: init.conv3d_strided(width, self.classes, 1, 1),
        })
    }
}

/// The network; fields carry the names of the authors' code (github.com/SCPNet/Codes-for-SCPNet), but for `embed` and
/// `conv_classes`, which stand for what the authors have before and after the block.
#[derive(Module, Debug)]
pub struct ScpNet {
    embed: Conv3d,
    a_conv1: Conv3d,
    a_conv2: Conv3d,
    a_conv3: Conv3d,
    a_conv4: Conv3d,
    a_conv5: Conv3d,
    a_conv6: Conv3d,
    a_conv7: Conv3d,
    ch_conv1: Conv3d,
    res_1: Conv3d,
    res_2: Conv3d,
    res_3: Conv3d,
    conv_classes: Conv3d,
}

impl ScpNet {
    /// Beginnings of parameter names here and in the authors' code: their layers are sequences with the ReLU.
    pub(super) const ORIGINAL_NAMES: [(&str, &str); 11] = [
        ("a_conv1.", "a_conv1.0."),
        ("a_conv2.", "a_conv2.0."),
        ("a_conv3.", "a_conv3.0."),
        ("a_conv4.", "a_conv4.0."),
        ("a_conv5.", "a_conv5.0."),
        ("a_conv6.", "a_conv6.0."),
        ("a_conv7.", "a_conv7.0."),
        ("ch_conv1.", "ch_conv1.0."),
        ("res_1.", "res_1.0."),
        ("res_2.", "res_2.0."),
        ("res_3.", "res_3.0."),
    ];

    /// Whether a file holds this network. The authors' own files hold their sparse U-Net too and lack its last layer.
    pub(super) fn recognise(file: &WeightsFile) -> Result<Option<WeightsInfo>> {
        let [first, class_bias] = ["embed.weight", "conv_classes.bias"];
        let Some(tensors) = file.network(&[first, "ch_conv1.0.weight", class_bias])? else { return Ok(None) };
        let shape = |name: &str| tensors.get(name).map(|tensor| tensor.shape.to_vec()).unwrap_or_default();
        let (&[_, channels, ..], &[classes]) = (&*shape(first), &*shape(class_bias)) else { return Ok(None) };
        Ok(Some(WeightsInfo { network: "scpnet-dense", channels, height: None, classes }))
    }

    /// The one head for features `[B, channels, Z, X, Y]`.
    ///
    /// # Errors
    /// [`crate::Error::Usage`] when the features do not fit the network, [`crate::Error::TooLarge`] when a tensor does not fit
    /// on the device.
    pub fn run(tape: &mut Tape<'_, Self>, features: Var) -> Result<Vec<Head<Self>>> {
        let paths = tape.segment_by_hand("paths", [(&features).into()], Completion)?;
        let features = tape.segment_by_hand("residual", [features.into(), Input::Addend(paths)], Residual)?;
        let run = |net: &Self, x: Value, _: Planes| conv3d(&net.conv_classes, x, None, None, Identity);
        Ok(vec![Head { features, classifier: Classifier { run, halo: 0, scale: 1 } }])
    }

    /// Sets the last biases, so that an untrained network predicts these logits where its features are zero.
    pub fn set_class_bias(&mut self, logits: &[f32]) {
        super::network::set_bias(&mut self.conv_classes.bias, logits);
    }

    /// Channels of the block.
    fn width(&self) -> usize {
        self.embed.weight.dims()[0]
    }

    /// What goes into the block, `[B, width, Z, X, Y]`.
    fn embedded(&self, features: Value) -> Result<Value> {
        Part::whole(&self.embed).forward(features, None, Relu)
    }
}
