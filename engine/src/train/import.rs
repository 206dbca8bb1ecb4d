//! Weights that were trained elsewhere, as a run that every command takes.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use occam_scene::formats::benchmarks::Benchmark;
use occam_scene::{GridSpec, LabelMap};

use super::checkpoint::{self, State};
use super::{Optimizer, RunFolder, TrainConfig, fits};
use crate::Result;
use crate::models::{Network, WeightsInfo};

/// Names that [`setup`] knows.
pub fn setups() -> impl Iterator<Item = &'static str> {
    Benchmark::ALL.into_iter().map(Benchmark::name)
}

/// Grid and classes of the data set called `name`.
pub fn setup(name: &str) -> Option<(GridSpec, LabelMap)> {
    let benchmark: Benchmark = name.parse().ok()?;
    Some((benchmark.spec(), benchmark.labels()?))
}

/// The data set that weights were trained on, if just one has their number of classes and their height.
pub fn guess_setup(info: &WeightsInfo) -> Option<&'static str> {
    let fits = |name: &&str| {
        setup(name).is_some_and(|(grid, labels)| {
            labels.len() == info.classes && info.height.is_none_or(|height| height == grid.counts[2])
        })
    };
    let mut fitting = setups().filter(fits);
    fitting.next().filter(|_| fitting.next().is_none())
}

/// Makes a run of `config`, with the weights of a file as its only checkpoint, at step 0. Gives the run's folder.
///
/// # Errors
/// [`crate::Error::Input`] for a file that is no weights, or not those of the configured network, grid and classes;
/// [`crate::Error::Usage`] when the folder exists or cannot be written; [`crate::Error::TooLarge`].
pub fn import(weights: &Path, config: TrainConfig, labels: LabelMap) -> Result<PathBuf> {
    config.check()?;
    let device = Device::flex();
    let channels = config.input.channels();
    fits::check(&device, &config.grid, channels, labels.len(), fits::Work::Prediction)?;
    let mut network =
        Network::new(&config.model.network, config.grid.counts, channels, labels.len(), config.seed, &device)?;
    network.load_weights(weights)?;
    let folder = RunFolder::create(&config, "none: the weights were imported")?;
    let optimizer = Optimizer::new(&config.optim);
    let state = State {
        version: env!("CARGO_PKG_VERSION").into(),
        step: 0,
        batches: 0,
        epoch: 0,
        total_steps: 0,
        class_weights: vec![1.0; labels.len()],
        losses: Vec::new(),
        best: None,
        loss_scale: None,
        micro_batch: 0,
        config,
        labels,
    };
    match checkpoint::save(folder.path(), &network, &optimizer, &state) {
        Ok(_) => Ok(folder.path().to_path_buf()),
        Err(error) => {
            folder.discard();
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_height_tell_the_data_set_where_only_one_has_them() {
        let guess = |classes, height| guess_setup(&WeightsInfo { network: "lmscnet-ss", channels: 1, height, classes });
        assert_eq!(guess(11, Some(8)), Some("carla-sc"));
        assert_eq!(guess(20, Some(32)), Some("semantic-kitti"));
        assert_eq!(guess(20, None), Some("semantic-kitti"));
        assert_eq!(guess(20, Some(16)), None);
        // Several sets of nuScenes.
        assert_eq!(guess(17, Some(16)), None);
        let (grid, labels) = setup("carla-sc").unwrap();
        assert_eq!((grid.counts, labels.len()), ([128, 128, 8], 11));
        assert_eq!(setup("semantic-kitti").unwrap().0.counts, [256, 256, 32]);
        assert!(setups().all(|name| setup(name).is_some()));
    }
}
