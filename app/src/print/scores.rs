//! Scores as tables and as JSON.

use occam_engine::scene::metrics::Scores;
use serde_json::{Value, json};

use super::{Table, human};

/// Whether free space and one class are all there is, so that mIoU and the IoU of the class are the IoU again.
pub fn one_class(classes: usize) -> bool {
    classes == 2
}

/// One column of scores each, one row a metric, then one a class. Free space and classes that occur nowhere are left
/// out or shown as `-`; of a single class only the IoU is shown.
pub fn table(columns: &[(&str, &Scores)], classes: &[String]) -> Table {
    let header = std::iter::once(String::new()).chain(columns.iter().map(|(name, _)| (*name).to_owned())).collect();
    let mut table = Table::with_header(header);
    let mut row = |name: &str, value: &dyn Fn(&Scores) -> Option<f64>| {
        let values: Vec<Option<f64>> = columns.iter().map(|(_, scores)| value(scores)).collect();
        let cells = values.iter().map(|v| v.map_or_else(|| "-".into(), human::percent));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("IoU (occupied)", &|s| Some(s.iou));
    row("precision", &|s| Some(s.precision));
    row("recall", &|s| Some(s.recall));
    let length = columns.iter().map(|(_, s)| s.per_class.len()).max().unwrap_or(0);
    if one_class(length) {
        return table;
    }
    row("mIoU", &|s| Some(s.miou));
    for class in 0..length {
        let of = |s: &Scores| s.per_class.get(class).copied().flatten();
        if columns.iter().any(|(_, s)| of(s).is_some()) {
            row(&format!("  {}", class_name(classes, class)), &of);
        }
    }
    table
}

fn class_name(classes: &[String], class: usize) -> String {
    classes.get(class).cloned().unwrap_or_else(|| format!("class {class}"))
}

/// Scores with the classes by name; `null` for a class that occurs nowhere.
pub fn json(scores: &Scores, classes: &[String]) -> Value {
    let per_class: Vec<Value> = scores
        .per_class
        .iter()
        .enumerate()
        .map(|(id, iou)| json!({ "id": id, "name": class_name(classes, id), "iou": iou }))
        .collect();
    json!({
        "iou": scores.iou,
        "precision": scores.precision,
        "recall": scores.recall,
        "miou": scores.miou,
        "classes": per_class,
        "counted_voxels": scores.counted,
        "ignored_voxels": scores.ignored,
        "absent": scores.policy.to_string(),
    })
}

/// Named scores, such as the baselines.
pub fn json_named(named: &[(String, Scores)], classes: &[String]) -> Value {
    named.iter().map(|(name, scores)| json!({ "name": name, "scores": json(scores, classes) })).collect()
}
