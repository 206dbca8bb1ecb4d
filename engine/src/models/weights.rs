//! Weights in files: safetensors under the names PyTorch uses.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use burn::module::Module;
use burn::store::{
    BurnToPyTorchAdapter, KeyRemapper, ModuleSnapshot, ModuleStore, PyTorchToBurnAdapter, SafetensorsStore,
};
use occam_scene::error::Place;

use crate::{Error, Result};

type Names = [(&'static str, &'static str)];

/// `names`: beginnings of parameter names in the module and in the file, where they differ.
pub fn save<M: Module>(module: &M, path: &Path, names: &Names) -> io::Result<()> {
    let pairs = names.iter().map(|(ours, theirs)| (pattern(ours), (*theirs).to_string()));
    let store = remapped(SafetensorsStore::from_bytes(None), pairs)
        .map_err(io::Error::other)?
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

/// As [`save`], the other way.
pub fn load<M: Module>(module: &mut M, path: &Path, names: &Names) -> Result<()> {
    let pairs = names.iter().map(|(ours, theirs)| (pattern(theirs), (*ours).to_string()));
    let mut store = remapped(SafetensorsStore::from_file(path), pairs)?.with_from_adapter(PyTorchToBurnAdapter);
    let bad = |found: String, expected: &str| Error::Input(occam_scene::Error::new(path, Place::File, found, expected));
    check(module, &mut store, path)?;
    let result = module.load_from(&mut store).map_err(|error| bad(error.to_string(), "weights of this network"))?;
    match result.errors.first() {
        Some(error) => Err(bad(error.to_string(), "weights of this network")),
        None => Ok(()),
    }
}

fn pattern(beginning: &str) -> String {
    format!("^{}", beginning.replace('.', r"\."))
}

fn remapped(store: SafetensorsStore, pairs: impl Iterator<Item = (String, String)>) -> Result<SafetensorsStore> {
    let remapper = KeyRemapper::from_patterns(pairs.collect()).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(store.remap(remapper).skip_enum_variants(true))
}

/// Compares names and shapes before anything is replaced.
fn check<M: Module>(module: &M, store: &mut SafetensorsStore, path: &Path) -> Result<()> {
    let bad =
        |found: String, expected: String| Error::Input(occam_scene::Error::new(path, Place::File, found, expected));
    if let Err(error) = std::fs::metadata(path) {
        return Err(Error::Input(occam_scene::Error::io(path, &error)));
    }
    let mut wanted: BTreeMap<String, _> = module
        .collect(None, Some(Box::new(BurnToPyTorchAdapter)), true)
        .into_iter()
        .map(|tensor| (tensor.name.clone(), tensor.shape))
        .collect();
    let found = store
        .get_all_tensors()
        .map_err(|error| bad(error.to_string(), "a safetensors file with weights".to_string()))?;
    for (name, tensor) in found {
        match wanted.remove(name) {
            Some(shape) if shape == tensor.shape => {}
            Some(shape) => {
                return Err(bad(
                    format!("{name} of shape {:?}", tensor.shape.to_vec()),
                    format!(
                        "shape {:?}: the weights belong to another grid height, number of classes or network",
                        shape.to_vec()
                    ),
                ));
            }
            // PyTorch's step counter of batch normalization has no use here.
            None if name.ends_with("num_batches_tracked") => {}
            None => return Err(bad(format!("a tensor {name}"), "only tensors of this network".to_string())),
        }
    }
    match wanted.into_iter().next() {
        Some((name, shape)) => Err(bad(format!("no tensor {name}"), format!("one of shape {:?}", shape.to_vec()))),
        None => Ok(()),
    }
}
