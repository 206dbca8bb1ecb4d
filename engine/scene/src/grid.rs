//! Regular voxel grids: where they lie, how they are laid out, and one class id a voxel.

use serde::{Deserialize, Serialize};

/// Which axis varies slowest in memory. `Xyz` means z is the fastest (SemanticKITTI, Occ3D), `Zyx` x (OccNet v1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AxisOrder {
    #[default]
    Xyz,
    Zyx,
}

/// A grid in the frame of its cloud.
///
/// A point lies in voxel `floor((p - origin) * (1 / size))`, computed in f32 with the reciprocal rounded once from f64:
/// the same bits on every device (WGSL division is not correctly rounded). The upper bound is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridSpec {
    /// Lowest corner, metres.
    pub origin_m: [f32; 3],
    /// Edge lengths of a voxel, metres.
    pub voxel_size_m: [f32; 3],
    /// Voxels along x, y, z.
    pub counts: [usize; 3],
    #[serde(default)]
    pub axis_order: AxisOrder,
    /// Class id of free space.
    #[serde(default)]
    pub empty_id: u8,
    /// Class id of voxels that neither train nor count.
    #[serde(default = "default_ignore")]
    pub ignore_id: u8,
}

fn default_ignore() -> u8 {
    255
}

impl GridSpec {
    /// A grid in SemanticKITTI's order with empty 0 and ignore 255.
    pub fn new(origin_m: [f32; 3], voxel_size_m: [f32; 3], counts: [usize; 3]) -> Self {
        Self { origin_m, voxel_size_m, counts, axis_order: AxisOrder::Xyz, empty_id: 0, ignore_id: 255 }
    }

    /// Number of voxels; `None` when it does not fit in a `usize`.
    pub fn checked_len(&self) -> Option<usize> {
        self.counts[0].checked_mul(self.counts[1])?.checked_mul(self.counts[2])
    }

    /// Number of voxels of a spec that was checked.
    pub fn len(&self) -> usize {
        self.counts.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is wrong with the spec, if anything: every size between 1 mm and 1 km, every count at least 1, and no more
    /// than 2^31 voxels.
    pub fn check(&self) -> Result<(), String> {
        // The bounds catch millimetres given as metres; NaN is in no range.
        if self.voxel_size_m.iter().any(|s| !(0.001..=1000.0).contains(s)) {
            return Err(format!("voxel size {:?} m, expected three numbers from 0.001 to 1000", self.voxel_size_m));
        }
        if self.origin_m.iter().any(|o| !o.is_finite()) {
            return Err(format!("grid origin {:?} m, expected three finite numbers", self.origin_m));
        }
        if self.counts.contains(&0) {
            return Err(format!("grid of {:?} voxels, expected at least one along each axis", self.counts));
        }
        match self.checked_len() {
            Some(len) if len <= 1 << 31 => Ok(()),
            _ => Err(format!("grid of {:?} voxels, expected at most 2^31 in all", self.counts)),
        }
    }

    /// `1 / voxel_size_m`, rounded once from f64: the factor of the index rule.
    pub fn inverse_size(&self) -> [f32; 3] {
        self.voxel_size_m.map(|s| (1.0 / f64::from(s)) as f32)
    }

    /// Highest corner, metres (exclusive).
    pub fn end_m(&self) -> [f32; 3] {
        std::array::from_fn(|a| self.origin_m[a] + self.voxel_size_m[a] * self.counts[a] as f32)
    }

    /// Voxel that holds a point, or `None` outside the grid and for coordinates that are not finite.
    pub fn voxel_of(&self, point: [f32; 3]) -> Option<[usize; 3]> {
        let inverse = self.inverse_size();
        let mut voxel = [0; 3];
        for axis in 0..3 {
            let cell = ((point[axis] - self.origin_m[axis]) * inverse[axis]).floor();
            // The negated form also refuses NaN.
            if !(cell >= 0.0 && cell < self.counts[axis] as f32) {
                return None;
            }
            voxel[axis] = cell as usize;
        }
        Some(voxel)
    }

    /// Position of a voxel in memory.
    pub fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        let [nx, ny, nz] = self.counts;
        match self.axis_order {
            AxisOrder::Xyz => (x * ny + y) * nz + z,
            AxisOrder::Zyx => (z * ny + y) * nx + x,
        }
    }

    /// Voxel at a position in memory.
    pub fn voxel_at(&self, index: usize) -> [usize; 3] {
        let [nx, ny, nz] = self.counts;
        match self.axis_order {
            AxisOrder::Xyz => [index / (ny * nz), index / nz % ny, index % nz],
            AxisOrder::Zyx => [index % nx, index / nx % ny, index / (nx * ny)],
        }
    }

    /// Centre of a voxel, metres.
    pub fn centre_m(&self, voxel: [usize; 3]) -> [f32; 3] {
        std::array::from_fn(|a| self.origin_m[a] + (voxel[a] as f32 + 0.5) * self.voxel_size_m[a])
    }
}

