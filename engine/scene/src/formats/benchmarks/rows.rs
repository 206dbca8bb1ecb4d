//! Lists of voxels, one a row: SurroundOcc (x, y, z, label) and OpenOccupancy (z, y, x, label or z, y, x, vx, vy, vz,
//! label).

use std::path::Path;

use super::truth::{Places, Truth};
use crate::error::{Error, Place, Result};
use crate::formats::npy::{Array, Values};

/// Rows of a two-dimensional array.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub values: &'a Values,
    pub columns: usize,
}

impl<'a> Rows<'a> {
    /// The array as rows of one of the widths given.
    pub fn of(path: &Path, array: &'a Array, widths: &[usize], layout: &str) -> Result<Self> {
        match array.shape.as_slice() {
            [_, columns] if widths.contains(columns) => Ok(Self { values: &array.values, columns: *columns }),
            shape => {
                let found = format!("an array of shape {shape:?}");
                Err(Error::new(path, Place::File, found, format!("one row a voxel: {layout}")))
            }
        }
    }

    pub fn len(self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    /// A whole number, whatever its type on disk.
    pub fn whole(self, row: usize, column: usize) -> Option<i64> {
        let index = row * self.columns + column;
        match self.values {
            Values::U8(v) => v.get(index).copied().map(i64::from),
            Values::I64(v) => v.get(index).copied(),
            Values::F32(_) | Values::F64(_) => {
                let value = self.values.at(index);
                // Up to 2^53 every whole number is exact; NaN and infinity have no fraction of 0.
                (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
            }
        }
    }

    /// As [`Self::whole`]; anything else is an error that names the place.
    pub fn integer(self, path: &Path, row: usize, column: usize) -> Result<i64> {
        self.whole(row, column).ok_or_else(|| {
            let value = self.values.at(row * self.columns + column);
            let found = format!("{value} in row {row}, column {column}");
            Error::new(path, Place::File, found, "a whole number: voxels and classes are counted")
        })
    }

    pub fn float(self, row: usize, column: usize) -> f32 {
        self.values.at(row * self.columns + column) as f32
    }
}

pub(super) fn surroundocc(path: &Path, array: &Array) -> Result<Truth> {
    let rows = Rows::of(path, array, &[4], "x, y, z, label")?;
    voxels(path, rows, [0, 1, 2])
}

pub(super) fn openoccupancy(path: &Path, array: &Array) -> Result<Truth> {
    let rows = Rows::of(path, array, &[4, 7], "z, y, x, label or z, y, x, vx, vy, vz, label")?;
    let mut truth = voxels(path, rows, [2, 1, 0])?;
    if rows.columns == 7 {
        truth.flow = Some((0..rows.len()).map(|row| [rows.float(row, 3), rows.float(row, 4)]).collect());
        if (0..rows.len()).any(|row| rows.float(row, 5) != 0.0) {
            truth.notes.push("the velocity along z is left out: flow is along x and y".into());
        }
    }
    Ok(truth)
}

/// `axes`: the columns of x, y and z. The label stands last.
fn voxels(path: &Path, rows: Rows, axes: [usize; 3]) -> Result<Truth> {
    let mut places = Vec::with_capacity(rows.len());
    let mut ids = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        let mut place = [0; 3];
        for (axis, column) in axes.into_iter().enumerate() {
            place[axis] = rows.integer(path, row, column)?;
        }
        places.push(place);
        ids.push(rows.integer(path, row, rows.columns - 1)?);
    }
    Ok(Truth { places: Places::Listed(places), ids, ..Truth::default() })
}
