//! Refuses what cannot fit before anything is allocated: on the CPU an allocation that fails ends the program.

use burn::tensor::Device;
use occam_scene::GridSpec;

use crate::{Error, Result, gpu};

/// Checks a step of `batch` samples on `device`: the largest tensor against the device's limit, and on the CPU what
/// must be held at the same time at the very least against the memory of the machine.
///
/// # Errors
/// [`Error::TooLarge`] with grid, bytes and limit.
pub fn check(device: &Device, on_cpu: bool, spec: &GridSpec, batch: usize, classes: usize) -> Result<()> {
    let what = format!("the class scores of {batch} x {} classes on a grid of {:?} voxels", classes, spec.counts);
    let Some(bytes) = logits_bytes(spec, batch, classes) else {
        return Err(Error::TooLarge(format!(
            "{what} have more bytes than this machine can count. Use a smaller grid."
        )));
    };
    gpu::check_binding(device, &what, bytes)?;
    if let Some(memory) = machine_memory_bytes().filter(|_| on_cpu) {
        compare(&what, bytes, memory)?;
    }
    Ok(())
}

fn logits_bytes(spec: &GridSpec, batch: usize, classes: usize) -> Option<u64> {
    let values = spec.checked_len()?.checked_mul(batch)?.checked_mul(classes)?;
    (values as u64).checked_mul(4)
}

/// Scores, their logarithms and the gradient live at the same time, whatever the network.
fn compare(what: &str, bytes: u64, memory: u64) -> Result<()> {
    let needed = bytes.saturating_mul(3);
    if needed <= memory {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "{what} need at least {needed} bytes in training, and this machine has {memory}. Use a smaller steps.batch or \
         grid, or larger voxels."
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
    fn the_least_need_is_three_times_the_scores() {
        let spec = GridSpec::new([0.0; 3], [1.0; 3], [10, 10, 10]);
        let bytes = logits_bytes(&spec, 2, 5).unwrap();
        assert_eq!(bytes, 1000 * 2 * 5 * 4);
        assert!(compare("x", bytes, 3 * bytes).is_ok());
        let error = compare("the scores", bytes, 3 * bytes - 1).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("120000") && error.to_string().contains("119999"), "{error}");
    }

    #[test]
    fn a_grid_beyond_counting_is_too_large() {
        // The product wraps to 0.
        let spec = GridSpec::new([0.0; 3], [1.0; 3], [1 << 32, 1 << 32, 1]);
        assert_eq!(check(&Device::flex(), true, &spec, 1, 2).unwrap_err().exit_code(), 3);
        let spec = GridSpec::new([0.0; 3], [1.0; 3], [1 << 15, 1 << 15, 1]);
        assert_eq!(check(&Device::flex(), true, &spec, 1 << 12, 20).unwrap_err().exit_code(), 3);
    }
}
