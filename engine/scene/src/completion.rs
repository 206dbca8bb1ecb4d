//! Targets of scene completion, made from labelled scans by the rules of SemanticKITTI's (Behley et al.,
//! "SemanticKITTI", ICCV 2019; their voxelizer).
//!
//! The scans around an anchor are moved into its frame and vote, voxel by voxel, with the ids of the files. A voxel is
//! what most of its points are, the lowest id of equals. Points that nobody labelled (0) and outliers (1) vote as one,
//! with id 0; where they win, something is there and nobody knows what: the voxel gets id 1, which the completion
//! task ignores. Ray casting from the places of the sensor tells which voxels no scan could see.

mod check;

pub use check::check_voxels;

use std::path::Path;

use glam::{DMat4, DVec3};
use serde::{Deserialize, Serialize};

use crate::error::{Place, Result};
use crate::formats::{ReadOptions, read_labelled_cloud};
use crate::rays::Occlusion;
use crate::{Error, GridSpec, LabelMap, PointCloud, Votes, VoxelGrid};

/// Id of free space in voxel files.
const FREE: u16 = 0;
/// Id written where unlabelled points and outliers have the majority; the completion task ignores it.
const OUTLIER: u16 = 1;
/// Ids of things that move.
const MOVING: std::ops::RangeInclusive<u16> = 252..=259;

/// Which scans and points make a target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TargetRules {
    /// Scans before the anchor.
    pub prior_scans: usize,
    /// Scans after the anchor.
    pub future_scans: usize,
    /// Points nearer to their own sensor do not count, metres.
    pub min_range_m: f64,
    /// Points farther from their own sensor do not count, metres.
    pub max_range_m: f64,
    /// Things that move count only in the anchor's own scan: the published targets smear them along their way.
    pub static_only: bool,
}

impl Default for TargetRules {
    /// As published.
    fn default() -> Self {
        Self { prior_scans: 0, future_scans: 70, min_range_m: 2.5, max_range_m: 70.0, static_only: false }
    }
}

impl TargetRules {
    /// Scans of a sequence of `scans` that make the target of `anchor`.
    pub fn window(&self, anchor: usize, scans: usize) -> std::ops::Range<usize> {
        anchor.saturating_sub(self.prior_scans)..scans.min(anchor.saturating_add(self.future_scans).saturating_add(1))
    }

    /// Drops the points of a scan that are too near to its sensor, at (0, 0, 0) of the file, or too far from it.
    pub fn keep_in_range(&self, cloud: &mut PointCloud) {
        let origin = DVec3::from_array(cloud.origin);
        let keep: Vec<bool> = cloud
            .positions
            .iter()
            .map(|p| {
                let range_m = (origin + DVec3::from_array(p.map(f64::from))).length();
                range_m >= self.min_range_m && range_m <= self.max_range_m
            })
            .collect();
        if keep.contains(&false) {
            cloud.retain(|i| keep[i]);
        }
    }
}

/// The points of a scan that count, with the ids of its label file.
#[derive(Debug, Clone, Default)]
pub struct LabelledScan {
    /// Metres, in the frame of the scan's own sensor.
    pub positions: Vec<[f32; 3]>,
    pub ids: Vec<u16>,
}

impl LabelledScan {
    /// Reads a scan and its labels. The cloud that comes back holds the points that count, with all their columns.
    ///
    /// # Errors
    /// As [`read_labelled_cloud`], and a label id that `map` does not know, wherever its point lies: a file of other ids
    /// is the wrong file.
    pub fn read(scan: &Path, labels: &Path, map: &LabelMap, rules: &TargetRules) -> Result<(Self, PointCloud)> {
        let mut cloud = read_labelled_cloud(scan, labels, &ReadOptions::default())?.cloud;
        let known = map.lookup();
        let mut seen = vec![false; 1 << 16];
        for (number, id) in cloud.label.iter().flatten().enumerate() {
            if !std::mem::replace(&mut seen[usize::from(*id)], true) && !known.contains_key(id) {
                let found = format!("label id {id} at point {number}");
                let expected = format!("an id of the label map {}", map.name);
                return Err(Error::new(labels, Place::File, found, expected));
            }
        }
        rules.keep_in_range(&mut cloud);
        let origin = DVec3::from_array(cloud.origin);
        let positions = if origin == DVec3::ZERO {
            cloud.positions.clone()
        } else {
            let whole = |p: &[f32; 3]| (origin + DVec3::from_array(p.map(f64::from))).as_vec3().to_array();
            cloud.positions.iter().map(whole).collect()
        };
        Ok((Self { positions, ids: cloud.label.clone().unwrap_or_default() }, cloud))
    }
}

