//! Completion IoU, precision, recall and mIoU of a confusion matrix.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Confusion;

/// How a class that occurs neither in the targets nor in the predictions enters the mean.
///
/// Published numbers differ here, so a score always carries its policy. A class that is only predicted, or only true,
/// is present and scores 0 under every policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AbsentPolicy {
    /// It counts as 0: the rule of SemanticKITTI's evaluator.
    #[default]
    Zero,
    /// The mean is over the present classes only: `nanmean`, the rule of Occ3D.
    Skip,
    /// There is no score; the absent classes are named.
    Error,
}

impl fmt::Display for AbsentPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "zero",
            Self::Skip => "skip",
            Self::Error => "error",
        })
    }
}

impl FromStr for AbsentPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "zero" => Ok(Self::Zero),
            "skip" => Ok(Self::Skip),
            "error" => Ok(Self::Error),
            _ => Err(format!("absent-class policy \"{text}\", expected zero, skip or error")),
        }
    }
}

/// Scores of a whole split, each between 0 and 1 and never NaN.
///
/// The definitions are those of `evaluate_completion.py` of the SemanticKITTI tools (Behley et al., "SemanticKITTI: A
/// Dataset for Semantic Scene Understanding of LiDAR Sequences", ICCV 2019), for any id of free space. A voxel is
/// occupied when its class is not free space, so that a wrong occupied class is still right for `iou`, `precision` and
/// `recall`.
///
/// Where a quotient has no denominator the score is 0: nothing occupied in truth or prediction, or every voxel ignored.
/// `counted` and `per_class` tell such a 0 from a bad prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Completion: voxels occupied in both over voxels occupied in either.
    pub iou: f64,
    /// Share of the voxels predicted occupied that are.
    pub precision: f64,
    /// Share of the occupied voxels that were predicted so.
    pub recall: f64,
    /// Mean of the IoU of every class but free space, absent classes as `policy` says.
    pub miou: f64,
    /// IoU by class id. `None` for free space and for classes absent from truth and prediction, under every policy.
    pub per_class: Vec<Option<f64>>,
    /// Voxels that counted.
    pub counted: u64,
    /// Voxels whose truth is the ignored id.
    pub ignored: u64,
    pub policy: AbsentPolicy,
}

/// The official evaluator adds this to denominators; kept so that scores agree in every digit.
const EPSILON: f64 = 1e-15;

impl Scores {
    pub(super) fn of(confusion: &Confusion, empty_id: u8, policy: AbsentPolicy) -> Result<Self, String> {
        let classes = confusion.classes();
        let empty = usize::from(empty_id);
        if empty >= classes {
            return Err(format!("free space has class id {empty_id}, but there are only {classes} classes"));
        }
        let (predicted, actual) = (confusion.predicted(), confusion.actual());
        let counted = confusion.counted();
        let free_in_both = confusion.count(empty_id, empty_id);
        let predicted_occupied = counted - predicted[empty];
        let actual_occupied = counted - actual[empty];
        let occupied_in_either = counted - free_in_both;
        let occupied_in_both = predicted_occupied + actual_occupied - occupied_in_either;

        let per_class: Vec<Option<f64>> = (0..classes)
            .map(|class| {
                let hits = confusion.count(class as u8, class as u8);
                let union = predicted[class] + actual[class] - hits;
                (class != empty && union > 0).then(|| hits as f64 / (union as f64 + EPSILON))
            })
            .collect();
        let present = per_class.iter().flatten().count();
        let divisor = match policy {
            AbsentPolicy::Zero => classes - 1,
            AbsentPolicy::Error if present < classes - 1 => {
                let absent: Vec<String> = (0..classes)
                    .filter(|class| *class != empty && per_class[*class].is_none())
                    .map(|class| class.to_string())
                    .collect();
                return Err(format!(
                    "classes {} occur neither in the targets nor in the predictions, and the absent-class policy is \
                     \"error\"",
                    absent.join(", ")
                ));
            }
            AbsentPolicy::Skip | AbsentPolicy::Error => present,
        };
        Ok(Self {
            iou: if occupied_in_either == 0 { 0.0 } else { occupied_in_both as f64 / occupied_in_either as f64 },
            precision: occupied_in_both as f64 / (predicted_occupied as f64 + EPSILON),
            recall: occupied_in_both as f64 / (actual_occupied as f64 + EPSILON),
            miou: per_class.iter().flatten().sum::<f64>() / divisor.max(1) as f64,
            per_class,
            counted,
            ignored: confusion.ignored(),
            policy,
        })
    }
}
