//! Whole training runs through a session, on the CPU, with tiny grids.

use std::path::{Path, PathBuf};

use occam_engine::session::{Command, Event, Session, Summary};
use occam_engine::train::{TrainConfig, checkpoint, load_model};
use occam_engine::{Error, gpu};

/// Demo streets on 16 x 16 x 8 voxels.
fn config(runs: &Path, sets: &[(&str, &str)]) -> TrainConfig {
    let mut all = vec![
        ("runs".to_owned(), runs.display().to_string()),
        ("device".to_owned(), "cpu".to_owned()),
        ("grid.counts".to_owned(), "[16, 16, 8]".to_owned()),
        ("grid.voxel_size_m".to_owned(), "[1.6, 1.6, 0.8]".to_owned()),
        ("data.demo_train".to_owned(), "6".to_owned()),
        ("data.demo_validation".to_owned(), "2".to_owned()),
        ("steps.steps".to_owned(), "6".to_owned()),
    ];
    all.extend(sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    TrainConfig::from_layers("tiny", None, &all).unwrap()
}

fn outcome(session: &Session) -> (Vec<Event>, Result<Summary, Error>) {
    let mut seen = Vec::new();
    for event in &session.events {
        match event {
            Event::Done(summary) => return (seen, Ok(summary)),
            Event::Failed(error) => return (seen, Err(error)),
            other => seen.push(other),
        }
    }
    panic!("the trainer ended without a last event: {seen:?}");
}

fn run(config: TrainConfig) -> Summary {
    outcome(&Session::start(config).unwrap()).1.unwrap()
}

/// A run that failed never gets there; minutes are far more than one that works needs.
fn wait_until(reached: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !reached() {
        assert!(began.elapsed().as_secs() < 120, "the run does not get there");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn losses(run: &Path) -> Vec<f32> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter(|line| line["kind"] == "step").map(|line| line["loss"].as_f64().unwrap() as f32).collect()
}

fn weights(run: &Path, step: usize) -> Vec<u8> {
    std::fs::read(run.join(checkpoint::CHECKPOINTS).join(step.to_string()).join(checkpoint::WEIGHTS)).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn a_run_leaves_its_metrics_a_checkpoint_and_a_model_that_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::start(config(folder.path(), &[])).unwrap();
    let (events, summary) = outcome(&session);
    let summary = summary.unwrap();

    assert_eq!(summary.run, folder.path().join("tiny-1"));
    assert_eq!((summary.steps, summary.interrupted), (6, false));
    let names: Vec<&str> = summary.baselines.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["input", "input dilated by 1", "training majority"]);
    assert!(matches!(events.first(), Some(Event::Started(info)) if info.total_steps == 6 && info.parameters > 1000));
    assert!(events.iter().any(|e| matches!(e, Event::Loaded { .. })));

    let history = session.history.lock().unwrap();
    assert_eq!(history.steps.iter().map(|r| r.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(history.steps.iter().map(|r| r.loss as f32).collect::<Vec<_>>(), losses(&summary.run));
    assert_eq!(history.evaluations[0].scores, summary.validation.clone().unwrap());
    let snapshot = session.latest.lock().unwrap().take().unwrap();
    assert_eq!(snapshot.step, 6);

    let device = gpu::open(&gpu::DeviceChoice::Cpu).unwrap().device;
    let model = load_model(&summary.run, &device).unwrap();
    assert_eq!((model.step, model.labels.classes[1].name.as_str()), (6, "road"));
    assert_eq!(model.predict(&snapshot.cloud).unwrap().labels, snapshot.prediction.labels);
    let by_step = load_model(&summary.run.join("checkpoints/6"), &device).unwrap();
    assert_eq!(by_step.predict(&snapshot.cloud).unwrap().labels, snapshot.prediction.labels);
    assert_eq!(load_model(&summary.run.join("checkpoints/6/weights.safetensors"), &device).unwrap().step, 6);
    let picture = std::fs::read(summary.run.join("preview/6.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 5_000);
}

#[test]
fn the_same_seed_gives_the_same_losses_whatever_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    let augmented = [("augment.rotate_deg", "10"), ("augment.scale", "0.05"), ("augment.jitter_m", "0.01")];
    let one = run(config(folder.path(), &[&augmented[..], &[("data.workers", "1")]].concat()));
    let four = run(config(folder.path(), &[&augmented[..], &[("data.workers", "4")]].concat()));
    let other = run(config(folder.path(), &[&augmented[..], &[("seed", "2")]].concat()));
    assert_eq!(losses(&one.run).len(), 6);
    assert_eq!(losses(&one.run), losses(&four.run));
    assert!(weights(&one.run, 6) == weights(&four.run, 6), "equal bytes");
    assert_ne!(losses(&one.run), losses(&other.run));
}

#[test]
fn stopping_and_resuming_equals_never_having_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let through = run(config(folder.path(), &[("steps.accumulate", "2")]));

    let session = Session::start(config(folder.path(), &[("steps.accumulate", "2")])).unwrap();
    session.commands.send(Command::Pause).unwrap();
    for _ in 0..3 {
        session.commands.send(Command::StepOnce).unwrap();
        let before = session.history.lock().unwrap().steps.len();
        wait_until(|| session.history.lock().unwrap().steps.len() > before);
    }
    session.commands.send(Command::Stop).unwrap();
    let stopped = outcome(&session).1.unwrap();
    assert!(stopped.interrupted && stopped.steps >= 3 && stopped.steps < 6, "{}", stopped.steps);
    assert!(stopped.validation.is_none());

    let resumed = outcome(&Session::resume(&stopped.run).unwrap()).1.unwrap();
    assert_eq!((resumed.run.clone(), resumed.steps, resumed.interrupted), (stopped.run, 6, false));
    assert_eq!(losses(&resumed.run), losses(&through.run));
    assert!(weights(&resumed.run, 6) == weights(&through.run, 6), "equal bytes");
    assert_eq!(resumed.validation, through.validation, "running statistics too");
    assert_eq!(resumed.first_losses_mean, through.first_losses_mean);
}

/// In f16, from a loss scale that overflows at first and grows again and again, so that steps are skipped before and after.
#[test]
fn resuming_in_f16_goes_on_with_the_loss_scale() {
    let folder = tempfile::tempdir().unwrap();
    let sets = [
        ("precision.format", "f16"),
        ("precision.initial_scale", "1073741824.0"),
        ("precision.growth_steps", "1"),
        ("steps.steps", "40"),
        ("steps.checkpoint_every", "20"),
    ];
    let through = run(config(folder.path(), &sets));
    let state = |step: &str| checkpoint::read_state(&through.run.join("checkpoints").join(step)).unwrap();
    let [half, whole] = ["20", "40"].map(|step| state(step).loss_scale.unwrap());
    assert!(half.skipped >= 5 && whole.skipped > half.skipped && whole.skipped < 40, "{half:?} {whole:?}");
    let all = |run: &Path| (weights(run, 40), std::fs::read(run.join("checkpoints/40/optimizer.safetensors")).unwrap());
    let expected = all(&through.run);

    // As if it had been stopped after step 20.
    std::fs::remove_dir_all(through.run.join("checkpoints/40")).unwrap();
    let _ = std::fs::remove_file(through.run.join("best"));
    let resumed = outcome(&Session::resume(&through.run).unwrap()).1.unwrap();
    assert!(all(&resumed.run) == expected, "equal bytes");
    assert_eq!(state("40").loss_scale, Some(whole));
    assert_eq!(resumed.validation, through.validation);
}

#[test]
fn accumulated_batches_are_one_step() {
    let folder = tempfile::tempdir().unwrap();
    let summary = run(config(folder.path(), &[("steps.accumulate", "3"), ("steps.steps", "2"), ("steps.batch", "1")]));
    assert_eq!(losses(&summary.run).len(), 2);
    let state = checkpoint::read_state(&summary.run.join("checkpoints/2")).unwrap();
    assert_eq!((state.step, state.batches, state.epoch), (2, 6, 1));
}

#[test]
fn a_stop_in_the_middle_of_a_step_gives_it_up_and_resuming_is_exact() {
    let folder = tempfile::tempdir().unwrap();
    let sets = [("steps.accumulate", "40"), ("steps.batch", "1"), ("steps.steps", "2")];
    let through = run(config(folder.path(), &sets));

    let session = Session::start(config(folder.path(), &sets)).unwrap();
    wait_until(|| !session.history.lock().unwrap().steps.is_empty());
    session.commands.send(Command::Stop).unwrap();
    let stopped = outcome(&session).1.unwrap();
    assert!(stopped.interrupted);
    assert_eq!(stopped.steps, 1, "the second step was given up");
    let state = checkpoint::read_state(&stopped.run.join("checkpoints/1")).unwrap();
    assert_eq!((state.batches, state.epoch), (40, 7));

    let resumed = outcome(&Session::resume(&stopped.run).unwrap()).1.unwrap();
    assert_eq!(losses(&resumed.run), losses(&through.run));
    assert!(weights(&resumed.run, 2) == weights(&through.run, 2), "equal bytes, running statistics too");
}

#[test]
fn a_stop_during_the_last_evaluation_is_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::start(config(folder.path(), &[("data.demo_validation", "60")])).unwrap();
    wait_until(|| session.history.lock().unwrap().steps.len() == 6);
    session.commands.send(Command::Stop).unwrap();
    let stopped = outcome(&session).1.unwrap();
    assert_eq!((stopped.steps, stopped.interrupted), (6, true));
    assert!(stopped.validation.is_none());
    let resumed = outcome(&Session::resume(&stopped.run).unwrap()).1.unwrap();
    assert!(!resumed.interrupted && resumed.validation.is_some());
}

#[test]
fn a_model_whose_grid_was_edited_beyond_the_memory_is_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let summary = run(config(folder.path(), &[("steps.steps", "1")]));
    let path = summary.run.join("checkpoints/1").join(checkpoint::STATE);
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["config"]["grid"]["counts"] = serde_json::json!([1 << 20, 1 << 8, 8]);
    state["config"]["grid"]["voxel_size_m"] = serde_json::json!([0.1, 0.1, 0.8]);
    // 2^28 columns x 4 planes x 200 classes x 4 bytes: 800 GiB.
    let classes = state["labels"]["classes"].as_array_mut().unwrap();
    for id in classes.len()..200 {
        classes.push(serde_json::json!({ "name": format!("class {id}"), "colour": [0, 0, 0] }));
    }
    std::fs::write(&path, state.to_string()).unwrap();
    let device = gpu::open(&gpu::DeviceChoice::Cpu).unwrap().device;
    let Err(error) = load_model(&summary.run, &device) else { panic!("no machine holds it") };
    assert_eq!(error.exit_code(), 3, "{error}");
    assert!(error.to_string().contains("800.00 GiB"), "{error}");
}

#[test]
fn dropping_a_session_ends_the_run_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::start(config(folder.path(), &[("steps.steps", "100000")])).unwrap();
    wait_until(|| !session.history.lock().unwrap().steps.is_empty());
    drop(session);
    assert_eq!(files(&folder.path().join("tiny-1/checkpoints")).len(), 1);
}

