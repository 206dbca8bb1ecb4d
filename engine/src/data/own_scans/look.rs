//! What looks odd about somebody's scans: sentences with numbers, and what to set.

use glam::DVec3;
use occam_scene::{GridSpec, PointCloud};

use super::super::{DataConfig, Frame};
use super::folder::Drives;
use crate::Result;

/// Scans looked at, spread over all.
const LOOKED_AT: usize = 5;
/// Points looked at of a scan.
const SAMPLED: usize = 20_000;
/// No LiDAR sees as far as this, metres.
const FARTHEST_M: f64 = 1000.0;

/// Share of the points that lie in the grid, and what looks odd about folders of scans.
///
/// # Errors
/// For a scan that cannot be read.
pub fn folders(drives: &Drives, config: &DataConfig, spec: &GridSpec) -> Result<(f64, Vec<String>)> {
    let (mut points, mut from_world) = (Vec::new(), Vec::new());
    let (mut labelled, mut without) = (false, Vec::new());
    let count = drives.len().min(LOOKED_AT);
    for place in 0..count {
        let scan = place * drives.len() / count;
        let cloud = drives.read(scan, config.frame)?;
        labelled |= cloud.label.is_some();
        if cloud.is_empty() {
            without.push(drives.file(scan).display().to_string());
        }
        // What the ranges would be in the other frame.
        let pose = drives.world_from_sensor(scan);
        let other = if config.frame == Frame::Sensor { pose.inverse() } else { pose };
        for p in sampled(&cloud) {
            points.push(p);
            from_world.push(other.transform_point3(p).length());
        }
    }
    let mut notes = drives.notes();
    if let Some(first) = without.first() {
        notes.push(format!(
            "{} of {count} scans looked at hold no point with finite coordinates (no NaN), such as {first}",
            without.len()
        ));
    }
    let far = reach(points.iter().map(|p| p.length()).collect());
    let [own, other] = [points.iter().map(|p| p.length()).collect(), from_world].map(median);
    if other * 2.0 < own {
        let (now, set) = match config.frame {
            Frame::Sensor => ("sensor", "world"),
            Frame::World => ("world", "sensor"),
        };
        notes.push(format!(
            "half of the points lie farther than {own:.0} m from the sensor with data.frame = {now}, but {other:.0} m with \
             {set}: if the scans are {}, --set data.frame={set}",
            if set == "world" { "registered in one frame" } else { "each in the frame of its sensor" }
        ));
    } else if own > FARTHEST_M {
        notes.push(millimetres(own));
    } else if !points.is_empty() {
        notes.extend(apart(drives, far));
        match up_axis(&points) {
            Some(note) => notes.push(note),
            None => notes.extend(grid(&points, spec)),
        }
    }
    if drives.info().iter().any(|drive| drive.scans > 1 && drive.way_m == 0.0) {
        notes.push("all poses are the same place: were they recorded?".into());
    }
    if labelled && config.labels.is_none() {
        notes.push(UNUSED_LABELS.into());
    }
    Ok((share_inside(&points, spec), notes))
}

/// What looks odd about one dense cloud.
pub fn cloud(cloud: &PointCloud, config: &DataConfig) -> Vec<String> {
    let points: Vec<DVec3> = sampled(cloud).collect();
    let mut notes = Vec::new();
    let middle = points.iter().sum::<DVec3>() / points.len().max(1) as f64;
    let spread = median(points.iter().map(|p| p.distance(middle)).collect());
    if spread > FARTHEST_M * 10.0 {
        notes.push(millimetres(spread));
    } else {
        notes.extend(up_axis(&points));
    }
    if cloud.label.is_some() && config.labels.is_none() {
        notes.push(UNUSED_LABELS.into());
    }
    notes
}

const UNUSED_LABELS: &str = "the labels in the files are not used: to train their classes, --set data.labels=FILE.toml (or the \
                             name of a label map)";

fn millimetres(distance: f64) -> String {
    format!(
        "half of the points lie farther than {distance:.0} m away: are the coordinates millimetres? Occam takes them for \
         metres; scale the files and the poses"
    )
}

fn sampled(cloud: &PointCloud) -> impl Iterator<Item = DVec3> {
    let step = cloud.len().div_ceil(SAMPLED).max(1);
    cloud.positions.iter().step_by(step).map(|p| DVec3::from_array(p.map(f64::from)))
}

fn median(mut values: Vec<f64>) -> f64 {
    let rank = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(rank, f64::total_cmp).1 }
}

/// What nine in ten of the values do not exceed.
fn reach(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() * 9 / 10).copied().unwrap_or_default()
}

/// Scans so far apart that no place is in two of them.
fn apart(drives: &Drives, far: f64) -> Option<String> {
    let step = median(drives.steps_m());
    (step > 2.0 * far).then(|| {
        format!(
            "one scan and the next were taken {step:.0} m apart, but nine in ten of their points lie within {far:.0} m of \
             the sensor: they have no place in common. Are the poses metres, as the scans?"
        )
    })
}

/// Distance between the twentieth and the last twentieth of the values.
fn spread(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let stray = values.len() / 20;
    match (values.get(stray), values.get(values.len().saturating_sub(1 + stray))) {
        (Some(low), Some(high)) => high - low,
        _ => 0.0,
    }
}

/// The world is flat: heights spread least.
fn up_axis(points: &[DVec3]) -> Option<String> {
    let [x, y, z] = [0, 1, 2].map(|axis| spread(points.iter().map(|p| p[axis]).collect()));
    (y * 3.0 < x.min(z)).then(|| {
        format!(
            "y seems to point up (nine in ten points spread {x:.1} m along x, {y:.1} m along y, {z:.1} m along z): Occam \
             takes x for forward, y for left and z for up; turn the files and the poses"
        )
    })
}

fn share_inside(points: &[DVec3], spec: &GridSpec) -> f64 {
    let inside = points.iter().filter(|p| spec.voxel_of(p.as_vec3().to_array()).is_some()).count();
    inside as f64 / points.len().max(1) as f64
}

/// Whether the grid lies where the points are.
fn grid(points: &[DVec3], spec: &GridSpec) -> Vec<String> {
    let mut notes = Vec::new();
    let share = share_inside(points, spec);
    let [low, high] = [spec.origin_m, spec.end_m()].map(|p| p.map(f64::from));
    if share < 0.05 {
        notes.push(format!(
            "{:.1} % of the points lie in the grid, which reaches from {low:.1?} to {high:.1?} m around the sensor: set \
             grid.origin_m, --grid or --voxel to where they are",
            100.0 * share
        ));
    }
    let above = |p: &&DVec3| (0..2).all(|axis| p[axis] >= low[axis] && p[axis] < high[axis]);
    let mut heights: Vec<f64> = points.iter().filter(above).map(|p| p.z).collect();
    heights.sort_unstable_by(f64::total_cmp);
    // A few points below the ground are mirror images.
    if let Some(ground) = heights.get(heights.len() / 20)
        && !(low[2]..high[2]).contains(ground)
    {
        // The demo's sensor stands 1.7 m above a road that lies 0.7 m above the floor of its grid.
        let [x, y] = [low[0], low[1]];
        notes.push(format!(
            "the ground lies at z = {ground:.1} m, outside the grid, which reaches from {:.1} to {:.1} m: --set \
             grid.origin_m=[{x:.1},{y:.1},{:.1}]",
            low[2],
            high[2],
            ground - 0.7
        ));
    }
    notes
}
