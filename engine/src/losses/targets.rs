//! Targets of one scale on the device, with what the host knows of them.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// What a prediction of one scale is compared with.
#[derive(Debug, Clone)]
pub struct Targets {
    /// `[B, Z, X, Y]` in u32: a class, or the id that is ignored.
    pub labels: Tensor<4, Int>,
    /// Voxels of each class, without those that are ignored. The losses thus know which classes there are without
    /// waiting for the device.
    pub counts: Vec<u32>,
}

impl Targets {
    /// `labels` in row-major order over `shape`, `[B, Z, X, Y]`, each below `classes` or `ignore_id`.
    pub fn new(labels: &[u8], shape: [usize; 4], classes: usize, ignore_id: u8, device: &Device) -> Self {
        let mut counts = [0; 256];
        for label in labels {
            counts[usize::from(*label)] += 1;
        }
        counts[usize::from(ignore_id)] = 0;
        let labels: Vec<u32> = labels.iter().copied().map(u32::from).collect();
        Self {
            labels: Tensor::from_data(TensorData::new(labels, shape), (device, DType::U32)),
            counts: counts[..classes.min(256)].to_vec(),
        }
    }
}
