//! `occam data info`: what files and folders of scans hold. `occam data check`: whether they hold what they should. `occam
//! data build`: the voxel files of the completion task. `occam data demo`: scans to practise with.

pub mod build;
pub mod check;
mod cloud;
mod demo;
mod folder;
mod grid;
mod label;

use std::path::{Path, PathBuf};

use clap::Args;
use occam_engine::scene::LabelMap;
use occam_engine::scene::formats::benchmarks::GroundTruth;
use occam_engine::scene::formats::{self, Array, LabelFile, ReadOptions};
use serde_json::Value;

use crate::fail;
use crate::parse;
use crate::print::Output;

pub use demo::{DemoArgs, run as demo};

#[derive(Args)]
pub struct InfoArgs {
    /// Scans, label files, ground truth of occupancy benchmarks, other grids (.npz, .npy), or folders: your own scans, or
    /// SemanticKITTI's layout
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// 32-bit floats a point in .bin files: 4 for KITTI, 5 for nuScenes [default: the plausible one]
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    stride: Option<usize>,
    /// Read the points that are there when a PLY file was cut off
    #[arg(long)]
    lenient: bool,
    /// Names of the classes: demo, occupancy, semantic-kitti, occ3d-nuscenes, openocc, nuscenes or carla-sc; a grid then
    /// shows the ids of its file [default: by the kind of file]
    #[arg(long, value_name = "MAP", value_parser = label_map)]
    labels: Option<LabelMap>,
}

fn label_map(name: &str) -> Result<LabelMap, String> {
    LabelMap::built_in(name).ok_or_else(|| {
        format!("found {name:?}, expected one of {}", LabelMap::built_in_names().collect::<Vec<_>>().join(", "))
    })
}

/// What is known about one file: the same facts for people and for programs.
struct Facts {
    text: String,
    json: Value,
}

/// All files are looked at; the first error decides the exit code.
pub fn run(args: &InfoArgs, out: Output) -> anyhow::Result<u8> {
    let mut failed = None;
    for file in &args.files {
        match facts(file, args) {
            Ok(facts) => {
                out.result(&facts.text)?;
                out.json(&facts.json)?;
            }
            Err(error) => {
                let code = fail::report(&error, out);
                failed.get_or_insert(code);
            }
        }
    }
    Ok(failed.unwrap_or(0))
}

fn facts(path: &Path, args: &InfoArgs) -> anyhow::Result<Facts> {
    let options = ReadOptions { bin_stride: args.stride, lenient: args.lenient };
    if path.is_dir() {
        return folder::facts(path, &options);
    }
    if args.labels.is_none()
        && let Some(truth) = GroundTruth::open(path)?
    {
        return Ok(grid::benchmark_facts(path, &truth.normalise()?));
    }
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let in_voxels = formats::is_in_folder(path, "voxels");
    match ending.as_str() {
        "label" => {
            let alone = formats::read_label_file(path);
            if in_voxels || cloud::scan_of(path).is_none() || matches!(alone, Ok(LabelFile::Voxels(_))) {
                return Ok(label::facts(path, alone?, args.labels.as_ref()));
            }
        }
        "bin" | "invalid" | "occluded" if in_voxels => return label::voxel_bits(path),
        "npz" => {
            let arrays = formats::read_npz(path)?;
            if arrays.iter().any(|(name, array)| name == "semantics" || is_grid(array)) {
                return Ok(grid::facts(path, arrays, args.labels.as_ref()));
            }
        }
        "npy" => {
            let array = formats::read_npy(path)?;
            if is_grid(&array) {
                return Ok(grid::facts(path, vec![("array".into(), array)], args.labels.as_ref()));
            }
        }
        _ => {}
    }
    cloud::facts(path, &options, args.labels.as_ref())
}

/// A grid has three axes, a list of points two.
fn is_grid(array: &Array) -> bool {
    array.shape.len() == 3
}
