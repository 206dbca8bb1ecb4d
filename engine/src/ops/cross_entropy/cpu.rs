//! Cross-entropy on plain slices: the implementation on the CPU and the twin of the kernels.

use rayon::prelude::*;

use crate::ops::element::{BLOCK, Element};

/// What `1 - p` is at least: keeps the derivative of its power finite where `p` is 1.
const LEAST_MISSING: f32 = 1e-8;

/// The softmax of a block of voxels.
struct Softmax {
    /// Exponentials of the logits less the largest of a voxel: one row of voxels a class.
    exp: Vec<f32>,
    /// The label's logit less the largest.
    target: Vec<f32>,
    /// Sum of the exponentials of the other classes.
    others: Vec<f32>,
}

impl Softmax {
    /// `row(class)` gives the logits of the block's voxels.
    fn new<'a, T: Element>(row: impl Fn(usize) -> &'a [T], labels: &[u32], classes: usize) -> Self {
        let n = labels.len();
        let mut largest = vec![f32::NEG_INFINITY; n];
        let mut buffer = [0.0; BLOCK];
        for class in 0..classes {
            for (largest, logit) in largest.iter_mut().zip(T::widen(row(class), &mut buffer)) {
                *largest = largest.max(*logit);
            }
        }
        let (mut exp, mut target, mut others) = (vec![0.0; classes * n], vec![0.0; n], vec![0.0; n]);
        for (class, exp) in exp.chunks_exact_mut(n).enumerate() {
            for (v, (exp, logit)) in exp.iter_mut().zip(T::widen(row(class), &mut buffer)).enumerate() {
                let below = logit - largest[v];
                *exp = below.exp();
                if labels[v] as usize == class {
                    target[v] = below;
                } else {
                    others[v] += *exp;
                }
            }
        }
        Self { exp, target, others }
    }

    /// `-log p` of the label, its `1 - p` and the sum of all exponentials.
    fn of_label(&self, voxel: usize) -> (f32, f32, f32) {
        let (others, target) = (self.others[voxel], self.target[voxel]);
        let sum = others + target.exp();
        // Accurate also where p is nearly 1.
        let surprise = if target == 0.0 { others.ln_1p() } else { sum.ln() - target };
        (surprise, others / sum, sum)
    }
}

/// Weight of a label, 0 when it is none of the classes.
fn weight(class_weights: &[f32], label: u32) -> f32 {
    class_weights.get(label as usize).copied().unwrap_or(0.0)
}

/// The loss of every voxel, `[B, V]`, from logits `[B, C, V]` and labels `[B, V]`.
pub fn loss<T: Element>(logits: &[T], labels: &[u32], class_weights: &[f32], gamma: f32, voxels: usize) -> Vec<f32> {
    let classes = class_weights.len();
    let mut loss = vec![0.0; labels.len()];
    let samples = loss.chunks_mut(voxels.max(1)).zip(labels.chunks(voxels.max(1)));
    for ((loss, labels), logits) in samples.zip(logits.chunks(classes * voxels.max(1))) {
        let blocks = loss.par_chunks_mut(BLOCK).zip(labels.par_chunks(BLOCK)).enumerate();
        blocks.for_each(|(block, (loss, labels))| {
            let softmax =
                Softmax::new(|class| &logits[class * voxels + block * BLOCK..][..labels.len()], labels, classes);
            for (v, loss) in loss.iter_mut().enumerate() {
                let weight = weight(class_weights, labels[v]);
                if weight != 0.0 {
                    let (surprise, missing, _) = softmax.of_label(v);
                    *loss = weight * power(missing, gamma) * surprise;
                }
            }
        });
    }
    loss
}

/// Puts the gradient of the logits in their place, given that of the loss.
pub fn gradient<T: Element>(
    logits: &mut [T],
    labels: &[u32],
    class_weights: &[f32],
    gradient: &[f32],
    gamma: f32,
    voxels: usize,
) {
    let classes = class_weights.len();
    // The rows of every block of voxels, class by class.
    let mut rows: Vec<Vec<&mut [T]>> = Vec::new();
    for sample in logits.chunks_mut(classes * voxels.max(1)) {
        let mut classes: Vec<_> = sample.chunks_mut(voxels).map(|row| row.chunks_mut(BLOCK)).collect();
        for _ in 0..voxels.div_ceil(BLOCK) {
            rows.push(classes.iter_mut().filter_map(Iterator::next).collect());
        }
    }
    let blocks = voxels.div_ceil(BLOCK).max(1);
    rows.into_par_iter().enumerate().for_each(|(block, mut rows)| {
        let start = block / blocks * voxels + block % blocks * BLOCK;
        let range = start..start + rows[0].len();
        let (labels, gradient) = (&labels[range.clone()], &gradient[range]);
        let softmax = Softmax::new(|class| &*rows[class], labels, classes);
        let slopes: Vec<[f32; 2]> = (0..labels.len())
            .map(|v| {
                let weight = weight(class_weights, labels[v]);
                if weight == 0.0 {
                    return [0.0, 0.0];
                }
                let (surprise, missing, sum) = softmax.of_label(v);
                let slope = weight * gradient[v] * minus_slope(surprise, missing, gamma) / sum;
                // The probabilities of the others stand for 1 - p: nothing cancels where p is nearly 1.
                [slope, -slope * softmax.others[v]]
            })
            .collect();
        for (class, (row, exp)) in rows.iter_mut().zip(softmax.exp.chunks_exact(labels.len())).enumerate() {
            T::store(row, |out| {
                for (v, (out, exp)) in out.iter_mut().zip(exp).enumerate() {
                    let [of_others, of_label] = slopes[v];
                    *out = if labels[v] as usize == class { of_label } else { of_others * exp };
                }
            });
        }
    });
}

/// `missing^gamma`.
fn power(missing: f32, gamma: f32) -> f32 {
    if gamma == 0.0 { 1.0 } else { missing.max(LEAST_MISSING).powf(gamma) }
}

/// Minus the derivative of `(1 - p)^gamma (-log p)` by `log p`, from `-log p` and `1 - p`.
fn minus_slope(surprise: f32, missing: f32, gamma: f32) -> f32 {
    if gamma == 0.0 {
        return 1.0;
    }
    let missing = missing.max(LEAST_MISSING);
    let power = missing.powf(gamma);
    power + gamma * power / missing * (1.0 - missing) * surprise
}
