//! Refuses what cannot fit before anything is allocated: on the CPU an allocation that fails ends the program.

use burn::tensor::Device;
use occam_scene::GridSpec;

use super::TrainConfig;
use super::evaluate::TOGETHER;
use crate::models::LOGIT_PLANES;
use crate::{Error, Result, gpu};

/// What a network is about to be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Training(Training),
    /// One sample at a time.
    Prediction,
}

/// Steps, and predictions of validation samples in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Training {
    /// Samples that are loaded together.
    pub batch: usize,
    /// Batches a step.
    pub accumulate: usize,
    /// Samples that go through the network at a time.
    pub micro_batch: usize,
    /// Whether the loss takes a few planes of class scores at a time.
    pub by_planes: bool,
    /// Threads that prepare batches.
    pub workers: usize,
}

impl Training {
    pub fn new(config: &TrainConfig) -> Self {
        let (batch, micro_batch) = (config.steps.batch, config.memory.micro_batch);
        Self {
            batch,
            accumulate: config.steps.accumulate,
            micro_batch: if micro_batch == 0 { batch } else { micro_batch.min(batch) },
            by_planes: config.loss.by_planes(),
            workers: config.data.workers,
        }
    }
}

/// Checks `work` on `device`: the largest tensors against the device's limit, and what must be held at the same time at
/// the very least against the memory of the machine.
///
/// # Errors
/// [`Error::TooLarge`] with tensor, grid, bytes and limit.
pub fn check(device: &Device, spec: &GridSpec, channels: usize, classes: usize, work: Work) -> Result<()> {
    let grid = format!("classes on a grid of {:?} voxels", spec.counts);
    let Some(need) = least_need(spec, channels, classes, work) else {
        return Err(Error::TooLarge(format!(
            "the class scores of {classes} {grid} have more bytes than this machine can count. Use a smaller grid."
        )));
    };
    let (samples, by_planes, whose) = match work {
        Work::Training(training) => (training.micro_batch, training.by_planes, "a step"),
        Work::Prediction => (1, true, "a prediction"),
    };
    let input = format!("the input of {whose}, {samples} x {channels} channels on a grid of {:?} voxels", spec.counts);
    gpu::check_binding(device, &input, need.input)?;
    let some = if by_planes { format!("{LOGIT_PLANES} planes of ") } else { String::new() };
    let scores = format!("{some}the class scores of {whose}, {samples} x {classes} {grid}");
    gpu::check_binding(device, &scores, need.scores)?;
    let what = if need.input > need.scores { input } else { scores };
    let bytes = if gpu::is_cpu(device) { need.host.max(need.cpu) } else { need.host };
    match machine_memory_bytes() {
        Some(memory) => compare(&what, bytes, memory),
        None => Ok(()),
    }
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Need {
    /// What goes into the network at a time.
    input: u64,
    /// The class scores that are made at a time.
    scores: u64,
    /// What the host holds, wherever the network runs.
    host: u64,
    /// What the processor holds when the network runs there.
    cpu: u64,
}

/// `None` when it cannot be counted.
fn least_need(spec: &GridSpec, channels: usize, classes: usize, work: Work) -> Option<Need> {
    let times = |a: u64, b: usize| a.checked_mul(b as u64);
    let voxels = spec.checked_len()? as u64;
    let input = |samples| times(times(voxels, channels)?, samples)?.checked_mul(4);
    let scores = |samples, planes: usize| {
        let plane = times(spec.counts[0] as u64, spec.counts[1])?;
        times(times(times(plane, spec.counts[2].min(planes))?, classes)?, samples)?.checked_mul(4)
    };
    match work {
        Work::Training(Training { batch, accumulate, micro_batch, by_planes, workers }) => {
            // The counts of each class a voxel, beside targets of samples that are read together.
            let survey = times(voxels, classes)?.checked_mul(4)?.checked_add(times(voxels, TOGETHER)?)?;
            // Batches that wait, those in the making, and those of a step.
            let batches = workers.checked_mul(2)?.checked_add(accumulate)?;
            let queue = times(times(voxels, batch)?, batches)?;
            // The input waits for the backward pass, and the scores until their gradient takes their place, whatever the
            // network. A prediction in between holds less.
            let input = input(micro_batch)?;
            let scores = scores(micro_batch, if by_planes { LOGIT_PLANES } else { usize::MAX })?;
            let cpu = input.checked_add(scores)?.checked_add(queue)?;
            Some(Need { input, scores, host: survey.max(queue), cpu })
        }
        Work::Prediction => {
            // One after the other: a network may let go of its input before it comes to scores.
            let (input, scores) = (input(1)?, scores(1, LOGIT_PLANES)?);
            Some(Need { input, scores, host: voxels, cpu: input.max(scores) })
        }
    }
}

fn compare(what: &str, needed: u64, memory: u64) -> Result<()> {
    if needed <= memory {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "{what}, with what must be held beside them, need at least {}, and this machine has {}. Use a smaller \
         memory.micro_batch, steps.batch or grid, or larger voxels.",
        crate::bytes_text(needed),
        crate::bytes_text(memory)
    )))
}

