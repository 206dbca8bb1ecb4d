//! A network by name.

use std::io;
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use super::lmscnet::{LmscNet, LmscNetConfig};
use super::weights;
use crate::nn::Init;
use crate::{Error, Result};

/// Every network Occam can train.
#[derive(Module, Debug)]
pub enum Network {
    LmscNet(LmscNet),
}

impl Network {
    /// Names that [`Network::new`] knows.
    pub const NAMES: [&str; 2] = ["lmscnet-ss", "lmscnet"];

    /// A fresh network for grids of `counts` voxels along x, y, z with `channels` features a voxel. The same `seed` gives
    /// the same weights on every device.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown name and for a grid or number of classes the network cannot take.
    pub fn new(
        name: &str,
        counts: [usize; 3],
        channels: usize,
        classes: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        let multiscale = match name {
            "lmscnet-ss" => false,
            "lmscnet" => true,
            _ => return Err(unknown(name)),
        };
        let config = LmscNetConfig { counts, channels, classes, multiscale };
        Ok(Self::LmscNet(config.init(&mut Init::new(seed, device))?))
    }

    /// Logits `[B, classes, Z/s, X/s, Y/s]` for every scale `s` of [`Network::scales`], in that order, from features
    /// `[B, channels, Z, X, Y]`; channel 0 is occupancy (1 occupied, 0 not).
    pub fn forward(&self, features: Tensor<5>) -> Vec<Tensor<5>> {
        match self {
            Self::LmscNet(network) => network.forward(features),
        }
    }

    /// Lets an untrained network predict each class in proportion to `shares`, which need not add up to 1. Training then
    /// need not find out first that most voxels are empty (Lin et al., arXiv 1708.02002, section 3.3).
    pub fn set_class_shares(&mut self, shares: &[f64]) {
        // A class that never occurs starts at one in a million.
        let sum: f64 = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let logits: Vec<f32> = shares.iter().map(|share| (share / sum).max(1e-6).ln() as f32).collect();
        match self {
            Self::LmscNet(network) => network.set_class_bias(&logits),
        }
    }

    /// Side lengths of a prediction's voxels, in voxels of the grid; the first is 1.
    pub fn scales(&self) -> &'static [usize] {
        match self {
            Self::LmscNet(network) => network.scales(),
        }
    }

    /// Writes the weights as safetensors, under the names of the network's PyTorch original. Equal weights give equal
    /// bytes.
    ///
    /// # Errors
    /// Those of the file.
    pub fn save_weights(&self, path: &Path) -> io::Result<()> {
        weights::save(self, path, self.original_names())
    }

    /// Replaces the weights by those of a file. On an error the network is as it was.
    ///
    /// # Errors
    /// [`Error::Input`] when the file cannot be read, lacks a tensor, has one too many, or one of another shape.
    pub fn load_weights(&mut self, path: &Path) -> Result<()> {
        let names = self.original_names();
        weights::load(self, path, names)
    }

    /// Beginnings of parameter names here and in the PyTorch original, where they differ.
    fn original_names(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::LmscNet(_) => &LmscNet::ORIGINAL_NAMES,
        }
    }
}

fn unknown(name: &str) -> Error {
    let nearest = Network::NAMES
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)))
        .expect("there are networks");
    Error::Usage(format!(
        "unknown network \"{name}\", did you mean \"{nearest}\"? Known are {}",
        Network::NAMES.join(", ")
    ))
}