#[test]
fn an_unknown_network_is_refused_before_a_run_begins() {
    let sets = [("model.network".to_owned(), "lmscnet-sss".to_owned())];
    let error = TrainConfig::from_layers("tiny", None, &sets).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    assert!(error.to_string().contains("did you mean \"lmscnet-ss\""), "{error}");
}

#[test]
fn what_cannot_be_fails_with_its_exit_code_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("grid.counts", "[16384, 16384, 8]", 3, "16384"),
        ("grid.counts", "[20, 16, 8]", 2, "divide by 8"),
        ("device", "No Such Card", 2, "No Such Card"),
        ("grid.ignore_id", "7", 2, "ignore_id"),
    ];
    for (key, value, code, text) in cases {
        let session = Session::start(config(folder.path(), &[(key, value)])).unwrap();
        let error = outcome(&session).1.unwrap_err();
        assert_eq!(error.exit_code(), code, "{key}: {error}");
        assert!(error.to_string().contains(text), "{key}: {error}");
        assert!(files(folder.path()).is_empty(), "{key}");
    }
}

#[test]
fn a_learning_rate_that_diverges_is_told_and_earlier_checkpoints_stay() {
    let folder = tempfile::tempdir().unwrap();
    let sets =
        [("optim.lr", "1e3"), ("optim.weight_decay", "900"), ("steps.checkpoint_every", "1"), ("steps.steps", "80")];
    let error = outcome(&Session::start(config(folder.path(), &sets)).unwrap()).1.unwrap_err();
    assert!(error.exit_code() == 1 && error.to_string().contains("optim.lr"), "{error}");
    assert!(!files(&folder.path().join("tiny-1/checkpoints")).is_empty());
}

