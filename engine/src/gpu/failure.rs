//! What a failed read or a caught panic of Burn means: no memory, or a device that cannot be relied on.
//!
//! Burn makes tensors without being able to fail. What goes wrong on a GPU is kept by its thread and told by the first read
//! of something made from it; on the way there it may also panic, on that thread or on ours.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor, TensorData};

use super::is_cpu;
use crate::{Error, Result, panic_text};

/// How drivers, wgpu and cubecl speak of memory that is not there, in small letters.
const OUT_OF_MEMORY: [&str; 6] = [
    "out of memory",
    "outofmemory",
    "out of device memory",
    "out_of_memory",
    "can't allocate buffer",
    "not enough memory left",
];

/// A read that the device refused: [`Error::OutOfMemory`] when it says so, else [`Error::Device`].
pub fn device_failed(error: impl Display) -> Error {
    let text = error.to_string();
    // A backtrace is of no use to whoever reads the line.
    let lines = text.lines().take_while(|line| !line.trim_start().to_lowercase().starts_with("backtrace"));
    let line = lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let small = text.to_lowercase();
    if OUT_OF_MEMORY.iter().any(|words| small.contains(words)) {
        return Error::OutOfMemory(format!("the device is out of memory: {line}"));
    }
    Error::Device(format!("the device failed: {line}"))
}

/// Reads a tensor back. A device that is lost takes the order to read without complaint, and what it owes panics when it is
/// looked at; here it is an error.
///
/// # Errors
/// Those of [`device_failed`].
pub fn read<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> Result<TensorData> {
    let device = tensor.device();
    let read = catch_unwind(AssertUnwindSafe(|| {
        let data = tensor.try_into_data().map_err(device_failed)?;
        // The first look fetches all of it.
        let _ = data.as_bytes().first();
        Ok(data)
    }));
    read.unwrap_or_else(|panic| Err(panicked(&device, &*panic)))
}

/// A panic that was caught around work on `device`: what the device did on a GPU, a bug on the CPU.
pub fn panicked(device: &Device, panic: &(dyn Any + Send)) -> Error {
    let text = panic_text(panic);
    match device_failed(&text) {
        Error::Device(_) if is_cpu(device) => Error::Failed(format!("stopped at a bug: {text}")),
        error => error,
    }
}

/// Gives what the pool of a GPU holds for reuse back to the driver, as far as the device still answers.
pub fn free_unused(device: &Device) {
    let device = device.clone().without_autodiff();
    // A device that does not answer shows at the next read.
    let _ = catch_unwind(AssertUnwindSafe(|| device.memory_cleanup()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_memory_are_told_from_those_of_the_device() {
        let error = device_failed(
            "An error happened\nCaused by:\n  out of device memory allocating 512 bytes\nBacktrace:\n 0: x",
        );
        let Error::OutOfMemory(text) = &error else { panic!("{error:?}") };
        assert!(text.ends_with("Caused by: out of device memory allocating 512 bytes"), "{text}");
        assert!(matches!(device_failed("The device is poisoned"), Error::Device(_)));
        let panic: Box<dyn Any + Send> = Box::new("wgpu error: Out of Memory");
        assert!(matches!(panicked(&Device::flex(), &*panic), Error::OutOfMemory(_)));
        let panic: Box<dyn Any + Send> = Box::new("index out of bounds");
        assert!(matches!(panicked(&Device::flex(), &*panic), Error::Failed(_)));
    }
}
