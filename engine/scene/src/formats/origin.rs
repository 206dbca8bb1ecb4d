//! Coordinates in f64, as georeferenced clouds have them, brought to f32 without loss.

use rayon::prelude::*;

use crate::cloud::PointCloud;

/// From here on neighbouring f32 values are 1 mm and more apart.
pub(crate) const SHIFT_FROM_M: f64 = 8192.0;

/// Points looked at to choose an origin.
const SAMPLES: usize = 1023;

/// Sets positions and origin of a cloud from `count` f64 points.
///
/// Axis by axis, the origin is 0 when the median of up to 1,023 evenly picked points lies within 8,192 m of 0, and that
/// median rounded to whole metres otherwise: small clouds keep the numbers of the file, a few outliers move nothing,
/// and heights stay as they are while easting and northing shift.
pub(crate) fn set_positions(cloud: &mut PointCloud, count: usize, point: impl Fn(usize) -> [f64; 3] + Sync) {
    let step = count.div_ceil(SAMPLES).max(1);
    let mut samples = [const { Vec::new() }; 3];
    for index in (0..count).step_by(step) {
        for (axis, value) in point(index).into_iter().enumerate() {
            if value.is_finite() {
                samples[axis].push(value);
            }
        }
    }
    let origin = samples.map(|mut values| {
        values.sort_unstable_by(f64::total_cmp);
        let median = values.get(values.len() / 2).copied().unwrap_or(0.0);
        if median.abs() >= SHIFT_FROM_M { median.round() } else { 0.0 }
    });
    cloud.origin = origin;
    cloud.positions = (0..count)
        .into_par_iter()
        .map(|index| {
            let p = point(index);
            std::array::from_fn(|axis| (p[axis] - origin[axis]) as f32)
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud_of(points: &[[f64; 3]]) -> PointCloud {
        let mut cloud = PointCloud::default();
        set_positions(&mut cloud, points.len(), |i| points[i]);
        cloud
    }

    #[test]
    fn millimetres_survive_at_utm_coordinates_and_heights_stay() {
        let cloud = cloud_of(&[[500_000.001, 5_400_000.002, 312.5], [500_003.125, 5_400_000.5, 313.0]]);
        assert_eq!(cloud.origin, [500_003.0, 5_400_001.0, 0.0]);
        for (p, expected) in cloud.positions.iter().zip([[-2.999, -0.998, 312.5], [0.125, -0.5, 313.0]]) {
            for axis in 0..3 {
                assert!((p[axis] - expected[axis]).abs() < 1e-6, "{p:?}");
            }
        }
    }

    #[test]
    fn an_outlier_does_not_move_the_origin_of_the_others() {
        let mut points = vec![[1.5, -2.0, 0.25]; 9];
        points.push([1e30, f64::NAN, 1e9]);
        let cloud = cloud_of(&points);
        assert_eq!(cloud.origin, [0.0; 3]);
        assert_eq!(cloud.positions[8], [1.5, -2.0, 0.25]);
    }
}
