//! Shaders of the operations that compute in their backward pass what others keep.

use burn::tensor::DType;

use super::{F16, F32, Permutation, Shader};

const HEADS: &[Permutation] = &[
    Permutation::new("8 classes f32", &[("quads", "2"), ("elem", "f32"), ("enable", "")]),
    Permutation::new("8 classes f16", &[("quads", "2"), ("elem", "f16"), ("enable", "enable f16;")]),
    Permutation::new("20 classes f32", &[("quads", "5"), ("elem", "f32"), ("enable", "")]),
    Permutation::new("20 classes f16", &[("quads", "5"), ("elem", "f16"), ("enable", "enable f16;")]),
    Permutation::new("32 classes f32", &[("quads", "8"), ("elem", "f32"), ("enable", "")]),
    Permutation::new("32 classes f16", &[("quads", "8"), ("elem", "f16"), ("enable", "enable f16;")]),
];

/// Classes of one pass of each pair of [`HEADS`].
const HEAD_CLASSES: [usize; 3] = [8, 20, 32];

/// The smallest pass that takes all classes, else the largest.
fn head_place(classes: usize) -> usize {
    HEAD_CLASSES.iter().position(|pass| classes <= *pass).unwrap_or(HEAD_CLASSES.len() - 1)
}

/// Classes that a kernel of [`crate::ops::occupancy_head`] takes in one pass where there are so many.
pub fn head_classes(classes: usize) -> usize {
    HEAD_CLASSES[head_place(classes)]
}

/// The permutation for so many classes and features that are f32 or f16.
pub fn head_permutation(classes: usize, dtype: DType) -> &'static Permutation {
    &HEADS[2 * head_place(classes) + usize::from(dtype == DType::F16)]
}

/// Shaders of [`crate::ops::occupancy_head`]. Their launches say how many groups one dispatch may have.
pub const OCCUPANCY_HEAD: Shader = Shader {
    name: "occupancy_head",
    text: include_str!("../../../../shaders/occupancy_head.wgsl"),
    permutations: HEADS,
    workgroup_size: 256,
    buffers: 4,
    max_groups: 65_535,
};

pub const OCCUPANCY_HEAD_GRADIENT: Shader = Shader {
    name: "occupancy_head_gradient",
    text: include_str!("../../../../shaders/occupancy_head_gradient.wgsl"),
    permutations: HEADS,
    workgroup_size: 64,
    buffers: 6,
    max_groups: 65_535,
};

/// What [`VOXEL_ENCODER`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderResult {
    /// The largest values.
    Values,
    /// The points that have them.
    Winners,
}

const ENCODERS: &[Permutation] = &[
    Permutation::new("values f32", &[("result", "values"), ("elem", "f32"), ("enable", "")]),
    Permutation::new("values f16", &[("result", "values"), ("elem", "f16"), ("enable", "enable f16;")]),
    Permutation::new("winners f32", &[("result", "winners"), ("elem", "f32"), ("enable", "")]),
    Permutation::new("winners f16", &[("result", "winners"), ("elem", "f16"), ("enable", "enable f16;")]),
];

impl EncoderResult {
    /// The permutation for features that are f32 or f16.
    pub fn permutation(self, dtype: DType) -> &'static Permutation {
        &ENCODERS[2 * self as usize + usize::from(dtype == DType::F16)]
    }
}

/// A shader of [`crate::ops::voxel_encoder`], whose launches say how many groups one dispatch may have.
const fn encoder(
    name: &'static str,
    text: &'static str,
    permutations: &'static [Permutation],
    buffers: usize,
) -> Shader {
    Shader { name, text, permutations, workgroup_size: 256, buffers, max_groups: 65_535 }
}

pub const VOXEL_ENCODER: Shader =
    encoder("voxel_encoder", include_str!("../../../../shaders/voxel_encoder.wgsl"), ENCODERS, 5);
pub const VOXEL_ENCODER_FEATURES: Shader =
    encoder("voxel_encoder_features", include_str!("../../../../shaders/voxel_encoder_features.wgsl"), &[F32, F16], 6);
pub const VOXEL_ENCODER_WEIGHTS: Shader =
    encoder("voxel_encoder_weights", include_str!("../../../../shaders/voxel_encoder_weights.wgsl"), &[F32, F16], 4);
