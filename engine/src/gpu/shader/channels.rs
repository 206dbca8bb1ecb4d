//! Shaders of the operations between convolutions: ReLU, scale and shift, sums and moments of channels, normalisation,
//! pooling.

use burn::tensor::DType;

use super::{F16, F32, Permutation, Shader};

/// How tensors store their values.
const ELEMENTS: &[Permutation] = &[F32, F16];

/// The permutation of a shader for tensors that store f32 or f16.
pub fn element(dtype: DType) -> &'static Permutation {
    &ELEMENTS[usize::from(dtype == DType::F16)]
}

/// How a reduction of every channel is laid out over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelLayout {
    /// A workgroup a part of a channel.
    Rows,
    /// 16 threads a channel.
    ShortRows,
    /// 4 threads a channel.
    TinyRows,
    /// Threads go down the columns of `[batch, channels * length]`.
    Columns,
}

const CHANNELS: &[Permutation] = &[
    Permutation::new("rows f32", &[("elem", "f32"), ("enable", ""), ("layout", "rows"), ("lanes", "256")]),
    Permutation::new("rows f16", &[("elem", "f16"), ("enable", "enable f16;"), ("layout", "rows"), ("lanes", "256")]),
    Permutation::new("short rows f32", &[("elem", "f32"), ("enable", ""), ("layout", "rows"), ("lanes", "16")]),
    Permutation::new(
        "short rows f16",
        &[("elem", "f16"), ("enable", "enable f16;"), ("layout", "rows"), ("lanes", "16")],
    ),
    Permutation::new("tiny rows f32", &[("elem", "f32"), ("enable", ""), ("layout", "rows"), ("lanes", "4")]),
    Permutation::new(
        "tiny rows f16",
        &[("elem", "f16"), ("enable", "enable f16;"), ("layout", "rows"), ("lanes", "4")],
    ),
    Permutation::new("columns f32", &[("elem", "f32"), ("enable", ""), ("layout", "columns")]),
    Permutation::new("columns f16", &[("elem", "f16"), ("enable", "enable f16;"), ("layout", "columns")]),
];

impl ChannelLayout {
    /// The permutation of a channel reduction for tensors that store f32 or f16.
    pub fn permutation(self, dtype: DType) -> &'static Permutation {
        let layout = match self {
            Self::Rows => 0,
            Self::ShortRows => 2,
            Self::TinyRows => 4,
            Self::Columns => 6,
        };
        &CHANNELS[layout + usize::from(dtype == DType::F16)]
    }
}

/// A shader whose threads read and write some values of a few tensors: a workgroup moves at most 200 KiB.
const fn streaming(
    name: &'static str,
    text: &'static str,
    permutations: &'static [Permutation],
    buffers: usize,
) -> Shader {
    Shader { name, text, permutations, workgroup_size: 256, buffers, max_groups: 8_192 }
}

pub const RELU: Shader = streaming("relu", include_str!("../../../../shaders/relu.wgsl"), ELEMENTS, 3);
pub const RELU_ONLY: Shader = streaming("relu_only", include_str!("../../../../shaders/relu_only.wgsl"), ELEMENTS, 2);
pub const RELU_BITS: Shader = streaming("relu_bits", include_str!("../../../../shaders/relu_bits.wgsl"), ELEMENTS, 2);
pub const RELU_BITS_APPLY: Shader =
    streaming("relu_bits_apply", include_str!("../../../../shaders/relu_bits_apply.wgsl"), ELEMENTS, 3);

pub const AFFINE: Shader = streaming("affine", include_str!("../../../../shaders/affine.wgsl"), ELEMENTS, 5);

pub const CHANNEL_SUMS: Shader =
    streaming("channel_sums", include_str!("../../../../shaders/channel_sums.wgsl"), CHANNELS, 2);
pub const CHANNEL_MOMENTS: Shader =
    streaming("channel_moments", include_str!("../../../../shaders/channel_moments.wgsl"), CHANNELS, 2);
pub const CHANNEL_AFFINE_BACKWARD: Shader =
    streaming("channel_affine_backward", include_str!("../../../../shaders/channel_affine_backward.wgsl"), CHANNELS, 6);

pub const CHANNEL_NORM_SUMS: Shader =
    streaming("channel_norm_sums", include_str!("../../../../shaders/channel_norm_sums.wgsl"), CHANNELS, 4);
pub const NORM_BLEND: Shader =
    streaming("norm_blend", include_str!("../../../../shaders/norm_blend.wgsl"), ELEMENTS, 4);

pub const CHANNEL_MOMENTS_BACKWARD: Shader = streaming(
    "channel_moments_backward",
    include_str!("../../../../shaders/channel_moments_backward.wgsl"),
    ELEMENTS,
    4,
);

pub const GROUP_NORM: Shader =
    streaming("group_norm", include_str!("../../../../shaders/group_norm.wgsl"), ELEMENTS, 4);
pub const GROUP_NORM_SUMS: Shader =
    streaming("group_norm_sums", include_str!("../../../../shaders/group_norm_sums.wgsl"), CHANNELS, 5);
pub const GROUP_NORM_BACKWARD: Shader =
    streaming("group_norm_backward", include_str!("../../../../shaders/group_norm_backward.wgsl"), CHANNELS, 7);

/// Shaders of [`crate::ops::max_pool`]; the operation says how many groups one dispatch may have, as windows differ.
pub const MAX_POOL: Shader = pool("max_pool", include_str!("../../../../shaders/max_pool.wgsl"));
pub const MAX_POOL_BACKWARD: Shader =
    pool("max_pool_backward", include_str!("../../../../shaders/max_pool_backward.wgsl"));

const fn pool(name: &'static str, text: &'static str) -> Shader {
    Shader { name, text, permutations: ELEMENTS, workgroup_size: 256, buffers: 3, max_groups: 65_535 }
}

/// What partial results of channels become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishKind {
    Sums,
    Moments,
    Inverse,
}

const FINISHES: &[Permutation] = &[
    Permutation::new("sums", &[("partial", "sums"), ("finish", "sums"), ("lanes", "16")]),
    Permutation::new("sums of few", &[("partial", "sums"), ("finish", "sums"), ("lanes", "1")]),
    Permutation::new("moments", &[("partial", "moments"), ("finish", "moments"), ("lanes", "16")]),
    Permutation::new("moments of few", &[("partial", "moments"), ("finish", "moments"), ("lanes", "1")]),
    Permutation::new("inverse", &[("partial", "moments"), ("finish", "inverse"), ("lanes", "16")]),
    Permutation::new("inverse of few", &[("partial", "moments"), ("finish", "inverse"), ("lanes", "1")]),
];

impl FinishKind {
    /// The permutation of [`CHANNEL_FINISH`] with 16 lanes a channel, or with 1 where its partial results are few.
    pub fn permutation(self, are_few: bool) -> &'static Permutation {
        &FINISHES[2 * self as usize + usize::from(are_few)]
    }
}

pub const CHANNEL_FINISH: Shader = Shader {
    name: "channel_finish",
    text: include_str!("../../../../shaders/channel_finish.wgsl"),
    permutations: FINISHES,
    workgroup_size: 256,
    buffers: 2,
    max_groups: 8_192,
};
