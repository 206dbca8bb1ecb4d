//! The folder of a run: configuration, metrics and pictures. Nothing is ever overwritten.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use occam_scene::LabelMap;
use occam_scene::formats::atomic_write;
use occam_scene::metrics::Scores;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::layers::RUN_TABLE;
use super::tensorboard::EventWriter;
use super::{StepRecord, TrainConfig, checkpoint};
use crate::gpu::MemoryKinds;
use crate::{Error, Result};

const METRICS: &str = "metrics.jsonl";

/// An open run folder.
pub struct RunFolder {
    path: PathBuf,
    /// The folder above was made for this run.
    made_runs: bool,
    metrics: File,
    events: EventWriter,
}

impl RunFolder {
    /// Makes `RUNS/NAME`, or `RUNS/PRESET-1`, `-2`, ... without a name, and writes `config.toml` into it.
    ///
    /// # Errors
    /// [`Error::Usage`] when the name is taken or the folder cannot be written.
    pub fn create(config: &TrainConfig, device: &str) -> Result<Self> {
        let made_runs = !config.runs.exists();
        let path = make_folder(config)?;
        let unwritable = |e: io::Error| cannot_write(&path, &e);
        for name in [checkpoint::CHECKPOINTS, "preview", "predictions"] {
            fs::create_dir(path.join(name)).map_err(unwritable)?;
        }
        fs::write(path.join("config.toml"), config_text(config, device)?).map_err(unwritable)?;
        Ok(Self { made_runs, ..Self::open(&path)? })
    }

    /// Opens the folder of a run to go on after `step`. A run that ended without a checkpoint has noted steps beyond it,
    /// which come again: their lines are taken out of `metrics.jsonl`.
    ///
    /// # Errors
    /// [`Error::Usage`] or [`Error::Input`] when it cannot be written.
    pub fn resume(path: &Path, step: usize) -> Result<Self> {
        let metrics = path.join(METRICS);
        if metrics.exists() {
            let mut beyond = false;
            each_line(&metrics, &mut |line| {
                beyond |= !within(line, step);
                Ok(())
            })
            .map_err(|e| cannot_write(path, &e))?;
            if beyond {
                atomic_write(&metrics, |out| {
                    each_line(&metrics, &mut |line| if within(line, step) { out.write_all(line) } else { Ok(()) })
                })?;
            }
        }
        Self::open(path)
    }

    fn open(path: &Path) -> Result<Self> {
        let unwritable = |e: io::Error| cannot_write(path, &e);
        let metrics = File::options().create(true).append(true).open(path.join(METRICS)).map_err(unwritable)?;
        let events = EventWriter::create(path).map_err(unwritable)?;
        Ok(Self { path: path.to_path_buf(), made_runs: false, metrics, events })
    }

