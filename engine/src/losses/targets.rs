//! Targets of one scale on the device, with what the host knows of them.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// What a prediction of one scale is compared with: a whole batch, or a part of one.
#[derive(Debug, Clone)]
pub struct Targets {
    /// `[B, Z, X, Y]` in u32: a class, or the id that is ignored.
    pub labels: Tensor<4, Int>,
    /// Voxels of each class, without those that are ignored. The losses thus know which classes there are without
    /// waiting for the device.
    pub counts: Vec<u32>,
    /// The same of the whole batch: what losses that are sums over voxels are divided by.
    pub batch_counts: Vec<u64>,
    /// Share of the batch's samples.
    pub share: f64,
}

impl Targets {
    /// `labels` in row-major order over `shape`, `[B, Z, X, Y]`, each below `classes` or `ignore_id`.
    pub fn new(labels: &[u8], shape: [usize; 4], classes: usize, ignore_id: u8, device: &Device) -> Self {
        let batch_counts = class_counts(labels, classes, ignore_id);
        let labels: Vec<u32> = labels.iter().copied().map(u32::from).collect();
        Self {
            labels: Tensor::from_data(TensorData::new(labels, shape), (device, DType::U32)),
            counts: batch_counts.iter().map(|count| u32::try_from(*count).unwrap_or(u32::MAX)).collect(),
            batch_counts,
            share: 1.0,
        }
    }

    /// As a part of a batch that goes through the network in parts. `batch_counts`: [`class_counts`] of all of it.
    #[must_use]
    pub fn of_batch(self, batch_counts: Vec<u64>, share: f64) -> Self {
        Self { batch_counts, share, ..self }
    }
}

/// Labels of each class, without those that are ignored.
pub fn class_counts(labels: &[u8], classes: usize, ignore_id: u8) -> Vec<u64> {
    let mut counts = [0; 256];
    for label in labels {
        counts[usize::from(*label)] += 1;
    }
    counts[usize::from(ignore_id)] = 0;
    counts[..classes.min(256)].to_vec()
}
