//! Faces of voxels that are not covered by another voxel.

use glam::DVec3;
use occam_scene::VoxelGrid;

/// One of the six sides of a voxel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Side {
    /// 0 = x, 1 = y, 2 = z.
    pub axis: usize,
    /// The side at the higher coordinate.
    pub positive: bool,
}

impl Side {
    pub const ALL: [Self; 6] = [
        Self { axis: 0, positive: false },
        Self { axis: 0, positive: true },
        Self { axis: 1, positive: false },
        Self { axis: 1, positive: true },
        Self { axis: 2, positive: false },
        Self { axis: 2, positive: true },
    ];

    /// Outward normal.
    pub fn normal(self) -> DVec3 {
        let mut normal = [0.0; 3];
        normal[self.axis] = if self.positive { 1.0 } else { -1.0 };
        DVec3::from_array(normal)
    }
}

/// A face of an occupied voxel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Face {
    pub voxel: [usize; 3],
    pub side: Side,
}

/// Every face between an occupied voxel and a free or ignored one, or the border of the grid. Occupied is what is neither
/// empty nor ignored.
pub fn exposed_faces(grid: &VoxelGrid) -> Vec<Face> {
    let solid = Solid::of(grid);
    let mut faces = Vec::new();
    solid.for_exposed(grid, &Side::ALL, |face| faces.push(face));
    faces
}

/// Which voxels are occupied, with a border of free ones around, so that neighbours need no test.
pub struct Solid {
    cells: Vec<bool>,
    counts: [usize; 3],
    strides: [usize; 3],
}

impl Solid {
    pub fn of(grid: &VoxelGrid) -> Self {
        let counts = grid.spec.counts;
        let padded = counts.map(|n| n + 2);
        let strides = [padded[1] * padded[2], padded[2], 1];
        let mut solid = Self { cells: vec![false; padded.iter().product()], counts, strides };
        for (i, label) in grid.labels.iter().enumerate() {
            if *label != grid.spec.empty_id && *label != grid.spec.ignore_id {
                let at = solid.at(grid.spec.voxel_at(i));
                solid.cells[at] = true;
            }
        }
        solid
    }

    /// Place of a voxel in `cells`.
    fn at(&self, voxel: [usize; 3]) -> usize {
        (0..3).map(|a| (voxel[a] + 1) * self.strides[a]).sum()
    }

    /// Calls `draw` with every exposed face of the given sides.
    pub fn for_exposed(&self, grid: &VoxelGrid, sides: &[Side], mut draw: impl FnMut(Face)) {
        for index in 0..grid.labels.len() {
            let voxel = grid.spec.voxel_at(index);
            let at = self.at(voxel);
            if self.cells[at] {
                for side in sides {
                    let stride = self.strides[side.axis];
                    let beyond = if side.positive { at + stride } else { at - stride };
                    if !self.cells[beyond] {
                        draw(Face { voxel, side: *side });
                    }
                }
            }
        }
    }

    /// How much each corner of a face is shut in by the voxels around it, 0 (open) to 3: at the low ends of the two other
    /// axes, then with the first of them high, the second high, both high.
    pub fn corners_shut_in(&self, face: Face) -> [u8; 4] {
        let stride = self.strides[face.side.axis];
        let at = self.at(face.voxel);
        let layer = if face.side.positive { at + stride } else { at - stride };
        let [b, c] = others(face.side.axis).map(|axis| self.strides[axis]);
        std::array::from_fn(|corner| {
            let step = |from: usize, stride: usize, up: bool| if up { from + stride } else { from - stride };
            let (b_up, c_up) = (corner & 1 == 1, corner & 2 == 2);
            let along_b = self.cells[step(layer, b, b_up)];
            let along_c = self.cells[step(layer, c, c_up)];
            let diagonal = self.cells[step(step(layer, b, b_up), c, c_up)];
            if along_b && along_c { 3 } else { u8::from(along_b) + u8::from(along_c) + u8::from(diagonal) }
        })
    }

    /// Whether a ray from the middle of a face meets a voxel. `direction` is in voxels and points away from the face.
    pub fn in_shadow(&self, face: Face, direction: DVec3) -> bool {
        let mut cell: [i64; 3] = face.voxel.map(|v| v as i64);
        cell[face.side.axis] += if face.side.positive { 1 } else { -1 };
        let mut next = [f64::INFINITY; 3];
        let mut step = [f64::INFINITY; 3];
        for axis in 0..3 {
            let speed = direction[axis].abs();
            if speed > 0.0 {
                step[axis] = 1.0 / speed;
                // From the middle of the voxel along the face's axes, from its surface along the normal.
                next[axis] = if axis == face.side.axis { step[axis] } else { step[axis] / 2.0 };
            }
        }
        loop {
            if (0..3).any(|a| cell[a] < 0 || cell[a] >= self.counts[a] as i64) {
                return false;
            }
            if self.cells[self.at(cell.map(|c| c as usize))] {
                return true;
            }
            let axis = if next[0] < next[1] && next[0] < next[2] {
                0
            } else if next[1] < next[2] {
                1
            } else {
                2
            };
            if next[axis] == f64::INFINITY {
                return false;
            }
            next[axis] += step[axis];
            cell[axis] += if direction[axis] > 0.0 { 1 } else { -1 };
        }
    }
}

