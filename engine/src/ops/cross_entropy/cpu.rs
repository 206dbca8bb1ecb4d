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
        for (class, exp) in (0..).zip(exp.chunks_exact_mut(n)) {
            for ((exp, logit), largest) in exp.iter_mut().zip(T::widen(row(class as usize), &mut buffer)).zip(&largest)
            {
                *exp = logit - largest;
            }
            for ((target, below), label) in target.iter_mut().zip(&*exp).zip(labels) {
                *target = if *label == class { *below } else { *target };
            }
            for exp in exp.iter_mut() {
                *exp = exp_of_negative(*exp);
            }
            for ((others, exp), label) in others.iter_mut().zip(&*exp).zip(labels) {
                *others += if *label == class { 0.0 } else { *exp };
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
            let row = |class| &logits[class * voxels + block * BLOCK..][..labels.len()];
            block_loss(row, labels, class_weights, gamma, loss);
        });
    }
    loss
}

/// The loss of the voxels of a block, which is zero before; `row(class)` gives their logits.
pub(in crate::ops) fn block_loss<'a, T: Element>(
    row: impl Fn(usize) -> &'a [T],
    labels: &[u32],
    class_weights: &[f32],
    gamma: f32,
    loss: &mut [f32],
) {
    let softmax = Softmax::new(row, labels, class_weights.len());
    for (v, loss) in loss.iter_mut().enumerate() {
        let weight = weight(class_weights, labels[v]);
        if weight != 0.0 {
            let (surprise, missing, _) = softmax.of_label(v);
            *loss = weight * power(missing, gamma) * surprise;
        }
    }
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
    let rows = block_rows(logits, classes, voxels);
    let blocks = voxels.div_ceil(BLOCK).max(1);
    rows.into_par_iter().enumerate().for_each(|(block, mut rows)| {
        let start = block / blocks * voxels + block % blocks * BLOCK;
        let range = start..start + rows[0].len();
        let (labels, gradient) = (&labels[range.clone()], &gradient[range]);
        let block = BlockGradient::new(|class| &*rows[class], labels, class_weights, gradient, gamma);
        for (class, row) in rows.iter_mut().enumerate() {
            T::store(row, |out| block.of_class(class, out));
        }
    });
}

/// The rows of every block of voxels of `[B, rows, V]`, in order.
pub(in crate::ops) fn block_rows<T>(values: &mut [T], rows: usize, voxels: usize) -> Vec<Vec<&mut [T]>> {
    let mut blocks = Vec::new();
    for sample in values.chunks_mut(rows * voxels.max(1)) {
        let mut rows: Vec<_> = sample.chunks_mut(voxels).map(|row| row.chunks_mut(BLOCK)).collect();
        for _ in 0..voxels.div_ceil(BLOCK) {
            blocks.push(rows.iter_mut().filter_map(Iterator::next).collect());
        }
    }
    blocks
}

/// The gradient of the logits of a block of voxels.
pub(in crate::ops) struct BlockGradient<'a> {
    softmax: Softmax,
    labels: &'a [u32],
    /// Beside the slope of a voxel a mask of ones, of zeros where it counts for nothing, whatever its logits are.
    slopes: Vec<(f32, u32)>,
}

impl<'a> BlockGradient<'a> {
    /// `row(class)` gives the logits of the block's voxels, `gradient` is that of their loss.
    pub fn new<'r, T: Element>(
        row: impl Fn(usize) -> &'r [T],
        labels: &'a [u32],
        class_weights: &[f32],
        gradient: &[f32],
        gamma: f32,
    ) -> Self {
        let softmax = Softmax::new(row, labels, class_weights.len());
        let slopes = (0..labels.len())
            .map(|v| {
                let weight = weight(class_weights, labels[v]);
                if weight == 0.0 {
                    return (0.0, 0);
                }
                let (surprise, missing, sum) = softmax.of_label(v);
                (weight * gradient[v] * minus_slope(surprise, missing, gamma) / sum, u32::MAX)
            })
            .collect();
        Self { softmax, labels, slopes }
    }

    /// Writes the gradient of the logits of one class.
    pub fn of_class(&self, class: usize, out: &mut [f32]) {
        let Self { softmax, labels, slopes } = self;
        let exp = &softmax.exp[class * labels.len()..][..labels.len()];
        let of_voxels = exp.iter().zip(&softmax.others).zip(*labels).zip(slopes);
        for (out, (((exp, others), label), (slope, mask))) in out.iter_mut().zip(of_voxels) {
            // The probabilities of the others stand for 1 - p: nothing cancels where p is nearly 1.
            *out = (slope * if *label == class as u32 { -others } else { *exp }).keep(*mask);
        }
    }
}

/// `e^x` for `x <= 0` to two units in the last place, 0 below -87: a form that the compiler makes vectors of.
fn exp_of_negative(x: f32) -> f32 {
    /// The sum with this has the rounded number in its lowest bits.
    const SHIFT: f32 = 12_582_912.0;
    // ln 2 in two parts; a multiple of the first is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let shifted = x * std::f32::consts::LOG2_E + SHIFT;
    let power = shifted - SHIFT;
    let rest = x - power * LN_2[0] - power * LN_2[1];
    let series = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let of_rest = series.into_iter().fold(0.0, |sum, factor| sum * rest + factor);
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    if x < -87.0 { 0.0 } else { of_rest * scale }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_f64() {
        for i in 0..=870_000 {
            let x = -1e-4 * i as f32;
            let (found, expected) = (f64::from(exp_of_negative(x)), f64::from(x).exp());
            assert!((found / expected - 1.0).abs() < 2.5e-7, "{x}: {found}, {expected}");
        }
        assert_eq!([-88.0, -1e30, f32::NEG_INFINITY].map(exp_of_negative), [0.0; 3]);
        assert!(exp_of_negative(0.0) == 1.0 && exp_of_negative(f32::NAN).is_nan());
    }
}
