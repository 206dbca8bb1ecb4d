//! Direct convolution on the CPU.
//!
//! The input is copied once with a border of zeros, so that no loop asks where the grid ends. Then each output row is a
//! sum of shifted input rows, a block of it in registers. One task makes one plane of one channel (forward) or the
//! kernel between two channels (weight gradient), and adds in an order that does not depend on the number of threads.

use burn::backend::TensorMetadata;
use rayon::prelude::*;

/// Values of an output row that are summed in registers at once; and of what remains of the row.
const BLOCK: usize = 64;
const SMALL_BLOCK: usize = 16;
/// Partial sums of a dot product.
const LANES: usize = 16;

#[derive(Clone, Copy)]
pub struct Shape {
    batch: usize,
    channels_in: usize,
    channels_out: usize,
    /// Depth of the kernel; its height and width are 3.
    kernel_depth: usize,
    /// Depth, height and width of the grid.
    sides: [usize; 3],
    dilation: usize,
}

impl Shape {
    /// `x`: `[B, in, D, H, W]`; `weight`: `[out, in, k, 3, 3]`.
    pub fn new(x: &impl TensorMetadata, weight: &impl TensorMetadata, dilation: usize) -> Self {
        let [batch, channels_in, d, h, w] = x.shape().dims();
        let [channels_out, _, kernel_depth, _, _] = weight.shape().dims();
        Self { batch, channels_in, channels_out, kernel_depth, sides: [d, h, w], dilation }
    }

    pub fn input(&self) -> [usize; 5] {
        let [d, h, w] = self.sides;
        [self.batch, self.channels_in, d, h, w]
    }

    pub fn output(&self) -> [usize; 5] {
        let [d, h, w] = self.sides;
        [self.batch, self.channels_out, d, h, w]
    }

    pub fn weight(&self) -> [usize; 5] {
        [self.channels_out, self.channels_in, self.kernel_depth, 3, 3]
    }

    fn volume(&self) -> usize {
        self.sides.iter().product()
    }

    fn taps(&self) -> usize {
        self.kernel_depth * 9
    }

    /// The layout of a bordered copy of one sample.
    fn bordered(&self) -> Bordered {
        let [d, h, w] = self.sides;
        let before = [self.kernel_depth / 2 * self.dilation, self.dilation, self.dilation];
        Bordered {
            before,
            sides: [d + 2 * before[0], h + 2 * before[1], w.next_multiple_of(SMALL_BLOCK) + 2 * before[2]],
        }
    }
}

/// A grid with zeros around it.
#[derive(Clone, Copy)]
struct Bordered {
    /// Zeros before the first value along each axis.
    before: [usize; 3],
    sides: [usize; 3],
}

impl Bordered {
    fn volume(&self) -> usize {
        self.sides.iter().product()
    }

    fn row(&self, depth: usize, height: usize) -> usize {
        (depth * self.sides[1] + height) * self.sides[2]
    }

    /// Copies `channels` grids of `sides`.
    fn copy(&self, values: &[f32], sides: [usize; 3]) -> Vec<f32> {
        let [d, h, w] = sides;
        let channels = values.len() / (d * h * w);
        let mut out = vec![0.0; channels * self.volume()];
        out.par_chunks_mut(self.volume()).zip(values.par_chunks(d * h * w)).for_each(|(out, values)| {
            for (i, row) in values.chunks_exact(w).enumerate() {
                let start = self.row(i / h + self.before[0], i % h + self.before[1]) + self.before[2];
                out[start..start + w].copy_from_slice(row);
            }
        });
        out
    }
}

/// `[B, out, D, H, W]`.
pub fn forward(x: &[f32], weight: &[f32], shape: Shape) -> Vec<f32> {
    let [_, h, w] = shape.sides;
    let layout = shape.bordered();
    let mut out = vec![0.0; shape.output().iter().product()];
    if out.is_empty() {
        return out;
    }
    let samples = x.chunks_exact(shape.channels_in * shape.volume());
    for (out, x) in out.chunks_exact_mut(shape.channels_out * shape.volume()).zip(samples) {
        let x = layout.copy(x, shape.sides);
        out.par_chunks_mut(h * w).enumerate().for_each(|(i, plane)| {
            let kernels = shape.channels_in * shape.taps();
            let [channel, depth] = [i / shape.sides[0], i % shape.sides[0]];
            forward_plane(&x, &weight[channel * kernels..(channel + 1) * kernels], plane, depth, shape, layout);
        });
    }
    out
}

