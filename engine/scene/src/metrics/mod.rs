//! Metrics of semantic scene completion.

/// Scores of a confusion matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    pub iou: f64,
    pub miou: f64,
}
