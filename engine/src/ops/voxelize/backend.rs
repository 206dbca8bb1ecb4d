//! The operations as Burn's backends see them.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, ExtensionType, TensorMetadata, backend_extension};
use burn::tensor::{FloatDType, Shape, Slice};
use occam_scene::GridSpec;

use super::keys::KeyLayout;

/// Points grouped by voxel, with what every caller wants to know of a voxel.
#[derive(ExtensionType)]
pub struct Groups<B: Backend> {
    /// `[V, 4]`: batch, x, y, z.
    pub coords: IntTensor<B>,
    /// `[V]`.
    pub count: IntTensor<B>,
    /// `[V, 3]`, metres.
    pub mean: FloatTensor<B>,
    /// `[N]`, -1 for a point in no voxel.
    pub voxel_of_point: IntTensor<B>,
    /// `[N]` or fewer: indices of points, those of one voxel together and in their own order.
    pub order: IntTensor<B>,
    /// `[V + 1]`: voxel v holds `order[starts[v]..starts[v + 1]]`.
    pub starts: IntTensor<B>,
    /// Why there is no result; the tensors are then without meaning.
    pub error: Option<crate::Error>,
}

/// Arguments are checked by the public functions: points are `[N, 3]` f32, coordinates and labels i32, and `offsets`
/// ascends from 0 to N. What has an order or a place (`order`, `starts`, slots) is u32, results are i32.
#[backend_extension(Cube, Flex, Autodiff)]
pub trait VoxelOps: Backend {
    fn voxel_groups(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec, layout: KeyLayout) -> Groups<Self>;

    /// `[N, F]` to `[V, F]`.
    fn voxel_mean_features(
        features: FloatTensor<Self>,
        voxel_of_point: IntTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
    ) -> FloatTensor<Self>;

    /// `[N]` to `[V]`.
    fn voxel_majority(
        labels: IntTensor<Self>,
        voxel_of_point: IntTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        ignore: i32,
    ) -> IntTensor<Self>;

    /// `[B, Z, X, Y]`.
    fn voxel_occupancy(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self>;

    /// Hash table from the one-word keys of distinct voxels `[V, 4]` to their rows: keys `[slots]`, rows `[slots]` and
    /// the number of voxels `[1]` that found no slot.
    fn voxel_table(
        coords: IntTensor<Self>,
        layout: KeyLayout,
        slots: usize,
    ) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>);

    /// Rows `[N]` of the voxels of points, by the table of [`Self::voxel_table`].
    fn voxel_find(
        points: FloatTensor<Self>,
        slot_keys: IntTensor<Self>,
        slot_rows: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self>;

    /// Rows `[N]` of the voxels of points, by binary search in voxels `[V, 4]` in the order of their keys.
    fn voxel_search(
        points: FloatTensor<Self>,
        coords: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self>;
}

/// Mean features have a derivative; everything else is a constant on an autodiff device.
impl<B: VoxelOps, C: CheckpointStrategy> VoxelOps for Autodiff<B, C> {
    fn voxel_groups(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec, layout: KeyLayout) -> Groups<Self> {
        let groups = B::voxel_groups(points.into_primitive(), offsets, spec, layout);
        Groups {
            coords: groups.coords,
            count: groups.count,
            mean: Self::from_inner(groups.mean),
            voxel_of_point: groups.voxel_of_point,
            order: groups.order,
            starts: groups.starts,
            error: groups.error,
        }
    }

    fn voxel_mean_features(
        features: FloatTensor<Self>,
        voxel_of_point: IntTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        match MeanBackward.prepare::<C>([features.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let features = features.primitive().clone();
                let means = B::voxel_mean_features(features, voxel_of_point.clone(), order, starts.clone());
                prepared.finish((voxel_of_point, starts), means)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::voxel_mean_features(features.into_primitive(), voxel_of_point, order, starts))
            }
        }
    }

    fn voxel_majority(
        labels: IntTensor<Self>,
        voxel_of_point: IntTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
        ignore: i32,
    ) -> IntTensor<Self> {
        B::voxel_majority(labels, voxel_of_point, order, starts, ignore)
    }

    fn voxel_occupancy(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self> {
        Self::from_inner(B::voxel_occupancy(points.into_primitive(), offsets, spec))
    }

    fn voxel_table(
        coords: IntTensor<Self>,
        layout: KeyLayout,
        slots: usize,
    ) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>) {
        B::voxel_table(coords, layout, slots)
    }

    fn voxel_find(
        points: FloatTensor<Self>,
        slot_keys: IntTensor<Self>,
        slot_rows: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self> {
        B::voxel_find(points.into_primitive(), slot_keys, slot_rows, offsets, spec, layout)
    }

    fn voxel_search(
        points: FloatTensor<Self>,
        coords: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self> {
        B::voxel_search(points.into_primitive(), coords, offsets, spec, layout)
    }
}

#[derive(Debug)]
struct MeanBackward;

/// A point gets the gradient of its voxel's mean, shared among the points of the voxel; a point in no voxel gets none.
impl<B: VoxelOps> Backward<B, 1> for MeanBackward {
    type State = (IntTensor<B>, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [Some(node)] = ops.parents else { return };
        let gradient = gradients.consume::<B>(&ops.node);
        let (voxel_of_point, starts) = ops.state;
        let [voxels, width] = gradient.shape().dims();
        let device = gradient.device();
        let none = B::float_zeros(Shape::from([1, width]), &device, FloatDType::F32);
        // The first row is that of the points in no voxel.
        let rows = if voxels == 0 {
            none
        } else {
            let ends = B::int_slice(starts.clone(), &[Slice::from(1..voxels + 1)]);
            let counts = B::int_sub(ends, B::int_slice(starts, &[Slice::from(0..voxels)]));
            let counts = B::float_reshape(B::int_into_float(counts, FloatDType::F32), Shape::from([voxels, 1]));
            B::float_cat(vec![none, B::float_div(gradient, counts)], 0)
        };
        let places = B::int_add_scalar(voxel_of_point, 1.into());
        gradients.register::<B>(node.id, B::float_select(rows, 0, places));
    }
}