/// `[B, in, D, H, W]`: the same convolution with the kernels turned round.
pub fn x_backward(weight: &[f32], gradient: &[f32], shape: Shape) -> Vec<f32> {
    let taps = shape.taps();
    let mut turned = vec![0.0; weight.len()];
    for (i, kernel) in weight.chunks_exact(taps).enumerate() {
        let [out, input] = [i / shape.channels_in, i % shape.channels_in];
        let start = (input * shape.channels_out + out) * taps;
        for (to, from) in turned[start..start + taps].iter_mut().zip(kernel.iter().rev()) {
            *to = *from;
        }
    }
    let shape = Shape { channels_in: shape.channels_out, channels_out: shape.channels_in, ..shape };
    forward(gradient, &turned, shape)
}

/// `[out, in, k, 3, 3]`.
pub fn weight_backward(x: &[f32], gradient: &[f32], shape: Shape) -> Vec<f32> {
    let layout = shape.bordered();
    // Rows of whole lanes.
    let [d, h, w] = shape.sides;
    let rows = Bordered { before: [0; 3], sides: [d, h, w.next_multiple_of(LANES)] };
    let mut out = vec![0.0f32; shape.weight().iter().product()];
    if x.is_empty() {
        return out;
    }
    let samples = x.chunks_exact(shape.channels_in * shape.volume());
    for (x, gradient) in samples.zip(gradient.chunks_exact(shape.channels_out * shape.volume())) {
        let x = layout.copy(x, shape.sides);
        let copy;
        let gradient = if w % LANES == 0 {
            gradient
        } else {
            copy = rows.copy(gradient, shape.sides);
            &copy
        };
        out.par_chunks_mut(shape.taps()).enumerate().for_each(|(i, kernel)| {
            let [to, from] = [i / shape.channels_in, i % shape.channels_in];
            let x = &x[from * layout.volume()..][..layout.volume()];
            let gradient = &gradient[to * rows.volume()..][..rows.volume()];
            weight_kernel(x, gradient, kernel, shape, layout, rows);
        });
    }
    out
}

/// Whether the compiler may always fuse a product and a sum.
const BASE_FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// Calls the function compiled for the processor at hand.
macro_rules! for_this_processor {
    ($plain:ident, $avx2:ident, ($($argument:ident: $type:ty),*)) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $avx2($($argument: $type),*) {
            inner::$plain::<true>($($argument),*);
        }

        fn $plain($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                // SAFETY: the processor has both features the function was compiled for.
                #[allow(unsafe_code)]
                unsafe {
                    return $avx2($($argument),*);
                }
            }
            inner::$plain::<BASE_FMA>($($argument),*);
        }
    };
}

for_this_processor!(forward_plane, forward_plane_avx2, (x: &[f32], kernels: &[f32], plane: &mut [f32], depth: usize, shape: Shape, layout: Bordered));
for_this_processor!(weight_kernel, weight_kernel_avx2, (x: &[f32], gradient: &[f32], kernel: &mut [f32], shape: Shape, layout: Bordered, rows: Bordered));

/// What is compiled once for each kind of processor, and must be inlined there to be.
#[allow(clippy::inline_always)]
mod inner {
    use super::{BLOCK, Bordered, LANES, SMALL_BLOCK, Shape};

    #[inline(always)]
    fn add_product<const FMA: bool>(sum: f32, a: f32, b: f32) -> f32 {
        if FMA { a.mul_add(b, sum) } else { sum + a * b }
    }

