//! Scene-class affinity.

use burn::tensor::{Device, Tensor};

use super::Targets;
use super::probabilities::{Probabilities, WithGradient};

/// Sums below this count as 0: their logarithm is [`LOG_OF_NOTHING`], without a gradient. Far below it f32 ends, on some
/// GPUs earlier than on others.
const LEAST_SUM: f32 = 1e-30;

/// Where PyTorch's binary cross-entropy cuts logarithms too.
const LOG_OF_NOTHING: f32 = -100.0;

/// Scene-class affinity (MonoScene, arXiv 2112.00726, section 3.4), `semantic` times the semantic and `geometric` times
/// the geometric loss.
///
/// The semantic loss is the mean over the classes that occur of `-ln P - ln R - ln S`, precision, recall and
/// specificity of the class over all voxels of the batch, with probabilities for decisions. The geometric one is the
/// same of being occupied: any class but `empty_id`. A term whose denominator is 0 is left out, and without occupied
/// voxels so is precision, which then has nothing to find.
pub(super) fn affinity(
    probabilities: &Probabilities,
    targets: &Targets,
    [semantic, geometric]: [f64; 2],
    empty_id: u8,
) -> WithGradient {
    let Probabilities { p, is_target, is_ignored, .. } = probabilities;
    let [_, classes, _] = p.dims();
    let empty = usize::from(empty_id);
    let device = &p.device();
    let rows = Rows::new(&targets.counts, [semantic, geometric], empty, device);

    let not_target = is_target.clone().bool_not();
    let not_other = is_target.clone().bool_or(is_ignored.clone());
    let complement = probabilities.complement();
    let found = probabilities.class_sums(p.clone().mask_fill(not_target.clone(), 0.0));
    let wrong = probabilities.class_sums(p.clone().mask_fill(not_other.clone(), 0.0));
    let missed = probabilities.class_sums(complement.clone().mask_fill(not_target, 0.0));
    let rejected = probabilities.class_sums(complement.mask_fill(not_other, 0.0));
    // Occupied is what the class for empty rejects.
    let with_occupied = |of_classes: &Tensor<1>, of_empty: &Tensor<1>| {
        Tensor::cat(vec![of_classes.clone(), of_empty.clone().slice(empty..=empty)], 0)
    };
    let Terms { value, of_target, of_other } = rows.terms(
        &with_occupied(&found, &rejected),
        with_occupied(&wrong, &missed),
        &with_occupied(&rejected, &found),
    );

    // p of empty moves occupancy the other way, and its targets are the others.
    let mut is_empty = vec![0.0f32; classes];
    is_empty[empty] = 1.0;
    let is_empty = Tensor::<1>::from_data(is_empty.as_slice(), device);
    let split = |all: &Tensor<1>| (all.clone().slice(0..classes), all.clone().slice(classes..=classes));
    let ((target, occupied_target), (other, occupied_other)) = (split(&of_target), split(&of_other));
    let spread = |of_classes: Tensor<1>| of_classes.reshape([1, classes, 1]).expand(p.shape());
    let gradient = spread(other - is_empty.clone() * occupied_target)
        .mask_where(is_target.clone(), spread(target - is_empty * occupied_other))
        .mask_fill(is_ignored.clone(), 0.0);
    (value, gradient)
}

/// What the host knows of each class, and last of being occupied; all `[C + 1]`.
struct Rows {
    log_positives: Tensor<1>,
    log_negatives: Tensor<1>,
    /// Weight of precision and recall, 0 where there are no positives.
    weights: Tensor<1>,
    /// Weight of specificity, 0 where there are no negatives.
    negative_weights: Tensor<1>,
}

/// The loss and its derivative by p of a voxel that is of the class, and of one that is not, `[C + 1]`.
struct Terms {
    value: Tensor<1>,
    of_target: Tensor<1>,
    of_other: Tensor<1>,
}

impl Rows {
    fn new(counts: &[u32], [semantic, geometric]: [f64; 2], empty: usize, device: &Device) -> Self {
        let all: u64 = counts.iter().copied().map(u64::from).sum();
        let present = counts.iter().filter(|count| **count > 0).count().max(1);
        let of_class = |count: &u32| (u64::from(*count), if *count > 0 { semantic / present as f64 } else { 0.0 });
        let occupied = (all - u64::from(counts[empty]), geometric);
        let rows: Vec<_> = counts.iter().map(of_class).chain([occupied]).collect();
        let tensor = |value: &dyn Fn(u64, f64) -> f64| {
            let values: Vec<f32> = rows.iter().map(|(positives, weight)| value(*positives, *weight) as f32).collect();
            Tensor::from_data(values.as_slice(), device)
        };
        let log = |count: u64| (count.max(1) as f64).ln();
        let only_if = |any: bool, weight: f64| if any { weight } else { 0.0 };
        Self {
            log_positives: tensor(&|positives, _| log(positives)),
            log_negatives: tensor(&|positives, _| log(all - positives)),
            weights: tensor(&|positives, weight| only_if(positives > 0, weight)),
            negative_weights: tensor(&|positives, weight| only_if(positives < all, weight)),
        }
    }

    /// Sums over voxels: p of those of the class, p of the others, and 1 - p of the others.
    fn terms(self, found: &Tensor<1>, wrong: Tensor<1>, rejected: &Tensor<1>) -> Terms {
        let claimed = found.clone() + wrong;
        let is_nothing = |sum: &Tensor<1>| sum.clone().lower_elem(LEAST_SUM);
        let log = |sum: &Tensor<1>| sum.clone().clamp_min(LEAST_SUM).log();
        let inverse = |sum: &Tensor<1>| sum.clone().clamp_min(LEAST_SUM).recip().mask_fill(is_nothing(sum), 0.0);
        let none_found = is_nothing(found);

        // Rounding may take a ratio beyond 1.
        let cut = |log: Tensor<1>, none| log.clamp_max(0.0).mask_fill(none, LOG_OF_NOTHING);
        let precision = cut(log(found) - log(&claimed), none_found.clone()).mask_fill(is_nothing(&claimed), 0.0);
        let recall = cut(log(found) - self.log_positives, none_found.clone());
        let specificity = cut(log(rejected) - self.log_negatives, is_nothing(rejected));
        let value = -((precision + recall) * self.weights.clone() + specificity * self.negative_weights.clone()).sum();

        let by_claimed = inverse(&claimed).mask_fill(none_found, 0.0) * self.weights.clone();
        Terms {
            value,
            of_target: by_claimed.clone() - inverse(found) * 2.0 * self.weights,
            of_other: by_claimed + inverse(rejected) * self.negative_weights,
        }
    }
}
