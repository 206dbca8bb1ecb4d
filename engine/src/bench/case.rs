//! What is measured: one operation of one layer, and what it costs by count.

use std::fmt;

use crate::ops::conv::ConvGeometry;
use crate::ops::gemm::Layout;

/// An operation and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `[batch, M, K]` times `[batch, K, N]`; a transposed operand lies the other way round in memory.
    Gemm {
        batch: usize,
        m: usize,
        n: usize,
        k: usize,
        a: Layout,
        b: Layout,
    },
    /// `planes`: depth 1, for which Burn has an operation of its own.
    Conv {
        geometry: ConvGeometry,
        planes: bool,
    },
    /// The geometry is that of the convolution whose input gradient this is.
    ConvTransposed {
        geometry: ConvGeometry,
        planes: bool,
    },
    /// Over `[batch, channels, length]`, as everything below.
    Relu {
        shape: [usize; 3],
    },
    /// Mean and variance of each channel.
    ChannelMoments {
        shape: [usize; 3],
    },
    /// `relu(x * scale + shift)`, the second half of a batch norm.
    AffineRelu {
        shape: [usize; 3],
    },
    /// With the statistics of the batch, and ReLU.
    BatchNormRelu {
        shape: [usize; 3],
    },
    GroupNormRelu {
        shape: [usize; 3],
        groups: usize,
    },
    /// Rows of `[rows, channels]`, and ReLU.
    LayerNormRelu {
        rows: usize,
        channels: usize,
    },
    /// Windows of this size, beside each other; `[batch, channels, sides]`.
    MaxPool {
        shape: [usize; 5],
        window: [usize; 3],
    },
    /// A classifier and cross-entropy over `[1, channels, voxels]`; beside it the two of them.
    OccupancyHead {
        channels: usize,
        voxels: usize,
        classes: usize,
    },
    /// Linear layer, ReLU and maximum over `per_voxel` points a voxel; beside it each by itself.
    VoxelEncoder {
        points: usize,
        width: usize,
        channels: usize,
        per_voxel: usize,
    },
}

/// Which part of training an operation is timed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Forward,
    InputGradient,
    WeightGradient,
    /// Forward and then backward through autodiff, where the backward pass is no operation of its own.
    Step,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::InputGradient => "input gradient",
            Self::WeightGradient => "weight gradient",
            Self::Step => "forward + backward",
        })
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Network and size of its grid: `lmscnet 64x64x16`.
    pub network: String,
    /// The layer's name in the network.
    pub layer: String,
    pub operation: Operation,
    pub pass: Pass,
    /// Only measured when all are asked for.
    pub extended: bool,
}

impl Case {
    /// `lmscnet 64x64x16 conv1_1 conv2d weight gradient`.
    pub fn name(&self) -> String {
        format!("{} {} {} {}", self.network, self.layer, self.operation.name(), self.pass)
    }
}

impl Operation {
    pub fn name(&self) -> String {
        match self {
            Self::Gemm { a, b, .. } => {
                let letter = |layout: &Layout| if *layout == Layout::Normal { 'n' } else { 't' };
                format!("gemm {}{}", letter(a), letter(b))
            }
            Self::Conv { planes: true, .. } => "conv2d".into(),
            Self::Conv { .. } => "conv3d".into(),
            Self::ConvTransposed { planes: true, .. } => "conv2d transposed".into(),
            Self::ConvTransposed { .. } => "conv3d transposed".into(),
            Self::Relu { .. } => "relu".into(),
            Self::ChannelMoments { .. } => "channel moments".into(),
            Self::AffineRelu { .. } => "affine + relu".into(),
            Self::BatchNormRelu { .. } => "batch norm + relu".into(),
            Self::GroupNormRelu { .. } => "group norm + relu".into(),
            Self::LayerNormRelu { .. } => "layer norm + relu".into(),
            Self::MaxPool { .. } => "max pool".into(),
            Self::OccupancyHead { .. } => "occupancy head".into(),
            Self::VoxelEncoder { .. } => "voxel encoder".into(),
        }
    }

