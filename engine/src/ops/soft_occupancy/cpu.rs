//! Soft counts and their gradient on plain slices: the implementation on the CPU and the twin of the kernels.

use occam_scene::GridSpec;
use rayon::prelude::*;

/// The eight voxel centres around a point, and how far it lies between them.
struct Corners {
    /// Voxel of the lowest centre, from -1 on.
    low: [i64; 3],
    /// Distance from it along each axis, 0 to 1 voxels.
    share: [f32; 3],
}

struct Grid {
    origin_m: [f32; 3],
    inverse: [f32; 3],
    counts: [usize; 3],
}

impl Grid {
    fn new(spec: &GridSpec) -> Self {
        Self { origin_m: spec.origin_m, inverse: spec.inverse_size(), counts: spec.counts }
    }

    fn corners(&self, point: [f32; 3]) -> Option<Corners> {
        let mut corners = Corners { low: [0; 3], share: [0.0; 3] };
        for (axis, coordinate) in point.into_iter().enumerate() {
            let place = (coordinate - self.origin_m[axis]) * self.inverse[axis];
            // NaN is in no range.
            if !(-0.5..self.counts[axis] as f32 + 0.5).contains(&place) {
                return None;
            }
            corners.low[axis] = ((place * 2.0).floor() as i64 - 1) >> 1;
            corners.share[axis] = (place - (corners.low[axis] as f32 + 0.5)).clamp(0.0, 1.0);
        }
        Some(corners)
    }

    /// Calls `each` with the place of every corner inside the grid, in the order z, x, y (y fastest), and whether it is
    /// the higher one along x, y, z.
    fn each(&self, corners: &Corners, mut each: impl FnMut(usize, [bool; 3])) {
        let [nx, ny, nz] = self.counts;
        for corner in 0..8 {
            let high = [corner & 2 != 0, corner & 1 != 0, corner & 4 != 0];
            let [x, y, z] = [0, 1, 2].map(|axis| (corners.low[axis] + i64::from(high[axis])) as usize);
            // Below zero is far above as well.
            if x < nx && y < ny && z < nz {
                each((z * nx + x) * ny + y, high);
            }
        }
    }
}

impl Corners {
    fn weight(&self, axis: usize, high: [bool; 3]) -> f32 {
        if high[axis] { self.share[axis] } else { 1.0 - self.share[axis] }
    }
}

/// Sums of trilinear weights: one volume of z, x, y (y fastest) for each batch member.
pub(super) fn soft_counts(xyz: &[f32], offsets: &[usize], spec: &GridSpec) -> Vec<f32> {
    let points = xyz.as_chunks::<3>().0;
    let grid = Grid::new(spec);
    let mut volumes = vec![0f32; (offsets.len() - 1) * spec.len()];
    volumes.par_chunks_mut(spec.len()).zip(offsets.par_windows(2)).for_each(|(volume, ends)| {
        for corners in points[ends[0]..ends[1]].iter().filter_map(|point| grid.corners(*point)) {
            grid.each(&corners, |place, high| {
                volume[place] += corners.weight(0, high) * corners.weight(1, high) * corners.weight(2, high);
            });
        }
    });
    volumes
}

/// Gradient of each position, x, y, z, x, ..., from the gradient of the counts; per metre.
pub(super) fn soft_gradient(xyz: &[f32], gradient: &[f32], offsets: &[usize], spec: &GridSpec) -> Vec<f32> {
    let points = xyz.as_chunks::<3>().0;
    let grid = Grid::new(spec);
    let mut slopes = vec![[0f32; 3]; points.len()];
    for (ends, gradient) in offsets.windows(2).zip(gradient.chunks(spec.len())) {
        let range = ends[0]..ends[1];
        slopes[range.clone()].par_iter_mut().zip(&points[range]).with_min_len(1024).for_each(|(slope, point)| {
            let Some(corners) = grid.corners(*point) else { return };
            grid.each(&corners, |place, high| {
                for axis in 0..3 {
                    let (b, c) = ((axis + 1) % 3, (axis + 2) % 3);
                    let weight = corners.weight(b, high) * corners.weight(c, high);
                    slope[axis] += if high[axis] { gradient[place] } else { -gradient[place] } * weight;
                }
            });
            for (slope, inverse) in slope.iter_mut().zip(grid.inverse) {
                *slope *= inverse;
            }
        });
    }
    slopes.into_flattened()
}
