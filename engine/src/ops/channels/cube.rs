//! Reductions of every channel on a GPU, in two steps: parts by the kernels `channel_*.wgsl`, then `channel_finish.wgsl`.

use burn::backend::Cube;
use burn::backend::ops::FloatTensorOps;
use burn::backend::wgpu::CubeTensor;
use burn::tensor::{DType, FloatDType};

use super::Sizes;
use crate::gpu::shader::{self, ChannelLayout, FinishKind, Shader};
use crate::gpu::{self, Buffer};

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Values that a thread takes one after the other.
const THREAD_VALUES: usize = 64;
/// Partial results of a channel that one thread of `channel_finish.wgsl` takes; of more, 16 threads take some each.
const FEW: usize = 4;
const FINISH_LANES: usize = 16;

/// What partial results become.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Finish {
    /// Sums: one or two a channel.
    Sums(usize),
    /// Mean and variance.
    Moments,
    /// Mean and `1 / sqrt(variance + epsilon)`.
    Inverse { epsilon: f32 },
}

/// How a reduction is cut into parts.
struct Cut {
    layout: ChannelLayout,
    parts: usize,
    /// Values of a part of a channel, or rows of a part of a column.
    part: usize,
    groups: usize,
    partials: usize,
    /// Neighbouring partial results of one channel, and the steps to its next part and to the next channel.
    steps: [usize; 3],
}

impl Cut {
    fn new(sizes: Sizes) -> Self {
        let Sizes { batch, channels, length } = sizes;
        if sizes.by_columns() {
            let columns = channels * length;
            let width = columns.min(THREADS);
            let part = THREAD_VALUES * (THREADS / width);
            let parts = batch.div_ceil(part);
            let groups = parts * columns.div_ceil(width);
            let steps = [length, columns, length];
            return Self { layout: ChannelLayout::Columns, parts, part, groups, partials: parts * columns, steps };
        }
        let values = sizes.values();
        let (layout, lanes) = match values.div_ceil(THREAD_VALUES) {
            ..=4 => (ChannelLayout::TinyRows, 4),
            5..=16 => (ChannelLayout::ShortRows, 16),
            _ => (ChannelLayout::Rows, THREADS),
        };
        let part = lanes * THREAD_VALUES;
        let parts = values.div_ceil(part);
        let groups = (channels * parts).div_ceil(THREADS / lanes);
        Self { layout, parts, part, groups, partials: channels * parts, steps: [1, 1, parts] }
    }
}

/// Bytes of the partial results of a reduction.
pub(super) fn partial_bytes(sizes: Sizes) -> u64 {
    if sizes.values() == 0 || sizes.channels == 0 { 0 } else { Cut::new(sizes).partials as u64 * 16 }
}

/// Reduces every channel: `[1 or 2, channels]` in f32.
///
/// `buffers` are those of `shader` but the last, its partial results; the first is the tensor whose type counts. `params`
/// are those after the layout's own. Without any value the result is 0, and the shader does not run.
pub(crate) fn reduce_cube(
    shader: &'static Shader,
    sizes: Sizes,
    buffers: &[Buffer],
    params: &[u32],
    finish: Finish,
) -> CubeTensor {
    let like = buffers[0].tensor();
    let (results, kind, epsilon) = match finish {
        Finish::Sums(results) => (results, FinishKind::Sums, 0.0),
        Finish::Moments => (2, FinishKind::Moments, 0.0),
        Finish::Inverse { epsilon } => (2, FinishKind::Inverse, epsilon),
    };
    if sizes.values() == 0 || sizes.channels == 0 {
        return Cube::float_zeros([results, sizes.channels].into(), &like.device, FloatDType::F32);
    }
    let cut = Cut::new(sizes);
    let partials = gpu::new_tensor(like, [cut.partials, 4], DType::F32);
    let mut all = buffers.to_vec();
    all.push(Buffer::Write(&partials));
    let mut words = [sizes.batch, sizes.channels, sizes.length, cut.parts, cut.part].map(|word| word as u32).to_vec();
    words.extend(params);
    gpu::launch(shader, cut.layout.permutation(like.dtype), &all, &words, cut.groups as u32);

    let out = gpu::new_tensor(like, [results, sizes.channels], DType::F32);
    let [neighbours, to_part, to_channel] = cut.steps;
    let words = [sizes.channels, cut.parts, neighbours, to_part, to_channel, results].map(|word| word as u32);
    let words = [&words[..], &[epsilon.to_bits()]].concat();
    let are_few = cut.parts * neighbours <= FEW;
    let group_channels = if are_few { THREADS } else { THREADS / FINISH_LANES };
    let groups = sizes.channels.div_ceil(group_channels) as u32;
    let buffers = [Buffer::Read(&partials), Buffer::Write(&out)];
    gpu::launch(&shader::CHANNEL_FINISH, kind.permutation(are_few), &buffers, &words, groups);
    out
}
