//! What a scan could tell about each voxel.

use glam::{DVec2, DVec3};

use super::lidar::Scan;
use crate::GridSpec;
use crate::grid::Visibility;

/// Visibility of each voxel in the spec's order.
///
/// Seen: a pulse came back from the voxel or passed it on its way, to the point it measured or into the sky. Of the
/// others, those in the field of view and range are occluded if the pulse nearest to the direction of their centre met
/// something before them. The rest is unknown: also the gaps between pulses, and what only lost pulses passed.
pub fn visibility(scan: &Scan, spec: &GridSpec) -> Vec<Visibility> {
    let mut seen = vec![Visibility::Unknown; spec.len()];
    behind(scan, spec, &mut seen);
    let walk = Walk::new(spec);
    let beams = scan.elevations.len();
    for (pulse, ray) in scan.rays.iter().enumerate() {
        let end = match ray.point {
            Some(point) => {
                let measured = scan.cloud.positions[point as usize];
                // The rule of the grid decides for the point itself; the walk may end one voxel beside it.
                if let Some(voxel) = spec.voxel_of(measured) {
                    seen[spec.index(voxel)] = Visibility::Seen;
                }
                DVec3::from_array(measured.map(f64::from))
            }
            None if ray.range_m.is_infinite() => {
                let (azimuth, elevation) = (scan.azimuths[pulse / beams], scan.elevations[pulse % beams]);
                (azimuth * elevation.x).extend(elevation.y) * scan.farthest_m
            }
            None => continue,
        };
        walk.through(end, |index| seen[index] = Visibility::Seen);
    }
    seen
}

/// Marks the voxels that the nearest pulse cannot have reached.
fn behind(scan: &Scan, spec: &GridSpec, out: &mut [Visibility]) {
    let beams = scan.elevations.len();
    if beams == 0 {
        return;
    }
    let slope = |beam: usize| scan.elevations[beam].y / scan.elevations[beam].x;
    let slopes: Vec<f64> = (0..beams).map(slope).collect();
    // Half a gap beyond the outermost beams still counts as their direction.
    let margin = if beams > 1 { (slopes[1] - slopes[0]) / 2.0 } else { 0.0 };
    for x in 0..spec.counts[0] {
        for y in 0..spec.counts[1] {
            let [east, north, _] = spec.centre_m([x, y, 0]).map(f64::from);
            let flat = DVec2::new(east, north);
            let distance = flat.length();
            let Some(turn) = nearest_azimuth(&scan.azimuths, flat) else { continue };
            for z in 0..spec.counts[2] {
                let up = f64::from(spec.centre_m([x, y, z])[2]);
                let range = (distance * distance + up * up).sqrt();
                let wanted = up / distance;
                if range > scan.farthest_m || wanted < slopes[0] - margin || wanted > slopes[beams - 1] + margin {
                    continue;
                }
                let next = slopes.partition_point(|s| *s < wanted);
                let (under, over) = (next.saturating_sub(1), next.min(beams - 1));
                let beam = if wanted - slopes[under] < slopes[over] - wanted { under } else { over };
                if f64::from(scan.rays[turn * beams + beam].range_m) < range {
                    out[spec.index([x, y, z])] = Visibility::Occluded;
                }
            }
        }
    }
}

/// Index of the azimuth nearest to a direction; the azimuths go once around counter-clockwise from straight behind.
fn nearest_azimuth(azimuths: &[DVec2], direction: DVec2) -> Option<usize> {
    let count = azimuths.len();
    let half = count.div_ceil(2);
    // Within a half turn, "counter-clockwise of" is the sign of one product.
    let (first, part) = if direction.y < 0.0 { (0, &azimuths[..half]) } else { (half, &azimuths[half..]) };
    let next = first + part.partition_point(|a| a.perp_dot(direction) > 0.0);
    let candidates = [next.checked_sub(1).unwrap_or(count.checked_sub(1)?), next % count.max(1)];
    candidates.into_iter().max_by(|a, b| azimuths[*a].dot(direction).total_cmp(&azimuths[*b].dot(direction)))
}

/// Walks of rays from the sensor through a grid (Amanatides and Woo: A fast voxel traversal algorithm for ray tracing,
/// Eurographics 1987).
struct Walk<'a> {
    spec: &'a GridSpec,
    origin: DVec3,
    size: DVec3,
    end: DVec3,
}

