//! Voxelization on the CPU device: the plain functions of [`super::cpu`] on Flex tensors.

use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{Bytes, DType, Element, Shape};
use occam_scene::GridSpec;
use rayon::prelude::*;

use super::backend::{Groups, VoxelOps};
use super::cpu::{VoxelGroups, occupancy};
use super::keys::{KeyLayout, KeyTables, NO_VOXEL};
use super::table::{HashTable, search};

fn tensor<T: Element + bytemuck::Pod + Send + Sync, const D: usize>(
    values: Vec<T>,
    shape: [usize; D],
    dtype: DType,
) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(Shape::from(shape)), dtype)
}

/// The groups that [`VoxelOps::voxel_groups`] gave, without their keys.
fn groups(order: &FlexTensor, starts: &FlexTensor) -> VoxelGroups {
    let column = |t: &FlexTensor| t.to_contiguous().storage::<u32>().to_vec();
    VoxelGroups { keys: Vec::new(), order: column(order), starts: column(starts) }
}

impl VoxelOps for Flex {
    fn voxel_groups(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec, layout: KeyLayout) -> Groups<Self> {
        let points = points.to_contiguous();
        let xyz = points.storage::<f32>();
        let groups = VoxelGroups::new(xyz, &offsets, &spec, &layout);
        let voxels = groups.len();
        Groups {
            coords: tensor(groups.coords(&layout), [voxels, 4], DType::I32),
            count: tensor(groups.counts(), [voxels], DType::I32),
            mean: tensor(groups.mean_positions(xyz), [voxels, 3], DType::F32),
            voxel_of_point: tensor(groups.voxel_of_point(xyz.len() / 3), [xyz.len() / 3], DType::I32),
            starts: tensor(groups.starts, [voxels + 1], DType::U32),
            order: {
                let inside = groups.order.len();
                tensor(groups.order, [inside], DType::U32)
            },
            error: None,
        }
    }

    fn voxel_mean_features(
        features: FloatTensor<Self>,
        _voxel_of_point: IntTensor<Self>,
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
        _voxel_of_point: IntTensor<Self>,
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

    fn voxel_table(
        coords: IntTensor<Self>,
        layout: KeyLayout,
        slots: usize,
    ) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>) {
        let keys: Vec<u32> = keys_of(&coords, &layout).into_iter().map(|key| key as u32).collect();
        let (table, lost) = HashTable::new(&keys, slots);
        (
            tensor(table.keys, [slots], DType::U32),
            tensor(table.rows, [slots], DType::U32),
            tensor(vec![lost], [1], DType::U32),
        )
    }

    fn voxel_find(
        points: FloatTensor<Self>,
        slot_keys: IntTensor<Self>,
        slot_rows: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self> {
        let column = |t: &FlexTensor| t.to_contiguous().storage::<u32>().to_vec();
        let table = HashTable { keys: column(&slot_keys), rows: column(&slot_rows) };
        rows_of(&points, &offsets, &spec, &layout, |key| table.find(key as u32))
    }

    fn voxel_search(
        points: FloatTensor<Self>,
        coords: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self> {
        let keys = keys_of(&coords, &layout);
        rows_of(&points, &offsets, &spec, &layout, |key| search(&keys, key))
    }
}

/// Keys of voxels `[V, 4]`.
fn keys_of(coords: &FlexTensor, layout: &KeyLayout) -> Vec<u64> {
    let coords = coords.to_contiguous();
    let rows = coords.storage::<i32>().as_chunks::<4>().0;
    rows.iter().map(|[b, x, y, z]| layout.key(*b as usize, [*x as usize, *y as usize, *z as usize])).collect()
}

/// Row of each point by the key of its voxel, -1 for a point in none.
fn rows_of(
    points: &FlexTensor,
    offsets: &[usize],
    spec: &GridSpec,
    layout: &KeyLayout,
    find: impl Fn(u64) -> i32 + Sync,
) -> FlexTensor {
    let points = points.to_contiguous();
    let points = points.storage::<f32>().as_chunks::<3>().0;
    let tables = KeyTables::new(spec, layout);
    let row = |batch: usize, point: &[f32; 3]| match tables.key(batch, *point) {
        NO_VOXEL => -1,
        key => find(key),
    };
    let mut rows = Vec::with_capacity(points.len());
    for (batch, ends) in offsets.windows(2).enumerate() {
        rows.par_extend(points[ends[0]..ends[1]].par_iter().map(|point| row(batch, point)));
    }
    tensor(rows, [points.len()], DType::I32)
}
