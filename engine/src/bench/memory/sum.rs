//! The bytes of stock autodiff by hand, from shapes.

use serde::{Deserialize, Serialize};

/// Tensors of a step that live at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub what: String,
    /// Whose derivative needs them.
    pub needed_by: String,
    /// As `3 x 8 x 16x128x128`.
    pub shape: String,
    pub bytes: u64,
}

/// What stock LMSCNet-SS holds when most is in use, batch 1 in f32: everything that the forward pass keeps, and in the
/// backward pass of Burn's log-softmax three tensors as large as the logits. One input channel. Vectors of channels, weights
/// and their gradients are left out: they are small.
pub fn stock_sum([x, y, z]: [usize; 3], classes: usize) -> Vec<Kept> {
    let mut rows = Rows { x, y, z, kept: Vec::new() };
    let [one, two, four, eight] = [z, z * 3 / 2, z * 2, z * 5 / 2];
    rows.data("features", "encoder_block1.0", z, 1);
    rows.data("targets and their weights, 4 bytes each", "the loss", 2 * z, 1);
    for (scale, before, width, name) in
        [(1, 0, one, "1"), (2, one, two, "2"), (4, two, four, "3"), (8, four, eight, "4")]
    {
        if before > 0 {
            rows.data("pooled", &format!("encoder_block{name}.0"), before, scale);
            rows.pooling(&format!("pooling before block {name}"), before, scale);
        }
        rows.data("after ReLU", &format!("encoder_block{name}.1"), width, scale);
        rows.bits(&format!("both ReLU of block {name}"), 2 * width, scale);
        if scale == 8 {
            rows.data("after ReLU", "conv_out_scale_1_8", width, scale);
        }
    }
    // Outputs of coarse scales, kept once for all that grow them.
    rows.data("out 1:8", "deconvolutions", z / 8, 8);
    rows.data("joined", "conv1_4", four + z / 8, 4);
    rows.data("after ReLU", "conv_out_scale_1_4", four, 4);
    rows.bits("ReLU of conv1_4", four, 4);
    rows.data("out 1:4", "deconvolutions", z / 4, 4);
    rows.data("joined", "conv1_2", two + z / 4 + z / 8, 2);
    rows.data("after ReLU", "conv_out_scale_1_2", two, 2);
    rows.bits("ReLU of conv1_2", two, 2);
    rows.data("out 1:2", "deconv1_2", z / 2, 2);
    rows.data("joined", "conv1_1", one + z / 2 + z / 4 + z / 8, 1);
    rows.bits("ReLU of conv1_1", one, 1);
    rows.data("volume", "head conv0", z, 1);

    let voxels = 8 * z;
    rows.data("x, after ReLU", "conv1 of 3 branches", voxels, 1);
    rows.data("conv1's outputs", "bn1 of 3 branches", 3 * voxels, 1);
    rows.data("after bn1 and ReLU", "conv2 of 3 branches", 3 * voxels, 1);
    rows.data("conv2's outputs", "bn2 of 3 branches", 3 * voxels, 1);
    rows.data("sum, after ReLU", "conv_classes", voxels, 1);
    rows.bits("ReLU of conv0, branches and sum", 5 * voxels, 1);
    rows.data("sums of exponentials", "logarithm", z, 1);
    rows.data("logits less their maximum", "exponential", classes * z, 1);
    rows.data("gradient of log-softmax", "backward", classes * z, 1);
    rows.data("gradient of the exponentials", "backward", classes * z, 1);
    rows.kept
}

struct Rows {
    x: usize,
    y: usize,
    z: usize,
    kept: Vec<Kept>,
}

impl Rows {
    /// `channels` planes in f32 at 1 / `scale`.
    fn data(&mut self, what: &str, needed_by: &str, channels: usize, scale: usize) {
        self.add(what, needed_by, channels, scale, 32);
    }

    /// One bit a value.
    fn bits(&mut self, needed_by: &str, channels: usize, scale: usize) {
        self.add("bits", needed_by, channels, scale, 1);
    }

    /// One byte an output.
    fn pooling(&mut self, needed_by: &str, channels: usize, scale: usize) {
        self.add("places of maxima", needed_by, channels, scale, 8);
    }

    fn add(&mut self, what: &str, needed_by: &str, channels: usize, scale: usize, bits: usize) {
        let (x, y) = (self.x / scale, self.y / scale);
        let volumes = if channels.is_multiple_of(self.z) && channels > self.z && scale == 1 {
            format!("{} x {}x{x}x{y}", channels / self.z, self.z)
        } else {
            format!("{channels}x{x}x{y}")
        };
        let bytes = (channels * x * y * bits / 8) as u64;
        self.kept.push(Kept { what: what.into(), needed_by: needed_by.into(), shape: volumes, bytes });
    }
}
