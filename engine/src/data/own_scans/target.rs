//! What scans from several places say about the voxels of one grid.

use std::collections::BTreeMap;

use glam::{DMat4, DVec3};
use occam_scene::rays::{self, RayState};
use occam_scene::{GridSpec, LabelMap, PointCloud, Votes};

/// Ids of a label column to class ids.
#[derive(Debug)]
pub struct Classes {
    name: String,
    by_id: BTreeMap<u16, u8>,
    empty_id: u8,
    ignore_id: u8,
}

impl Classes {
    pub fn new(labels: &LabelMap) -> Self {
        Self {
            name: labels.name.clone(),
            by_id: labels.lookup(),
            empty_id: labels.empty_id,
            ignore_id: labels.ignore_id,
        }
    }

    /// Whether a point of that id tells nothing.
    pub fn means_nothing(&self, id: u16) -> bool {
        self.by_id.get(&id).is_some_and(|class| *class == self.empty_id || *class == self.ignore_id)
    }

    /// A point is never free space: an id that means it says that nobody knows.
    fn of(&self, id: u16) -> Result<u8, String> {
        match self.by_id.get(&id) {
            Some(class) if *class == self.empty_id => Ok(self.ignore_id),
            Some(class) => Ok(*class),
            None => Err(format!("label id {id}, which the label map {} does not know", self.name)),
        }
    }
}

/// The target of one grid, in the making.
pub struct Target<'a> {
    spec: &'a GridSpec,
    classes: Option<&'a Classes>,
    states: Vec<RayState>,
    /// Without classes: voxels that hold a point.
    occupied: Vec<bool>,
    /// With classes, for one of them each.
    votes: Votes,
}

/// Class of a voxel that holds points, where there are only two.
const OCCUPIED: u8 = 1;

impl<'a> Target<'a> {
    pub fn new(spec: &'a GridSpec, classes: Option<&'a Classes>) -> Self {
        let occupied = if classes.is_none() { vec![false; spec.len()] } else { Vec::new() };
        Self { spec, classes, states: vec![RayState::Unknown; spec.len()], occupied, votes: Votes::default() }
    }

    /// Adds points and rays of a scan that `motion` takes into the frame of the grid; points nearer than `min_range_m` to
    /// its sensor are left out.
    ///
    /// # Errors
    /// Says what was found instead of a label of the classes.
    pub fn add_scan(&mut self, cloud: &PointCloud, motion: &DMat4, min_range_m: f64) -> Result<(), String> {
        self.add_rays(cloud, motion, min_range_m);
        let far = |p: &[f32; 3]| far_enough(*p, min_range_m);
        self.add_points(
            cloud.positions.iter().enumerate().filter(|(_, p)| far(p)).map(|(index, p)| (index, moved(motion, *p))),
            cloud.label.as_deref(),
        )
    }

    /// Adds only the rays: what they passed is empty where no point is.
    pub fn add_rays(&mut self, cloud: &PointCloud, motion: &DMat4, min_range_m: f64) {
        let sensor = motion.w_axis.truncate().as_vec3().to_array();
        let ends = cloud.positions.iter().filter(|p| far_enough(**p, min_range_m));
        let ends: Vec<[f32; 3]> = ends.map(|p| moved(motion, *p)).collect();
        rays::cast(self.spec, sensor, &ends, &mut self.states);
    }

    /// Adds points in the frame of the grid, each with its place in `labels`.
    ///
    /// # Errors
    /// As [`Self::add_scan`].
    pub fn add_points(
        &mut self,
        points: impl Iterator<Item = (usize, [f32; 3])>,
        labels: Option<&[u16]>,
    ) -> Result<(), String> {
        let Some(classes) = self.classes else {
            for voxel in points.filter_map(|(_, p)| self.spec.voxel_of(p)) {
                self.occupied[self.spec.index(voxel)] = true;
            }
            return Ok(());
        };
        let labels = labels.ok_or_else(|| "no labels".to_owned())?;
        for (index, point) in points {
            if let Some(voxel) = self.spec.voxel_of(point) {
                let id = labels.get(index).copied().unwrap_or_default();
                self.votes.add(self.spec.index(voxel), classes.of(id)?.into());
            }
        }
        Ok(())
    }

    /// Class ids in the order of the grid.
    pub fn finish(self) -> Vec<u8> {
        let Self { spec, .. } = self;
        let known = |state: &RayState| if *state == RayState::Free { spec.empty_id } else { spec.ignore_id };
        let mut labels: Vec<u8> = self.states.iter().map(known).collect();
        for (label, _) in labels.iter_mut().zip(&self.occupied).filter(|(_, occupied)| **occupied) {
            *label = OCCUPIED;
        }
        self.votes.count(|voxel, class| labels[voxel] = class as u8);
        labels
    }
}

fn far_enough(p: [f32; 3], min_range_m: f64) -> bool {
    let [x, y, z] = p.map(f64::from);
    x * x + y * y + z * z >= min_range_m * min_range_m
}

fn moved(motion: &DMat4, p: [f32; 3]) -> [f32; 3] {
    motion.transform_point3(DVec3::from_array(p.map(f64::from))).as_vec3().to_array()
}
