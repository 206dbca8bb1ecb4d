//! SemanticKITTI label and voxel files by themselves, without the scan they belong to.

use std::fmt::Write;
use std::path::Path;

use occam_engine::scene::LabelMap;
use occam_engine::scene::formats::{self, LabelFile};
use serde_json::json;

use super::{Facts, grid};
use crate::print::human;

/// Names of the ids in the files of a data set, SemanticKITTI if none is given; `nothing` for what is free as a voxel.
pub fn names(labels: Option<&LabelMap>, nothing: &'static str) -> impl Fn(i64) -> Option<String> {
    let map = labels.cloned().or_else(|| LabelMap::built_in("semantic-kitti"));
    let lookup = map.as_ref().map(LabelMap::lookup).unwrap_or_default();
    move |id| {
        let map = map.as_ref()?;
        let class = *lookup.get(&u16::try_from(id).ok()?)?;
        if class == map.empty_id {
            return Some(nothing.into());
        }
        let named = map.classes.get(usize::from(class)).map(|c| c.name.clone());
        named.or_else(|| (class == map.ignore_id).then(|| "ignored".into()))
    }
}

pub fn facts(path: &Path, file: LabelFile, labels: Option<&LabelMap>) -> Facts {
    let mut seen = Vec::new();
    let (format, unit, nothing, ids, instances) = match file {
        LabelFile::Points { classes, mut instances } => {
            instances.sort_unstable();
            instances.dedup();
            let objects = instances.iter().filter(|instance| **instance != 0).count();
            seen = instances;
            ("SemanticKITTI point labels without their scan", "points", "unlabelled", classes, Some(objects))
        }
        LabelFile::Voxels(ids) => ("SemanticKITTI voxel labels, 256x256x32", "voxels", "empty", ids, None),
    };
    let counts = grid::class_counts(ids.iter().map(|id| i64::from(*id)));
    let name = names(labels, nothing);
    let mut text = format!("{}: {format}, {}", path.display(), human::counted(ids.len(), "label"));
    let mut json = json!({
        "file": path.to_string_lossy(),
        "format": format,
        "labels": ids.len(),
        "classes": grid::classes_json(&counts, &name),
    });
    if let Some(objects) = instances {
        let _ = write!(text, ", {}", human::counted(objects, "instance id"));
        json["instance_ids"] = objects.into();
    }
    // Classes where instances should be: two voxels were taken for one point.
    if seen.iter().any(|id| *id != 0) && seen.iter().all(|id| name(i64::from(*id)).is_some()) {
        let note = format!("could also be {} of two bytes", human::counted(2 * ids.len(), "voxel"));
        let _ = write!(text, "\n  note       {note}");
        json["notes"] = vec![note].into();
    }
    text.push('\n');
    text.push_str(&grid::class_table(&counts, unit, &name));
    Facts { text, json }
}

/// Input, invalid or occluded voxels.
pub fn voxel_bits(path: &Path) -> anyhow::Result<Facts> {
    let bits = formats::read_voxel_bits(path, &formats::voxel_grid())?;
    let set = bits.iter().filter(|bit| **bit).count();
    let share = set as f64 / bits.len().max(1) as f64;
    let format = "SemanticKITTI voxel bits, 256x256x32";
    let text = format!("{}: {format}, {} voxels set ({})", path.display(), human::count(set), human::percent(share));
    Ok(Facts { text, json: json!({ "file": path.to_string_lossy(), "format": format, "set": set, "coverage": share }) })
}
