//! Where the sensor stood: the network sees clouds in the frame of its grid, with the sensor at the origin.

use occam_engine::scene::{GridSpec, PointCloud};

/// Height of the sensor above the ground where a file does not tell, metres: that of KITTI's car.
pub const SENSOR_HEIGHT_M: f64 = 1.73;

/// Moves the cloud into the frame of the grid. Gives the sentence to print when that took a guess.
///
/// `sensor` is what the user said, in coordinates of the file. Without it the cloud's own sensor is taken, and without
/// that the cloud is centred: the middle of its length and width comes to the middle of the grid, and its ground, the
/// lowest percentile of its heights, to [`SENSOR_HEIGHT_M`] below the sensor.
pub fn place(cloud: &mut PointCloud, spec: &GridSpec, sensor: Option<[f64; 3]>) -> Option<String> {
    if let Some(sensor) = sensor {
        cloud.centre_on(sensor);
        return None;
    }
    if let Some(own) = cloud.sensor {
        let sensor = std::array::from_fn(|axis| cloud.origin[axis] + f64::from(own[axis]));
        cloud.centre_on(sensor);
        return None;
    }
    let ground = lowest_percentile(&cloud.positions)?;
    let (low, high) = cloud.bounds()?;
    let (grid_low, grid_high) = (spec.origin_m, spec.end_m());
    let middle = |low: f32, high: f32| f64::midpoint(f64::from(low), f64::from(high));
    let mut sensor = [0.0; 3];
    for axis in 0..2 {
        sensor[axis] = cloud.origin[axis] + middle(low[axis], high[axis]) - middle(grid_low[axis], grid_high[axis]);
    }
    sensor[2] = cloud.origin[2] + f64::from(ground) + SENSOR_HEIGHT_M;
    cloud.centre_on(sensor);
    let [x, y, z] = sensor;
    Some(format!(
        "the file does not say where the sensor stood: centred the cloud in the grid, with its ground {SENSOR_HEIGHT_M} m \
         below the sensor, as with --origin {x:.2},{y:.2},{z:.2}"
    ))
}

/// The height that one point in a hundred lies below; stray points under the ground do not count.
fn lowest_percentile(positions: &[[f32; 3]]) -> Option<f32> {
    let mut heights: Vec<f32> = positions.iter().map(|p| p[2]).collect();
    let rank = heights.len() / 100;
    if heights.is_empty() {
        return None;
    }
    Some(*heights.select_nth_unstable_by(rank, f32::total_cmp).1)
}

/// Points inside the grid.
pub fn inside(cloud: &PointCloud, spec: &GridSpec) -> usize {
    cloud.positions.iter().filter(|p| spec.voxel_of(**p).is_some()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> GridSpec {
        GridSpec::new([0.0, -12.8, -2.0], [0.4; 3], [64, 64, 16])
    }

    #[test]
    fn a_sensor_that_is_known_becomes_the_origin_without_a_word() {
        let mut cloud = PointCloud {
            origin: [1000.0, 0.0, 0.0],
            positions: vec![[1.0, 2.0, 3.0]],
            sensor: Some([0.5, 0.0, 1.0]),
            ..PointCloud::default()
        };
        assert_eq!(place(&mut cloud, &spec(), None), None);
        assert_eq!(cloud.positions, [[0.5, 2.0, 2.0]]);
        assert_eq!(place(&mut cloud, &spec(), Some([1001.0, 2.0, 3.0])), None);
        assert_eq!(cloud.positions, [[0.0; 3]]);
    }

    #[test]
    fn without_a_sensor_the_cloud_comes_to_the_middle_of_the_grid_and_its_ground_below_the_sensor() {
        // 200 points at height 7, of which one per cent and no more may lie below the ground.
        let mut positions = vec![[10.0, 20.0, 7.0]; 198];
        positions.push([30.0, 40.0, 9.0]);
        positions.push([10.0, 20.0, -50.0]);
        let mut cloud = PointCloud { positions, ..PointCloud::default() };
        let said = place(&mut cloud, &spec(), None).unwrap();
        // Middle (20, 30) of the cloud comes to the middle (12.8, 0) of the grid; ground 7 to -1.73.
        for (found, expected) in cloud.positions[0].iter().zip([2.8, -10.0, -1.73]) {
            assert!((found - expected).abs() < 1e-5, "{:?}", cloud.positions[0]);
        }
        assert!(said.contains("--origin 7.20,30.00,8.73"), "{said}");
        assert_eq!(inside(&cloud, &spec()), 199);
    }

    #[test]
    fn points_outside_the_grid_do_not_count() {
        let cloud =
            PointCloud { positions: vec![[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [1.0, 0.0, 4.4]], ..PointCloud::default() };
        assert_eq!(inside(&cloud, &spec()), 1);
    }
}