/// The two other axes, in order.
pub fn others(axis: usize) -> [usize; 2] {
    match axis {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use occam_scene::{AxisOrder, GridSpec};

    /// A grid whose voxels are occupied, empty (0) or ignored (255) in a fixed disorder.
    fn disorder(axis_order: AxisOrder) -> VoxelGrid {
        let mut grid = VoxelGrid::empty(GridSpec { axis_order, ..GridSpec::new([0.0; 3], [1.0; 3], [6, 5, 4]) });
        let mut state = 7u32;
        for label in &mut grid.labels {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *label = [0, 0, 1, 2, 255][(state >> 24) as usize % 5];
        }
        grid
    }

    #[test]
    fn exposed_faces_equal_brute_force() {
        for axis_order in [AxisOrder::Xyz, AxisOrder::Zyx] {
            let grid = disorder(axis_order);
            let occupied = |v: [i64; 3]| {
                (0..3).all(|a| v[a] >= 0 && v[a] < grid.spec.counts[a] as i64)
                    && ![0, 255].contains(&grid.label(v.map(|c| c as usize)))
            };
            let found = exposed_faces(&grid);
            let mut expected = 0;
            for index in 0..grid.spec.len() {
                let voxel = grid.spec.voxel_at(index);
                for side in Side::ALL {
                    let mut beyond = voxel.map(|c| c as i64);
                    beyond[side.axis] += if side.positive { 1 } else { -1 };
                    if occupied(voxel.map(|c| c as i64)) && !occupied(beyond) {
                        expected += 1;
                        assert!(found.contains(&Face { voxel, side }), "{voxel:?} {side:?}");
                    }
                }
            }
            assert_eq!(found.len(), expected);
        }
    }

    #[test]
    fn a_block_shows_its_surface_only() {
        let mut grid = VoxelGrid::empty(GridSpec::new([0.0; 3], [1.0; 3], [3, 4, 5]));
        grid.labels.fill(1);
        assert_eq!(exposed_faces(&grid).len(), 2 * (3 * 4 + 4 * 5 + 3 * 5));
        assert!(exposed_faces(&VoxelGrid::empty(grid.spec)).is_empty());
    }

    #[test]
    fn a_corner_is_shut_in_by_its_three_neighbours() {
        let mut grid = VoxelGrid::empty(GridSpec::new([0.0; 3], [1.0; 3], [3, 3, 2]));
        let top = Face { voxel: [1, 1, 0], side: Side { axis: 2, positive: true } };
        let mut put = |voxel| {
            let at = grid.spec.index(voxel);
            grid.labels[at] = 1;
            Solid::of(&grid).corners_shut_in(top)
        };
        assert_eq!(put([1, 1, 0]), [0, 0, 0, 0]);
        // Along x: both corners on that side.
        assert_eq!(put([2, 1, 1]), [0, 1, 0, 1]);
        assert_eq!(put([0, 0, 1]), [1, 1, 0, 1]);
        // Two sides shut a corner in, whatever is on the diagonal.
        assert_eq!(put([1, 2, 1]), [1, 1, 1, 3]);
    }

    #[test]
    fn a_voxel_throws_its_shadow_along_the_ray_only() {
        let mut grid = VoxelGrid::empty(GridSpec::new([0.0; 3], [1.0; 3], [5, 3, 4]));
        for voxel in [[0, 1, 0], [2, 1, 2]] {
            let at = grid.spec.index(voxel);
            grid.labels[at] = 1;
        }
        let solid = Solid::of(&grid);
        let top = Face { voxel: [0, 1, 0], side: Side { axis: 2, positive: true } };
        // From (0.5, 1.5, 1) with slope 1/2 in z the ray is at x 2.5 when z is 2.
        assert!(solid.in_shadow(top, DVec3::new(2.0, 0.0, 1.0)));
        assert!(!solid.in_shadow(top, DVec3::new(-2.0, 0.0, 1.0)));
        assert!(!solid.in_shadow(top, DVec3::new(0.0, 0.0, 1.0)));
        assert!(!solid.in_shadow(top, DVec3::new(2.0, 2.0, 1.0)));
        // A ray leaves the middle of the face, so that at slope 1 it meets the neighbour's side at half its height.
        let at = grid.spec.index([1, 1, 1]);
        grid.labels[at] = 1;
        assert!(Solid::of(&grid).in_shadow(top, DVec3::new(1.0, 0.0, 1.0)));
        assert!(!Solid::of(&grid).in_shadow(top, DVec3::new(1.0, 0.0, 2.1)));
    }
}
