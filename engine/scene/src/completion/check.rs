//! Whether voxel files are those of the scan beside them.

use std::path::Path;

use super::{TargetRules, height_offset};
use crate::formats::benchmarks::Finding;
use crate::formats::{ReadOptions, read_cloud, read_voxel_bits, read_voxel_target, voxel_grid};
use crate::{LabelMap, Result};

/// Compares the voxel files of a scan with the scan and with each other.
///
/// Found are voxels that lie one too high or too low, as in the first release of SemanticKITTI's; those of another scan:
/// less than half of the input voxels hold a point of it; and labels of another scan or with other axes: less than two
/// thirds of the input voxels are occupied or ignored in them. Of the scans of one street, a few metres apart, that is
/// less than a half, of the right one all.
///
/// # Errors
/// Files that cannot be read, of another length or with ids that are not SemanticKITTI's. A `.bin` may be missing.
pub fn check_voxels(label: &Path, scan: &Path, map: &LabelMap) -> Result<Vec<Finding>> {
    let spec = voxel_grid();
    let target = read_voxel_target(label, &spec, map)?;
    let labelled: Vec<bool> =
        target.labels.iter().map(|label| *label != spec.empty_id && *label != spec.ignore_id).collect();
    let bits = label.with_extension("bin");
    let input = bits.is_file().then(|| read_voxel_bits(&bits, &spec)).transpose()?;
    let mut cloud = read_cloud(scan, &ReadOptions::default())?.cloud;
    TargetRules::default().keep_in_range(&mut cloud);
    let mut hit = vec![false; spec.len()];
    for voxel in cloud.positions.iter().filter_map(|p| spec.voxel_of(*p)) {
        hit[spec.index(voxel)] = true;
    }
    let offset = height_offset(input.as_ref().unwrap_or(&labelled), &hit, &spec);
    if offset != 0 {
        return Ok(vec![lifted("voxels", offset, scan)]);
    }
    let Some(input) = input else { return Ok(Vec::new()) };
    let all = input.iter().filter(|set| **set).count();
    let shared = |other: &dyn Fn(usize) -> bool| (0..spec.len()).filter(|index| input[*index] && other(*index)).count();
    let with_point = shared(&|index| hit[index]);
    if with_point * 2 < all {
        return Ok(vec![Finding::new(
            "other-scan",
            format!("{with_point} of {all} input voxels with a point of {}", scan.display()),
            "all or most of them",
            "The voxels belong to another scan or another sequence",
        )]);
    }
    // Labels that lie `offset` voxels too high.
    let with_label = |offset: i64| {
        shared(&|index| {
            let [x, y, z] = spec.voxel_at(index);
            let above = z as i64 + offset;
            (0..spec.counts[2] as i64).contains(&above)
                && target.labels[spec.index([x, y, above as usize])] != spec.empty_id
        })
    };
    let enough = |found: usize| found * 3 >= all * 2;
    let offset = height_offset(&labelled, &input, &spec);
    if offset != 0 && enough(with_label(offset)) {
        return Ok(vec![lifted("labels", offset, scan)]);
    }
    let with_label = with_label(0);
    if !enough(with_label) {
        return Ok(vec![Finding::new(
            "other-labels",
            format!("{with_label} of {all} input voxels of {} occupied or ignored in the labels", bits.display()),
            "all or most of them",
            "The labels belong to another scan, or their axes are mixed up",
        )]);
    }
    Ok(Vec::new())
}

fn lifted(what: &str, offset: i64, scan: &Path) -> Finding {
    Finding::new(
        "height",
        format!(
            "{what} that lie one voxel {} than the points of {}",
            if offset > 0 { "higher" } else { "lower" },
            scan.display()
        ),
        "voxels that hold them",
        "The first release of SemanticKITTI's voxels (v1.0) is like that: download v1.1, or make them from the labelled \
         scans with occam data build",
    )
}