/// Memory of the machine; `None` where the system does not say.
fn machine_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_need_of_training_counts_scores_survey_and_queue() {
        let spec = GridSpec::new([0.0; 3], [1.0; 3], [10, 10, 10]);
        let training = Training { batch: 2, accumulate: 1, micro_batch: 2, by_planes: false, workers: 3 };
        let need = |training| least_need(&spec, 3, 5, Work::Training(training)).unwrap();
        // 7 batches of 2 x 1000 voxels wait or are made; 8 targets are read beside 4 bytes a class and voxel; 2 x 3
        // channels of 4 bytes a voxel go in.
        let whole = Need { input: 24_000, scores: 40_000, host: 28_000, cpu: 24_000 + 40_000 + 14_000 };
        assert_eq!(need(training), whole);
        let many = need(Training { workers: 30, ..training });
        assert_eq!(many.host, 61 * 2 * 1000);
        // 4 of 10 planes, and one sample of two: 2 x 4 x 100 voxels, then 400.
        let by_planes = Training { by_planes: true, ..training };
        assert_eq!(need(by_planes), Need { scores: 16_000, cpu: 24_000 + 16_000 + 14_000, ..whole });
        let split = Training { micro_batch: 1, ..by_planes };
        assert_eq!(need(split), Need { input: 12_000, scores: 8_000, cpu: 12_000 + 8_000 + 14_000, ..whole });
        // A step of 3 batches holds two more.
        assert_eq!(need(Training { accumulate: 3, ..split }).cpu, 12_000 + 8_000 + 18_000);
        let prediction = least_need(&spec, 3, 5, Work::Prediction).unwrap();
        assert_eq!(prediction, Need { input: 12_000, scores: 8_000, host: 1000, cpu: 12_000 });
    }

    #[test]
    fn what_does_not_fit_is_told_in_units_people_read() {
        assert!(compare("x", 3 << 30, 3 << 30).is_ok());
        let error = compare("the scores", 3 << 30, 5 << 29).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("3.00 GiB") && error.to_string().contains("2.50 GiB"), "{error}");
    }

    #[test]
    fn a_grid_beyond_counting_is_too_large() {
        let code = |counts, batch, classes| {
            let spec = GridSpec::new([0.0; 3], [1.0; 3], counts);
            let training = Training { batch, accumulate: 1, micro_batch: batch, by_planes: false, workers: 1 };
            let work = Work::Training(training);
            check(&Device::flex(), &spec, 1, classes, work).unwrap_err().exit_code()
        };
        // The product wraps to 0.
        assert_eq!(code([1 << 32, 1 << 32, 1], 1, 2), 3);
        assert_eq!(code([1 << 15, 1 << 15, 1], 1 << 12, 20), 3);
    }
}
