//! Scans: format, extent, columns, and the labels that lie beside them in SemanticKITTI's layout.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use occam_engine::scene::LabelMap;
use occam_engine::scene::formats::{self, ReadOptions};

use super::{Facts, grid, label};
use crate::print::human;

/// Of a label file: its scan, with these labels.
pub fn facts(path: &Path, options: &ReadOptions, labels: Option<&LabelMap>) -> anyhow::Result<Facts> {
    let is_label = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("label"));
    let scan = scan_of(path).filter(|_| is_label).unwrap_or_else(|| path.to_path_buf());
    let label_file = if is_label { Some(path.to_path_buf()) } else { labels_of(&scan) };
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
        let name = label::names(labels, "unlabelled");
        let counts = grid::class_counts(ids.iter().map(|id| i64::from(*id)));
        let _ =
            write!(text, "\n  labels     {}\n{}", label_file.display(), grid::class_table(&counts, "points", &name));
        json["label_file"] = label_file.display().to_string().into();
        json["classes"] = grid::classes_json(&counts, &name);
    }
    Ok(Facts { text, json })
}

/// At most four decimals, and none where they are zero.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `labels/X.label` belongs to `velodyne/X.bin`.
pub fn scan_of(labels: &Path) -> Option<PathBuf> {
    beside(labels, "velodyne", "bin")
}

fn labels_of(scan: &Path) -> Option<PathBuf> {
    beside(scan, "labels", "label").filter(|_| formats::is_in_folder(scan, "velodyne"))
}

/// The file of the same name in a sister folder, if it is there.
fn beside(path: &Path, folder: &str, ending: &str) -> Option<PathBuf> {
    // A path that starts in the folder of the file names no sister folder.
    let absolute = std::path::absolute(path).ok()?;
    let sequence = path.parent().and_then(Path::parent).or(absolute.parent()?.parent())?;
    let beside = sequence.join(folder).join(path.file_name()?).with_extension(ending);
    beside.is_file().then_some(beside)
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
