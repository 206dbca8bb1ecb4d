//! Checkpoints: everything a network is used with, and everything a run needs to go on as if it had never stopped.
//!
//! `checkpoints/STEP/` holds `weights.safetensors`, `optimizer.safetensors` and `state.json`. The folder is written
//! beside, synced and renamed, so that it is whole or not there; the one before it stays.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use occam_scene::LabelMap;
use occam_scene::error::Place;
use serde::{Deserialize, Serialize};

use super::loss_scale::ScaleState;
use super::{Optimizer, TrainConfig};
use crate::gpu::{Request, request};
use crate::models::Network;
use crate::{Error, Result};

pub const WEIGHTS: &str = "weights.safetensors";
pub const OPTIMIZER: &str = "optimizer.safetensors";
pub const STATE: &str = "state.json";
/// Folder of the checkpoints in a run's folder.
pub const CHECKPOINTS: &str = "checkpoints";
/// File in a run's folder that holds the step of its best checkpoint.
pub const BEST: &str = "best";

/// What a checkpoint knows beside weights and moments. Order and augmentation of the samples follow from the seed and
/// the number of batches, and the learning rate from the step, so that these numbers are the whole random state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Version of Occam that wrote it.
    pub version: String,
    /// Steps taken, with those that were skipped because their gradients overflowed.
    pub step: usize,
    /// Micro-batches taken from the loader.
    pub batches: u64,
    /// Passes over the training samples, begun or done.
    pub epoch: u64,
    /// Steps the schedule was laid out for.
    pub total_steps: usize,
    /// Loss weights of the classes, counted on the training targets.
    pub class_weights: Vec<f32>,
    /// Loss of each step so far that had one: f16 can overflow before the loss is known.
    pub losses: Vec<f32>,
    /// Best checkpoint so far: its step and validation mIoU.
    pub best: Option<(usize, f64)>,
    /// Of a run in f16 with a loss scale; absent in those of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<ScaleState>,
    /// Samples that go through the network at a time since memory ended; 0: as the configuration says.
    #[serde(default)]
    pub micro_batch: usize,
    pub config: TrainConfig,
    /// Names, colours and file ids of the classes.
    pub labels: LabelMap,
}

/// Writes `checkpoints/STEP` in `run` and returns its path. A checkpoint of the same step is the same and is kept.
///
/// # Errors
/// [`Error::Failed`] when the disk is full or the folder cannot be written, [`Error::OutOfMemory`] when there is no memory to
/// read back what is saved; checkpoints that were there stay.
pub fn save(run: &Path, network: &Network, optimizer: &Optimizer, state: &State) -> Result<PathBuf> {
    let folder = run.join(CHECKPOINTS);
    let path = folder.join(state.step.to_string());
    if path.join(STATE).is_file() {
        return Ok(path);
    }
    let beside = folder.join(format!(".{}.part", state.step));
    let written = write_all(&beside, network, optimizer, state).and_then(|()| {
        fs::rename(&beside, &path).map_err(|e| failed(&path, &e))?;
        sync(&folder)
    });
    if let Err(error) = written {
        // What cannot be written can perhaps not be removed either; the error tells the rest.
        let _ = fs::remove_dir_all(&beside);
        return Err(error);
    }
    Ok(path)
}

fn write_all(folder: &Path, network: &Network, optimizer: &Optimizer, state: &State) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
    // Burn keeps the newest running statistics of batch normalization aside until `valid` asks for them.
    request(Request::Checkpoint, "the weights")?;
    let path = folder.join(WEIGHTS);
    network.valid().save_weights(&path).map_err(|e| failed(&path, &e))?;
    request(Request::Checkpoint, "the moments")?;
    let path = folder.join(OPTIMIZER);
    optimizer.save(&path).map_err(|e| failed(&path, &e))?;
    let text = serde_json::to_vec(state).map_err(|e| Error::Failed(format!("{STATE}: {e}")))?;
    let path = folder.join(STATE);
    File::create(&path).and_then(|mut file| file.write_all(&text)).map_err(|e| failed(&path, &e))?;
    for name in [WEIGHTS, OPTIMIZER, STATE] {
        sync(&folder.join(name))?;
    }
    sync(folder)
}

/// Flushes a file or folder to the disk.
fn sync(path: &Path) -> Result<()> {
    // Windows opens no folders; there, renaming is all there is.
    if cfg!(windows) && path.is_dir() {
        return Ok(());
    }
    File::open(path).and_then(|file| file.sync_all()).map_err(|e| failed(path, &e))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::Failed(format!(
        "cannot write the checkpoint {}: {error}. Make room or give another folder with `runs`; earlier checkpoints \
         were kept.",
        path.display()
    ))
}

/// Names the best checkpoint of a run.
pub fn mark_best(run: &Path, step: usize) -> Result<()> {
    let (path, beside) = (run.join(BEST), run.join(".best.part"));
    fs::write(&beside, format!("{step}\n")).and_then(|()| fs::rename(&beside, &path)).map_err(|e| failed(&path, &e))
}

