//! SemanticKITTI's voxels: `voxels/NNNNNN.label` (u16 a voxel) and `NNNNNN.invalid` (one bit a voxel), x slowest, z
//! fastest. A voxel that no scan could see does not count.

use std::path::Path;

use super::truth::{Places, Truth};
use crate::error::Result;
use crate::formats::voxels::{load_labels, read_voxel_bits};
use crate::grid::GridSpec;

pub(super) fn read(path: &Path, spec: &GridSpec) -> Result<Truth> {
    let bytes = load_labels(path, spec)?;
    let ids = bytes.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word).into()).collect();
    let mut truth = Truth { places: Places::All, ids, ..Truth::default() };
    let invalid = path.with_extension("invalid");
    if invalid.is_file() {
        let bits = read_voxel_bits(&invalid, spec)?;
        truth.ignored = Some((0..bits.len()).filter(|voxel| bits[*voxel]).collect());
    } else {
        truth.notes.push("no .invalid beside it: voxels that no scan could see pass for free space".into());
    }
    Ok(truth)
}
