//! CarlaSC: `evaluation/NNNNNN.label` (u32 a voxel) and `NNNNNN.bin` (how many measurements fell into a voxel, f32), both
//! with x slowest and z fastest; `evaluation/params.json` holds the grid. A voxel that nothing measured does not count.

use std::path::Path;

use serde::Deserialize;

use super::truth::{Places, Truth};
use crate::error::{Error, Place, Result};
use crate::formats::bytes;
use crate::grid::GridSpec;

/// Written by the generator of the set; sizes are floats there.
#[derive(Deserialize)]
struct Params {
    grid_size: [f64; 3],
    min_bound: [f64; 3],
    max_bound: [f64; 3],
    #[serde(default)]
    coordinates: Option<String>,
}

pub(super) fn read(path: &Path, default: &GridSpec) -> Result<(Truth, GridSpec)> {
    let mut truth = Truth { places: Places::All, ..Truth::default() };
    let params = path.with_file_name("params.json");
    let spec = if params.is_file() {
        read_params(&params, default)?
    } else {
        let [x, y, z] = default.counts;
        truth.notes.push(format!("no params.json beside it: the grid is taken to be {x}x{y}x{z}"));
        *default
    };
    let words = load(path, &spec)?;
    truth.ids = words.as_chunks::<4>().0.iter().map(|word| i64::from(u32::from_le_bytes(*word))).collect();
    let counts = path.with_extension("bin");
    if counts.is_file() {
        truth.ignored = Some(unmeasured(&counts, &spec)?);
    } else {
        truth.notes.push("no counts (.bin) beside it: voxels that nothing measured pass for free space".into());
    }
    Ok((truth, spec))
}

fn read_params(path: &Path, default: &GridSpec) -> Result<GridSpec> {
    let expected = "grid_size, min_bound and max_bound, three numbers each";
    let params: Params = serde_json::from_slice(&bytes::load(path)?)
        .map_err(|e| Error::new(path, Place::File, e.to_string(), expected))?;
    if params.coordinates.as_deref().is_some_and(|c| c != "cartesian") {
        return Err(Error::new(path, Place::File, "a cylindrical grid", "a cartesian one")
            .hint("Use the folder `cartesian` of the same scene"));
    }
    if params.grid_size.iter().any(|n| n.fract() != 0.0 || !(1.0..=65_536.0).contains(n)) {
        let found = format!("grid_size {:?}", params.grid_size);
        return Err(Error::new(path, Place::File, found, "three whole numbers of 1 to 65536"));
    }
    let spec = GridSpec {
        origin_m: params.min_bound.map(|m| m as f32),
        voxel_size_m: std::array::from_fn(|a| {
            ((params.max_bound[a] - params.min_bound[a]) / params.grid_size[a]) as f32
        }),
        counts: params.grid_size.map(|n| n as usize),
        ..*default
    };
    spec.check().map_err(|problem| Error::new(path, Place::File, problem, "a grid that a sensor could see"))?;
    Ok(spec)
}

/// Four bytes a voxel.
fn load(path: &Path, spec: &GridSpec) -> Result<bytes::Bytes> {
    let bytes = bytes::load(path)?;
    bytes::refuse_foreign(path, &bytes)?;
    let expected = spec.len().saturating_mul(4);
    if bytes.len() == expected {
        return Ok(bytes);
    }
    let [x, y, z] = spec.counts;
    let hint = match bytes.len() {
        n if n == expected / 2 => "Two bytes a voxel are SemanticKITTI's",
        n if n == expected / 4 => "One byte a voxel is no format of this set: save the ids as u32",
        _ => "The file was cut off, or its grid differs from that of params.json",
    };
    let expected = format!("{expected} bytes: four a voxel of a {x}x{y}x{z} grid");
    Err(Error::new(path, Place::File, bytes::count(bytes.len() as u64, "byte"), expected).hint(hint))
}

fn unmeasured(path: &Path, spec: &GridSpec) -> Result<Vec<usize>> {
    let bytes = load(path, spec)?;
    let mut unmeasured = Vec::new();
    for (voxel, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
        let count = f32::from_le_bytes(*word);
        if !(count.is_finite() && count >= 0.0) {
            let found = format!("a count of {count}");
            return Err(Error::new(path, Place::Byte(4 * voxel as u64), found, "counts of 0 and more, as f32"));
        }
        if count == 0.0 {
            unmeasured.push(voxel);
        }
    }
    Ok(unmeasured)
}
