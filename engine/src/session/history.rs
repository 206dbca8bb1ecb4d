//! Steps and evaluations of a run, appended in one place that faces read when they like.

use occam_scene::metrics::Scores;

pub use crate::train::StepRecord;

/// Records beyond which the resolution of the history is halved.
const MOST_STEPS: usize = 20_000;

/// One pass over the validation samples.
#[derive(Debug, Clone)]
pub struct EvalRecord {
    pub step: usize,
    pub scores: Scores,
}

/// What faces draw. It stays bounded however long a run is: once it holds 20,000 steps, every other one goes, and from
/// then on only every second (fourth, ...) step is added. `metrics.jsonl` holds them all.
#[derive(Debug, Clone)]
pub struct History {
    pub steps: Vec<StepRecord>,
    pub evaluations: Vec<EvalRecord>,
    stride: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { steps: Vec::new(), evaluations: Vec::new(), stride: 1 }
    }
}

impl History {
    /// Adds a step, or leaves it out where the history is coarser than that.
    pub fn push(&mut self, record: StepRecord) {
        if !record.step.is_multiple_of(self.stride) {
            return;
        }
        self.steps.push(record);
        if self.steps.len() > MOST_STEPS {
            self.stride *= 2;
            let stride = self.stride;
            self.steps.retain(|r| r.step.is_multiple_of(stride));
        }
    }

    /// Adds an evaluation; beyond the same bound every other one goes.
    pub fn push_evaluation(&mut self, record: EvalRecord) {
        self.evaluations.push(record);
        if self.evaluations.len() > MOST_STEPS {
            let mut index = 0;
            self.evaluations.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_stays_bounded_and_spans_the_whole_run() {
        let mut history = History::default();
        for step in 1..=100_000 {
            history.push(StepRecord { step, loss: step as f64, ..StepRecord::default() });
            assert!(history.steps.len() <= MOST_STEPS);
        }
        let steps: Vec<usize> = history.steps.iter().map(|r| r.step).collect();
        assert_eq!((steps[0], steps[steps.len() - 1]), (8, 100_000));
        assert!(steps.windows(2).all(|w| w[1] - w[0] == 8), "evenly spaced");
    }
}
