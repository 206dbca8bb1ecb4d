//! Weights in files, under the names PyTorch uses. Written as safetensors; read from those and from files of `torch.save`.

mod file;
mod pickle;
mod torch;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use burn::module::Module;
use burn::store::{BurnToPyTorchAdapter, KeyRemapper, ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore, bridge};
use burn::tensor::TensorData;
use occam_scene::error::Place;

pub use file::WeightsFile;

use crate::{Error, Result};

/// Which network a file of weights belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightsInfo {
    /// Name that [`super::Network::new`] knows.
    pub network: &'static str,
    /// Features a voxel.
    pub channels: usize,
    /// Voxels along z of its grids; `None`: any that the network takes.
    pub height: Option<usize>,
    /// Classes, free space included.
    pub classes: usize,
}

impl fmt::Display for WeightsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} classes", self.network, self.classes)?;
        if let Some(height) = self.height {
            write!(f, ", grids {height} voxels high")?;
        }
        match self.channels {
            1 => write!(f, " and occupancy alone"),
            channels => write!(f, " and {channels} channels"),
        }
    }
}

type Names = [(&'static str, &'static str)];

/// `names`: beginnings of parameter names in the module and in the file, where they differ.
pub fn save<M: Module>(module: &M, path: &Path, names: &Names) -> io::Result<()> {
    let pattern = |beginning: &str| format!("^{}", beginning.replace('.', r"\."));
    let pairs = names.iter().map(|(ours, theirs)| (pattern(ours), (*theirs).to_string())).collect();
    let store = SafetensorsStore::from_bytes(None)
        .remap(KeyRemapper::from_patterns(pairs).map_err(io::Error::other)?)
        .skip_enum_variants(true)
        .with_to_adapter(BurnToPyTorchAdapter)
        // One entry: the order of several would differ from run to run.
        .clear_metadata()
        .metadata("format", "pt");
    write(module, store, path)
}

/// Writes a module through a store in memory: files that Burn makes are for the eyes of their owner only.
pub fn write<M: Module>(module: &M, mut store: SafetensorsStore, path: &Path) -> io::Result<()> {
    module.save_into(&mut store).map_err(io::Error::other)?;
    std::fs::write(path, store.get_bytes().map_err(io::Error::other)?)
}

/// As [`save`], the other way. On an error the module is as it was.
pub fn load<M: Module>(module: &mut M, file: &WeightsFile, names: &Names) -> Result<()> {
    let bad = |found: String, expected: String| occam_scene::Error::new(file.path(), Place::File, found, expected);
    // By the name in the file: the module's own name, and the shape.
    let wanted: BTreeMap<String, (String, Vec<usize>)> = module
        .collect(None, Some(Box::new(BurnToPyTorchAdapter)), true)
        .into_iter()
        .map(|tensor| (original(&tensor.name, names), (tensor.name, tensor.shape.to_vec())))
        .collect();
    let keys: Vec<&str> = wanted.keys().map(String::as_str).collect();
    let Some(found) = file.network(&keys)? else {
        let some: Vec<&str> = file.names().take(3).collect();
        let found = if some.is_empty() { "no tensor".into() } else { format!("tensors such as {}", some.join(", ")) };
        return Err(bad(found, format!("those of this network, such as {}", keys.first().unwrap_or(&""))).into());
    };
    for (name, tensor) in &found {
        let shape = tensor.shape.to_vec();
        match wanted.get(*name) {
            Some((_, expected)) if *expected == shape => {}
            Some((_, expected)) => {
                return Err(bad(format!("{name} of shape {shape:?}"), format!("shape {expected:?}")).into());
            }
            // PyTorch's step counter of batch normalization has no use here.
            None if name.ends_with("num_batches_tracked") => {}
            None => return Err(bad(format!("a tensor {name}"), "only tensors of this network".into()).into()),
        }
    }
    let mut tensors = Vec::new();
    for (name, (own_name, shape)) in &wanted {
        let Some(tensor) = found.get(name.as_str()) else {
            return Err(bad(format!("no tensor {name}"), format!("one of shape {shape:?}")).into());
        };
        let values = TensorData::new(file.values(name, tensor)?, shape.clone());
        tensors.push(bridge::from_data(values, own_name.clone(), None));
    }
    let result = module.apply(tensors, None, Some(Box::new(PyTorchToBurnAdapter)), true);
    match result.errors.first() {
        // Names, types and shapes were compared above.
        Some(error) => Err(Error::Failed(format!("{}: {error}", file.path().display()))),
        None => Ok(()),
    }
}

/// The name in the PyTorch original.
fn original(name: &str, names: &Names) -> String {
    let renamed = names.iter().find_map(|(ours, theirs)| Some(format!("{theirs}{}", name.strip_prefix(ours)?)));
    renamed.unwrap_or_else(|| name.to_owned())
}
