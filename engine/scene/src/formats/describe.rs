//! What `data info` tells about a cloud.

use serde::Serialize;

use super::ReadCloud;

/// One column of a cloud and the range of its values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColumnRange {
    pub name: &'static str,
    pub min: f64,
    pub max: f64,
}

/// Facts about a cloud.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Description {
    pub format: String,
    pub points: usize,
    pub dropped_non_finite: usize,
    /// Added to the bounds to get coordinates of the file, metres.
    pub origin_m: [f64; 3],
    /// Lowest and highest corner relative to the origin, metres; `None` without points.
    pub bounds_m: Option<([f32; 3], [f32; 3])>,
    /// Relative to the origin; `None` when the file does not tell.
    pub sensor_m: Option<[f32; 3]>,
    /// Every column but the positions.
    pub columns: Vec<ColumnRange>,
    pub notes: Vec<String>,
}

impl ReadCloud {
    pub fn describe(&self) -> Description {
        let cloud = &self.cloud;
        let mut columns = Vec::new();
        if let Some(values) = &cloud.intensity {
            push(&mut columns, "intensity", values.iter().map(|v| f64::from(*v)));
        }
        if let Some(values) = &cloud.colour {
            for (channel, name) in ["red", "green", "blue"].into_iter().enumerate() {
                push(&mut columns, name, values.iter().map(|v| f64::from(v[channel])));
            }
        }
        if let Some(values) = &cloud.label {
            push(&mut columns, "label", values.iter().map(|v| f64::from(*v)));
        }
        if let Some(values) = &cloud.instance {
            push(&mut columns, "instance", values.iter().map(|v| f64::from(*v)));
        }
        if let Some(values) = &cloud.ring {
            push(&mut columns, "ring", values.iter().map(|v| f64::from(*v)));
        }
        if let Some(values) = &cloud.time {
            push(&mut columns, "time", values.iter().copied());
        }
        Description {
            format: self.format.clone(),
            points: cloud.len(),
            dropped_non_finite: cloud.dropped_non_finite,
            origin_m: cloud.origin,
            bounds_m: cloud.bounds(),
            sensor_m: cloud.sensor,
            columns,
            notes: self.notes.clone(),
        }
    }
}

/// A column without a number (no points, or NaN alone) has no range and is left out.
fn push(columns: &mut Vec<ColumnRange>, name: &'static str, values: impl Iterator<Item = f64>) {
    let range = values
        .filter(|v| !v.is_nan())
        .fold(None, |range: Option<(f64, f64)>, v| Some(range.map_or((v, v), |(min, max)| (min.min(v), max.max(v)))));
    if let Some((min, max)) = range {
        columns.push(ColumnRange { name, min, max });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::PointCloud;

    #[test]
    fn ranges_leave_nan_out() {
        let cloud = PointCloud {
            positions: vec![[1.0, 2.0, 3.0], [-1.0, 5.0, 0.0], [0.0; 3]],
            intensity: Some(vec![f32::NAN, 0.5, 0.25]),
            colour: Some(vec![[1, 2, 3], [4, 0, 9], [7, 7, 7]]),
            time: Some(vec![f64::NAN; 3]),
            ..PointCloud::default()
        };
        let facts = ReadCloud { cloud, format: "x".into(), notes: Vec::new() }.describe();
        assert_eq!(facts.bounds_m, Some(([-1.0, 0.0, 0.0], [1.0, 5.0, 3.0])));
        let ranges: Vec<_> = facts.columns.iter().map(|c| (c.name, c.min, c.max)).collect();
        assert_eq!(ranges, [("intensity", 0.25, 0.5), ("red", 1.0, 7.0), ("green", 0.0, 7.0), ("blue", 3.0, 9.0)]);
    }
}
