//! A drive along the street of one world: scans and where they were taken.

use glam::DMat4;

use super::{Lidar, World};
use crate::PointCloud;

/// Scans of the demo's sensor, `every` frames apart.
#[derive(Debug, Clone)]
pub struct Drive {
    world: World,
    every: u32,
    first_from_world: DMat4,
}

impl Drive {
    pub fn new(seed: u64, every: u32) -> Self {
        let world = World::new(seed);
        let first_from_world = world.at(0).ground.world_from_sensor().inverse();
        Self { world, every, first_from_world }
    }

    /// Scan `number` in the frame of its sensor, and the pose that takes it to the frame of the first scan. The time of
    /// the last scan, `number * every` frames, must fit in a `u32`.
    pub fn scan(&self, number: u32) -> (PointCloud, DMat4) {
        let moment = self.world.at(number * self.every);
        let pose = self.first_from_world * moment.ground.world_from_sensor();
        (Lidar::default().scan(&moment).cloud, pose)
    }
}

#[cfg(test)]
mod tests {
    use glam::{DVec2, DVec3};

    use super::*;

    #[test]
    fn the_poses_put_every_scan_on_one_street() {
        // Worlds that wind and tilt among them.
        for seed in 0..12 {
            let world = World::new(seed);
            let drive = Drive::new(seed, 7);
            let origin = world.at(0).ground.world_from_sensor();
            for number in [0, 3] {
                let moment = world.at(number * 7);
                let (cloud, pose) = drive.scan(number);
                let ground = &moment.ground;
                for (p, label) in cloud.positions.iter().zip(cloud.label.unwrap()).filter(|(_, l)| *l == 1).step_by(97)
                {
                    let p = DVec3::from_array(p.map(f64::from));
                    let world_m = origin.transform_point3(pose.transform_point3(p));
                    // The pose moves the plan as the world does, and the road is a plane of the tilt of the world.
                    let plan = ground.pose.world_from_sensor(p.truncate());
                    assert!(world_m.truncate().distance(plan) < 1e-6, "{seed} {label}");
                    let tilt: DVec2 = ground.pose.forward.rotate(ground.tilt);
                    // Noise of the range, seen at a grazing angle, is the only thing that lifts a point.
                    assert!((world_m.z - tilt.dot(plan)).abs() < 0.08, "{seed}: {world_m}");
                }
            }
            assert!((drive.scan(0).1.w_axis.truncate()).length() < 1e-9);
            let way = drive.scan(1).1.w_axis.truncate().length();
            assert!((0.7 * 4.0 - 0.1..0.7 * 12.0 * 1.2).contains(&way), "{seed}: {way} m in 0.7 s");
        }
    }
}
