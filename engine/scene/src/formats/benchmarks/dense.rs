//! Archives with one id for every voxel: Occ3D-nuScenes and OpenOcc.

use std::path::Path;

use super::rows::Rows;
use super::truth::{Places, Truth};
use crate::error::{Error, Place, Result};
use crate::formats::npy::Array;
use crate::grid::GridSpec;

/// `semantics` with what else is there of `mask_lidar`, `mask_camera` and `flow`.
pub(super) fn read(path: &Path, arrays: &[(String, Array)], spec: &GridSpec) -> Result<Truth> {
    let array = |wanted: &str| arrays.iter().find(|(name, _)| name == wanted).map(|(_, array)| array);
    let Some(semantics) = array("semantics") else {
        let names: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
        let found = if names.is_empty() { "no array".into() } else { format!("the arrays {}", names.join(", ")) };
        return Err(Error::new(path, Place::File, found, "an array named semantics"));
    };
    let ids = voxels(path, "semantics", semantics, &spec.counts)?;
    let ids = (0..ids.len()).map(|voxel| ids.integer(path, voxel, 0)).collect::<Result<_>>()?;
    let mask = |name: &str| -> Result<Option<Vec<bool>>> {
        let Some(array) = array(name) else { return Ok(None) };
        let mask = voxels(path, name, array, &spec.counts)?;
        (0..mask.len()).map(|voxel| Ok(mask.integer(path, voxel, 0)? != 0)).collect::<Result<_>>().map(Some)
    };
    let flow = match array("flow") {
        Some(array) => {
            let [x, y, z] = spec.counts;
            let flow = voxels(path, "flow", array, &[x, y, z, 2])?;
            let flow = Rows { columns: 2, ..flow };
            Some((0..flow.len()).map(|voxel| [flow.float(voxel, 0), flow.float(voxel, 1)]).collect())
        }
        None => None,
    };
    Ok(Truth {
        places: Places::All,
        ids,
        flow,
        mask_lidar: mask("mask_lidar")?,
        mask_camera: mask("mask_camera")?,
        ..Truth::default()
    })
}

/// One row a number of an array of that shape.
fn voxels<'a>(path: &Path, name: &str, array: &'a Array, shape: &[usize]) -> Result<Rows<'a>> {
    if array.shape == shape {
        return Ok(Rows { values: &array.values, columns: 1 });
    }
    let error = Error::new(path, Place::File, format!("{name} of shape {:?}", array.shape), format!("{shape:?}"));
    let mut turned = shape.to_vec();
    turned[..3].reverse();
    Err(if array.shape == turned {
        error.hint("Its axes are in the order z, y, x: transpose them to x, y, z")
    } else {
        error
    })
}