    /// Sizes as text: `1x8x16x64x64, weights 8x8x3x3x3, ...`.
    pub fn shape(&self) -> String {
        let by = |sides: &[usize]| sides.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        match self {
            Self::Gemm { batch, m, n, k, .. } => format!("batch {batch}, m {m}, n {n}, k {k}"),
            Self::Conv { geometry, .. } | Self::ConvTransposed { geometry, .. } => geometry.to_string(),
            Self::Relu { shape }
            | Self::ChannelMoments { shape }
            | Self::AffineRelu { shape }
            | Self::BatchNormRelu { shape } => by(shape),
            Self::GroupNormRelu { shape, groups } => format!("{}, {groups} groups", by(shape)),
            Self::LayerNormRelu { rows, channels } => by(&[*rows, *channels]),
            Self::MaxPool { shape, window } => format!("{}, window {}", by(shape), by(window)),
            Self::OccupancyHead { channels, voxels, classes } => {
                format!("{channels} channels, {voxels} voxels, {classes} classes")
            }
            Self::VoxelEncoder { points, width, channels, per_voxel } => {
                format!("{}, {channels} channels, {per_voxel} points a voxel", by(&[*points, *width]))
            }
        }
    }

    /// Multiplications and additions; a convolution's taps outside the grid count, as is usual. None for what memory
    /// limits rather than arithmetic.
    pub fn flops(&self) -> Option<u64> {
        let product = |sizes: &[usize]| sizes.iter().map(|&n| n as u64).product::<u64>();
        match self {
            Self::Gemm { batch, m, n, k, .. } => Some(2 * product(&[*batch, *m, *n, *k])),
            Self::Conv { geometry: g, .. } | Self::ConvTransposed { geometry: g, .. } => Some(
                2 * product(&[g.batch, g.channels_out, g.channels_in / g.groups])
                    * product(&g.kernel)
                    * product(&g.sides_out),
            ),
            Self::OccupancyHead { channels, voxels, classes } => Some(2 * product(&[*channels, *voxels, *classes])),
            Self::VoxelEncoder { points, width, channels, .. } => Some(2 * product(&[*points, *width, *channels])),
            _ => None,
        }
    }

    /// Least bytes that move: every tensor that a pass must read or write, once, at `value_bytes` a value. Vectors of one
    /// value a channel and masks are left out.
    pub fn bytes(&self, pass: Pass, value_bytes: usize) -> u64 {
        let len = |shape: &[usize]| shape.iter().product::<usize>();
        let step = pass == Pass::Step;
        let values = match self {
            Self::Gemm { batch, m, n, k, .. } => batch * (m * k + k * n + m * n),
            // Any two of input, weights and output give the third.
            Self::Conv { geometry, .. } | Self::ConvTransposed { geometry, .. } => {
                len(&geometry.input()) + len(&geometry.weight()) + len(&geometry.output())
            }
            // Backward reads a gradient and a bit a value, and writes a gradient.
            Self::Relu { shape } => len(shape) * if step { 4 } else { 2 },
            Self::ChannelMoments { shape } => len(shape) * if step { 3 } else { 1 },
            // Backward reads input and gradient, and writes a gradient.
            Self::AffineRelu { shape } | Self::BatchNormRelu { shape } | Self::GroupNormRelu { shape, .. } => {
                len(shape) * if step { 5 } else { 2 }
            }
            Self::LayerNormRelu { rows, channels } => rows * channels * if step { 5 } else { 2 },
            Self::MaxPool { shape, window } => (len(shape) + len(shape) / len(window)) * if step { 2 } else { 1 },
            // Backward reads the features again and writes their gradient; likewise below.
            Self::OccupancyHead { channels, voxels, .. } => channels * voxels * if step { 3 } else { 1 },
            Self::VoxelEncoder { points, width, channels, per_voxel } => {
                let voxels = points.div_ceil(*per_voxel) * channels;
                points * width * if step { 3 } else { 1 } + voxels * if step { 2 } else { 1 }
            }
        };
        (values * value_bytes) as u64
    }
}
