//! Samples put together for one step: points of any number one after another, targets in the order of the networks.

use std::ops::Range;

use occam_scene::{AxisOrder, GridSpec, PointCloud};

use super::{Sample, intensity};

/// Samples on the host.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub ids: Vec<String>,
    /// Points of all samples, sample after sample, metres in the frame of the grid.
    pub positions: Vec<[f32; 3]>,
    /// Intensity of each point, 0 to 1; `None` when a sample has none.
    pub intensity: Option<Vec<f32>>,
    /// Sample `b` owns the points `offsets[b]..offsets[b + 1]`; one entry more than there are samples.
    pub offsets: Vec<usize>,
    /// Class ids `[B, Z, X, Y]`, one after another.
    pub targets: Vec<u8>,
    /// Samples that could not be read, and why.
    pub failures: Vec<(usize, crate::Error)>,
}

impl Batch {
    pub fn new() -> Self {
        Self { offsets: vec![0], intensity: Some(Vec::new()), ..Self::default() }
    }

    /// Samples in it.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: &Sample) {
        self.push_cloud(&sample.id, &sample.cloud);
        self.targets.extend(to_network_order(&sample.target.labels, &sample.target.spec));
    }

    /// Some of the samples, with their targets.
    #[must_use]
    pub fn part(&self, samples: Range<usize>) -> Self {
        let points = self.offsets[samples.start]..self.offsets[samples.end];
        let voxels = self.targets.len() / self.len().max(1);
        Self {
            ids: self.ids[samples.clone()].to_vec(),
            positions: self.positions[points.clone()].to_vec(),
            intensity: self.intensity.as_ref().map(|all| all[points.clone()].to_vec()),
            offsets: self.offsets[samples.start..=samples.end].iter().map(|at| at - points.start).collect(),
            targets: self.targets[samples.start * voxels..samples.end * voxels].to_vec(),
            failures: Vec::new(),
        }
    }

    /// Adds a sample without a target, to predict one.
    pub fn push_cloud(&mut self, id: &str, cloud: &PointCloud) {
        self.positions.extend_from_slice(&cloud.positions);
        self.offsets.push(self.positions.len());
        self.intensity = self.intensity.take().zip(cloud.intensity.as_deref()).map(|(mut all, new)| {
            all.extend(intensity::from_0_to_1(new));
            all
        });
        self.ids.push(id.to_owned());
    }
}

/// One value a voxel from the spec's axis order to `[Z, X, Y]`, the order of the networks.
pub fn to_network_order<T: Copy>(values: &[T], spec: &GridSpec) -> Vec<T> {
    let [nx, ny, nz] = spec.counts;
    debug_assert_eq!(values.len(), spec.len());
    let mut out = Vec::with_capacity(values.len());
    for z in 0..nz {
        for x in 0..nx {
            match spec.axis_order {
                AxisOrder::Xyz => out.extend((0..ny).map(|y| values[(x * ny + y) * nz + z])),
                AxisOrder::Zyx => out.extend((0..ny).map(|y| values[(z * ny + y) * nx + x])),
            }
        }
    }
    out
}

/// The inverse of [`to_network_order`].
pub fn from_network_order<T: Copy>(values: &[T], spec: &GridSpec) -> Vec<T> {
    let [nx, ny, _] = spec.counts;
    (0..spec.len())
        .map(|i| {
            let [x, y, z] = spec.voxel_at(i);
            values[(z * nx + x) * ny + y]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use occam_scene::{PointCloud, VoxelGrid};

    use super::*;

    #[test]
    fn network_order_is_z_then_x_then_y_from_both_orders() {
        for axis_order in [AxisOrder::Xyz, AxisOrder::Zyx] {
            let spec = GridSpec { axis_order, ..GridSpec::new([0.0; 3], [1.0; 3], [2, 3, 4]) };
            let mut values = vec![[0; 3]; spec.len()];
            for (i, value) in values.iter_mut().enumerate() {
                *value = spec.voxel_at(i);
            }
            let turned = to_network_order(&values, &spec);
            assert_eq!(turned[..4], [[0, 0, 0], [0, 1, 0], [0, 2, 0], [1, 0, 0]]);
            assert_eq!(turned[2 * 3], [0, 0, 1]);
            assert_eq!(from_network_order(&turned, &spec), values);
        }
    }

    #[test]
    fn samples_of_any_size_join_without_padding() {
        let spec = GridSpec::new([0.0; 3], [1.0; 3], [1, 1, 2]);
        let sample = |points: usize, label| Sample {
            id: points.to_string(),
            cloud: PointCloud { positions: vec![[points as f32; 3]; points], ..PointCloud::default() },
            target: VoxelGrid { labels: vec![label; 2], ..VoxelGrid::empty(spec) },
        };
        let mut batch = Batch::new();
        for (points, label) in [(2, 5), (0, 6), (1, 7)] {
            batch.push(&sample(points, label));
        }
        assert_eq!(batch.offsets, [0, 2, 2, 3]);
        assert_eq!(batch.positions, [[2.0; 3], [2.0; 3], [1.0; 3]]);
        assert_eq!(batch.targets, [5, 5, 6, 6, 7, 7]);
        assert_eq!(batch.ids, ["2", "0", "1"]);

        let part = batch.part(1..3);
        assert_eq!((part.offsets, part.positions, part.targets), (vec![0, 0, 1], vec![[1.0; 3]], vec![6, 6, 7, 7]));
        assert_eq!(part.ids, ["0", "1"]);
        assert_eq!(batch.part(0..1).offsets, [0, 2]);
    }
}
