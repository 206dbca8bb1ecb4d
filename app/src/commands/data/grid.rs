//! Occupancy grids: ground truth of the benchmarks, and whatever other grids stand in numpy's files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use occam_engine::scene::LabelMap;
use occam_engine::scene::formats::benchmarks::ReadGrid;
use occam_engine::scene::formats::{Array, Values};
use serde_json::{Value, json};

use super::Facts;
use crate::print::{Table, human};

/// A ground truth of a benchmark: where it lies, how much of it is free, masks, flow, classes.
pub fn benchmark_facts(path: &Path, read: &ReadGrid) -> Facts {
    let (grid, benchmark) = (&read.grid, read.benchmark);
    let spec = &grid.spec;
    let labels = benchmark.labels();
    let all = spec.len();
    let counts = class_counts(grid.labels.iter().map(|label| i64::from(*label)));
    let share = |id: u8| counts.get(&id.into()).copied().unwrap_or(0) as f64 / all.max(1) as f64;
    let (free, ignored) = (share(spec.empty_id), share(spec.ignore_id));
    let [x, y, z] = spec.counts;
    let (low, high) = (spec.origin_m, spec.end_m());
    let axis = |a: usize| format!("{} {:.2} to {:.2}", ["x", "y", "z"][a], low[a], high[a]);
    let [sx, sy, sz] = spec.voxel_size_m;
    let size = if sx == sy && sy == sz { format!("{sx}") } else { format!("{sx} x {sy} x {sz}") };
    let mut text = format!("{}: {benchmark}, {x}x{y}x{z} voxels of {size} m", path.display());
    let _ = write!(text, "\n  bounds     {}, {}, {} m", axis(0), axis(1), axis(2));
    let _ = write!(text, "\n  frame      {}", benchmark.frame());
    let _ = write!(text, "\n  free       {} (class {})", human::percent(free), spec.empty_id);
    let _ = write!(text, "\n  ignored    {} (class {})", human::percent(ignored), spec.ignore_id);
    let mut json = json!({
        "file": path.to_string_lossy(),
        "format": benchmark.name(),
        "frame": benchmark.frame().to_string(),
        "counts": spec.counts,
        "voxel_size_m": spec.voxel_size_m,
        "origin_m": spec.origin_m,
        "free_id": spec.empty_id,
        "free_share": free,
        "ignored_share": ignored,
        "notes": read.notes,
    });
    for (name, mask) in [("mask_lidar", &read.mask_lidar), ("mask_camera", &read.mask_camera)] {
        let Some(mask) = mask else { continue };
        let set = mask.iter().filter(|m| **m).count();
        let share = set as f64 / all.max(1) as f64;
        let _ = write!(text, "\n  {name:<11} {} voxels set ({})", human::count(set), human::percent(share));
        json[name] = json!({ "set": set, "coverage": share });
    }
    if let Some(flow) = &grid.flow {
        let moving = flow.iter().filter(|f| **f != [0.0; 2]).count();
        let fastest = flow.iter().map(|[x, y]| x.hypot(*y)).fold(0.0, f32::max);
        let range = |a: usize| flow.iter().fold((0.0_f32, 0.0_f32), |(low, high), f| (low.min(f[a]), high.max(f[a])));
        let ((x0, x1), (y0, y1)) = (range(0), range(1));
        let moves = human::counted(moving, "voxel");
        let _ = write!(
            text,
            "\n  flow       {moves}, x {x0:.2} to {x1:.2}, y {y0:.2} to {y1:.2}, fastest {fastest:.2} m/s"
        );
        json["flow"] = json!({ "voxels": moving, "x_m_s": [x0, x1], "y_m_s": [y0, y1], "fastest_m_s": fastest });
    }
    for note in &read.notes {
        let _ = write!(text, "\n  note       {note}");
    }
    let name = |id: i64| {
        let class = usize::try_from(id).ok()?;
        let named = labels.as_ref()?.classes.get(class).map(|c| c.name.clone());
        named.or_else(|| (id == i64::from(spec.ignore_id)).then(|| "ignored".into()))
    };
    text.push('\n');
    text.push_str(&class_table(&counts, "voxels", name));
    json["classes"] = classes_json(&counts, name);
    Facts { text, json }
}

/// Grids of no known set, id by id as they stand. `labels` names the ids.
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
            let counts = class_counts((0..array.values.len()).map(|i| array.values.at(i) as i64));
            if let Some(map) = labels {
                let _ = write!(text, ", free id {}", map.empty_id);
                facts["free_id"] = map.empty_id.into();
            }
            let name = |id: i64| labels?.classes.get(usize::try_from(id).ok()?).map(|c| c.name.clone());
            text.push('\n');
            text.push_str(&class_table(&counts, "voxels", name));
            facts["classes"] = classes_json(&counts, name);
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