#[test]
fn a_full_disk_is_one_clear_error_and_the_previous_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    let sets = [("steps.checkpoint_every", "2"), ("steps.steps", "100000")];
    let session = Session::start(config(folder.path(), &sets)).unwrap();
    let checkpoints = folder.path().join("tiny-1/checkpoints");
    wait_until(|| checkpoints.join("2").join(checkpoint::STATE).is_file());
    // No room for the folder of the next checkpoint: its place beside is taken by a file, for every step to come.
    let taken = (3..10_000).map(|step| checkpoints.join(format!("{step}")));
    taken.for_each(|path| drop(std::fs::File::create_new(path)));
    let error = outcome(&session).1.unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("cannot write the checkpoint"), "{error}");
    assert!(error.to_string().contains("earlier checkpoints were kept"), "{error}");
    let device = gpu::open(&gpu::DeviceChoice::Cpu).unwrap().device;
    assert!(load_model(&folder.path().join("tiny-1"), &device).unwrap().step >= 2);
}

#[test]
fn a_folder_that_is_no_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let device = gpu::open(&gpu::DeviceChoice::Cpu).unwrap().device;
    for path in [folder.path().to_path_buf(), folder.path().join("none")] {
        let Err(error) = load_model(&path, &device) else { panic!("no model is there") };
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("folder of a run"), "{error}");
    }
}

#[test]
fn software_vulkan_learns_what_the_cpu_learns() {
    let folder = tempfile::tempdir().unwrap();
    let sets = [("steps.batch", "1"), ("data.demo_train", "3")];
    let on_cpu = losses(&run(config(folder.path(), &sets)).run);
    let on_gpu = losses(&run(config(folder.path(), &[&sets[..], &[("device", "llvmpipe")]].concat())).run);
    assert_eq!(on_gpu.len(), 6);
    let apart = |(cpu, gpu): (&f32, &f32)| (cpu - gpu).abs() / cpu;
    let apart: Vec<f32> = on_cpu.iter().zip(&on_gpu).map(apart).collect();
    // One forward differs by the order of sums; steps multiply what differs.
    assert!(apart[0] < 1e-5 && apart.iter().all(|a| *a < 1e-3), "{apart:?}");
}
