//! Occupancy grids in numpy's files, with the class counts and masks of Occ3D.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use occam_engine::scene::LabelMap;
use occam_engine::scene::formats::{Array, Values};
use serde_json::{Value, json};

use super::Facts;
use crate::print::{Table, human};

/// Shape of an Occ3D-nuScenes ground truth, whose ids are known.
const OCC3D: [usize; 3] = [200, 200, 16];

/// `labels` names the ids; without it, an archive of Occ3D's shape is taken for one of Occ3D.
pub fn facts(path: &Path, arrays: Vec<(String, Array)>, labels: Option<&LabelMap>) -> Facts {
    let mut text = format!("{}: {}", path.display(), human::counted(arrays.len(), "array"));
    let mut listed = Vec::new();
    for (name, array) in arrays {
        let shape = array.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        let _ = write!(text, "\n  {name}: {shape}, {}", array.dtype);
        let mut facts = json!({ "name": name, "shape": array.shape, "dtype": array.dtype });
        if name.starts_with("mask") {
            let set = (0..array.values.len()).filter(|i| array.values.at(*i) != 0.0).count();
            let share = set as f64 / array.values.len().max(1) as f64;
            let _ = write!(text, ", {} voxels set ({})", human::count(set), human::percent(share));
            facts["set"] = set.into();
            facts["coverage"] = share.into();
        } else if !matches!(array.values, Values::F32(_) | Values::F64(_)) {
            let occ3d =
                (array.shape == OCC3D && name == "semantics").then(|| LabelMap::built_in("occ3d-nuscenes")).flatten();
            let map = labels.or(occ3d.as_ref());
            let counts = class_counts((0..array.values.len()).map(|i| array.values.at(i) as i64));
            if let Some(map) = map {
                let _ = write!(text, ", free id {}", map.empty_id);
                facts["free_id"] = map.empty_id.into();
            }
            text.push('\n');
            text.push_str(&class_table(&counts, "voxels", |id| {
                let class = usize::try_from(id).ok()?;
                map?.classes.get(class).map(|c| c.name.clone())
            }));
            facts["classes"] = classes_json(&counts, |id| {
                let class = usize::try_from(id).ok()?;
                map?.classes.get(class).map(|c| c.name.clone())
            });
        }
        listed.push(facts);
    }
    Facts { text, json: json!({ "file": path.to_string_lossy(), "arrays": listed }) }
}

/// How often each id occurs.
pub fn class_counts(ids: impl Iterator<Item = i64>) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for id in ids {
        *counts.entry(id).or_insert(0) += 1;
    }
    counts
}

/// One row an id, indented to stand under its file.
pub fn class_table(counts: &BTreeMap<i64, usize>, unit: &str, name: impl Fn(i64) -> Option<String>) -> String {
    let all: usize = counts.values().sum();
    let mut table = Table::new(["    id", "class", unit, "share"]).left(&[1]);
    for (id, count) in counts {
        let share = human::percent(*count as f64 / all.max(1) as f64);
        table.row([format!("    {id}"), name(*id).unwrap_or_else(|| "-".into()), human::count(*count), share]);
    }
    table.to_string().trim_end().to_owned()
}

pub fn classes_json(counts: &BTreeMap<i64, usize>, name: impl Fn(i64) -> Option<String>) -> Value {
    counts.iter().map(|(id, count)| json!({ "id": id, "name": name(*id), "count": count })).collect()
}