/// The folder of a checkpoint: the path itself or that of the weights file it names, or the best (else the last)
/// checkpoint of a run.
///
/// # Errors
/// [`Error::Input`] when there is none.
pub fn find(path: &Path, prefer_best: bool) -> Result<PathBuf> {
    let of_weights = path.parent().filter(|_| path.file_name().is_some_and(|name| name == WEIGHTS));
    if let Some(folder) = [Some(path), of_weights].into_iter().flatten().find(|folder| folder.join(STATE).is_file()) {
        return Ok(folder.to_path_buf());
    }
    let folder = path.join(CHECKPOINTS);
    let last = steps(&folder).into_iter().max();
    let best = if prefer_best { best(path) } else { Ok(None) };
    let best = best.unwrap_or_else(|why| {
        if let Some(last) = last {
            tracing::warn!("{why}; step {last}, the last one, is used");
        }
        None
    });
    if let Some(step) = best.or(last) {
        return Ok(folder.join(step.to_string()));
    }
    let found = if !path.exists() {
        "nothing"
    } else if path.is_dir() {
        "no checkpoint in this folder"
    } else {
        "a file"
    };
    Err(occam_scene::Error::new(path, Place::File, found, "the folder of a run or of one of its checkpoints")
        .hint("`occam train` prints it when it ends")
        .into())
}

/// The file of weights at a path: the path itself, or that of the best checkpoint when it is a run's folder.
///
/// # Errors
/// [`Error::Input`] for a folder without a checkpoint.
pub fn weights_file(path: &Path) -> Result<PathBuf> {
    if path.is_dir() { Ok(find(path, true)?.join(WEIGHTS)) } else { Ok(path.to_path_buf()) }
}

/// The network of a checkpoint, with its weights, on `device`.
///
/// # Errors
/// [`Error::Input`] when the state describes a network that cannot be, and for weights that do not belong to it.
pub fn load_network(folder: &Path, state: &State, device: &Device) -> Result<Network> {
    let State { config, labels, .. } = state;
    let channels = config.input.channels();
    let network = Network::new(&config.model.network, config.grid.counts, channels, labels.len(), config.seed, device);
    let mut network = network.map_err(|error| match error {
        Error::Usage(why) => {
            let expected = "a network and a grid that go together";
            occam_scene::Error::new(folder.join(STATE), Place::File, why, expected).into()
        }
        other => other,
    })?;
    network.load_weights(&folder.join(WEIGHTS))?;
    Ok(network)
}

/// Step of the best checkpoint of a run; `None` when the run names none, `Err` tells why the one it names is of no use.
fn best(run: &Path) -> Result<Option<usize>, String> {
    let file = run.join(BEST);
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let step = text.trim().parse().map_err(|_| format!("{}: found no number of a step", file.display()))?;
    let folder = run.join(CHECKPOINTS).join(format!("{step}"));
    if folder.join(STATE).is_file() {
        return Ok(Some(step));
    }
    Err(format!("{} names step {step}, but there is no checkpoint {}", file.display(), folder.display()))
}

/// Steps of the whole checkpoints in a folder.
fn steps(folder: &Path) -> Vec<usize> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.path().join(STATE).is_file())
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Reads `state.json` of a checkpoint's folder.
///
/// # Errors
/// [`Error::Input`] with the line of what is wrong.
pub fn read_state(folder: &Path) -> Result<State> {
    let path = folder.join(STATE);
    let text = fs::read_to_string(&path).map_err(|e| occam_scene::Error::io(&path, &e))?;
    let bad = |place, found| occam_scene::Error::new(&path, place, found, "the state of an Occam checkpoint");
    let state: State = serde_json::from_str(&text).map_err(|e| bad(Place::Line(e.line() as u64), e.to_string()))?;
    state.labels.check().map_err(|why| bad(Place::File, why))?;
    if let Some(found) = state.loss_scale.filter(|found| !found.is_possible()) {
        let found = format!("loss_scale.scale = {}", found.scale);
        return Err(bad(Place::File, found).into());
    }
    state.config.check().map_err(|error| match error {
        Error::Usage(why) => bad(Place::File, why).into(),
        other => other,
    })?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_best_checkpoint_that_is_not_there_is_told_and_the_last_one_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        for step in ["3", "20"] {
            fs::create_dir_all(run.join(CHECKPOINTS).join(step)).unwrap();
            fs::write(run.join(CHECKPOINTS).join(step).join(STATE), "{}").unwrap();
        }
        let last = run.join(CHECKPOINTS).join("20");
        assert_eq!(best(run), Ok(None));
        assert_eq!(find(run, true).unwrap(), last);
        mark_best(run, 3).unwrap();
        assert_eq!(best(run), Ok(Some(3)));
        assert_eq!(find(run, true).unwrap(), run.join(CHECKPOINTS).join("3"));
        assert_eq!(find(run, false).unwrap(), last);
        for (text, told) in [("7\n", "names step 7"), ("x", "no number"), ("", "no number")] {
            fs::write(run.join(BEST), text).unwrap();
            let why = best(run).unwrap_err();
            assert!(why.contains(told) && why.contains(&run.join(BEST).display().to_string()), "{why}");
            assert_eq!(find(run, true).unwrap(), last);
        }
    }
}
