//! Normalisation on the CPU. Where the values of a channel lie together, they share a scale and a shift; rows of short
//! channels, as those of a layer norm, take theirs from vectors as long as the row.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use rayon::prelude::*;

use super::{Norm, NormOps};
use crate::ops::Activation;
use crate::ops::activation::relu_value;
use crate::ops::channels::{Moments, Partial, Sizes, lane_sums, visit, visit_into};
use crate::ops::element::{BLOCK, Blank, Element, PARALLEL, filled, tensor, values, with_element};

/// Channels shorter than this are taken as parts of their row.
const SHORT: usize = 32;
/// Values of one task of [`short_backward`].
const TASK: usize = 16 * BLOCK;

impl NormOps for Flex {
    fn group_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let [x, gamma, beta] = [x, gamma, beta].map(|tensor| tensor.to_contiguous());
        let weights = Weights { gamma: values(&gamma), beta: values(&beta) };
        let rows = norm.rows().channels;
        let forward = |dtype| {
            with_element!(dtype, {
                let forward = if norm.sizes.length < SHORT { short_forward } else { long_forward };
                let (y, statistics) = forward(values::<T>(&x), &weights, epsilon, &norm);
                (tensor(y, x.shape()), statistics)
            })
        };
        let (y, statistics) = forward(x.dtype());
        let means = statistics.iter().map(|[mean, _]| *mean);
        let statistics: Vec<f32> = means.chain(statistics.iter().map(|[_, inverse]| *inverse)).collect();
        (y, tensor(statistics, [2, rows]))
    }

    fn group_norm_backward(
        x: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        norm: Norm,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, statistics, gamma, beta, gradient] =
            [x, statistics, gamma, beta, gradient].map(|tensor| tensor.to_contiguous());
        let weights = Weights { gamma: values(&gamma), beta: values(&beta) };
        let (out, sums) = with_element!(x.dtype(), {
            let inputs = [values::<T>(&x), values::<T>(&gradient)];
            let statistics = Statistics::of(values(&statistics));
            let backward = if norm.sizes.length < SHORT { short_backward } else { long_backward };
            let (out, sums) = backward(inputs, statistics, &weights, &norm);
            (tensor(out, x.shape()), sums)
        });
        let vector = |row: usize| tensor(sums.iter().map(|sums| sums[row] as f32).collect(), [sums.len()]);
        (out, vector(0), vector(1))
    }
}

/// Gamma and beta, one a channel or, expanded, one a value of a sample.
struct Weights<'a> {
    gamma: &'a [f32],
    beta: &'a [f32],
}

impl Weights<'_> {
    /// One a value of a sample.
    fn expanded(&self, length: usize) -> [Vec<f32>; 2] {
        [self.gamma, self.beta]
            .map(|weights| weights.iter().flat_map(|weight| std::iter::repeat_n(*weight, length)).collect())
    }
}

/// Mean and inverse deviation of each row.
#[derive(Clone, Copy)]
struct Statistics<'a> {
    means: &'a [f32],
    inverses: &'a [f32],
}

impl<'a> Statistics<'a> {
    fn of(both: &'a [f32]) -> Self {
        let (means, inverses) = both.split_at(both.len() / 2);
        Self { means, inverses }
    }
}

/// Mean and inverse deviation.
#[inline]
fn statistics_of(moments: Moments, epsilon: f32) -> [f32; 2] {
    [moments.mean as f32, (1.0 / (moments.variance() + f64::from(epsilon)).sqrt()) as f32]
}

/// The result, and mean and inverse deviation of each row.
type Normalised<T> = (Vec<T>, Vec<[f32; 2]>);

fn long_forward<T: Element>(x: &[T], weights: &Weights, epsilon: f32, norm: &Norm) -> Normalised<T> {
    let Sizes { batch, channels, length } = norm.sizes;
    let moments: Vec<Moments> = visit(norm.rows(), [x], |_, [block]| Moments::of(block));
    let statistics: Vec<_> = moments.into_iter().map(|moments| statistics_of(moments, epsilon)).collect();
    let sizes = Sizes { batch: 1, channels: batch * channels, length };
    let (y, _) = visit_into(sizes, [x], |channel, [x], out| {
        let [mean, inverse] = statistics[channel / norm.group_channels()];
        let (gamma, beta) = (weights.gamma[channel % channels], weights.beta[channel % channels]);
        out.iter_mut().zip(x).for_each(|(out, x)| *out = (x - mean) * inverse * gamma + beta);
        activate(out, norm);
    });
    (y, statistics)
}

