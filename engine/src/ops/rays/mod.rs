//! Rays through grids: what scans saw free ([`cast`]) and what hides from their sensors ([`occlusion`]).
//!
//! The rules, in integers, are those of [`occam_scene::rays`], which is also the implementation on the CPU: results are
//! equal on every device. Nothing here has a derivative.

mod cube;
mod flex;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
use burn::tensor::{Int, IntDType, Tensor};
use occam_scene::GridSpec;

use super::voxelize::checked_points;
use crate::gpu::check_binding;
use crate::{Error, Result};

/// What rays from sensors to the points they measured tell of each voxel: `[B, Z, X, Y]`, numbers of
/// [`RayState`](occam_scene::rays::RayState) (0 unknown, 1 free, 2 hit).
///
/// `points` is `[N, 3]` in metres in the frame of the grid; batch member b owns `offsets[b]..offsets[b + 1]` and was
/// measured from `sensors_m[b]`. See [`occam_scene::rays::cast`].
///
/// # Errors
/// [`Error::Usage`] when shapes, offsets and sensors do not fit together, [`Error::TooLarge`] when a grid or tensor does
/// not fit on the device.
pub fn cast(points: Tensor<2>, offsets: &[usize], sensors_m: &[[f32; 3]], spec: &GridSpec) -> Result<Tensor<4, Int>> {
    let points = checked_points(points, offsets, spec)?;
    let batch = offsets.len() - 1;
    if sensors_m.len() != batch {
        return Err(Error::Usage(format!("{} sensors for {batch} clouds, expected one each", sensors_m.len())));
    }
    check_volumes(&points.device(), batch, spec)?;
    let states = Dispatch::ray_cast(points.into_dispatch(), offsets.to_vec(), sensors_m.to_vec(), *spec);
    Ok(Tensor::from_dispatch(states))
}

/// Which empty voxels sensors cannot see: 0 seen from the first sensor (or occupied), 1 from another one only, 2 from
/// none.
///
/// `occupied` has one entry for each voxel in the spec's order, not 0 where something is; so has the result. See
/// [`occam_scene::rays::occlusion`].
///
/// # Errors
/// As [`cast`].
pub fn occlusion(occupied: Tensor<1, Int>, sensors_m: &[[f32; 3]], spec: &GridSpec) -> Result<Tensor<1, Int>> {
    spec.check().map_err(Error::Usage)?;
    if occupied.dims() != [spec.len()] {
        let [found] = occupied.dims();
        return Err(Error::Usage(format!("{found} entries for a grid of {:?} voxels, expected one each", spec.counts)));
    }
    check_volumes(&occupied.device(), 1, spec)?;
    let occupied = occupied.cast(IntDType::I32).into_dispatch();
    Ok(Tensor::from_dispatch(Dispatch::ray_occlusion(occupied, sensors_m.to_vec(), *spec)))
}

fn check_volumes(device: &burn::tensor::Device, batch: usize, spec: &GridSpec) -> Result<()> {
    let [x, y, z] = spec.counts;
    let bytes = (4 * batch as u64).saturating_mul(spec.len() as u64);
    check_binding(device, &format!("the states of rays in {batch} grids of {x}x{y}x{z} voxels"), bytes)
}

/// Arguments are checked by the public functions: points are `[N, 3]` f32, `offsets` ascends from 0 to N, `occupied` is
/// i32. Results are i32.
#[backend_extension(Cube, Flex, Autodiff)]
trait RayOps: Backend {
    fn ray_cast(
        points: FloatTensor<Self>,
        offsets: Vec<usize>,
        sensors_m: Vec<[f32; 3]>,
        spec: GridSpec,
    ) -> IntTensor<Self>;
    fn ray_occlusion(occupied: IntTensor<Self>, sensors_m: Vec<[f32; 3]>, spec: GridSpec) -> IntTensor<Self>;
}

impl<B: RayOps, C: CheckpointStrategy> RayOps for Autodiff<B, C> {
    fn ray_cast(
        points: FloatTensor<Self>,
        offsets: Vec<usize>,
        sensors_m: Vec<[f32; 3]>,
        spec: GridSpec,
    ) -> IntTensor<Self> {
        B::ray_cast(points.into_primitive(), offsets, sensors_m, spec)
    }

    fn ray_occlusion(occupied: IntTensor<Self>, sensors_m: Vec<[f32; 3]>, spec: GridSpec) -> IntTensor<Self> {
        B::ray_occlusion(occupied, sensors_m, spec)
    }
}
