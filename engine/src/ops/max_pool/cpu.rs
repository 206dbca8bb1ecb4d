//! Max pooling on the CPU: row by row, one place of the window after the other.

use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{Bytes, DType};
use rayon::prelude::*;

use super::{MAX_TAPS, MaxPoolOps, Pool};
use crate::ops::element::{Element, tensor, values, with_element};

/// Values of one task.
const TASK: usize = 16_384;

impl MaxPoolOps for Flex {
    fn max_pool(x: FloatTensor<Self>, pool: Pool) -> (FloatTensor<Self>, IntTensor<Self>) {
        let [batch, channels, ..]: [usize; 5] = x.shape().dims();
        let [d, h, w] = pool.sides_out;
        let mut taps = vec![0; batch * channels * pool.voxels_out()];
        let y = with_element!(x.dtype(), {
            let y = max_pool_cpu(values::<T>(&x.to_contiguous()), &mut taps, &pool);
            tensor(y, [batch, channels, d, h, w])
        });
        let shape = [taps.len()];
        (y, FlexTensor::new(Bytes::from_elems(taps), Layout::contiguous(shape.into()), DType::U8))
    }

    fn max_pool_backward(gradient: FloatTensor<Self>, taps: IntTensor<Self>, pool: Pool) -> FloatTensor<Self> {
        let [batch, channels, ..]: [usize; 5] = gradient.shape().dims();
        let [d, h, w] = pool.sides_in;
        with_element!(gradient.dtype(), {
            let out = max_pool_backward_cpu(values::<T>(&gradient.to_contiguous()), taps.storage(), &pool);
            tensor(out, [batch, channels, d, h, w])
        })
    }
}

/// Where each window begins along an axis, negative in the padding.
fn begin(pool: &Pool, axis: usize, out: usize) -> isize {
    (out * pool.stride[axis]) as isize - pool.padding[axis] as isize
}

/// Places of a window along an axis that lie inside the grid.
fn inside(pool: &Pool, axis: usize, out: usize) -> std::ops::Range<usize> {
    let begin = begin(pool, axis, out);
    let end = (pool.sides_in[axis] as isize - begin).clamp(0, pool.window[axis] as isize);
    (-begin).max(0) as usize..end as usize
}

/// What a thread works with: the row's largest values, their places, an input row in f32.
#[derive(Default, Clone)]
struct Row {
    best: Vec<f32>,
    taps: Vec<u32>,
    input: Vec<f32>,
}

fn max_pool_cpu<T: Element>(x: &[T], taps: &mut [u8], pool: &Pool) -> Vec<T> {
    let [_, height, width] = pool.sides_in;
    let [depth_out, height_out, width_out] = pool.sides_out;
    let [_, window_height, window_width] = pool.window;
    let mut y = vec![T::default(); taps.len()];
    // The first place inside, for windows that hold nothing above minus infinity.
    let first_along: Vec<u32> = (0..width_out).map(|out| inside(pool, 2, out).start as u32).collect();
    let new_row = || Row { best: vec![0.0; width_out], taps: vec![0; width_out], input: vec![0.0; width] };
    let rows = y.par_chunks_mut(width_out).zip(taps.par_chunks_mut(width_out)).enumerate();
    rows.with_min_len((TASK / width_out).max(1)).for_each_init(new_row, |row, (place, (y, taps_out))| {
        let (out_h, out_d) = (place % height_out, place / height_out % depth_out);
        let plane = &x[place / (height_out * depth_out) * pool.voxels_in()..][..pool.voxels_in()];
        let (along_d, along_h) = (inside(pool, 0, out_d), inside(pool, 1, out_h));
        let first = ((along_d.start * window_height + along_h.start) * window_width) as u32;
        row.best.fill(f32::NEG_INFINITY);
        row.taps.iter_mut().zip(&first_along).for_each(|(tap, along)| *tap = first + along);
        for tap_d in along_d {
            for tap_h in along_h.clone() {
                let d = (begin(pool, 0, out_d) + tap_d as isize) as usize;
                let h = (begin(pool, 1, out_h) + tap_h as isize) as usize;
                let input = T::widen(&plane[(d * height + h) * width..][..width], &mut row.input);
                let first_tap = ((tap_d * window_height + tap_h) * window_width) as u32;
                match pool.stride[2] {
                    1 => take_row::<1>(&mut row.best, &mut row.taps, input, first_tap, pool),
                    2 => take_row::<2>(&mut row.best, &mut row.taps, input, first_tap, pool),
                    3 => take_row::<3>(&mut row.best, &mut row.taps, input, first_tap, pool),
                    4 => take_row::<4>(&mut row.best, &mut row.taps, input, first_tap, pool),
                    stride => {
                        let strided = |input: &[f32]| input.iter().copied().step_by(stride).collect::<Vec<_>>();
                        for_each_tap(pool, input, |tap, outs, input| {
                            take(&mut row.best[outs.clone()], &mut row.taps[outs], &strided(input), first_tap + tap);
                        });
                    }
                }
            }
        }
        T::store(y, |y| y.copy_from_slice(&row.best));
        taps_out.iter_mut().zip(&row.taps).for_each(|(out, tap)| *out = *tap as u8);
    });
    y
}