impl<'a> Walk<'a> {
    fn new(spec: &'a GridSpec) -> Self {
        let origin = DVec3::from_array(spec.origin_m.map(f64::from));
        let size = DVec3::from_array(spec.voxel_size_m.map(f64::from));
        let counts = DVec3::from_array(spec.counts.map(|c| c as f64));
        Self { spec, origin, size, end: origin + size * counts }
    }

    /// Calls `visit` with the memory index of every voxel between (0, 0, 0) and `to`.
    fn through(&self, to: DVec3, mut visit: impl FnMut(usize)) {
        // The part of the way inside the grid, as shares of the whole.
        let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
        for axis in 0..3 {
            if to[axis] == 0.0 {
                if self.origin[axis] > 0.0 || self.end[axis] <= 0.0 {
                    return;
                }
                continue;
            }
            let (a, b) = (self.origin[axis] / to[axis], self.end[axis] / to[axis]);
            enter = enter.max(a.min(b));
            leave = leave.min(a.max(b));
        }
        if enter >= leave {
            return;
        }
        let from = to * enter;
        let mut voxel = [0_usize; 3];
        let mut border = [f64::INFINITY; 3];
        let mut stride = [f64::INFINITY; 3];
        for axis in 0..3 {
            let cell = ((from[axis] - self.origin[axis]) / self.size[axis]).floor();
            voxel[axis] = cell.clamp(0.0, self.spec.counts[axis] as f64 - 1.0) as usize;
            if to[axis] != 0.0 {
                let next = if to[axis] > 0.0 { voxel[axis] + 1 } else { voxel[axis] };
                border[axis] = (self.origin[axis] + next as f64 * self.size[axis]) / to[axis];
                stride[axis] = self.size[axis] / to[axis].abs();
            }
        }
        loop {
            visit(self.spec.index(voxel));
            let axis = if border[0] < border[1] {
                if border[0] < border[2] { 0 } else { 2 }
            } else if border[1] < border[2] {
                1
            } else {
                2
            };
            if border[axis] >= leave {
                return;
            }
            border[axis] += stride[axis];
            let next = if to[axis] > 0.0 { voxel[axis] + 1 } else { voxel[axis].wrapping_sub(1) };
            if next >= self.spec.counts[axis] {
                return;
            }
            voxel[axis] = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_azimuth_is_the_one_of_a_plain_search() {
        for count in [1, 2, 3, 4, 7, 640, 999] {
            let at = |degrees: f64| DVec2::from_angle(degrees.to_radians());
            let azimuths: Vec<DVec2> =
                (0..count).map(|i| at(f64::from(i) * 360.0 / f64::from(count) - 180.0)).collect();
            for step in 0..3600 {
                let direction = at(f64::from(step) / 10.0 + 0.037) * 3.0;
                let best = azimuths.iter().map(|a| a.dot(direction)).fold(f64::NEG_INFINITY, f64::max);
                let found = nearest_azimuth(&azimuths, direction).unwrap();
                assert!(azimuths[found].dot(direction) > best - 1e-12, "{count} azimuths, {direction}");
            }
        }
        assert_eq!(nearest_azimuth(&[], DVec2::X), None);
    }

    #[test]
    fn a_walk_visits_the_voxels_between_the_sensor_and_the_end() {
        let spec = GridSpec::new([-0.5, -2.5, -2.5], [1.0; 3], [8, 5, 5]);
        let walked = |spec: &GridSpec, to: [f64; 3]| {
            let mut voxels = Vec::new();
            Walk::new(spec).through(DVec3::from_array(to), |index| voxels.push(spec.voxel_at(index)));
            voxels
        };
        assert_eq!(walked(&spec, [2.4, 0.1, 0.0]), [[0, 2, 2], [1, 2, 2], [2, 2, 2]]);
        // y = x / 2 passes the border 0.5 at x = 1.
        assert_eq!(walked(&spec, [2.4, 1.2, 0.1]), [[0, 2, 2], [1, 2, 2], [1, 3, 2], [2, 3, 2]]);
        // y = -2 x passes its borders at x = 0.25 and 0.75 and leaves at 1.25, z = -x / 2 passes its border at x = 1.
        let down = [[0, 2, 2], [0, 1, 2], [1, 1, 2], [1, 0, 2], [1, 0, 1]];
        assert_eq!(walked(&spec, [6.0, -12.0, -3.0]), down);
        let ahead = GridSpec { origin_m: [1.0, -2.5, -2.5], ..spec };
        assert_eq!(walked(&ahead, [3.2, 0.1, 0.1]), [[0, 2, 2], [1, 2, 2], [2, 2, 2]]);
        assert!(walked(&ahead, [-3.0, 0.1, 0.1]).is_empty());
    }
}
