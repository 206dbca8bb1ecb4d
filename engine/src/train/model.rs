//! A trained network with what it needs to be used: grid, classes and colours.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use occam_scene::{GridSpec, LabelMap, PointCloud, VoxelGrid};

use super::input::input;
use super::{TrainConfig, checkpoint, fits};
use crate::data::{Batch, from_network_order};
use crate::models::Network;
use crate::{Error, Result};

/// A network that predicts.
pub struct Model {
    pub spec: GridSpec,
    pub labels: LabelMap,
    /// The configuration it was trained with.
    pub config: TrainConfig,
    /// Optimizer steps it was trained for.
    pub step: usize,
    network: Network,
    device: Device,
}

/// Loads a model onto `device` from the folder of a run (its best checkpoint, else the last) or of one checkpoint.
///
/// # Errors
/// [`Error::Input`] for a folder without a checkpoint, and for files that are damaged or do not belong together;
/// [`Error::TooLarge`] for a grid that does not fit.
pub fn load_model(path: &Path, device: &Device) -> Result<Model> {
    let folder = checkpoint::find(path, true)?;
    let state = checkpoint::read_state(&folder)?;
    let channels = state.config.input.channels();
    fits::check(device, &state.config.grid, channels, state.labels.len(), fits::Work::Prediction)?;
    let network = checkpoint::load_network(&folder, &state, device)?;
    let config = state.config;
    Ok(Model {
        spec: config.grid,
        labels: state.labels,
        step: state.step,
        network: network.valid(),
        device: device.clone(),
        config,
    })
}

impl Model {
    /// A model of a network in memory; `network` predicts (`valid()`), `device` is its device.
    pub fn new(network: Network, device: &Device, labels: LabelMap, config: TrainConfig, step: usize) -> Self {
        Self { spec: config.grid, labels, config, step, network, device: device.clone() }
    }

    /// Number of weights.
    pub fn parameters(&self) -> usize {
        self.network.num_params()
    }

    /// The class of every voxel, from points in the frame of the grid (the sensor at 0, x forward, y left, z up).
    ///
    /// # Errors
    /// [`Error::Usage`] when no point lies inside the grid or the cloud lacks what the network sees; [`Error::Failed`]
    /// when the device fails.
    pub fn predict(&self, cloud: &PointCloud) -> Result<VoxelGrid> {
        if !cloud.positions.iter().any(|p| self.spec.voxel_of(*p).is_some()) {
            let spec = &self.spec;
            let found = match cloud.bounds() {
                Some((low, high)) => format!("the points reach from {low:.1?} m to {high:.1?} m"),
                None => "the cloud is empty".into(),
            };
            return Err(Error::Usage(format!(
                "no point lies inside the grid: {found}, the grid from {:.1?} m to {:.1?} m around the sensor",
                spec.origin_m,
                spec.end_m()
            )));
        }
        let mut batch = Batch::new();
        batch.push_cloud("the cloud", cloud);
        let mut grids = self.predict_batch(&batch)?;
        grids.pop().ok_or_else(|| Error::Failed("the network predicted nothing".into()))
    }

    /// One grid a sample of the batch; its targets are not looked at.
    ///
    /// # Errors
    /// [`Error::Failed`] when the device fails, [`Error::TooLarge`] when a tensor of the network does not fit on it,
    /// [`Error::OutOfMemory`] when there is no memory left.
    pub fn predict_batch(&self, batch: &Batch) -> Result<Vec<VoxelGrid>> {
        let samples = self.network.labels(input(batch, &self.spec, &self.config.input, &self.device)?)?;
        let grid = |classes: Vec<u8>| VoxelGrid {
            labels: from_network_order(&classes, &self.spec),
            ..VoxelGrid::empty(self.spec)
        };
        Ok(samples.into_iter().map(grid).collect())
    }
}
