//! A training run on a GPU whose device is lost, and one whose requests are refused. Software Vulkan; one test a process.

use std::path::Path;
use std::time::{Duration, Instant};

use occam_engine::gpu;
use occam_engine::session::{Command, Event, Session, Summary};
use occam_engine::train::{TrainConfig, checkpoint};

const STEPS: usize = 4;

/// Demo streets on 8 x 8 x 8 voxels.
fn config(runs: &Path, name: &str) -> TrainConfig {
    let steps = STEPS.to_string();
    let sets = [
        ("runs", runs.to_str().unwrap()),
        ("name", name),
        ("device", "llvmpipe"),
        ("grid.counts", "[8, 8, 8]"),
        ("grid.voxel_size_m", "[3.2, 3.2, 0.8]"),
        ("data.demo_train", "2"),
        ("data.demo_validation", "1"),
        ("data.workers", "1"),
        ("steps.batch", "2"),
        ("steps.steps", &steps),
        ("steps.checkpoint_every", "2"),
    ];
    let sets: Vec<_> = sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    TrainConfig::from_layers("tiny", None, &sets).unwrap()
}

/// Runs to the end, and does `before` before each step.
fn run(config: TrainConfig, mut before: impl FnMut(usize)) -> (Summary, Vec<String>) {
    let session = Session::start(config).unwrap();
    session.commands.send(Command::Pause).unwrap();
    let mut warnings = Vec::new();
    for step in 1..=STEPS {
        before(step);
        session.commands.send(Command::StepOnce).unwrap();
        let began = Instant::now();
        // A run that goes back takes its steps again, paused before each.
        while session.history.lock().unwrap().steps.last().is_none_or(|record| record.step < step) {
            for event in session.events.try_iter() {
                match event {
                    Event::Warning(text) => {
                        if text.contains("a fresh device") {
                            session.commands.send(Command::Resume).unwrap();
                        }
                        warnings.push(text);
                    }
                    Event::Failed(error) => panic!("{error}"),
                    Event::Done(summary) => return (summary, warnings),
                    _ => {}
                }
            }
            assert!(began.elapsed() < Duration::from_mins(5), "step {step} does not end: {warnings:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    session.commands.send(Command::Resume).unwrap();
    loop {
        match session.events.recv().unwrap() {
            Event::Done(summary) => return (summary, warnings),
            Event::Failed(error) => panic!("{error}"),
            Event::Warning(text) => warnings.push(text),
            _ => {}
        }
    }
}

fn trained(summary: &Summary) -> [Vec<u8>; 2] {
    let folder = summary.run.join(checkpoint::CHECKPOINTS).join(STEPS.to_string());
    [checkpoint::WEIGHTS, checkpoint::OPTIMIZER].map(|name| std::fs::read(folder.join(name)).unwrap())
}

#[test]
fn a_run_survives_refused_requests_and_a_lost_device_with_equal_weights() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = vec![0];
    let (whole, warnings) = run(config(folder.path(), "whole"), |_| made.push(gpu::requests()));
    assert!(warnings.is_empty(), "{warnings:?}");
    let step = made[2] - made[1];
    let expected = trained(&whole);

    // Before the forward pass, further on in it, in the loss, and near the end.
    let places = [1, step / 4, step / 2, step * 9 / 10];
    let (refused, warnings) = run(config(folder.path(), "refused"), |step| gpu::fail_request(Some(places[step - 1])));
    println!("{step} requests in a step; {warnings:#?}");
    assert!(warnings.len() == STEPS && warnings.iter().all(|text| text.contains("the step is repeated")));
    assert!(trained(&refused) == expected, "refused");

    // After the checkpoint of step 2 and a step beyond.
    let (lost, warnings) = run(config(folder.path(), "lost"), |step| {
        if step == 4 {
            gpu::lose(&gpu::open(&gpu::DeviceChoice::Name("llvmpipe".into())).unwrap().device);
        }
    });
    println!("{warnings:#?}");
    assert!(warnings.len() == 1 && warnings[0].contains("goes on from step 2"), "{warnings:?}");
    assert!(trained(&lost) == expected, "lost");
    let metrics = std::fs::read_to_string(lost.run.join("metrics.jsonl")).unwrap();
    let steps = metrics.lines().filter(|line| line.contains("\"kind\":\"step\"")).count();
    assert_eq!(steps, STEPS, "no step is noted twice");
}
