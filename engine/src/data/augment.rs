//! Random changes of a sample that leave it true: points and target move together, about the sensor.

use occam_scene::VoxelGrid;

use super::rng::Rng;
use super::{AugmentConfig, Sample};

/// Mirror, turn about the vertical and scale, all fixing the origin of the cloud (the sensor).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Motion {
    flip_x: bool,
    flip_y: bool,
    angle_rad: f64,
    scale: f64,
}

impl Motion {
    const NONE: Self = Self { flip_x: false, flip_y: false, angle_rad: 0.0, scale: 1.0 };

    fn forward(&self, p: [f32; 3]) -> [f32; 3] {
        let [mut x, mut y, z] = p.map(f64::from);
        if self.flip_x {
            x = -x;
        }
        if self.flip_y {
            y = -y;
        }
        let (sin, cos) = self.angle_rad.sin_cos();
        [cos * x - sin * y, sin * x + cos * y, z].map(|c| (c * self.scale) as f32)
    }

    fn backward(&self, p: [f32; 3]) -> [f32; 3] {
        let [x, y, z] = p.map(|c| f64::from(c) / self.scale);
        let (sin, cos) = self.angle_rad.sin_cos();
        let (mut x, mut y) = (cos * x + sin * y, cos * y - sin * x);
        if self.flip_x {
            x = -x;
        }
        if self.flip_y {
            y = -y;
        }
        [x as f32, y as f32, z as f32]
    }

    /// The target as it stands after the motion: each voxel takes the label found where its centre came from. A mirrored
    /// grid that lies symmetrically about the sensor is exact; what comes from outside the grid becomes `ignore_id`.
    /// Visibility and flow are dropped.
    fn target(&self, target: &VoxelGrid) -> VoxelGrid {
        let spec = target.spec;
        let labels = (0..spec.len())
            .map(|i| {
                let from = spec.voxel_of(self.backward(spec.centre_m(spec.voxel_at(i))));
                from.map_or(spec.ignore_id, |voxel| target.label(voxel))
            })
            .collect();
        VoxelGrid { spec, labels, visibility: None, flow: None }
    }
}

/// Changes a sample as `config` allows. The numbers depend on `seed`, `epoch` and `index` alone.
pub fn augment(mut sample: Sample, config: &AugmentConfig, seed: u64, epoch: u64, index: u64) -> Sample {
    let mut rng = Rng::of(&[seed, epoch, index]);
    // Drawn whether used or not, so that switching one augmentation on leaves the others as they were.
    let (coin_x, coin_y) = (rng.coin(), rng.coin());
    let motion = Motion {
        flip_x: config.flip_x && coin_x,
        flip_y: config.flip_y && coin_y,
        angle_rad: rng.within(config.rotate_deg.to_radians()),
        scale: 1.0 + rng.within(config.scale),
    };
    let dropped = rng.unit() * config.drop;
    if motion != Motion::NONE {
        sample.cloud.positions.iter_mut().for_each(|p| *p = motion.forward(*p));
        sample.target = motion.target(&sample.target);
    }
    if config.jitter_m > 0.0 {
        for coordinate in sample.cloud.positions.as_flattened_mut() {
            *coordinate += (rng.normal() * config.jitter_m) as f32;
        }
    }
    if dropped > 0.0 {
        let keep: Vec<bool> = (0..sample.cloud.len()).map(|_| rng.unit() >= dropped).collect();
        sample.cloud.retain(|i| keep[i]);
    }
    sample
}

#[cfg(test)]
mod tests {
    use occam_scene::{GridSpec, PointCloud};

    use super::*;

    /// A grid around the sensor in which every voxel has a label of its own.
    fn numbered() -> VoxelGrid {
        let spec = GridSpec::new([-1.6, -0.8, -0.4], [0.4; 3], [8, 4, 2]);
        VoxelGrid { labels: (0..spec.len() as u8).collect(), ..VoxelGrid::empty(spec) }
    }

    fn sample_at(voxel: [usize; 3]) -> Sample {
        let spec = GridSpec::new([-8.0, -8.0, -2.0], [0.4; 3], [40, 40, 8]);
        let mut target = VoxelGrid::empty(spec);
        target.labels[spec.index(voxel)] = 7;
        let cloud = PointCloud { positions: vec![spec.centre_m(voxel)], ..PointCloud::default() };
        Sample { id: "one".into(), cloud, target }
    }

