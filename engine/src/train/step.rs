//! One optimizer step: micro-batches forward and backward, gradients added, checked, clipped and applied.

use burn::module::Module;
use burn::optim::GradientsAccumulator;
use burn::tensor::{Device, Tensor};
use occam_scene::{GridSpec, downscale_target};

use super::input::input;
use super::optimizer::{clip, squared_norm};
use super::{InputConfig, OptimConfig, Optimizer};
use crate::data::Batch;
use crate::losses::{Losses, Targets};
use crate::models::{Learned, Network, Passes};
use crate::tape::Mode;
use crate::{Error, Result};

/// A network in training with its optimizer.
pub struct Learner {
    pub network: Network,
    pub optimizer: Optimizer,
    spec: GridSpec,
    input: InputConfig,
    /// Without autodiff.
    device: Device,
    losses: Losses,
    clip_norm: f64,
    /// What each segment does for its backward pass; those beyond keep.
    pub modes: Vec<Mode>,
}

/// What a step found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOutcome {
    /// Mean over the micro-batches.
    pub loss: f64,
    /// Global L2 norm before clipping.
    pub grad_norm: f64,
}

impl Learner {
    /// `device` is without autodiff, and so are `losses`; `network` was made on `device.autodiff()`.
    pub fn new(
        network: Network,
        spec: GridSpec,
        input: InputConfig,
        device: &Device,
        losses: Losses,
        config: &OptimConfig,
    ) -> Self {
        Self {
            network,
            optimizer: Optimizer::new(config),
            spec,
            input,
            device: device.clone(),
            losses,
            clip_norm: config.clip_norm,
            modes: Vec::new(),
        }
    }

    /// Trains on `count` micro-batches from `next`, one in memory at a time, that count as one batch; batch
    /// normalization sees each by itself. Weights change only when loss and gradients are finite. An error of `next`
    /// gives the step up and leaves the network as it was.
    ///
    /// # Errors
    /// Those of `next`; [`Error::Failed`] when loss or gradients are not finite, or when the device fails.
    pub fn step(&mut self, count: usize, next: &mut dyn FnMut() -> Result<Batch>, lr: f64) -> Result<StepOutcome> {
        let mut accumulator = GradientsAccumulator::new();
        let mut total: Option<Tensor<1>> = None;
        // Every forward moves the running statistics, which belong to whole steps. It shares their tensors.
        let before = (count > 1).then(|| self.network.valid());
        for _ in 0..count {
            let batch = match next() {
                Ok(batch) => batch,
                Err(error) => {
                    if let Some(before) = before {
                        self.network = before.train();
                    }
                    return Err(error);
                }
            };
            let learned = self.learn(&batch, 1.0 / count as f64)?;
            let value = learned.loss / count as f32;
            accumulator.accumulate(&self.network, learned.gradients);
            total = Some(match total {
                Some(sum) => sum + value,
                None => value,
            });
        }
        let mut gradients = accumulator.grads();
        let (Some(loss), Some(square)) = (total, squared_norm(&self.network, &gradients)) else {
            return Err(Error::Failed("a step without samples".into()));
        };
        // One read for both, before anything changes: on a GPU it is here that a failed operation shows.
        let read = Tensor::cat(vec![loss, square.without_autodiff()], 0).try_into_data().map_err(device_failed)?;
        let numbers: Vec<f64> = read.iter::<f64>().collect();
        // A sum over no voxel is -0.
        let (loss, grad_norm) = (numbers[0] + 0.0, numbers[1].sqrt());
        if !loss.is_finite() || !grad_norm.is_finite() {
            return Err(Error::Failed(format!(
                "the loss is {loss} and the gradient's norm {grad_norm}, expected finite numbers. Lower optim.lr, or \
                 set optim.clip_norm to 1"
            )));
        }
        clip(&self.network, &mut gradients, grad_norm, self.clip_norm);
        self.network = self.optimizer.step(lr, self.network.clone(), gradients)?;
        Ok(StepOutcome { loss, grad_norm })
    }

    /// The gradients come times `factor`, the loss as it is.
    fn learn(&self, batch: &Batch, factor: f64) -> Result<Learned> {
        let [nx, ny, nz] = self.spec.counts;
        let input = input(batch, &self.spec, &self.input, &self.device)?;
        let scales = self.network.scales();
        let targets = scales.iter().map(|scale| {
            let labels: Vec<u8> = if *scale == 1 {
                batch.targets.clone()
            } else {
                let (empty, ignore) = (self.spec.empty_id, self.spec.ignore_id);
                let samples = batch.targets.chunks_exact(self.spec.len());
                samples.flat_map(|labels| downscale_target(labels, [nz, nx, ny], *scale, empty, ignore)).collect()
            };
            let shape = [batch.len(), nz / scale, nx / scale, ny / scale];
            Targets::new(&labels, shape, self.losses.classes(), self.spec.ignore_id, &self.device)
        });
        let targets: Vec<Targets> = targets.collect();
        let passes = Passes { modes: &self.modes, by_planes: self.losses.by_planes(), factor, traced: false };
        self.network.learn(input, &passes, &mut |scale, logits, range| {
            self.losses.of_planes(logits, &targets[scale], range, scales.len())
        })
    }

    /// The network as it predicts: batch normalization by its running statistics, no autodiff.
    pub fn valid(&self) -> Network {
        self.network.valid()
    }
}

/// A read that the device refused.
pub(super) fn device_failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(format!(
        "the device failed: {error}. If it is out of memory, use a smaller steps.batch (with steps.accumulate the \
         gradients stay the same) or a smaller grid"
    ))
}
