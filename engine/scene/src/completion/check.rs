//! Whether voxel files are those of the scan beside them.

use std::path::Path;

use super::{TargetRules, height_offset};
use crate::formats::benchmarks::Finding;
use crate::formats::{ReadOptions, read_cloud, read_voxel_bits, read_voxel_target, voxel_grid};
use crate::{LabelMap, Result};

/// Compares the voxel files of a scan with the scan.
///
/// Found are voxels that lie one too high or too low, as in the first release of SemanticKITTI's, and those of another
/// scan: less than half of the input voxels hold a point of it.
///
/// # Errors
/// Files that cannot be read, of another length or with ids that are not SemanticKITTI's. A `.bin` may be missing.
pub fn check_voxels(label: &Path, scan: &Path, map: &LabelMap) -> Result<Vec<Finding>> {
    let spec = voxel_grid();
    let target = read_voxel_target(label, &spec, map)?;
    let bits = label.with_extension("bin");
    let voxels = if bits.is_file() {
        read_voxel_bits(&bits, &spec)?
    } else {
        target.labels.iter().map(|label| *label != spec.empty_id && *label != spec.ignore_id).collect()
    };
    let mut cloud = read_cloud(scan, &ReadOptions::default())?.cloud;
    TargetRules::default().keep_in_range(&mut cloud);
    let mut hit = vec![false; spec.len()];
    for voxel in cloud.positions.iter().filter_map(|p| spec.voxel_of(*p)) {
        hit[spec.index(voxel)] = true;
    }
    let offset = height_offset(&voxels, &hit, &spec);
    if offset != 0 {
        return Ok(vec![Finding::new(
            "height",
            format!(
                "voxels that lie one {} than the points of {}",
                if offset > 0 { "higher" } else { "lower" },
                scan.display()
            ),
            "voxels that hold them",
            "The first release of SemanticKITTI's voxels (v1.0) is like that: download v1.1, or make them from the labelled \
             scans with occam data build",
        )]);
    }
    if !bits.is_file() {
        return Ok(Vec::new());
    }
    let (of_both, of_voxels) = voxels
        .iter()
        .zip(&hit)
        .fold((0, 0), |(both, all), (voxel, hit)| (both + usize::from(*voxel && *hit), all + usize::from(*voxel)));
    if of_both * 2 >= of_voxels {
        return Ok(Vec::new());
    }
    Ok(vec![Finding::new(
        "other-scan",
        format!("{of_both} of {of_voxels} input voxels with a point of {}", scan.display()),
        "all or most of them",
        "The voxels belong to another scan or another sequence",
    )])
}
