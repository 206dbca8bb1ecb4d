//! Plans against steps that were really taken, counted by the allocator. One test, because all of a process is counted.

use occam_engine::gpu::CountingAllocator;
use occam_engine::train::{TrainConfig, study};
use std::ops::ControlFlow;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn predicted_peaks_are_measured_and_stay_within_their_budgets() {
    let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sets = [
        set("device", "cpu"),
        set("model.network", "lmscnet-ss"),
        set("grid.counts", "[64, 64, 16]"),
        set("grid.voxel_size_m", "[0.8, 0.8, 0.4]"),
        set("grid.origin_m", "[-25.6, -25.6, -2.0]"),
        set("data.demo_train", "1"),
        set("data.demo_validation", "1"),
        set("loss.lovasz", "0"),
        set("loss.cross_entropy", "1"),
        set("steps.batch", "1"),
    ];
    let config = TrainConfig::from_layers("tiny", None, &sets).unwrap();
    let study = study(&config, None, &mut |_| ControlFlow::Continue(())).unwrap();
    for row in &study.rows {
        println!("{row:?} {:?}", row.error());
    }
    let plans: Vec<_> = study.rows.iter().filter(|row| row.budget_bytes.is_some()).collect();
    assert!(plans.len() >= 6, "{} budgets", plans.len());
    for row in &study.rows {
        assert!(row.error().unwrap().abs() < 0.05, "{row:?}");
    }
    for row in plans {
        assert!(row.measured_bytes.unwrap() <= row.budget_bytes.unwrap(), "{row:?}");
    }
    let peak = |name: &str| study.rows.iter().find(|row| row.name == name).unwrap().measured_bytes.unwrap();
    let (plan, none) = (peak("plan"), peak("none"));
    assert!(plan < none * 7 / 8, "the smallest plan saves an eighth at least: {plan} of {none}");
}
