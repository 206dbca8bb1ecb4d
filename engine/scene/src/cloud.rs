//! A point cloud: positions and optional columns of the same length.

use glam::{DMat4, DVec3};

/// Points of one scan or scene.
///
/// Positions are f32 metres relative to `origin` (f64 metres), so that georeferenced coordinates of millions of metres
/// lose nothing. Every column that is there has exactly one entry a point.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PointCloud {
    /// Add to a position to get the coordinates of the file, metres.
    pub origin: [f64; 3],
    /// x, y, z in metres relative to `origin`; always finite.
    pub positions: Vec<[f32; 3]>,
    /// Reflectance as the file gives it (KITTI 0..1, nuScenes 0..255).
    pub intensity: Option<Vec<f32>>,
    /// Red, green, blue.
    pub colour: Option<Vec<[u8; 3]>>,
    /// Semantic class in the ids of the file.
    pub label: Option<Vec<u16>>,
    /// Object id; 0 where there is none.
    pub instance: Option<Vec<u32>>,
    /// Laser beam, 0 = lowest.
    pub ring: Option<Vec<u16>>,
    /// Seconds since the start of the scan.
    pub time: Option<Vec<f64>>,
    /// Where the sensor stood, relative to `origin`; `None` when the file does not tell.
    pub sensor: Option<[f32; 3]>,
    /// Points that the file held and that were dropped because a coordinate was NaN, infinite or beyond f32.
    pub dropped_non_finite: usize,
}

impl PointCloud {
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Smallest and largest corner relative to `origin`, or `None` for an empty cloud.
    pub fn bounds(&self) -> Option<([f32; 3], [f32; 3])> {
        let first = *self.positions.first()?;
        Some(self.positions.iter().fold((first, first), |(mut low, mut high), p| {
            for axis in 0..3 {
                low[axis] = low[axis].min(p[axis]);
                high[axis] = high[axis].max(p[axis]);
            }
            (low, high)
        }))
    }

    /// Keeps the points whose index `keep` accepts, in every column.
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        fn column<T: Copy>(values: &mut Vec<T>, keep: &impl Fn(usize) -> bool) {
            let mut index = 0;
            values.retain(|_| {
                index += 1;
                keep(index - 1)
            });
        }
        column(&mut self.positions, &keep);
        if let Some(values) = &mut self.intensity {
            column(values, &keep);
        }
        if let Some(values) = &mut self.colour {
            column(values, &keep);
        }
        if let Some(values) = &mut self.label {
            column(values, &keep);
        }
        if let Some(values) = &mut self.instance {
            column(values, &keep);
        }
        if let Some(values) = &mut self.ring {
            column(values, &keep);
        }
        if let Some(values) = &mut self.time {
            column(values, &keep);
        }
    }

    /// Drops points with a coordinate that is not finite and counts them in `dropped_non_finite`.
    pub fn drop_non_finite(&mut self) {
        let finite: Vec<bool> = self.positions.iter().map(|p| p.iter().all(|c| c.is_finite())).collect();
        let dropped = finite.iter().filter(|f| !**f).count();
        if dropped > 0 {
            self.retain(|i| finite[i]);
            self.dropped_non_finite += dropped;
        }
    }

    /// Moves the cloud, coordinates of the file, by a rigid motion; the origin becomes 0.
    pub fn transform(&mut self, motion: &DMat4) {
        let origin = DVec3::from_array(self.origin);
        let moved = |p: &[f32; 3]| {
            let p = DVec3::from_array(p.map(f64::from)) + origin;
            motion.transform_point3(p).as_vec3().to_array()
        };
        self.positions.iter_mut().for_each(|p| *p = moved(p));
        self.sensor = self.sensor.map(|p| moved(&p));
        self.origin = [0.0; 3];
    }

    /// The same cloud with positions relative to a sensor that stands at `sensor` (file coordinates, metres).
    pub fn centre_on(&mut self, sensor: [f64; 3]) {
        let shift = DVec3::from_array(self.origin) - DVec3::from_array(sensor);
        for p in &mut self.positions {
            let moved = DVec3::new(p[0].into(), p[1].into(), p[2].into()) + shift;
            *p = moved.as_vec3().to_array();
        }
        self.origin = sensor;
        self.sensor = Some([0.0; 3]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_points_leave_with_all_their_columns() {
        let mut cloud = PointCloud {
            positions: vec![[0.0; 3], [f32::NAN, 0.0, 0.0], [1.0, 2.0, f32::INFINITY], [3.0; 3]],
            label: Some(vec![10, 11, 12, 13]),
            ..PointCloud::default()
        };
        cloud.drop_non_finite();
        assert_eq!(cloud.positions, [[0.0; 3], [3.0; 3]]);
        assert_eq!(cloud.label, Some(vec![10, 13]));
        assert_eq!(cloud.dropped_non_finite, 2);
    }

    #[test]
    fn a_motion_moves_what_the_file_says() {
        let mut cloud = PointCloud {
            origin: [100.0, 0.0, 0.0],
            positions: vec![[1.0, 2.0, 3.0]],
            sensor: Some([0.0; 3]),
            ..PointCloud::default()
        };
        let turn = DMat4::from_rotation_z(std::f64::consts::FRAC_PI_2);
        cloud.transform(&(DMat4::from_translation(DVec3::new(2.0, -100.0, 0.5)) * turn));
        // (101, 2, 3) turns to (-2, 101, 3).
        for (found, expected) in cloud.positions[0].iter().zip([0.0, 1.0, 3.5]) {
            assert!((found - expected).abs() < 1e-5, "{:?}", cloud.positions);
        }
        assert_eq!(cloud.origin, [0.0; 3]);
        assert!(cloud.sensor.unwrap()[1].abs() < 1e-5);
    }

    #[test]
    fn centring_keeps_millimetres_at_utm_coordinates() {
        let mut cloud = PointCloud {
            origin: [500_000.0, 5_400_000.0, 100.0],
            positions: vec![[1.25, 2.5, 3.0]],
            ..PointCloud::default()
        };
        cloud.centre_on([500_001.0, 5_400_002.0, 101.5]);
        assert_eq!(cloud.positions, [[0.25, 0.5, 1.5]]);
        assert_eq!(cloud.origin, [500_001.0, 5_400_002.0, 101.5]);
    }
}