    const OFF: AugmentConfig =
        AugmentConfig { flip_x: false, flip_y: false, rotate_deg: 0.0, scale: 0.0, jitter_m: 0.0, drop: 0.0 };

    #[test]
    fn a_flip_mirrors_every_voxel_exactly_and_twice_is_nothing() {
        let grid = numbered();
        let [nx, ny, nz] = grid.spec.counts;
        for (flip_x, flip_y) in [(true, false), (false, true), (true, true)] {
            let motion = Motion { flip_x, flip_y, ..Motion::NONE };
            let flipped = motion.target(&grid);
            for (x, y, z) in (0..nx * ny * nz).map(|i| (i / (ny * nz), i / nz % ny, i % nz)) {
                let from = [if flip_x { nx - 1 - x } else { x }, if flip_y { ny - 1 - y } else { y }, z];
                assert_eq!(flipped.label([x, y, z]), grid.label(from));
            }
            assert_eq!(motion.target(&flipped), grid);
        }
    }

    #[test]
    fn a_quarter_turn_moves_point_and_voxel_together() {
        let spec = sample_at([30, 22, 3]).target.spec;
        let motion = Motion { angle_rad: std::f64::consts::FRAC_PI_2, ..Motion::NONE };
        let before = sample_at([30, 22, 3]);
        let turned = motion.target(&before.target);
        let point = motion.forward(before.cloud.positions[0]);
        assert_eq!(turned.occupied(), 1);
        // x 30 of 40 is 10.5 voxels ahead, y 22 of 40 is 2.5 to the left: they become 2.5 behind and 10.5 left.
        assert_eq!(turned.label([17, 30, 3]), 7);
        assert_eq!(spec.voxel_of(point), Some([17, 30, 3]));
    }

    #[test]
    fn any_turn_and_scale_keeps_point_and_voxel_within_one_voxel() {
        let config = AugmentConfig { flip_x: true, flip_y: true, rotate_deg: 180.0, scale: 0.05, ..OFF };
        let mut angles = std::collections::BTreeSet::new();
        for index in 0..200 {
            let sample = augment(sample_at([27, 24, 4]), &config, 1, 0, index);
            let spec = sample.target.spec;
            let point = spec.voxel_of(sample.cloud.positions[0]).unwrap();
            angles.insert(point);
            // Shrinking may lose a single voxel between two centres; what is there must be where the point is.
            for i in (0..spec.len()).filter(|i| sample.target.labels[*i] == 7) {
                let voxel = spec.voxel_at(i);
                assert!((0..3).all(|a| voxel[a].abs_diff(point[a]) <= 1), "{voxel:?} {point:?}");
            }
        }
        assert!(angles.len() > 20, "the turns differ");
    }

    #[test]
    fn what_comes_from_outside_is_ignored() {
        let mut grid = numbered();
        grid.spec.origin_m[0] += 0.4;
        let flipped = Motion { flip_x: true, ..Motion::NONE }.target(&grid);
        // The grid reaches from -1.2 m to 2.0 m, so its last voxel would come from -2.0 m, one voxel outside.
        let ignored = (0..8).filter(|x| flipped.label([*x, 0, 0]) == 255).collect::<Vec<_>>();
        assert_eq!(ignored, [6, 7]);
    }

    #[test]
    fn the_numbers_depend_on_seed_epoch_and_sample() {
        let config = AugmentConfig { rotate_deg: 180.0, scale: 0.1, jitter_m: 0.02, ..OFF };
        let position =
            |seed, epoch, index| augment(sample_at([3, 5, 2]), &config, seed, epoch, index).cloud.positions[0];
        assert_eq!(position(1, 2, 3), position(1, 2, 3));
        for other in [position(2, 2, 3), position(1, 3, 3), position(1, 2, 4)] {
            assert_ne!(position(1, 2, 3), other);
        }
    }

    #[test]
    fn drop_takes_at_most_its_share_of_the_points() {
        let mut sample = sample_at([1, 1, 1]);
        sample.cloud.positions = vec![[0.0; 3]; 10_000];
        let left = |index| augment(sample.clone(), &AugmentConfig { drop: 0.2, ..OFF }, 1, 0, index).cloud.len();
        let counts: Vec<usize> = (0..20).map(left).collect();
        assert!(counts.iter().all(|n| (7_800..=10_000).contains(n)), "{counts:?}");
        assert!(counts.iter().any(|n| *n < 9_000) && counts.iter().any(|n| *n > 9_000), "{counts:?}");
    }
}
