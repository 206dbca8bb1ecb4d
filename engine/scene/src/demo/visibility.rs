//! What a scan could tell about each voxel.

use glam::DVec2;

use super::lidar::{Ray, Scan};
use crate::GridSpec;
use crate::grid::Visibility;
use crate::rays::{RayState, cast};

/// Visibility of each voxel in the spec's order.
///
/// Seen: a pulse came back from the voxel or passed it on its way, to the point it measured or into the sky. Of the
/// others, those in the field of view and range are occluded if the pulse nearest to the direction of their centre met
/// something before them. The rest is unknown: also the gaps between pulses, and what only lost pulses passed.
pub fn visibility(scan: &Scan, spec: &GridSpec) -> Vec<Visibility> {
    let mut seen = vec![Visibility::Unknown; spec.len()];
    behind(scan, spec, &mut seen);
    let beams = scan.elevations.len();
    let end = |(pulse, ray): (usize, &Ray)| match ray.point {
        Some(point) => Some(scan.cloud.positions[point as usize]),
        None if ray.range_m.is_infinite() => {
            let (azimuth, elevation) = (scan.azimuths[pulse / beams], scan.elevations[pulse % beams]);
            let sky = (azimuth * elevation.x).extend(elevation.y) * scan.farthest_m;
            Some(sky.as_vec3().to_array())
        }
        None => None,
    };
    let ends: Vec<[f32; 3]> = scan.rays.iter().enumerate().filter_map(end).collect();
    let mut states = vec![RayState::Unknown; spec.len()];
    cast(spec, [0.0; 3], &ends, &mut states);
    for (seen, state) in seen.iter_mut().zip(states) {
        if state != RayState::Unknown {
            *seen = Visibility::Seen;
        }
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
}
