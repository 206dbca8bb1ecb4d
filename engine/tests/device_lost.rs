//! A device that is lost, and the fresh one that takes its place. Software Vulkan; one test a process.

use burn::tensor::{Device, Tensor};
use occam_engine::{Error, gpu};

fn llvmpipe() -> Device {
    gpu::open(&gpu::DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn sum(device: &Device) -> Result<f32, Error> {
    let sum = Tensor::<1>::ones([1000], device).sum();
    Ok(gpu::read(sum)?.iter::<f32>().sum())
}

#[test]
fn a_lost_device_says_so_and_is_replaced_by_one_that_works() {
    let lost = llvmpipe();
    let kept = Tensor::<1>::ones([1000], &lost);
    assert_eq!(sum(&lost).unwrap(), 1000.0);
    gpu::lose(&lost);
    for found in [sum(&lost), gpu::read(kept).map(|_| 0.0)] {
        println!("{found:?}");
        assert!(matches!(found, Err(Error::Device(_))), "{found:?}");
    }
    gpu::free_unused(&lost);
    let fresh = gpu::replace(&lost).unwrap().device;
    assert_ne!(fresh, lost);
    assert_eq!(sum(&fresh).unwrap(), 1000.0);
    assert_eq!(llvmpipe(), fresh, "the lost one is never handed out again");
    assert!(gpu::adapter_of(&fresh).is_some());
    assert!(gpu::replace(&Device::flex()).is_err());
    // Once more: a device can be lost as often as it likes.
    gpu::lose(&fresh);
    assert!(sum(&fresh).is_err());
    assert_eq!(sum(&gpu::replace(&fresh).unwrap().device).unwrap(), 1000.0);
}