    /// One plane `[H, W]` of one output channel; `x` is bordered, `kernels` `[in, k, 3, 3]`.
    #[inline(always)]
    pub fn forward_plane<const FMA: bool>(
        x: &[f32],
        kernels: &[f32],
        plane: &mut [f32],
        depth: usize,
        shape: Shape,
        layout: Bordered,
    ) {
        let w = shape.sides[2];
        for (height, row) in plane.chunks_exact_mut(w).enumerate() {
            let mut start = 0;
            while start < w {
                let base = layout.row(depth, height) + start;
                let left = w - start;
                if left >= BLOCK {
                    let sums = block::<FMA, BLOCK>(x, kernels, base, shape, layout);
                    row[start..start + BLOCK].copy_from_slice(&sums);
                    start += BLOCK;
                } else {
                    let sums = block::<FMA, SMALL_BLOCK>(x, kernels, base, shape, layout);
                    let count = left.min(SMALL_BLOCK);
                    row[start..start + count].copy_from_slice(&sums[..count]);
                    start += count;
                }
            }
        }
    }

    #[inline(always)]
    fn block<const FMA: bool, const N: usize>(
        x: &[f32],
        kernels: &[f32],
        base: usize,
        shape: Shape,
        layout: Bordered,
    ) -> [f32; N] {
        let mut sums = [0.0; N];
        for (channel, kernel) in kernels.chunks_exact(shape.taps()).enumerate() {
            for (i, weights) in kernel.as_chunks::<3>().0.iter().enumerate() {
                let [kd, kh] = [i / 3, i % 3];
                let row = channel * layout.volume() + layout.row(kd * shape.dilation, kh * shape.dilation) + base;
                for (kw, &weight) in weights.iter().enumerate() {
                    let start = row + kw * shape.dilation;
                    let values: &[f32; N] = x[start..start + N].try_into().expect("N values");
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = add_product::<FMA>(*sum, weight, *value);
                    }
                }
            }
        }
        sums
    }

    /// The kernel `[k, 3, 3]` between one input and one output channel: adds the sample's share.
    #[inline(always)]
    pub fn weight_kernel<const FMA: bool>(
        x: &[f32],
        gradient: &[f32],
        kernel: &mut [f32],
        shape: Shape,
        layout: Bordered,
        rows: Bordered,
    ) {
        let [d, h, _] = shape.sides;
        let dilation = shape.dilation;
        for (i, weights) in kernel.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let [kd, kh] = [i / 3, i % 3];
            // Sums of a plane in f32, of the planes in f64: grids have millions of voxels.
            let mut totals = [0.0f64; 3];
            for depth in 0..d {
                let mut sums = [[0.0f32; LANES]; 3];
                for height in 0..h {
                    let gradient = &gradient[rows.row(depth, height)..][..rows.sides[2]];
                    let row = &x[layout.row(depth + kd * dilation, height + kh * dilation)..];
                    dots::<FMA>(gradient, row, dilation, &mut sums);
                }
                for (total, lanes) in totals.iter_mut().zip(sums) {
                    *total += lanes.iter().map(|&lane| f64::from(lane)).sum::<f64>();
                }
            }
            for (weight, total) in weights.iter_mut().zip(totals) {
                *weight += total as f32;
            }
        }
    }

    /// Adds the dot products of a gradient row with an input row at three shifts.
    #[inline(always)]
    fn dots<const FMA: bool>(gradient: &[f32], row: &[f32], dilation: usize, sums: &mut [[f32; LANES]; 3]) {
        let n = gradient.len();
        let shifted = |kw: usize| row[kw * dilation..][..n].as_chunks::<LANES>().0;
        let [mut left, mut middle, mut right] = *sums;
        let values = shifted(0).iter().zip(shifted(1)).zip(shifted(2));
        for (gradient, ((l, m), r)) in gradient.as_chunks::<LANES>().0.iter().zip(values) {
            for lane in 0..LANES {
                left[lane] = add_product::<FMA>(left[lane], gradient[lane], l[lane]);
                middle[lane] = add_product::<FMA>(middle[lane], gradient[lane], m[lane]);
                right[lane] = add_product::<FMA>(right[lane], gradient[lane], r[lane]);
            }
        }
        *sums = [left, middle, right];
    }
}
