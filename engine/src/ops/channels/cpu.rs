//! Visits every channel on the CPU: in blocks of one channel, widened to f32, in parallel.

use rayon::prelude::*;

use super::Sizes;
use crate::ops::element::{BLOCK, Element};

/// Values of one task.
const TASK: usize = 16 * BLOCK;

/// What a block gives, and how that of two blocks becomes one; the default is that of no block.
pub(crate) trait Partial: Copy + Default + Send {
    fn merge(&mut self, next: Self);
}

/// Operations that sum nothing.
impl Partial for () {
    fn merge(&mut self, (): Self) {}
}

impl Partial for [f64; 2] {
    fn merge(&mut self, next: Self) {
        self[0] += next[0];
        self[1] += next[1];
    }
}

/// Count, mean and sum of squared distances from the mean.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moments {
    pub count: f64,
    pub mean: f64,
    pub squares: f64,
}

impl Moments {
    /// Of a block; distances are taken from its own mean, so that no large one drowns the variance.
    pub fn of(block: &[f32]) -> Self {
        if block.is_empty() {
            return Self::default();
        }
        let count = block.len() as f64;
        let [sum, _] = lane_sums([block], |[value]| [value, 0.0]);
        let near = (sum / count) as f32;
        let [sum, squares] = lane_sums([block], |[value]| [value - near, (value - near) * (value - near)]);
        let mean = sum / count;
        Self { count, mean: f64::from(near) + mean, squares: (squares - sum * mean).max(0.0) }
    }

    pub fn variance(self) -> f64 {
        self.squares / self.count
    }
}

/// As Chan, Golub and LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances".
impl Partial for Moments {
    fn merge(&mut self, next: Self) {
        let count = self.count + next.count;
        if count > 0.0 {
            let delta = next.mean - self.mean;
            let share = next.count / count;
            self.squares += next.squares + delta * delta * self.count * share;
            self.mean += delta * share;
            self.count = count;
        }
    }
}

/// Sums of what `of` makes of the values of a block: in 16 lanes of f32, at most 64 values each, which f64 then adds.
#[inline]
pub(crate) fn lane_sums<const IN: usize>(blocks: [&[f32]; IN], of: impl Fn([f32; IN]) -> [f32; 2]) -> [f64; 2] {
    const LANES: usize = 16;
    let len = blocks.first().map_or(0, |block| block.len());
    let mut lanes = [[0f32; LANES]; 2];
    let whole = len / LANES * LANES;
    for begin in (0..whole).step_by(LANES) {
        let rows: [&[f32; LANES]; IN] =
            blocks.map(|block| block[begin..begin + LANES].try_into().expect("as many values as lanes"));
        for lane in 0..LANES {
            let [a, b] = of(rows.map(|row| row[lane]));
            lanes[0][lane] += a;
            lanes[1][lane] += b;
        }
    }
    for place in whole..len {
        let [a, b] = of(blocks.map(|block| block[place]));
        lanes[0][place - whole] += a;
        lanes[1][place - whole] += b;
    }
    lanes.map(|lanes| {
        let mut sums = lanes.map(f64::from);
        for reach in [8, 4, 2, 1] {
            for lane in 0..reach {
                sums[lane] += sums[lane + reach];
            }
        }
        sums[0]
    })
}

/// Calls `block` with blocks of every channel, at most [`BLOCK`] values each: the channel, the values of each input, and
/// where to write those of `out` (empty without). Gives what the blocks of each channel merge to, in order.
pub(crate) fn visit<T: Element, P: Partial, const IN: usize>(
    sizes: Sizes,
    inputs: [&[T]; IN],
    out: Option<&mut [T]>,
    block: impl Fn(usize, [&[f32]; IN], &mut [f32]) -> P + Sync,
) -> Vec<P> {
    let mut merged = vec![P::default(); sizes.channels];
    if sizes.channels == 0 || sizes.values() == 0 {
        return merged;
    }
    if sizes.by_columns() {
        for partials in columns(sizes, inputs, out, block) {
            merged.iter_mut().zip(partials).for_each(|(merged, partial)| merged.merge(partial));
        }
    } else {
        for (channel, partial) in rows(sizes, inputs, out, block) {
            merged[channel].merge(partial);
        }
    }
    merged
}

