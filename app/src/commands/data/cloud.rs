//! Scans: format, extent, columns, and the labels that lie beside them in SemanticKITTI's layout.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use occam_engine::scene::LabelMap;
use occam_engine::scene::formats::{self, ReadOptions};

use super::{Facts, grid};
use crate::print::human;

/// A label file stands for its scan.
pub fn facts(path: &Path, options: &ReadOptions, labels: Option<&LabelMap>) -> anyhow::Result<Facts> {
    let scan = scan_of(path);
    let label_file = labels_of(&scan);
    let read = match &label_file {
        Some(label_file) => formats::read_labelled_cloud(&scan, label_file, options)?,
        None => formats::read_cloud(&scan, options)?,
    };
    let found = read.describe();
    let mut text = format!("{}: {}, {}", scan.display(), found.format, human::counted(found.points, "point"));
    if let Some((low, high)) = found.bounds_m {
        let axis = |a: usize| {
            let at = |v: f32| f64::from(v) + found.origin_m[a];
            format!("{} {:.2} to {:.2}", ["x", "y", "z"][a], at(low[a]), at(high[a]))
        };
        let _ = write!(text, "\n  bounds     {}, {}, {} m", axis(0), axis(1), axis(2));
    }
    let sensor = found.sensor_m.map_or_else(
        || "not said by the file".to_owned(),
        |s| (0..3).map(|a| format!("{:.2}", f64::from(s[a]) + found.origin_m[a])).collect::<Vec<_>>().join(", ") + " m",
    );
    let _ = write!(text, "\n  sensor     {sensor}");
    for column in &found.columns {
        let _ = write!(text, "\n  {:<9}  {} to {}", column.name, number(column.min), number(column.max));
    }
    for note in &found.notes {
        let _ = write!(text, "\n  note       {note}");
    }
    let mut json = serde_json::to_value(&found)?;
    json["file"] = scan.display().to_string().into();
    if let (Some(label_file), Some(ids)) = (&label_file, &read.cloud.label) {
        let built_in = LabelMap::built_in("semantic-kitti");
        let map = labels.or(built_in.as_ref());
        let lookup = map.map(LabelMap::lookup).unwrap_or_default();
        let name = |id: i64| {
            let map = map?;
            let class = *lookup.get(&u16::try_from(id).ok()?)?;
            let named = map.classes.get(usize::from(class)).map(|c| c.name.clone());
            named.or_else(|| (class == map.ignore_id).then(|| "ignored".into()))
        };
        let counts = grid::class_counts(ids.iter().map(|id| i64::from(*id)));
        let _ = write!(text, "\n  labels     {}\n{}", label_file.display(), grid::class_table(&counts, "points", name));
        json["label_file"] = label_file.display().to_string().into();
        json["classes"] = grid::classes_json(&counts, name);
    }
    Ok(Facts { text, json })
}

/// At most four decimals, and none where they are zero.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `labels/X.label` belongs to `velodyne/X.bin`.
fn scan_of(path: &Path) -> PathBuf {
    let is_label = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("label"));
    beside(path, "velodyne", "bin").filter(|scan| is_label && scan.is_file()).unwrap_or_else(|| path.to_path_buf())
}

fn labels_of(scan: &Path) -> Option<PathBuf> {
    let in_velodyne = scan.parent().and_then(Path::file_name).is_some_and(|name| name == "velodyne");
    beside(scan, "labels", "label").filter(|labels| in_velodyne && labels.is_file())
}

/// The file of the same name in a sister folder.
fn beside(path: &Path, folder: &str, ending: &str) -> Option<PathBuf> {
    let sequence = path.parent()?.parent()?;
    Some(sequence.join(folder).join(path.file_name()?).with_extension(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(100.0), "100");
        assert_eq!(number(0.99), "0.99");
        assert_eq!(number(-1.23456), "-1.2346");
    }
}