/// What the sensors could tell about a voxel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Visibility {
    /// A ray ended in it or passed through it.
    Seen = 0,
    /// Within range, but something stands between it and the sensor.
    Occluded = 1,
    /// No ray went that way: out of the field of view or range.
    Unknown = 2,
}

/// One class id a voxel, with what else is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct VoxelGrid {
    pub spec: GridSpec,
    /// Class ids in the spec's axis order; `empty_id` and `ignore_id` have their meaning from the spec.
    pub labels: Vec<u8>,
    pub visibility: Option<Vec<Visibility>>,
    /// Velocity along x and y, m/s.
    pub flow: Option<Vec<[f32; 2]>>,
}

impl VoxelGrid {
    /// A grid of free space.
    pub fn empty(spec: GridSpec) -> Self {
        Self { spec, labels: vec![spec.empty_id; spec.len()], visibility: None, flow: None }
    }

    /// Class id of a voxel.
    pub fn label(&self, voxel: [usize; 3]) -> u8 {
        self.labels[self.spec.index(voxel)]
    }

    /// Voxels that are neither empty nor ignored.
    pub fn occupied(&self) -> usize {
        self.labels.iter().filter(|l| **l != self.spec.empty_id && **l != self.spec.ignore_id).count()
    }

    /// The same grid in another axis order.
    #[must_use]
    pub fn reordered(&self, axis_order: AxisOrder) -> Self {
        let spec = GridSpec { axis_order, ..self.spec };
        let from = |i: usize| self.spec.index(spec.voxel_at(i));
        let len = spec.len();
        Self {
            spec,
            labels: (0..len).map(|i| self.labels[from(i)]).collect(),
            visibility: self.visibility.as_ref().map(|v| (0..len).map(|i| v[from(i)]).collect()),
            flow: self.flow.as_ref().map(|v| (0..len).map(|i| v[from(i)]).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kitti() -> GridSpec {
        GridSpec::new([0.0, -25.6, -2.0], [0.2; 3], [256, 256, 32])
    }

    #[test]
    fn index_and_voxel_are_inverse_in_both_orders() {
        for axis_order in [AxisOrder::Xyz, AxisOrder::Zyx] {
            let spec = GridSpec { axis_order, ..GridSpec::new([0.0; 3], [1.0; 3], [3, 4, 5]) };
            let mut seen = [false; 60];
            for x in 0..3 {
                for y in 0..4 {
                    for z in 0..5 {
                        let index = spec.index([x, y, z]);
                        assert_eq!(spec.voxel_at(index), [x, y, z]);
                        assert!(!std::mem::replace(&mut seen[index], true));
                    }
                }
            }
        }
    }

    #[test]
    fn semantic_kitti_index_has_z_fastest() {
        assert_eq!(kitti().index([1, 2, 3]), (256 + 2) * 32 + 3);
    }

    #[test]
    fn the_upper_bound_is_exclusive_and_nan_is_outside() {
        let spec = kitti();
        assert_eq!(spec.voxel_of([0.0, -25.6, -2.0]), Some([0, 0, 0]));
        assert_eq!(spec.voxel_of([51.3, 0.0, 0.0]), None);
        assert_eq!(spec.voxel_of([51.2, 0.0, 0.0]), None);
        assert_eq!(spec.voxel_of([-0.001, 0.0, 0.0]), None);
        assert_eq!(spec.voxel_of([f32::NAN, 0.0, 0.0]), None);
        assert_eq!(spec.voxel_of([1.0, f32::INFINITY, 0.0]), None);
    }

    #[test]
    fn reordering_twice_gives_the_grid_back() {
        let spec = GridSpec::new([0.0; 3], [1.0; 3], [2, 3, 4]);
        let mut grid = VoxelGrid::empty(spec);
        grid.labels.iter_mut().enumerate().for_each(|(i, l)| *l = i as u8);
        let turned = grid.reordered(AxisOrder::Zyx);
        assert_eq!(turned.label([1, 2, 3]), grid.label([1, 2, 3]));
        assert_eq!(turned.reordered(AxisOrder::Xyz), grid);
    }

    #[test]
    fn a_spec_too_large_or_senseless_is_refused() {
        assert!(kitti().check().is_ok());
        for size in [0.0, -0.2, 1e-30, 1e30, f32::NAN, f32::INFINITY] {
            assert!(GridSpec::new([0.0; 3], [0.2, size, 0.2], [1, 1, 1]).check().is_err(), "{size}");
        }
        assert!(GridSpec::new([0.0; 3], [1.0; 3], [0, 1, 1]).check().is_err());
        assert!(GridSpec::new([0.0; 3], [1.0; 3], [usize::MAX, 2, 2]).check().is_err());
    }
}