fn rows<T: Element, P: Partial, const IN: usize>(
    Sizes { batch, channels, length }: Sizes,
    inputs: [&[T]; IN],
    out: Option<&mut [T]>,
    block: impl Fn(usize, [&[f32]; IN], &mut [f32]) -> P + Sync,
) -> Vec<(usize, P)> {
    let mut out = Pieces(out);
    let row_tasks = length.div_ceil(TASK);
    let tasks: Vec<_> = (0..batch * channels * row_tasks)
        .map(|task| {
            let (row, begin) = (task / row_tasks, task % row_tasks * TASK);
            let end = (begin + TASK).min(length);
            (row, row * length + begin..row * length + end, out.take(end - begin))
        })
        .collect();
    let buffers = || [[0.0; BLOCK]; IN];
    let visit = |buffers: &mut [[f32; BLOCK]; IN], (row, range, out): (usize, std::ops::Range<usize>, &mut [T])| {
        let channel = row % channels;
        let mut partial = P::default();
        let mut out = Pieces(Some(out).filter(|out| !out.is_empty()));
        for begin in range.clone().step_by(BLOCK) {
            let len = BLOCK.min(range.end - begin);
            let mut buffers = buffers.iter_mut();
            let values = inputs.map(|input| {
                let buffer = buffers.next().expect("a buffer an input");
                T::widen(&input[begin..begin + len], buffer)
            });
            partial.merge(T::store(out.take(len), |out| block(channel, values, out)));
        }
        (channel, partial)
    };
    tasks.into_par_iter().with_min_len((TASK / length).max(1)).map_init(buffers, visit).collect()
}

/// Some rows of the matrix `[batch, channels * length]` a task, turned so that the values of a channel lie together.
fn columns<T: Element, P: Partial, const IN: usize>(
    Sizes { batch, channels, length }: Sizes,
    inputs: [&[T]; IN],
    out: Option<&mut [T]>,
    block: impl Fn(usize, [&[f32]; IN], &mut [f32]) -> P + Sync,
) -> Vec<Vec<P>> {
    let width = channels * length;
    let rows = (BLOCK / length).min(TASK / width).max(1);
    let mut out = Pieces(out);
    let tasks: Vec<_> = (0..batch)
        .step_by(rows)
        .map(|row| {
            let range = row * width..(row + rows).min(batch) * width;
            (range.clone(), out.take(range.len()))
        })
        .collect();
    let visit = |(range, out): (std::ops::Range<usize>, &mut [T])| {
        let wide = inputs.map(|input| widen_all(&input[range.clone()]));
        let mut wide_out = vec![0.0; out.len()];
        let len = range.len() / channels;
        let mut buffers = [[0.0; BLOCK]; IN];
        let mut buffer_out = [0.0; BLOCK];
        let own_out = if out.is_empty() { &mut [][..] } else { &mut buffer_out[..len] };
        let partials = (0..channels).map(|channel| {
            // Place in the task of each value of the channel.
            let places = (0..len / length).flat_map(|row| {
                let first = row * width + channel * length;
                first..first + length
            });
            for (buffer, wide) in buffers.iter_mut().zip(&wide) {
                buffer.iter_mut().zip(places.clone()).for_each(|(value, place)| *value = wide[place]);
            }
            let partial = block(channel, buffers.each_ref().map(|buffer| &buffer[..len]), own_out);
            own_out.iter().zip(places).for_each(|(value, place)| wide_out[place] = *value);
            partial
        });
        let partials = partials.collect();
        for (out, wide) in out.chunks_mut(BLOCK).zip(wide_out.chunks(BLOCK)) {
            T::store(out, |out| out.copy_from_slice(wide));
        }
        partials
    };
    tasks.into_par_iter().map(visit).collect()
}

fn widen_all<T: Element>(values: &[T]) -> Vec<f32> {
    let mut buffer = [0.0; BLOCK];
    let mut wide = Vec::with_capacity(values.len());
    values.chunks(BLOCK).for_each(|values| wide.extend_from_slice(T::widen(values, &mut buffer)));
    wide
}

/// A slice that is handed out from front to back; without one, empty slices.
struct Pieces<'a, T>(Option<&'a mut [T]>);

impl<'a, T> Pieces<'a, T> {
    fn take(&mut self, len: usize) -> &'a mut [T] {
        let Some(rest) = self.0.take() else { return &mut [] };
        let (piece, rest) = rest.split_at_mut(len);
        self.0 = Some(rest);
        piece
    }
}
