//! Visits every channel on the CPU: in blocks of one channel, widened to f32, in parallel.

use std::ops::Range;

use burn::backend::flex::FlexTensor;
use rayon::prelude::*;

use super::Sizes;
use crate::ops::element::{BLOCK, Blank, Element, PARALLEL, contiguous, filled, tensor, values};

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

impl<const OUT: usize> Partial for [f64; OUT]
where
    Self: Default,
{
    #[inline]
    fn merge(&mut self, next: Self) {
        self.iter_mut().zip(next).for_each(|(sum, next)| *sum += next);
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
    #[inline]
    pub fn of(block: &[f32]) -> Self {
        if block.is_empty() {
            return Self::default();
        }
        let count = block.len() as f64;
        let [sum] = lane_sums([block], |[value]| [value]);
        let near = (sum / count) as f32;
        let [sum, squares] = lane_sums([block], |[value]| [value - near, (value - near) * (value - near)]);
        let mean = sum / count;
        Self { count, mean: f64::from(near) + mean, squares: (squares - sum * mean).max(0.0) }
    }

    #[inline]
    pub fn variance(self) -> f64 {
        self.squares / self.count
    }
}

/// As Chan, Golub and LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances".
impl Partial for Moments {
    #[inline]
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
///
/// Without `map` of arrays where it runs often: that is not inlined in every build, and keeps the loop from vectors.
#[inline]
pub(crate) fn lane_sums<const IN: usize, const OUT: usize>(
    blocks: [&[f32]; IN],
    of: impl Fn([f32; IN]) -> [f32; OUT],
) -> [f64; OUT] {
    const LANES: usize = 16;
    /// Lanes of a pass over the block: few enough for registers.
    const PASS: usize = 8;
    let len = blocks.first().map_or(0, |block| block.len());
    let whole = len / LANES * LANES;
    let mut lanes = [[0f32; LANES]; OUT];
    for first in (0..LANES).step_by(PASS) {
        let mut own = [[0f32; PASS]; OUT];
        for begin in (first..whole).step_by(LANES) {
            let mut rows = [&[0f32; PASS]; IN];
            for (row, block) in rows.iter_mut().zip(&blocks) {
                *row = block[begin..begin + PASS].first_chunk().expect("as many values as lanes");
            }
            for lane in 0..PASS {
                let mut inputs = [0f32; IN];
                for (input, row) in inputs.iter_mut().zip(&rows) {
                    *input = row[lane];
                }
                for (own, term) in own.iter_mut().zip(of(inputs)) {
                    own[lane] += term;
                }
            }
        }
        for (lanes, own) in lanes.iter_mut().zip(&own) {
            lanes[first..first + PASS].copy_from_slice(own);
        }
    }
    for place in whole..len {
        for (lanes, term) in lanes.iter_mut().zip(of(blocks.map(|block| block[place]))) {
            lanes[place - whole] += term;
        }
    }
    let mut sums = [0f64; OUT];
    for (sum, lanes) in sums.iter_mut().zip(&lanes) {
        let mut wide = [0f64; LANES];
        for (wide, lane) in wide.iter_mut().zip(lanes) {
            *wide = f64::from(*lane);
        }
        for reach in [8, 4, 2, 1] {
            for lane in 0..reach {
                wide[lane] += wide[lane + reach];
            }
        }
        *sum = wide[0];
    }
    sums
}

/// Calls `block` with blocks of every channel, at most [`BLOCK`] values each: the channel and the values of each input.
/// Gives what the blocks of each channel merge to, in order.
pub(crate) fn visit<T: Element, P: Partial, const IN: usize>(
    sizes: Sizes,
    inputs: [&[T]; IN],
    block: impl Fn(usize, [&[f32]; IN]) -> P + Sync,
) -> Vec<P> {
    visit_all(sizes, inputs, Target::None, |channel, values, _| block(channel, values))
}

/// Where blocks write.
enum Target<'a, T> {
    None,
    New(Blank<'a, T>),
    /// Over values that they see.
    Over(&'a mut [T]),
    /// As over a copy of these.
    Copy(&'a [T], Blank<'a, T>),
}

impl<T: Element> Target<'_, T> {
    /// The next `len` places.
    fn take(&mut self, len: usize) -> Self {
        match self {
            Self::None => Self::None,
            Self::New(blank) => Self::New(blank.take(len)),
            Self::Over(own) => {
                let (first, rest) = std::mem::take(own).split_at_mut(len);
                *own = rest;
                Self::Over(first)
            }
            Self::Copy(from, blank) => {
                let (first, rest) = from.split_at(len);
                *from = rest;
                Self::Copy(first, blank.take(len))
            }
        }
    }

    fn fill<R>(self, fill: impl FnOnce(&mut [f32]) -> R) -> R {
        match self {
            Self::None => fill(&mut []),
            Self::New(blank) => T::store(blank.cleared(), fill),
            Self::Over(own) => T::change(own, fill),
            Self::Copy(from, blank) => {
                let own = blank.cleared();
                own.copy_from_slice(from);
                T::change(own, fill)
            }
        }
    }
}

/// As [`visit`]; `block` also gets where to write the values of a tensor like the inputs.
pub(crate) fn visit_into<T: Element, P: Partial, const IN: usize>(
    sizes: Sizes,
    inputs: [&[T]; IN],
    block: impl Fn(usize, [&[f32]; IN], &mut [f32]) -> P + Sync,
) -> (Vec<T>, Vec<P>) {
    filled(inputs[0].len(), |out| visit_all(sizes, inputs, Target::New(out), block))
}

/// As [`visit`], over the values of `own`, a tensor like the inputs: `block` also sees and replaces them. In place where
/// nobody else holds the tensor.
pub(crate) fn change<T: Element, P: Partial, const IN: usize>(
    sizes: Sizes,
    own: FlexTensor,
    inputs: [&[T]; IN],
    block: impl Fn(usize, [&[f32]; IN], &mut [f32]) -> P + Sync,
) -> (FlexTensor, Vec<P>) {
    let mut own = contiguous(own);
    let (shape, len) = (own.layout().shape().clone(), sizes.channels * sizes.values());
    if let Some(values) = own.try_storage_mut::<T>().filter(|values| values.len() == len) {
        let merged = visit_all(sizes, inputs, Target::Over(values), block);
        (own, merged)
    } else {
        let from = values::<T>(&own);
        let (changed, merged) = filled(len, |out| visit_all(sizes, inputs, Target::Copy(from, out), block));
        (tensor(changed, shape), merged)
    }
}

fn visit_all<T: Element, P: Partial, const IN: usize>(
    sizes: Sizes,
    inputs: [&[T]; IN],
    out: Target<T>,
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
    mut out: Target<T>,
    block: impl Fn(usize, [&[f32]; IN], &mut [f32]) -> P + Sync,
) -> Vec<(usize, P)> {
    let row_tasks = length.div_ceil(TASK);
    let tasks: Vec<_> = (0..batch * channels * row_tasks)
        .map(|task| {
            let (row, begin) = (task / row_tasks, task % row_tasks * TASK);
            let end = (begin + TASK).min(length);
            (row, row * length + begin..row * length + end, out.take(end - begin))
        })
        .collect();
    let buffers = || [[0.0; BLOCK]; IN];
    let visit = |buffers: &mut [[f32; BLOCK]; IN], (row, range, mut out): (usize, Range<usize>, Target<T>)| {
        let channel = row % channels;
        let mut partial = P::default();
        for begin in range.clone().step_by(BLOCK) {
            let len = BLOCK.min(range.end - begin);
            let mut buffers = buffers.iter_mut();
            let values = inputs.map(|input| {
                let buffer = buffers.next().expect("a buffer an input");
                T::widen(&input[begin..begin + len], buffer)
            });
            partial.merge(out.take(len).fill(|out| block(channel, values, out)));
        }
        (channel, partial)
    };
    if batch * channels * length < PARALLEL {
        let mut buffers = buffers();
        return tasks.into_iter().map(|task| visit(&mut buffers, task)).collect();
    }
    tasks.into_par_iter().with_min_len((TASK / length).max(1)).map_init(buffers, visit).collect()
}

/// Some rows of the matrix `[batch, channels * length]` a task, turned so that the values of a channel lie together.
fn columns<T: Element, P: Partial, const IN: usize>(
    Sizes { batch, channels, length }: Sizes,
    inputs: [&[T]; IN],
    mut out: Target<T>,
    block: impl Fn(usize, [&[f32]; IN], &mut [f32]) -> P + Sync,
) -> Vec<Vec<P>> {
    let width = channels * length;
    let rows = (BLOCK / length).min(TASK / width).max(1);
    let tasks: Vec<_> = (0..batch)
        .step_by(rows)
        .map(|row| {
            let range = row * width..(row + rows).min(batch) * width;
            let out = out.take(range.len());
            (range, out)
        })
        .collect();
    let visit = |(range, mut out): (Range<usize>, Target<T>)| {
        let wide = inputs.map(|input| widen_all(&input[range.clone()]));
        let mut wide_out = match &out {
            Target::None => Vec::new(),
            Target::New(_) => vec![0.0; range.len()],
            Target::Over(own) => widen_all(own),
            Target::Copy(from, _) => widen_all(from),
        };
        let len = range.len() / channels;
        let mut buffers = [[0.0; BLOCK]; IN];
        let mut buffer_out = [0.0; BLOCK];
        let own_out = if wide_out.is_empty() { &mut [][..] } else { &mut buffer_out[..len] };
        let partials = (0..channels).map(|channel| {
            // Place in the task of each value of the channel.
            let places = (0..len / length).flat_map(|row| {
                let first = row * width + channel * length;
                first..first + length
            });
            for (buffer, wide) in buffers.iter_mut().zip(&wide) {
                buffer.iter_mut().zip(places.clone()).for_each(|(value, place)| *value = wide[place]);
            }
            own_out.iter_mut().zip(places.clone()).for_each(|(value, place)| *value = wide_out[place]);
            let partial = block(channel, buffers.each_ref().map(|buffer| &buffer[..len]), own_out);
            own_out.iter().zip(places).for_each(|(value, place)| wide_out[place] = *value);
            partial
        });
        let partials = partials.collect();
        for wide in wide_out.chunks(BLOCK) {
            out.take(wide.len()).fill(|out| out.copy_from_slice(wide));
        }
        partials
    };
    if batch * width < PARALLEL {
        return tasks.into_iter().map(visit).collect();
    }
    tasks.into_par_iter().map(visit).collect()
}

fn widen_all<T: Element>(values: &[T]) -> Vec<f32> {
    let mut buffer = [0.0; BLOCK];
    let mut wide = Vec::with_capacity(values.len());
    values.chunks(BLOCK).for_each(|values| wide.extend_from_slice(T::widen(values, &mut buffer)));
    wide
}