/// Some rows a task: each is read twice, while it is in the cache.
fn short_forward<T: Element>(x: &[T], weights: &Weights, epsilon: f32, norm: &Norm) -> Normalised<T> {
    let row_values = norm.rows().length;
    let [gamma, beta] = weights.expanded(norm.sizes.length);
    let mut statistics = vec![[0.0; 2]; norm.rows().channels];
    let task_rows = (TASK / row_values).max(1);
    let task = |first: usize, x: &[T], y: Blank<T>, statistics: &mut [[f32; 2]]| {
        let (y, mut buffer) = (y.cleared(), vec![0.0; row_values]);
        let rows = y.chunks_mut(row_values).zip(x.chunks(row_values)).zip(statistics);
        for (row, ((y, x), statistics)) in (first..).zip(rows) {
            let x = T::widen(x, &mut buffer);
            let mut blocks = x.chunks(BLOCK);
            let mut moments = blocks.next().map_or(Moments::default(), Moments::of);
            blocks.for_each(|block| moments.merge(Moments::of(block)));
            *statistics = statistics_of(moments, epsilon);
            let [mean, inverse] = *statistics;
            let own = row % norm.groups * row_values..(row % norm.groups + 1) * row_values;
            T::store(y, |y| {
                for ((y, x), (gamma, beta)) in y.iter_mut().zip(x).zip(gamma[own.clone()].iter().zip(&beta[own])) {
                    *y = (x - mean) * inverse * gamma + beta;
                }
                activate(y, norm);
            });
        }
    };
    let (y, ()) = filled(x.len(), |y| {
        if x.len() < PARALLEL {
            return task(0, x, y, &mut statistics);
        }
        let tasks = x.par_chunks(task_rows * row_values).zip(y.pieces(task_rows * row_values));
        tasks.zip(statistics.par_chunks_mut(task_rows)).enumerate().for_each(|(place, ((x, y), statistics))| {
            task(place * task_rows, x, y, statistics);
        });
    });
    (y, statistics)
}

#[inline]
fn activate(y: &mut [f32], norm: &Norm) {
    if norm.activation == Activation::Relu {
        for y in y.iter_mut() {
            *y = relu_value(*y);
        }
    }
}

/// Gradient by `x`, and sums by gamma and beta of every channel.
type Gradients<T> = (Vec<T>, Vec<[f64; 2]>);

fn long_backward<T: Element>(
    inputs: [&[T]; 2],
    statistics: Statistics,
    weights: &Weights,
    norm: &Norm,
) -> Gradients<T> {
    let Sizes { batch, channels, length } = norm.sizes;
    let sizes = Sizes { batch: 1, channels: batch * channels, length };
    let is_relu = norm.activation == Activation::Relu;
    let constants = |channel: usize| {
        let row = channel / norm.group_channels();
        let weights = (weights.gamma[channel % channels], weights.beta[channel % channels]);
        (statistics.means[row], statistics.inverses[row], weights.0, weights.1)
    };
    // Of every channel of every sample: sums of gradient * normal and of the gradient.
    let sums: Vec<[f64; 2]> = visit(sizes, inputs, |channel, blocks| {
        let (mean, inverse, gamma, beta) = constants(channel);
        lane_sums(blocks, |[x, gradient]| {
            let normal = (x - mean) * inverse;
            let passed = if is_relu && normal * gamma + beta <= 0.0 { 0.0 } else { gradient };
            [passed * normal, passed]
        })
    });
    let row_values = norm.rows().length as f64;
    let row_means: Vec<[f32; 2]> = (0..norm.rows().channels)
        .map(|row| {
            let own = row * norm.group_channels()..(row + 1) * norm.group_channels();
            let terms = own.map(|channel| {
                let gamma = f64::from(weights.gamma[channel % channels]);
                sums[channel].map(|sum| sum * gamma)
            });
            terms.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]).map(|sum| (sum / row_values) as f32)
        })
        .collect();
    let (out, _) = visit_into(sizes, inputs, |channel, [x, gradient], out| {
        let (mean, inverse, gamma, beta) = constants(channel);
        let [along_normal, constant] = row_means[channel / norm.group_channels()];
        for ((out, x), &gradient) in out.iter_mut().zip(x).zip(gradient) {
            let normal = (x - mean) * inverse;
            let passed = if is_relu && normal * gamma + beta <= 0.0 { 0.0 } else { gradient };
            let slope = passed * gamma;
            *out = (slope - constant - normal * along_normal) * inverse;
        }
    });
    let mut by_weights = vec![[0.0; 2]; channels];
    for (channel, [by_gamma, by_beta]) in sums.into_iter().enumerate() {
        let own = &mut by_weights[channel % channels];
        *own = [own[0] + by_gamma, own[1] + by_beta];
    }
    (out, by_weights)
}

