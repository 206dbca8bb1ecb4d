//! Points to voxels: which voxel a point lies in, and count, mean and majority of each voxel.
//!
//! The index rule is that of [`GridSpec::voxel_of`]. Voxels come out in (batch, Morton) order, see [`KeyLayout`]; points
//! of one voxel keep their order; a point outside the grid or with a coordinate that is not finite gets no voxel. Two
//! runs give the same bytes.
//!
//! On the CPU ([`cpu`]) means are summed in f64 and rounded once. On a GPU they are summed in f32, in a fixed order and
//! positions relative to the centre of the voxel. Everything else is equal on both; the means of n points lie within
//! (n / 16 + 8) 2^-24 of half the voxel size (of the largest value, for features) plus 4 roundings of the mean itself.

mod backend;
pub mod cpu;
mod cube;
mod flex;
mod keys;
mod table;

use burn::backend::Dispatch;
use burn::tensor::{FloatDType, Int, IntDType, Tensor};
use occam_scene::GridSpec;

pub(super) use keys::grid_params;
pub use keys::{KeyLayout, NO_VOXEL};
pub use table::VoxelTable;

use crate::gpu::check_binding;
use crate::{Error, Result};
use backend::VoxelOps;

/// The occupied voxels of a batch of clouds, in (batch, Morton) order.
#[derive(Debug, Clone)]
pub struct Voxels {
    /// `[V, 4]` batch, x, y, z.
    pub coords: Tensor<2, Int>,
    /// `[V]` points of a voxel, at least 1.
    pub count: Tensor<1, Int>,
    /// `[V, 3]` mean position, metres.
    pub mean: Tensor<2>,
    /// `[V, F]` mean features: differentiable in the features of the points. Give positions as features for a
    /// derivative in them.
    pub features: Option<Tensor<2>>,
    /// `[V]` majority label.
    pub label: Option<Tensor<1, Int>>,
    /// `[N]` voxel of each point, -1 for a point in none.
    pub voxel_of_point: Tensor<1, Int>,
    /// `[N]` or fewer, u32: numbers of points, those of a voxel beside each other and in their own order. On a GPU, points
    /// in no voxel come last.
    pub order: Tensor<1, Int>,
    /// `[V + 1]`, u32: voxel v has the points `order[starts[v]..starts[v + 1]]`.
    pub starts: Tensor<1, Int>,
}

impl Voxels {
    /// Number of voxels.
    pub fn len(&self) -> usize {
        self.coords.dims()[0]
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Voxels of a batch of clouds.
///
/// `points` is `[N, 3]` in metres in the frame of the grid, `features` `[N, F]`, `labels` `[N]`; batch member b owns the
/// points `offsets[b]..offsets[b + 1]`. The label of a voxel is the most frequent one of its points, of equally frequent
/// ones the lowest; points labelled `spec.ignore_id` have no vote, and a voxel with nothing else gets that id.
///
/// # Errors
/// [`Error::Usage`] when shapes or offsets do not fit together, [`Error::TooLarge`] when a grid or tensor does not fit
/// on the device, [`Error::Failed`] when the device fails.
pub fn voxelize(
    points: Tensor<2>,
    features: Option<Tensor<2>>,
    labels: Option<Tensor<1, Int>>,
    offsets: &[usize],
    spec: &GridSpec,
) -> Result<Voxels> {
    let layout = KeyLayout::new(spec, offsets.len().saturating_sub(1))?;
    voxelize_with(points, features, labels, offsets, spec, layout)
}

/// [`voxelize`] with keys laid out by the caller, for the same grid and batch.
pub fn voxelize_with(
    points: Tensor<2>,
    features: Option<Tensor<2>>,
    labels: Option<Tensor<1, Int>>,
    offsets: &[usize],
    spec: &GridSpec,
    layout: KeyLayout,
) -> Result<Voxels> {
    let points = checked_points(points, offsets, spec)?;
    let what = format!("the coordinates of up to {} voxels", points.dims()[0]);
    check_binding(&points.device(), &what, 16 * points.dims()[0] as u64)?;
    let expect_rows = |what: &str, rows: usize| {
        let count = points.dims()[0];
        if rows == count { Ok(()) } else { Err(Error::Usage(format!("{rows} {what} for {count} points"))) }
    };
    if let Some(features) = &features {
        expect_rows("rows of features", features.dims()[0])?;
    }
    if let Some(labels) = &labels {
        expect_rows("labels", labels.dims()[0])?;
    }

    let groups = Dispatch::voxel_groups(points.into_dispatch(), offsets.to_vec(), *spec, layout);
    if let Some(error) = groups.error {
        return Err(error);
    }
    let (order, starts) = (groups.order, groups.starts);
    Ok(Voxels {
        coords: Tensor::from_dispatch(groups.coords),
        count: Tensor::from_dispatch(groups.count),
        mean: Tensor::from_dispatch(groups.mean),
        features: features.map(|features| {
            let features = features.cast(FloatDType::F32).into_dispatch();
            let voxels = groups.voxel_of_point.clone();
            Tensor::from_dispatch(Dispatch::voxel_mean_features(features, voxels, order.clone(), starts.clone()))
        }),
        label: labels.map(|labels| {
            let labels = labels.cast(IntDType::I32).into_dispatch();
            let (voxels, ignore) = (groups.voxel_of_point.clone(), spec.ignore_id.into());
            Tensor::from_dispatch(Dispatch::voxel_majority(labels, voxels, order.clone(), starts.clone(), ignore))
        }),
        voxel_of_point: Tensor::from_dispatch(groups.voxel_of_point),
        order: Tensor::from_dispatch(order),
        starts: Tensor::from_dispatch(starts),
    })
}

/// Dense occupancy `[B, Z, X, Y]` in f32: 1 where a voxel holds at least one point, else 0.
///
/// `points` is `[N, 3]` in metres in the frame of the grid; batch member b owns `offsets[b]..offsets[b + 1]`.
///
/// # Errors
/// As [`voxelize`].
pub fn occupancy(points: Tensor<2>, offsets: &[usize], spec: &GridSpec) -> Result<Tensor<4>> {
    let points = checked_points(points, offsets, spec)?;
    let (batch, [x, y, z]) = (offsets.len() - 1, spec.counts);
    let bytes = (4 * batch as u64).saturating_mul(spec.len() as u64);
    check_binding(&points.device(), &format!("the dense grid {batch}x{z}x{x}x{y} in f32"), bytes)?;
    Ok(Tensor::from_dispatch(Dispatch::voxel_occupancy(points.into_dispatch(), offsets.to_vec(), *spec)))
}

/// The points as f32, when they, their offsets and the grid fit together.
pub(super) fn checked_points(points: Tensor<2>, offsets: &[usize], spec: &GridSpec) -> Result<Tensor<2>> {
    spec.check().map_err(Error::Usage)?;
    let [count, width] = points.dims();
    if width != 3 {
        return Err(Error::Usage(format!("points of {width} columns, expected x, y, z")));
    }
    if offsets.len() < 2 || offsets[0] != 0 || offsets[offsets.len() - 1] != count || !offsets.is_sorted() {
        return Err(Error::Usage(format!("offsets {offsets:?}, expected an ascending list from 0 to {count} points")));
    }
    if count > i32::MAX as usize {
        return Err(Error::TooLarge(format!("{count} points, the limit is 2^31 - 1. Use a smaller batch")));
    }
    check_binding(&points.device(), &format!("{count} points in f32"), 12 * count as u64)?;
    Ok(points.cast(FloatDType::F32))
}
