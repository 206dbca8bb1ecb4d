//! Rays on the CPU device: the functions of [`occam_scene::rays`] on Flex tensors.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::TensorData;
use occam_scene::GridSpec;
use occam_scene::rays::{self, RayState};
use rayon::prelude::*;

use super::RayOps;

impl RayOps for Flex {
    fn ray_cast(
        points: FloatTensor<Self>,
        offsets: Vec<usize>,
        sensors_m: Vec<[f32; 3]>,
        spec: GridSpec,
    ) -> IntTensor<Self> {
        let points = points.to_contiguous();
        let points = points.storage::<f32>().as_chunks::<3>().0;
        let [x, y, z] = spec.counts;
        let mut states = vec![RayState::Unknown; sensors_m.len() * spec.len()];
        for ((ends, sensor), states) in offsets.windows(2).zip(&sensors_m).zip(states.chunks_mut(spec.len())) {
            rays::cast_in_order(&spec, [y, 1, x * y], *sensor, &points[ends[0]..ends[1]], states);
        }
        let states: Vec<i32> = states.into_par_iter().map(|state| state as i32).collect();
        FlexTensor::from_data(TensorData::new(states, [sensors_m.len(), z, x, y]))
    }

    fn ray_occlusion(occupied: IntTensor<Self>, sensors_m: Vec<[f32; 3]>, spec: GridSpec) -> IntTensor<Self> {
        let occupied = occupied.to_contiguous();
        let occupied: Vec<bool> = occupied.storage::<i32>().iter().map(|value| *value != 0).collect();
        let found = rays::occlusion(&spec, &occupied, &sensors_m);
        let hidden = found.occluded.iter().zip(&found.invalid);
        let hidden: Vec<i32> = hidden.map(|(occluded, invalid)| i32::from(*occluded) + i32::from(*invalid)).collect();
        FlexTensor::from_data(TensorData::new(hidden, [spec.len()]))
    }
}
