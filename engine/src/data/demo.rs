//! The demo world as a data set: one scene a seed.

use occam_scene::{GridSpec, LabelMap, demo};

use super::{Dataset, Sample};
use crate::Result;

/// Scenes of worlds with seeds in a row.
#[derive(Debug, Clone)]
pub struct DemoWorld {
    first_seed: u64,
    len: usize,
    spec: GridSpec,
    labels: LabelMap,
}

/// Seeds of validation worlds have this bit, seeds of training worlds do not: they can never be the same world.
const VALIDATION: u64 = 1 << 63;

impl DemoWorld {
    /// `len` worlds to train on, from `seed` on.
    pub fn training(seed: u64, len: usize, spec: GridSpec) -> Result<Self> {
        Self::new(seed & !VALIDATION, len, spec)
    }

    /// `len` worlds to validate on: the same for every run, so that runs can be compared.
    pub fn validation(len: usize, spec: GridSpec) -> Result<Self> {
        Self::new(VALIDATION, len, spec)
    }

    fn new(first_seed: u64, len: usize, spec: GridSpec) -> Result<Self> {
        let labels = super::built_in_labels("demo")?;
        super::check_ids(&spec, &labels)?;
        Ok(Self { first_seed, len, spec, labels })
    }

    fn seed(&self, index: usize) -> u64 {
        (self.first_seed & VALIDATION) | (self.first_seed.wrapping_add(index as u64) & !VALIDATION)
    }
}

impl Dataset for DemoWorld {
    fn name(&self) -> String {
        "demo world".into()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn spec(&self) -> &GridSpec {
        &self.spec
    }

    fn labels(&self) -> &LabelMap {
        &self.labels
    }

    fn sample(&self, index: usize) -> Result<Sample> {
        let seed = self.seed(index);
        let scene = demo::scene(seed, 0, &self.spec);
        let kind = if seed & VALIDATION == 0 { "demo" } else { "demo-validation" };
        Ok(Sample { id: format!("{kind}-{}", seed & !VALIDATION), cloud: scene.cloud, target: scene.target })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_world_is_both_trained_and_validated_on() {
        let spec = demo::default_spec();
        let validation = DemoWorld::validation(50, spec).unwrap();
        let seen: BTreeSet<u64> = (0..50).map(|i| validation.seed(i)).collect();
        assert_eq!(seen.len(), 50);
        for seed in [0, 7, (1 << 63) - 2, 1 << 63, u64::MAX - 1] {
            let training = DemoWorld::training(seed, 50, spec).unwrap();
            let seeds: BTreeSet<u64> = (0..50).map(|i| training.seed(i)).collect();
            assert_eq!(seeds.len(), 50);
            assert!(seeds.is_disjoint(&seen), "{seed}");
        }
    }
}
