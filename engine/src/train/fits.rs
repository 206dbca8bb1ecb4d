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
    let predicted = format!("the class scores of a prediction, 1 x {classes} {grid}");
    gpu::check_binding(device, &predicted, need.predicted)?;
    let mut what = predicted;
    if let Work::Training(training) = work {
        let some = if training.by_planes { format!("{LOGIT_PLANES} planes of ") } else { String::new() };
        let learned = format!("{some}the class scores of a step, {} x {classes} {grid}", training.micro_batch);
        gpu::check_binding(device, &learned, need.learned)?;
        if need.learned > need.predicted {
            what = learned;
        }
    }
    let bytes = if gpu::is_cpu(device) { need.host.max(need.cpu) } else { need.host };
    match machine_memory_bytes() {
        Some(memory) => compare(&what, bytes, memory),
        None => Ok(()),
    }
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Need {
    /// The class scores of one sample, in one piece: what a prediction makes.
    predicted: u64,
    /// Those that a step makes at a time; 0 without steps.
    learned: u64,
    /// What the host holds, wherever the network runs.
    host: u64,
    /// What the processor holds when the network runs there.
    cpu: u64,
}

/// `None` when it cannot be counted.
fn least_need(spec: &GridSpec, channels: usize, classes: usize, work: Work) -> Option<Need> {
    let times = |a: u64, b: usize| a.checked_mul(b as u64);
    let voxels = spec.checked_len()? as u64;
    let predicted = times(voxels, classes)?.checked_mul(4)?;
    // The input of a sample is there until the network is through.
    let input = times(voxels, channels)?.checked_mul(4)?;
    match work {
        Work::Training(Training { batch, accumulate, micro_batch, by_planes, workers }) => {
            let planes = if by_planes { spec.counts[2].min(LOGIT_PLANES) } else { spec.counts[2] };
            let scored = times(times(spec.counts[0] as u64, spec.counts[1])?, planes)?;
            let learned = times(times(scored, micro_batch)?, classes)?.checked_mul(4)?;
            // The counts of each class a voxel, beside targets of samples that are read together.
            let survey = times(voxels, classes)?.checked_mul(4)?.checked_add(times(voxels, TOGETHER)?)?;
            // Batches that wait, those in the making, and those of a step.
            let batches = workers.checked_mul(2)?.checked_add(accumulate)?;
            let queue = times(times(voxels, batch)?, batches)?;
            // The input waits for the backward pass, and the scores until their gradient takes their place, whatever the
            // network.
            let step = times(input, micro_batch)?.checked_add(learned)?;
            let cpu = step.max(predicted.checked_add(input)?).checked_add(queue)?;
            Some(Need { predicted, learned, host: survey.max(queue), cpu })
        }
        Work::Prediction => Some(Need { predicted, learned: 0, host: voxels, cpu: predicted.checked_add(input)? }),
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
        let (predicted, learned) = (20_000, 40_000);
        let whole = Need { predicted, learned, host: 28_000, cpu: 40_000 + 14_000 + 24_000 };
        assert_eq!(need(training), whole);
        let many = need(Training { workers: 30, ..training });
        assert_eq!(many.host, 61 * 2 * 1000);
        // 4 of 10 planes, and one sample of two: 2 x 4 x 100 voxels, then 400; a prediction of 20,000 with its input is more.
        let by_planes = Training { by_planes: true, ..training };
        assert_eq!(need(by_planes), Need { learned: 16_000, cpu: 16_000 + 14_000 + 24_000, ..whole });
        let split = Training { micro_batch: 1, ..by_planes };
        assert_eq!(need(split), Need { learned: 8_000, cpu: 20_000 + 14_000 + 12_000, ..whole });
        // A step of 3 batches holds two more.
        assert_eq!(need(Training { accumulate: 3, ..split }).cpu, 20_000 + 18_000 + 12_000);
        let prediction = least_need(&spec, 3, 5, Work::Prediction).unwrap();
        assert_eq!(prediction, Need { predicted, learned: 0, host: 1000, cpu: 32_000 });
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