    /// Takes back a run that never began: whatever [`RunFolder::create`] made is removed.
    pub fn discard(self) {
        let Self { path, made_runs, metrics, events } = self;
        // Windows removes no open files.
        drop((metrics, events));
        // The error that ended the run matters more than one about its empty folder.
        let _ = fs::remove_dir_all(&path);
        if let (true, Some(runs)) = (made_runs, path.parent()) {
            let _ = fs::remove_dir(runs);
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a step to `metrics.jsonl` and the event file.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk is full.
    pub fn step(&mut self, record: &StepRecord) -> Result<()> {
        let mut values = vec![
            ("train/loss", record.loss),
            ("train/lr", record.lr),
            ("train/grad_norm", record.grad_norm),
            ("time/step_ms", record.step_ms),
        ];
        let totals = [
            ("memory/in_use_bytes", record.in_use_bytes),
            ("memory/reserved_bytes", record.reserved_bytes),
            ("memory/peak_bytes", record.peak_bytes),
            ("memory/step_peak_bytes", record.step_peak_bytes),
        ];
        for (tag, bytes) in totals {
            values.extend(bytes.map(|b| (tag, b as f64)));
        }
        let scalars =
            [("train/loss_scale", record.loss_scale), ("train/zero_gradient_share", record.zero_gradient_share)];
        for (tag, value) in scalars {
            values.extend(value.map(|value| (tag, value)));
        }
        if record.loss_scale.is_some() {
            values.push(("train/skipped", f64::from(u8::from(record.skipped))));
        }
        if let Some(kinds) = &record.memory {
            let MemoryKinds { weights, gradients, optimizer, activations, workspace, cache, data } = *kinds;
            let kinds = [
                ("memory_at_peak/weights", weights),
                ("memory_at_peak/gradients", gradients),
                ("memory_at_peak/optimizer", optimizer),
                ("memory_at_peak/activations", activations),
                ("memory_at_peak/workspace", workspace),
                ("memory_at_peak/cache", cache),
                ("memory_at_peak/data", data),
            ];
            values.extend(kinds.map(|(tag, bytes)| (tag, bytes as f64)));
        }
        self.line("step", serde_json::to_value(record))?;
        self.scalars(record.step, &values)
    }

    /// Adds an evaluation to `metrics.jsonl` and the event file, classes by name.
    ///
    /// # Errors
    /// [`Error::Failed`] when the disk is full.
    pub fn evaluation(&mut self, step: usize, scores: &Scores, labels: &LabelMap) -> Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            step: usize,
            #[serde(flatten)]
            scores: &'a Scores,
        }
        let mut value = serde_json::to_value(Line { step, scores });
        if let Ok(Value::Object(fields)) = &mut value {
            let classes = labels.classes.iter().zip(&scores.per_class);
            let named = classes.filter_map(|(class, iou)| Some((class.name.clone(), json!((*iou)?))));
            fields.insert("per_class".into(), Value::Object(named.collect()));
        }
        self.line("evaluation", value)?;
        self.scalars(step, &[("validation/iou", scores.iou), ("validation/miou", scores.miou)])
    }

    fn line(&mut self, kind: &str, value: serde_json::Result<Value>) -> Result<()> {
        let mut value = value.map_err(|e| Error::Failed(format!("metrics.jsonl: {e}")))?;
        if let Value::Object(fields) = &mut value {
            fields.insert("kind".into(), kind.into());
        }
        let path = self.path.join(METRICS);
        self.metrics.write_all(format!("{value}\n").as_bytes()).map_err(|e| disk_failed(&path, &e))
    }

    fn scalars(&mut self, step: usize, values: &[(&str, f64)]) -> Result<()> {
        self.events.scalars(step, values).map_err(|e| disk_failed(&self.path.join("events.out.tfevents"), &e))
    }
}

/// Whether a run has nothing left to do: its last step is taken and scored.
///
/// # Errors
/// [`Error::Input`] when its `metrics.jsonl` cannot be read.
pub fn is_complete(run: &Path, state: &checkpoint::State) -> Result<bool> {
    #[derive(Deserialize)]
    struct Line {
        kind: String,
        step: usize,
    }
    let metrics = run.join(METRICS);
    if state.total_steps == 0 || state.step < state.total_steps || !metrics.is_file() {
        return Ok(false);
    }
    let mut scored = false;
    each_line(&metrics, &mut |line| {
        scored |= serde_json::from_slice::<Line>(line).is_ok_and(|l| l.kind == "evaluation" && l.step == state.step);
        Ok(())
    })
    .map_err(|e| occam_scene::Error::io(&metrics, &e))?;
    Ok(scored)
}

/// Shows each line, its end included.
fn each_line(path: &Path, look: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        look(&line)?;
        line.clear();
    }
    Ok(())
}

/// Whether a line of `metrics.jsonl` is whole and of a step up to `step`.
fn within(line: &[u8], step: usize) -> bool {
    #[derive(Deserialize)]
    struct Line {
        step: usize,
    }
    line.ends_with(b"\n") && serde_json::from_slice::<Line>(line).is_ok_and(|line| line.step <= step)
}