/// Calls `f` for each place of the window along a row: the place, the outputs whose windows have it inside the grid, and
/// the input from that of the first of these on.
fn for_each_tap(pool: &Pool, input: &[f32], mut f: impl FnMut(u32, std::ops::Range<usize>, &[f32])) {
    let (stride, padding) = (pool.stride[2], pool.padding[2]);
    for tap in 0..pool.window[2] {
        let first = padding.saturating_sub(tap).div_ceil(stride);
        let begin = first * stride + tap - padding;
        if begin < input.len() {
            let end = (first + (input.len() - begin).div_ceil(stride)).min(pool.sides_out[2]);
            if first < end {
                f(tap as u32, first..end, &input[begin..]);
            }
        }
    }
}

/// One input row, with the stride known to the compiler.
fn take_row<const STRIDE: usize>(best: &mut [f32], taps: &mut [u32], input: &[f32], first_tap: u32, pool: &Pool) {
    for_each_tap(pool, input, |tap, outs, input| {
        let (best, taps) = (&mut best[outs.clone()], &mut taps[outs]);
        let tap = first_tap + tap;
        let (whole, rest) = input.as_chunks::<STRIDE>();
        let count = best.len().min(whole.len());
        for ((best, place), values) in best[..count].iter_mut().zip(&mut taps[..count]).zip(&whole[..count]) {
            take_one(best, place, values[0], tap);
        }
        if let (Some(best), Some(value)) = (best.get_mut(count), rest.first()) {
            take_one(best, &mut taps[count], *value, tap);
        }
    });
}

fn take(best: &mut [f32], taps: &mut [u32], values: &[f32], tap: u32) {
    for ((best, place), value) in best.iter_mut().zip(taps).zip(values) {
        take_one(best, place, *value, tap);
    }
}

#[inline]
fn take_one(best: &mut f32, place: &mut u32, value: f32, tap: u32) {
    let is_larger = value > *best || value.is_nan();
    *best = if is_larger { value } else { *best };
    *place = if is_larger { tap } else { *place };
}

fn max_pool_backward_cpu<T: Element>(gradient: &[T], taps: &[u8], pool: &Pool) -> Vec<T> {
    let [_, height, width] = pool.sides_in;
    let [_, height_out, width_out] = pool.sides_out;
    let [_, window_height, window_width] = pool.window;
    // Steps from where a window begins to each of its places.
    let mut steps = [0; MAX_TAPS];
    for (tap, step) in steps.iter_mut().enumerate().take(pool.window.iter().product()) {
        let (d, h, w) = (tap / (window_height * window_width), tap / window_width % window_height, tap % window_width);
        *step = ((d * height + h) * width + w) as isize;
    }
    let planes = gradient.len() / pool.voxels_out();
    let mut out = vec![T::default(); planes * pool.voxels_in()];
    let gradients = gradient.par_chunks(pool.voxels_out()).zip(taps.par_chunks(pool.voxels_out()));
    let buffer = || vec![0.0; width_out];
    out.par_chunks_mut(pool.voxels_in()).zip(gradients).for_each_init(buffer, |buffer, (out, (gradient, taps))| {
        T::store(out, |out| {
            out.fill(0.0);
            for (row, (gradient, taps)) in gradient.chunks(width_out).zip(taps.chunks(width_out)).enumerate() {
                let (d, h) = (begin(pool, 0, row / height_out), begin(pool, 1, row % height_out));
                let mut first = (d * height as isize + h) * width as isize - pool.padding[2] as isize;
                for (value, tap) in T::widen(gradient, buffer).iter().zip(taps) {
                    out[(first + steps[*tap as usize]) as usize] += value;
                    first += pool.stride[2] as isize;
                }
            }
        });
    });
    out
}