/// Some samples a task: a row is read twice, while it is in the cache.
fn short_backward<T: Element>(
    [x, gradient]: [&[T]; 2],
    statistics: Statistics,
    weights: &Weights,
    norm: &Norm,
) -> Gradients<T> {
    let Sizes { channels, length, .. } = norm.sizes;
    let (sample_values, row_values) = (channels * length, norm.rows().length);
    let [gamma, beta] = weights.expanded(length);
    let is_relu = norm.activation == Activation::Relu;
    let task_samples = (TASK / sample_values).max(1);
    let visit = |(task, out): (usize, Blank<T>)| {
        let out = out.cleared();
        let mut by_weights = [vec![0f64; sample_values], vec![0f64; sample_values]];
        let mut buffers = [(); 4].map(|()| vec![0f32; row_values]);
        for (place, out) in out.chunks_mut(row_values).enumerate() {
            let row = task * task_samples * norm.groups + place;
            let range = row * row_values..(row + 1) * row_values;
            let own = row % norm.groups * row_values..(row % norm.groups + 1) * row_values;
            let (mean, inverse) = (statistics.means[row], statistics.inverses[row]);
            let [x_buffer, gradient_buffer, normals, slopes] = &mut buffers;
            let x = T::widen(&x[range.clone()], x_buffer);
            let gradient = T::widen(&gradient[range], gradient_buffer);
            let weights = gamma[own.clone()].iter().zip(&beta[own.clone()]);
            for ((normal, slope), ((x, &gradient), (gamma, beta))) in
                normals.iter_mut().zip(slopes.iter_mut()).zip(x.iter().zip(gradient).zip(weights))
            {
                *normal = (x - mean) * inverse;
                // Before gamma, for the sums by gamma and beta.
                *slope = if is_relu && *normal * gamma + beta <= 0.0 { 0.0 } else { gradient };
            }
            for (sums, terms) in by_weights.iter_mut().zip([Some(&*normals), None]) {
                let sums = sums[own.clone()].iter_mut().zip(&*slopes);
                match terms {
                    Some(normals) => {
                        sums.zip(normals).for_each(|((sum, slope), normal)| *sum += f64::from(slope * normal));
                    }
                    None => sums.for_each(|(sum, slope)| *sum += f64::from(*slope)),
                }
            }
            slopes.iter_mut().zip(&gamma[own]).for_each(|(slope, gamma)| *slope *= gamma);
            let blocks = normals.chunks(BLOCK).zip(slopes.chunks(BLOCK));
            let sums = blocks.map(|(normals, slopes)| lane_sums([normals, slopes], |[n, s]| [s * n, s]));
            let [along_normal, constant] =
                sums.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]).map(|sum| (sum / row_values as f64) as f32);
            T::store(out, |out| {
                for (out, (normal, slope)) in out.iter_mut().zip(normals.iter().zip(&*slopes)) {
                    *out = (slope - constant - normal * along_normal) * inverse;
                }
            });
        }
        by_weights
    };
    let (out, parts): (_, Vec<_>) =
        filled(x.len(), |out| out.pieces(task_samples * sample_values).enumerate().map(visit).collect());
    let mut sums = vec![[0.0; 2]; channels];
    for [by_gamma, by_beta] in parts {
        for (place, terms) in by_gamma.into_iter().zip(by_beta).enumerate() {
            let own = &mut sums[place / length];
            *own = [own[0] + terms.0, own[1] + terms.1];
        }
    }
    (out, sums)
}
