//! Memory of a run stays flat after its first steps. One test, because all of a process is counted.

use occam_engine::gpu::CountingAllocator;
use occam_engine::session::{Event, Session};
use occam_engine::train::{StepRecord, TrainConfig};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Steps of a run over demo streets on 16 x 16 x 8 voxels.
fn records(device: &str, steps: usize) -> Vec<StepRecord> {
    let folder = tempfile::tempdir().unwrap();
    let sets = [
        ("runs", folder.path().display().to_string()),
        ("device", device.to_owned()),
        ("grid.counts", "[16, 16, 8]".to_owned()),
        ("grid.voxel_size_m", "[1.6, 1.6, 0.8]".to_owned()),
        ("data.demo_train", "6".to_owned()),
        ("data.demo_validation", "2".to_owned()),
        ("data.workers", "1".to_owned()),
        ("steps.batch", "1".to_owned()),
        ("steps.steps", steps.to_string()),
    ];
    let sets = sets.map(|(key, value)| (key.to_owned(), value));
    let config = TrainConfig::from_layers("tiny", None, &sets).unwrap();
    let session = Session::start(config).unwrap();
    let last = session.events.iter().find(|event| matches!(event, Event::Done(_) | Event::Failed(_)));
    assert!(matches!(last, Some(Event::Done(_))), "{last:?}");
    let history = session.history.lock().unwrap();
    history.steps.clone()
}

/// Least of some steps: the loader makes batches beside the steps, which come and go.
fn least(records: &[StepRecord], bytes: fn(&StepRecord) -> Option<u64>) -> u64 {
    records.iter().filter_map(bytes).min().expect("somebody counts")
}

#[test]
fn memory_is_flat_over_300_steps() {
    let steps = records("cpu", 300);
    assert_eq!(steps.len(), 300);
    // The run keeps one record a step, some 300 bytes, and its loss.
    let allowed = 280 * 1024;
    for bytes in [(|step| step.in_use_bytes) as fn(&StepRecord) -> _, |step| step.step_peak_bytes] {
        let (early, late) = (least(&steps[19..40], bytes), least(&steps[280..], bytes));
        assert!(late <= early + allowed, "{early} bytes after 20 steps, {late} after 300");
    }
    // What was in use at the peak is all there, by kind.
    let last = &steps[299];
    let kinds = last.memory.unwrap();
    let sum = kinds.weights + kinds.optimizer + kinds.data + kinds.gradients + kinds.activations + kinds.workspace;
    assert_eq!(Some(sum), last.step_peak_bytes, "{last:?}");
    assert!(kinds.activations > 0 && kinds.weights > 0 && kinds.optimizer > kinds.weights, "{kinds:?}");

    // A pool takes pages and keeps them: none of a tensor's is added once every size was there. What kernels are told in numbers
    // is kept too, some kilobytes a step while numbers are new.
    let steps = records("llvmpipe", 12);
    let (early, late) = (steps[4].reserved_bytes.unwrap(), steps[11].reserved_bytes.unwrap());
    assert!(early > 0 && late <= early + 64 * 1024, "{early} bytes reserved, then {late}");
}
