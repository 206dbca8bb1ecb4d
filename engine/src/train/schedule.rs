//! The learning rate of each step.

use super::OptimConfig;
use crate::{Error, Result};

/// Learning rate by step, after a linear warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    base: f64,
    warmup: usize,
    total: usize,
    shape: Shape,
}

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// Half a cosine from `base` to 0 (Loshchilov and Hutter, SGDR, ICLR 2017, without restarts).
    Cosine,
    /// Times `factor` after each epoch of so many steps.
    EpochDecay { factor: f64, steps_per_epoch: f64 },
}

impl Schedule {
    /// `total` steps, `steps_per_epoch` of which see the training set once.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown name.
    pub fn new(config: &OptimConfig, total: usize, steps_per_epoch: f64) -> Result<Self> {
        let shape = match config.schedule.as_str() {
            "cosine" => Shape::Cosine,
            "epoch-decay" => Shape::EpochDecay { factor: config.decay, steps_per_epoch },
            other => return Err(Error::Usage(format!("optim.schedule = {other:?}, expected cosine or epoch-decay"))),
        };
        Ok(Self { base: config.lr, warmup: config.warmup_steps, total, shape })
    }

    /// Learning rate of step `step`, counted from 0.
    pub fn lr(&self, step: usize) -> f64 {
        if step < self.warmup {
            return self.base * (step + 1) as f64 / self.warmup as f64;
        }
        match self.shape {
            Shape::Cosine => {
                let left = self.total.saturating_sub(self.warmup).max(1) as f64;
                let done = ((step - self.warmup) as f64 / left).min(1.0);
                self.base * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
            Shape::EpochDecay { factor, steps_per_epoch } => {
                self.base * factor.powf((step as f64 / steps_per_epoch.max(1.0)).floor())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::TrainConfig;

    fn schedule(name: &str, warmup: usize, total: usize) -> Schedule {
        let mut config = TrainConfig::from_layers("demo", None, &[]).unwrap().optim;
        (config.lr, config.warmup_steps, config.decay) = (0.8, warmup, 0.5);
        config.schedule = name.into();
        Schedule::new(&config, total, 10.0).unwrap()
    }

    #[test]
    fn warm_up_climbs_to_the_rate_and_the_cosine_falls_to_zero() {
        let schedule = schedule("cosine", 4, 24);
        assert_eq!([0, 1, 2, 3].map(|s| schedule.lr(s)), [0.2, 0.4, 0.6000000000000001, 0.8]);
        assert_eq!(schedule.lr(4), 0.8);
        assert!((schedule.lr(14) - 0.4).abs() < 1e-12, "half of the way, half of the rate");
        assert!(schedule.lr(23) < 0.01 && schedule.lr(23) > 0.0);
        assert!(schedule.lr(24).abs() < 1e-12);
    }

    #[test]
    fn epoch_decay_falls_once_an_epoch() {
        let schedule = schedule("epoch-decay", 0, 100);
        assert_eq!([0, 9, 10, 19, 20].map(|s| schedule.lr(s)), [0.8, 0.8, 0.4, 0.4, 0.2]);
    }

    #[test]
    fn no_steps_after_the_warm_up_is_no_division_by_zero() {
        assert!(schedule("cosine", 5, 5).lr(5).is_finite());
        assert!(schedule("cosine", 9, 5).lr(3).is_finite());
    }
}
