//! Voxelization on the CPU device: the plain functions of [`super::cpu`] on Flex tensors.

use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{Bytes, DType, Element, Shape};
use occam_scene::GridSpec;

use super::backend::{Groups, VoxelOps};
use super::cpu::{VoxelGroups, occupancy};
use super::keys::KeyLayout;

fn tensor<T: Element + bytemuck::Pod + Send + Sync, const D: usize>(
    values: Vec<T>,
    shape: [usize; D],
    dtype: DType,
) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(Shape::from(shape)), dtype)
}

/// The groups that [`VoxelOps::voxel_groups`] gave, without their keys.
fn groups(order: &FlexTensor, starts: &FlexTensor) -> VoxelGroups {
    let column = |t: &FlexTensor| t.to_contiguous().storage::<i32>().iter().map(|v| *v as u32).collect();
    VoxelGroups { keys: Vec::new(), order: column(order), starts: column(starts) }
}

impl VoxelOps for Flex {
    fn voxel_groups(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec, layout: KeyLayout) -> Groups<Self> {
        let points = points.to_contiguous();
        let xyz = points.storage::<f32>();
        let groups = VoxelGroups::new(xyz, &offsets, &spec, &layout);
        let voxels = groups.len();
        let signed = |values: &[u32]| bytemuck::cast_slice::<u32, i32>(values).to_vec();
        Groups {
            coords: tensor(groups.coords(&layout), [voxels, 4], DType::I32),
            count: tensor(groups.counts(), [voxels], DType::I32),
            mean: tensor(groups.mean_positions(xyz), [voxels, 3], DType::F32),
            voxel_of_point: tensor(groups.voxel_of_point(xyz.len() / 3), [xyz.len() / 3], DType::I32),
            order: tensor(signed(&groups.order), [groups.order.len()], DType::I32),
            starts: tensor(signed(&groups.starts), [voxels + 1], DType::I32),
            error: None,
        }
    }

    fn voxel_mean_features(
        features: FloatTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        let features = features.to_contiguous();
        let width = features.layout().shape()[1];
        let groups = groups(&order, &starts);
        tensor(groups.mean_features(features.storage::<f32>(), width), [groups.len(), width], DType::F32)
    }

    fn voxel_majority(
        labels: IntTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        ignore: i32,
    ) -> IntTensor<Self> {
        let labels = labels.to_contiguous();
        let groups = groups(&order, &starts);
        tensor(groups.majority(labels.storage::<i32>(), ignore), [groups.len()], DType::I32)
    }

    fn voxel_occupancy(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self> {
        let points = points.to_contiguous();
        let [x, y, z] = spec.counts;
        tensor(occupancy(points.storage::<f32>(), &offsets, &spec), [offsets.len() - 1, z, x, y], DType::F32)
    }
}
