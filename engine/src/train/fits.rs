//! Refuses what cannot fit before anything is allocated: on the CPU an allocation that fails ends the program.

use burn::tensor::Device;
use occam_scene::GridSpec;

use super::evaluate::TOGETHER;
use crate::{Error, Result, gpu};

/// What a network is about to be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Steps on micro-batches of `batch` samples that `workers` threads prepare.
    Training { batch: usize, workers: usize },
    /// One sample at a time.
    Prediction,
}

/// Checks `work` on `device`: the largest tensor against the device's limit, and what must be held at the same time at
/// the very least against the memory of the machine.
///
/// # Errors
/// [`Error::TooLarge`] with grid, bytes and limit.
pub fn check(device: &Device, spec: &GridSpec, channels: usize, classes: usize, work: Work) -> Result<()> {
    let batch = match work {
        Work::Training { batch, .. } => batch,
        Work::Prediction => 1,
    };
    let what = format!("the class scores of {batch} x {classes} classes on a grid of {:?} voxels", spec.counts);
    let Some(need) = least_need(spec, channels, classes, work) else {
        return Err(Error::TooLarge(format!(
            "{what} have more bytes than this machine can count. Use a smaller grid."
        )));
    };
    gpu::check_binding(device, &what, need.scores)?;
    let bytes = if gpu::is_cpu(device) { need.host.max(need.cpu) } else { need.host };
    match machine_memory_bytes() {
        Some(memory) => compare(&what, bytes, memory),
        None => Ok(()),
    }
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Need {
    /// The class scores once, in one piece.
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
    match work {
        Work::Training { batch, workers } => {
            let scores = times(times(voxels, batch)?, classes)?.checked_mul(4)?;
            // The counts of each class a voxel, beside targets of samples that are read together.
            let survey = times(voxels, classes)?.checked_mul(4)?.checked_add(times(voxels, TOGETHER)?)?;
            // Batches that wait, and those in the making.
            let queue = times(times(voxels, batch)?, workers.checked_mul(2)?.checked_add(1)?)?;
            // The input waits for the backward pass, and the scores until their gradient takes their place, whatever the
            // network.
            let input = times(times(voxels, batch)?, channels)?.checked_mul(4)?;
            let cpu = scores.checked_add(input)?.checked_add(queue)?;
            Some(Need { scores, host: survey.max(queue), cpu })
        }
        Work::Prediction => {
            let scores = times(voxels, classes)?.checked_mul(4)?;
            // The input is there until the network is through.
            let input = times(voxels, channels)?.checked_mul(4)?;
            Some(Need { scores, host: voxels, cpu: scores.checked_add(input)? })
        }
    }
}

fn compare(what: &str, needed: u64, memory: u64) -> Result<()> {
    if needed <= memory {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "{what}, with what must be held beside them, need at least {}, and this machine has {}. Use a smaller \
         steps.batch or grid, or larger voxels.",
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
        let need = least_need(&spec, 3, 5, Work::Training { batch: 2, workers: 3 }).unwrap();
        // 7 batches of 2 x 1000 voxels wait or are made; 8 targets are read beside 4 bytes a class and voxel; 2 x 3
        // channels of 4 bytes a voxel go in.
        assert_eq!(need, Need { scores: 40_000, host: 28_000, cpu: 40_000 + 14_000 + 24_000 });
        let many = least_need(&spec, 3, 5, Work::Training { batch: 2, workers: 30 }).unwrap();
        assert_eq!(many.host, 61 * 2 * 1000);
        let prediction = least_need(&spec, 3, 5, Work::Prediction).unwrap();
        assert_eq!(prediction, Need { scores: 20_000, host: 1000, cpu: 32_000 });
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
            let work = Work::Training { batch, workers: 1 };
            check(&Device::flex(), &spec, 1, classes, work).unwrap_err().exit_code()
        };
        // The product wraps to 0.
        assert_eq!(code([1 << 32, 1 << 32, 1], 1, 2), 3);
        assert_eq!(code([1 << 15, 1 << 15, 1], 1 << 12, 20), 3);
    }
}
