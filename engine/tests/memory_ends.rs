//! A training run whose memory ends: at every request of a step, one after another, and for real, in a child process.
//! On the CPU. The switch is one of the process: tests run one at a time.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use occam_engine::Error;
use occam_engine::gpu::{self, CountingAllocator};
use occam_engine::session::{Command, Event, Session, Summary};
use occam_engine::train::{TrainConfig, checkpoint};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Demo streets on 8 x 8 x 8 voxels.
fn config(runs: &Path, sets: &[(&str, &str)]) -> TrainConfig {
    let mut all = vec![
        ("runs".to_owned(), runs.display().to_string()),
        ("device".to_owned(), "cpu".to_owned()),
        ("grid.counts".to_owned(), "[8, 8, 8]".to_owned()),
        ("grid.voxel_size_m".to_owned(), "[3.2, 3.2, 0.8]".to_owned()),
        ("data.demo_train".to_owned(), "2".to_owned()),
        ("data.demo_validation".to_owned(), "1".to_owned()),
        ("data.workers".to_owned(), "1".to_owned()),
        ("steps.steps".to_owned(), "3".to_owned()),
        ("steps.batch".to_owned(), "2".to_owned()),
    ];
    all.extend(sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    TrainConfig::from_layers("tiny", None, &all).unwrap()
}

struct Outcome {
    warnings: Vec<String>,
    result: Result<Summary, Error>,
}

fn run(config: TrainConfig) -> Outcome {
    let session = Session::start(config).unwrap();
    let mut warnings = Vec::new();
    for event in &session.events {
        match event {
            Event::Done(summary) => return Outcome { warnings, result: Ok(summary) },
            Event::Failed(error) => return Outcome { warnings, result: Err(error) },
            Event::Warning(text) => warnings.push(text),
            _ => {}
        }
    }
    panic!("the trainer ended without a last event: {warnings:?}");
}

/// Weights and moments after `step`.
fn trained(run: &Path, step: usize) -> [Vec<u8>; 2] {
    let folder = run.join(checkpoint::CHECKPOINTS).join(step.to_string());
    [checkpoint::WEIGHTS, checkpoint::OPTIMIZER].map(|name| std::fs::read(folder.join(name)).unwrap())
}

fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that is paused before every step.
struct Paused {
    session: Session,
    warnings: Vec<String>,
}

impl Paused {
    fn start(config: TrainConfig) -> Self {
        let session = Session::start(config).unwrap();
        session.commands.send(Command::Pause).unwrap();
        Self { session, warnings: Vec::new() }
    }

    /// Takes one step; gives the number of requests that it made.
    fn step(&mut self) -> u64 {
        let steps = || self.session.history.lock().unwrap().steps.len();
        let (before, taken) = (gpu::requests(), steps());
        self.session.commands.send(Command::StepOnce).unwrap();
        let began = std::time::Instant::now();
        while steps() == taken {
            for event in self.session.events.try_iter() {
                match event {
                    Event::Warning(text) => self.warnings.push(text),
                    Event::Failed(error) => panic!("{error}"),
                    _ => {}
                }
            }
            assert!(began.elapsed().as_secs() < 120, "the step does not end");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        gpu::requests() - before
    }
}

/// The request that fails is the first one in the first step, the second one in the second, and so on through all that a step
/// makes.
#[test]
fn a_request_that_fails_at_any_place_of_a_step_changes_nothing() {
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let mut probe = Paused::start(config(folder.path(), &[("name", "probe")]));
    let requests = [probe.step(), probe.step()];
    drop(probe);
    assert_eq!(requests[0], requests[1], "all steps are alike");
    let requests = requests[0];
    // Twice, once and once for each of some ten segments and thirty parameters, and kernels in all of them.
    assert!(requests > 100, "{requests}");
    let steps = requests.to_string();
    let whole = run(config(folder.path(), &[("name", "whole"), ("steps.steps", &steps)]));
    assert!(whole.warnings.is_empty() && whole.result.is_ok(), "{:?}", whole.warnings);

    let mut failing = Paused::start(config(folder.path(), &[("name", "failing"), ("steps.steps", &steps)]));
    for k in 1..=requests {
        gpu::fail_request(Some(k));
        failing.step();
    }
    let Paused { session, mut warnings } = failing;
    for event in &session.events {
        match event {
            Event::Done(summary) => {
                assert_eq!((summary.steps as u64, summary.interrupted), (requests, false));
                break;
            }
            Event::Failed(error) => panic!("{error}"),
            Event::Warning(text) => warnings.push(text),
            _ => {}
        }
    }
    println!("{requests} requests in a step; {:?}", warnings.last());
    // From the fiftieth on warnings are not shown.
    let seen = warnings.len().min(49);
    for (step, text) in (1..).zip(&warnings[..seen]) {
        assert!(text.starts_with(&format!("step {step}: ")) && text.contains("the step is repeated"), "{text}");
    }
    assert!(seen == 49, "{warnings:?}");
    let [whole, failing] = ["whole", "failing"].map(|name| trained(&folder.path().join(name), requests as usize));
    assert!(whole == failing, "weights and moments are equal byte for byte");
}

/// Scores and checkpoints: what a run asks for when its steps are done.
#[test]
fn a_request_that_fails_after_the_last_step_is_repeated() {
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let one = |name: &str| config(folder.path(), &[("name", name), ("steps.steps", "1")]);
    let before = gpu::requests();
    let whole = run(one("whole")).result.unwrap();
    let all = gpu::requests() - before;
    let mut paused = Paused::start(config(folder.path(), &[("name", "probe")]));
    let step = paused.step();
    drop(paused);
    let expected = trained(&folder.path().join("whole"), 1);
    assert!(all > step + 3, "{all} and {step}");
    for k in step + 1..=all {
        gpu::fail_request(Some(k));
        let Outcome { warnings, result } = run(one(&format!("k{k}")));
        let summary = result.unwrap_or_else(|error| panic!("request {k}: {error}"));
        assert_eq!(summary.validation, whole.validation, "request {k}: {warnings:?}");
        assert!(warnings.len() == 1 && warnings[0].contains("repeated"), "request {k}: {warnings:?}");
        assert!(trained(&summary.run, 1) == expected, "request {k}");
    }
}

/// Every request after the first step is refused: the ladder to its end.
#[test]
fn a_step_that_never_fits_ends_the_run_with_its_last_checkpoint() {
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let mut paused = Paused::start(config(folder.path(), &[("steps.batch", "4"), ("steps.checkpoint_every", "1")]));
    paused.step();
    let saved = folder.path().join("tiny-1").join(checkpoint::CHECKPOINTS).join("1");
    while !saved.join(checkpoint::STATE).is_file() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    gpu::fail_requests(Some(1..=u64::MAX / 2));
    paused.session.commands.send(Command::Resume).unwrap();
    let mut warnings = paused.warnings;
    let error = loop {
        match paused.session.events.recv().unwrap() {
            Event::Warning(text) => warnings.push(text),
            Event::Failed(error) => break error,
            Event::Done(summary) => panic!("{summary:?}"),
            _ => {}
        }
    };
    gpu::fail_requests(None);
    let rungs = [
        "the step is repeated",
        "network 2 at a time: batch norm",
        "network 1 at a time: batch norm",
        "more is recomputed",
    ];
    assert_eq!(warnings.len(), rungs.len(), "{warnings:?}");
    for (text, rung) in warnings.iter().zip(rungs) {
        assert!(text.contains(rung), "{rung}: {text}");
    }
    let text = error.to_string();
    assert!(error.exit_code() == 3 && text.starts_with("step 2: ") && !text.contains('\n'), "{text}");
    let places = ["The run is saved in", "f16", "--vram auto", "steps.batch", "data.workers", "grid"];
    assert!(places.map(|word| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"))).is_sorted(), "{text}");
    let state = checkpoint::read_state(&saved).unwrap();
    assert_eq!((state.step, state.micro_batch), (1, 0));
}

/// Where the child process finds the folder for its run.
#[cfg(target_os = "linux")]
const RUNS: &str = "OCCAM_TEST_RUNS";

/// The run fits; after its third step the process holds all address space that is left.
#[cfg(target_os = "linux")]
#[test]
// It takes all memory of its process: the next test starts it in one of its own, where it is not ignored.
#[ignore = "runs in a child process of the next test"]
fn child_whose_memory_is_taken_away() {
    use std::alloc::{GlobalAlloc, Layout, System};

    let Some(runs) = std::env::var_os(RUNS) else { return };
    let sets = [("grid.counts", "[64, 64, 16]"), ("grid.voxel_size_m", "[0.4, 0.4, 0.4]"), ("steps.steps", "100000")];
    let mut paused = Paused::start(config(Path::new(&runs), &sets));
    for _ in 0..3 {
        paused.step();
    }
    for power in (16..=28).rev() {
        let layout = Layout::from_size_align(1 << power, 16).unwrap();
        // SAFETY: the size is not zero. The blocks are held until the process ends.
        #[allow(unsafe_code)]
        while !std::hint::black_box(unsafe { System.alloc(layout) }).is_null() {}
    }
    paused.session.commands.send(Command::Resume).unwrap();
    for event in &paused.session.events {
        match event {
            Event::Failed(error) => {
                eprintln!("error: {error}");
                std::process::exit(i32::from(error.exit_code()));
            }
            Event::Done(_) => std::process::exit(0),
            Event::Warning(text) => eprintln!("warning: {text}"),
            _ => {}
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_whose_memory_is_taken_away_ends_saved_with_exit_code_3() {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 3000000 && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_whose_memory_is_taken_away", "--ignored", "--nocapture"])
        .env(RUNS, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("The run is saved in") && said.contains("precision.format"), "{said}");
    let checkpoints = folder.path().join("tiny-1").join(checkpoint::CHECKPOINTS);
    let names: Vec<String> =
        std::fs::read_dir(checkpoints).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() == 1 && names[0].parse::<usize>().is_ok_and(|step| step >= 3), "{names:?}");
    let device = gpu::open(&gpu::DeviceChoice::Cpu).unwrap().device;
    occam_engine::train::load_model(&folder.path().join("tiny-1"), &device).unwrap();
}