/// Collects the votes of the scans of one target.
#[derive(Debug)]
pub struct TargetBuilder {
    spec: GridSpec,
    static_only: bool,
    votes: Votes,
    input: Vec<bool>,
    /// Places of the sensor, the anchor's first.
    sensors: Vec<[f32; 3]>,
}

impl TargetBuilder {
    /// Begins with the anchor's own scan.
    pub fn new(spec: &GridSpec, anchor: &LabelledScan, static_only: bool) -> Self {
        let mut builder = Self {
            spec: *spec,
            static_only: false,
            votes: Votes::default(),
            input: vec![false; spec.len()],
            sensors: Vec::new(),
        };
        builder.add(anchor, &DMat4::IDENTITY);
        for voxel in builder.votes.voxels() {
            builder.input[voxel] = true;
        }
        builder.static_only = static_only;
        builder
    }

    /// Adds another scan, taken at `anchor_from_scan`.
    pub fn add(&mut self, scan: &LabelledScan, anchor_from_scan: &DMat4) {
        self.sensors.push(anchor_from_scan.transform_point3(DVec3::ZERO).as_vec3().to_array());
        for (position, id) in scan.positions.iter().zip(&scan.ids) {
            if self.static_only && MOVING.contains(id) {
                continue;
            }
            let moved = anchor_from_scan.transform_point3(DVec3::from_array(position.map(f64::from)));
            if let Some(voxel) = self.spec.voxel_of(moved.as_vec3().to_array()) {
                let id = if *id == OUTLIER { FREE } else { *id };
                self.votes.add(self.spec.index(voxel), id);
            }
        }
    }

    /// Counts the votes and casts the rays.
    ///
    /// # Errors
    /// What `cast` says; it gets the grid, its occupied voxels and the places of the sensor, the anchor's first.
    pub fn finish<E>(
        self,
        cast: impl FnOnce(&GridSpec, &[bool], &[[f32; 3]]) -> Result<Occlusion, E>,
    ) -> Result<CompletionTarget, E> {
        let mut ids = vec![FREE; self.spec.len()];
        let mut occupied = vec![false; self.spec.len()];
        self.votes.count(|voxel, id| {
            ids[voxel] = if id == FREE { OUTLIER } else { id };
            occupied[voxel] = true;
        });
        let Occlusion { occluded, invalid } = cast(&self.spec, &occupied, &self.sensors)?;
        Ok(CompletionTarget { spec: self.spec, ids, input: self.input, occluded, invalid })
    }
}

/// What the four voxel files of a scan hold, in the axis order of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionTarget {
    pub spec: GridSpec,
    /// Ids of the label files; 0 is free space.
    pub ids: Vec<u16>,
    /// Voxels that hold a point of the anchor's scan.
    pub input: Vec<bool>,
    /// Voxels that the anchor's sensor cannot see.
    pub occluded: Vec<bool>,
    /// Voxels that no sensor of the scans used can see.
    pub invalid: Vec<bool>,
}

impl CompletionTarget {
    /// Class ids of `map`, ignored where no scan could see.
    ///
    /// # Errors
    /// An id that the map does not know.
    pub fn classes(&self, map: &LabelMap) -> Result<VoxelGrid, String> {
        let known = map.lookup();
        let mut last = (FREE, known.get(&FREE).copied());
        let mut labels = Vec::with_capacity(self.ids.len());
        for (id, invalid) in self.ids.iter().zip(&self.invalid) {
            if *id != last.0 {
                last = (*id, known.get(id).copied());
            }
            let class = last.1.ok_or_else(|| format!("id {id} is not in the label map {}", map.name))?;
            labels.push(if *invalid { self.spec.ignore_id } else { class });
        }
        Ok(VoxelGrid { spec: self.spec, labels, visibility: None, flow: None })
    }
}

/// How many voxels `voxels` lies above `scan` (-1, 0 or 1): the shift at which most of its occupied voxels are ones
/// that the scan hits; 0 where none is better. The first release of SemanticKITTI's voxels lies one too high.
pub fn height_offset(voxels: &[bool], scan: &[bool], spec: &GridSpec) -> i64 {
    let overlap = |offset: i64| {
        let agrees = |index: &usize| {
            let [x, y, z] = spec.voxel_at(*index);
            let below = z as i64 - offset;
            (0..spec.counts[2] as i64).contains(&below) && scan[spec.index([x, y, below as usize])]
        };
        (0..spec.len()).filter(|index| voxels[*index]).filter(agrees).count()
    };
    [-1, 1]
        .into_iter()
        .fold((0, overlap(0)), |best, offset| {
            let found = overlap(offset);
            if found > best.1 { (offset, found) } else { best }
        })
        .0
}

#[cfg(test)]
mod tests;
