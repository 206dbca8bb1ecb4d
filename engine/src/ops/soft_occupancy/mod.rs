//! Occupancy that tells a point where to go: each point spreads over the eight voxel centres around it.
//!
//! With `u` the position of a point in voxels, its weight for the voxel with centre `c` is
//! `max(0, 1 - |u_x - c_x|) max(0, 1 - |u_y - c_y|) max(0, 1 - |u_z - c_z|)`, as in trilinear interpolation. The weights
//! of all points add up to the soft count `s` of the voxel ([`soft_counts`]), and its occupancy is `1 - exp(-s)`
//! ([`soft_occupancy`]): the probability that a voxel with `s` points on average has any. A sum cut off at 1 would have no
//! gradient wherever points are dense; this one has, exp(-s) of the weight's, until it underflows at `s` of about 100.
//!
//! Weights are zero, and so have no gradient, beyond half a voxel outside the grid. Exactly in a centre, where the weight
//! has a kink, the derivative is the one towards greater coordinates.

mod cpu;
mod cube;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Tensor, TensorData};
use occam_scene::GridSpec;

use super::voxelize::checked_points;
use crate::Result;
use crate::gpu::check_binding;

/// Soft occupancy `[B, Z, X, Y]` in f32, from 0 to 1. Differentiable in the positions.
///
/// `points` is `[N, 3]` in metres in the frame of the grid; batch member b owns `offsets[b]..offsets[b + 1]`. Points that
/// are not finite count for nothing.
///
/// # Errors
/// [`Error::Usage`](crate::Error::Usage) when shapes or offsets do not fit together,
/// [`Error::TooLarge`](crate::Error::TooLarge) when a grid or tensor does not fit on the device.
pub fn soft_occupancy(points: Tensor<2>, offsets: &[usize], spec: &GridSpec) -> Result<Tensor<4>> {
    Ok(soft_counts(points, offsets, spec)?.neg().exp().neg().add_scalar(1.0))
}

/// Points of each voxel by trilinear weights: `[B, Z, X, Y]` in f32. Differentiable in the positions.
///
/// Sums are taken in one fixed order for each device; between devices they differ by roundings. Arguments and errors as
/// [`soft_occupancy`].
pub fn soft_counts(points: Tensor<2>, offsets: &[usize], spec: &GridSpec) -> Result<Tensor<4>> {
    let points = checked_points(points, offsets, spec)?;
    let (batch, [x, y, z]) = (offsets.len() - 1, spec.counts);
    // The cells between the centres are one more than the voxels along each axis.
    let cells = [x, y, z].iter().fold(batch as u64, |cells, count| cells.saturating_mul(*count as u64 + 1));
    let what = format!("the soft grid {batch}x{z}x{x}x{y} in f32");
    check_binding(&points.device(), &what, cells.saturating_add(1).saturating_mul(4))?;
    Ok(Tensor::from_dispatch(Dispatch::soft_counts(points.into_dispatch(), offsets.to_vec(), *spec)))
}

/// Arguments are checked by the public functions: points are `[N, 3]` f32, `offsets` ascends from 0 to N.
#[backend_extension(Cube, Flex, Autodiff)]
trait SoftOps: Backend {
    /// `[B, Z, X, Y]`.
    fn soft_counts(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self>;

    /// `[N, 3]`, from the gradient of the counts `[B, Z, X, Y]`.
    fn soft_counts_backward(
        points: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
    ) -> FloatTensor<Self>;
}

impl SoftOps for Flex {
    fn soft_counts(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self> {
        let points = points.to_contiguous();
        let counts = cpu::soft_counts(points.storage(), &offsets, &spec);
        let [x, y, z] = spec.counts;
        FlexTensor::from_data(TensorData::new(counts, [offsets.len() - 1, z, x, y]))
    }

    fn soft_counts_backward(
        points: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
    ) -> FloatTensor<Self> {
        let (points, gradient) = (points.to_contiguous(), gradient.to_contiguous());
        let slopes = cpu::soft_gradient(points.storage(), gradient.storage(), &offsets, &spec);
        let rows = slopes.len() / 3;
        FlexTensor::from_data(TensorData::new(slopes, [rows, 3]))
    }
}

impl<B: SoftOps, C: CheckpointStrategy> SoftOps for Autodiff<B, C> {
    fn soft_counts(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self> {
        match SoftBackward.prepare::<C>([points.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let points = points.primitive().clone();
                let counts = B::soft_counts(points.clone(), offsets.clone(), spec);
                prepared.finish((points, offsets, spec), counts)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::soft_counts(points.into_primitive(), offsets, spec)),
        }
    }

    /// The gradient is a constant: second derivatives are not taken.
    fn soft_counts_backward(
        points: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::soft_counts_backward(points.into_primitive(), gradient.into_primitive(), offsets, spec))
    }
}

#[derive(Debug)]
struct SoftBackward;

impl<B: SoftOps> Backward<B, 1> for SoftBackward {
    type State = (FloatTensor<B>, Vec<usize>, GridSpec);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let gradient = gradients.consume::<B>(&ops.node);
        let (points, offsets, spec) = ops.state;
        if let Some(node) = node {
            gradients.register::<B>(node.id, B::soft_counts_backward(points, gradient, offsets, spec));
        }
    }
}
