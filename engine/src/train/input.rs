//! What a network sees of a batch: one dense channel a feature, made on the device from the points.

use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData};
use occam_scene::GridSpec;
use occam_scene::rays::RayState;

use super::InputConfig;
use crate::data::Batch;
use crate::gpu::check_binding;
use crate::ops::rays::cast;
use crate::ops::voxelize::{Voxels, occupancy, voxelize};
use crate::{Error, Result};

/// Features `[B, channels, Z, X, Y]` of a batch on `device`, without autodiff: occupancy, then what `config` asks for, in
/// its order. Rays for the visibility come from the sensor at 0, 0, 0, also to points outside the grid.
///
/// # Errors
/// [`Error::Usage`] when points lack what `config` asks for; [`Error::TooLarge`] when a tensor does not fit on the device;
/// [`Error::Failed`] when the device fails.
pub fn input(batch: &Batch, spec: &GridSpec, config: &InputConfig, device: &Device) -> Result<Tensor<5>> {
    let channels = config.channels();
    let bytes = (4 * (batch.len() * channels) as u64).saturating_mul(spec.len() as u64);
    check_binding(device, &format!("{channels} input channels of {} samples", batch.len()), bytes)?;
    let points = TensorData::new(batch.positions.as_flattened().to_vec(), [batch.positions.len(), 3]);
    let points = Tensor::<2>::from_data(points, device);
    let mut all = vec![occupancy(points.clone(), &batch.offsets, spec)?];
    if config.visibility {
        let sensors = vec![[0.0; 3]; batch.len()];
        let states = cast(points.clone(), &batch.offsets, &sensors, spec)?;
        all.push(states.equal_elem(RayState::Free as i32).float());
    }
    if config.intensity || config.height {
        let intensity = match &batch.intensity {
            _ if !config.intensity => None,
            Some(values) => Some(Tensor::from_data(TensorData::new(values.clone(), [values.len(), 1]), device)),
            None => {
                return Err(Error::Usage(format!(
                    "one of {} has no intensity, which the network sees (input.intensity = true)",
                    batch.ids.join(", ")
                )));
            }
        };
        let voxels = voxelize(points, intensity, None, &batch.offsets, spec)?;
        let places = places(&voxels);
        let dense = |values: Tensor<1>| dense(values, &places, batch.len(), spec);
        if let Some(means) = &voxels.features {
            all.push(dense(means.clone().squeeze_dim(1)));
        }
        if config.height {
            all.push(dense(height(&voxels, spec)));
        }
    }
    // One channel needs no copy.
    Ok(if channels == 1 { all.swap_remove(0).unsqueeze_dim(1) } else { Tensor::stack(all, 1) })
}

/// Where each voxel lies in a volume `[B, Z, X, Y]`, `[V, 4]`.
fn places(voxels: &Voxels) -> Tensor<2, Int> {
    let column = |axis: usize| voxels.coords.clone().slice_dim(1, axis..=axis);
    // From batch, x, y, z.
    Tensor::cat([0, 3, 1, 2].map(column).to_vec(), 1)
}

/// One value a voxel, `[V]`, into a volume `[B, Z, X, Y]` that is 0 elsewhere.
fn dense(values: Tensor<1>, places: &Tensor<2, Int>, batch: usize, spec: &GridSpec) -> Tensor<4> {
    let [x, y, z] = spec.counts;
    let volume = Tensor::<4>::zeros([batch, z, x, y], &values.device());
    if values.dims() == [0] {
        return volume;
    }
    // Every voxel has a place of its own, so that the order of the writes does not show.
    volume.scatter_nd(places.clone(), values, IndexingUpdateOp::Assign)
}

/// Mean height of the points of each voxel above its centre, in voxels, `[V]`.
fn height(voxels: &Voxels, spec: &GridSpec) -> Tensor<1> {
    let z = voxels.mean.clone().slice_dim(1, 2..=2).squeeze_dim::<1>(1);
    let layer = voxels.coords.clone().slice_dim(1, 3..=3).squeeze_dim::<1>(1).float();
    (z - spec.origin_m[2]) * spec.inverse_size()[2] - layer - 0.5
}