fn make_folder(config: &TrainConfig) -> Result<PathBuf> {
    fs::create_dir_all(&config.runs).map_err(|e| cannot_write(&config.runs, &e))?;
    if !config.name.is_empty() {
        let path = config.runs.join(&config.name);
        return match fs::create_dir(&path) {
            Ok(()) => Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(Error::Usage(format!(
                "the run {} exists already and is not overwritten; choose another name",
                path.display()
            ))),
            Err(e) => Err(cannot_write(&path, &e)),
        };
    }
    // Two runs that start at the same time get two folders: only one of them can create each.
    for number in 1u64.. {
        let path = config.runs.join(format!("{}-{number}", config.preset));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(cannot_write(&path, &e)),
        }
    }
    Err(Error::Failed("no number is left for the run's folder".into()))
}

fn config_text(config: &TrainConfig, device: &str) -> Result<String> {
    #[derive(Serialize)]
    struct Run<'a> {
        version: &'a str,
        adapter: &'a str,
    }
    let broken = |e: toml::ser::Error| Error::Failed(format!("config.toml: {e}"));
    let config = toml::to_string(config).map_err(broken)?;
    let run = toml::to_string(&Run { version: env!("CARGO_PKG_VERSION"), adapter: device }).map_err(broken)?;
    Ok(format!("{config}\n# What ran it; not read back.\n[{RUN_TABLE}]\n{run}"))
}

fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::Usage(format!("cannot write the run's folder {}: {error}. Give another one with `runs`.", path.display()))
}

fn disk_failed(path: &Path, error: &io::Error) -> Error {
    Error::Failed(format!("cannot write {}: {error}. The checkpoints of the run were kept.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(runs: &Path) -> TrainConfig {
        let sets = [("runs".to_owned(), runs.display().to_string())];
        TrainConfig::from_layers("tiny", None, &sets).unwrap()
    }

    #[test]
    fn runs_are_numbered_and_a_taken_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        for number in 1..=3 {
            let run = RunFolder::create(&config, "CPU").unwrap();
            assert_eq!(run.path(), folder.path().join(format!("tiny-{number}")));
        }
        config.name = "mine".into();
        RunFolder::create(&config, "CPU").unwrap();
        let again = RunFolder::create(&config, "CPU").err().unwrap();
        assert_eq!(again.exit_code(), 2);
        assert!(again.to_string().contains("mine exists already"), "{again}");
    }

    #[test]
    fn a_run_that_never_began_leaves_nothing_and_takes_nothing_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        RunFolder::create(&config(&runs), "CPU").unwrap().discard();
        assert!(!runs.exists());
        fs::create_dir(&runs).unwrap();
        RunFolder::create(&config(&runs), "CPU").unwrap().discard();
        assert!(runs.is_dir() && fs::read_dir(&runs).unwrap().next().is_none());
    }

    #[test]
    fn steps_beyond_the_checkpoint_are_not_noted_twice() {
        let folder = tempfile::tempdir().unwrap();
        let mut run = RunFolder::create(&config(folder.path()), "CPU").unwrap();
        let path = run.path().to_path_buf();
        for step in 1..=4 {
            run.step(&StepRecord { step, ..StepRecord::default() }).unwrap();
        }
        run.metrics.write_all(b"{\"step\":2,\"lo").unwrap();
        drop(run);
        let steps = || -> Vec<u64> {
            let text = fs::read_to_string(path.join(METRICS)).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.map(|line| line["step"].as_u64().unwrap()).collect()
        };
        let mut run = RunFolder::resume(&path, 2).unwrap();
        assert_eq!(steps(), [1, 2]);
        run.step(&StepRecord { step: 3, ..StepRecord::default() }).unwrap();
        drop(run);
        RunFolder::resume(&path, 3).unwrap();
        assert_eq!(steps(), [1, 2, 3]);
    }

    #[test]
    fn the_written_configuration_reads_back_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let run = RunFolder::create(&config, "CPU (2 threads)").unwrap();
        let path = run.path().join("config.toml");
        assert_eq!(TrainConfig::from_layers("tiny", Some(&path), &[]).unwrap(), config);
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains("adapter = \"CPU (2 threads)\"") && text.contains("version = \"0."), "{text}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_one_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = RunFolder::create(&config(&file), "CPU").err().unwrap();
        assert!(error.exit_code() == 2 && error.to_string().contains("file"), "{error}");
    }
}
