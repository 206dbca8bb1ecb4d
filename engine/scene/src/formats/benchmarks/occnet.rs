//! OccNet v1.0: `NNN_occ.npy` with rows of flat index and class; index `(z * ny + y) * nx + x`. Beside it, `NNN_flow.npy`
//! with velocities along x and y, and `NNN_occ_invalid.npy` with the flat indices of voxels that do not count.
//!
//! The authors' evaluation takes one flow a voxel of the list; of the released files they say that only voxels of things
//! have one, in the order of the list. Both are read, told apart by their number.

use std::path::{Path, PathBuf};

use super::rows::Rows;
use super::truth::{Places, Truth};
use crate::error::{Error, Place, Result};
use crate::formats::npy::{Array, read_npy};
use crate::grid::GridSpec;

/// Ids below these are things: with barriers and traffic cones, or only what moves.
const THINGS: [i64; 2] = [10, 8];

pub(super) fn read(path: &Path, array: &Array, spec: &GridSpec) -> Result<Truth> {
    let [nx, ny, _] = spec.counts.map(|n| n as i64);
    let voxel = |index: i64| [index.rem_euclid(nx), index.div_euclid(nx).rem_euclid(ny), index.div_euclid(nx * ny)];
    let rows = Rows::of(path, array, &[2], "flat index, class")?;
    let mut truth = Truth { ids: Vec::with_capacity(rows.len()), ..Truth::default() };
    let mut places = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        places.push(voxel(rows.integer(path, row, 0)?));
        truth.ids.push(rows.integer(path, row, 1)?);
    }
    truth.places = Places::Listed(places);
    if let Some(flow) = beside(path, "_flow.npy") {
        truth.flow = Some(read_flow(&flow, path, &truth.ids)?);
    }
    if let Some(invalid) = beside(path, "_occ_invalid.npy") {
        truth.ignored = Some(read_invalid(&invalid, spec, voxel)?);
    }
    Ok(truth)
}

/// The file of the same number with another ending, where there is one.
fn beside(path: &Path, ending: &str) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_suffix("_occ.npy")?;
    Some(path.with_file_name(format!("{name}{ending}"))).filter(|file| file.is_file())
}

fn read_flow(path: &Path, list: &Path, ids: &[i64]) -> Result<Vec<[f32; 2]>> {
    let array = read_npy(path)?;
    let rows = Rows::of(path, &array, &[2], "velocity along x, along y")?;
    let flow = |row: usize| [rows.float(row, 0), rows.float(row, 1)];
    if rows.len() == ids.len() {
        return Ok((0..rows.len()).map(flow).collect());
    }
    let things = |below: i64| ids.iter().filter(|id| (0..below).contains(*id)).count();
    let Some(below) = THINGS.into_iter().find(|below| things(*below) == rows.len()) else {
        let expected = format!(
            "{} or {}, the voxels and the voxels of things of {}",
            ids.len(),
            things(THINGS[0]),
            list.display()
        );
        return Err(Error::new(path, Place::File, format!("{} rows", rows.len()), expected)
            .hint("The two files belong to different frames"));
    };
    let mut next = 0;
    let mut take = |id: &i64| {
        let own = (0..below).contains(id);
        next += usize::from(own);
        if own { flow(next - 1) } else { [0.0; 2] }
    };
    Ok(ids.iter().map(&mut take).collect())
}

fn read_invalid(path: &Path, spec: &GridSpec, voxel: impl Fn(i64) -> [i64; 3]) -> Result<Vec<usize>> {
    let array = read_npy(path)?;
    if !matches!(array.shape.as_slice(), [_] | [_, 1]) {
        let found = format!("an array of shape {:?}", array.shape);
        return Err(Error::new(path, Place::File, found, "a list of flat indices"));
    }
    let rows = Rows { values: &array.values, columns: 1 };
    let index = |row: usize| {
        let flat = rows.integer(path, row, 0)?;
        let place = voxel(flat).map(|v| usize::try_from(v).unwrap_or(usize::MAX));
        if place[2] < spec.counts[2] {
            return Ok(spec.index(place));
        }
        let expected = format!("a voxel of the grid, 0 to {}", spec.len() - 1);
        Err(Error::new(path, Place::File, format!("flat index {flat} in row {row}"), expected))
    };
    (0..rows.len()).map(index).collect()
}
