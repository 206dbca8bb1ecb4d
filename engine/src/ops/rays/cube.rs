//! Rays on a GPU: `shaders/ray_*.wgsl`.

use burn::backend::ops::IntTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, IntDType, Shape};
use occam_scene::GridSpec;
use occam_scene::rays::{self, REACH_VOXELS};

use super::RayOps;
use crate::gpu::{Buffer, launch, new_tensor, shader, upload_u32};
use crate::ops::voxelize::grid_params;

/// Voxels that the rays of one dispatch enter at most: each takes some 40 operations and a read, and no dispatch shall
/// take more than 100 ms at 1 TFLOP/s.
const DISPATCH_STEPS: u64 = 1 << 31;

/// Sensors as the shaders take them: place, and `0` out of reach, `1` outside the grid, `2` inside.
fn upload_sensors(like: &CubeTensor, sensors_m: &[[f32; 3]], spec: &GridSpec) -> CubeTensor {
    let word = |sensor: &[f32; 3]| match rays::lattice(spec, *sensor) {
        Some([x, y, z]) => [x as u32, y as u32, z as u32, if spec.voxel_of(*sensor).is_some() { 2 } else { 1 }],
        None => [0; 4],
    };
    let mut words: Vec<u32> = sensors_m.iter().flat_map(word).collect();
    // A buffer of nothing cannot be bound; a sensor out of reach sees nothing.
    words.resize(words.len().max(4), 0);
    upload_u32(like, &words)
}

/// Most voxels that one ray from or to the farthest of some sensors enters before it has left the grid for good.
fn longest_walk(sensors_m: &[[f32; 3]], spec: &GridSpec) -> u64 {
    let length = |sensor: [i32; 3]| -> u64 {
        let axis = |axis: usize| {
            let (voxel, count) = (i64::from(sensor[axis] >> 7), spec.counts[axis].min(REACH_VOXELS) as i64);
            (voxel + 1).max(count - voxel).unsigned_abs()
        };
        (0..3).map(axis).sum()
    };
    sensors_m.iter().filter_map(|sensor| rays::lattice(spec, *sensor)).map(length).max().unwrap_or(1)
}

impl RayOps for Cube {
    fn ray_cast(
        points: FloatTensor<Self>,
        offsets: Vec<usize>,
        sensors_m: Vec<[f32; 3]>,
        spec: GridSpec,
    ) -> IntTensor<Self> {
        let points = into_contiguous(points);
        let (n, [x, y, z]) = (points.shape()[0], spec.counts);
        let states = Cube::int_zeros(Shape::from([sensors_m.len(), z, x, y]), &points.device, IntDType::I32);
        if n == 0 {
            return states;
        }
        let sensors = upload_sensors(&points, &sensors_m, &spec);
        let offsets: Vec<u32> = offsets.iter().map(|offset| *offset as u32).collect();
        let offsets = upload_u32(&points, &offsets);
        let buffers = [Buffer::Read(&points), Buffer::Read(&offsets), Buffer::Read(&sensors), Buffer::Update(&states)];
        let shader = &shader::RAY_CAST;
        let group = shader.workgroup_size as usize;
        let groups = (DISPATCH_STEPS / (longest_walk(&sensors_m, &spec) * group as u64)).max(1) as usize;
        for first in (0..n).step_by(groups * group) {
            let mut params = [n, sensors_m.len(), first, x, y, z].map(|number| number as u32).to_vec();
            params.extend(grid_params(&spec));
            let groups = (n - first).div_ceil(group).min(groups);
            launch(shader, &shader::PLAIN, &buffers, &params, groups as u32);
        }
        states
    }

    fn ray_occlusion(occupied: IntTensor<Self>, sensors_m: Vec<[f32; 3]>, spec: GridSpec) -> IntTensor<Self> {
        let occupied = into_contiguous(occupied);
        let voxels = spec.len();
        let hidden = new_tensor(&occupied, [voxels], DType::I32);
        let sensors = upload_sensors(&occupied, &sensors_m, &spec);
        let buffers = [Buffer::Read(&occupied), Buffer::Read(&sensors), Buffer::Update(&hidden)];
        let shader = &shader::RAY_OCCLUSION;
        let dispatch_threads = u64::from(shader.max_groups * shader.workgroup_size).min(voxels as u64);
        // A ray ends at the border of the grid.
        let walk: usize = spec.counts.iter().sum();
        let at_once = (DISPATCH_STEPS / (dispatch_threads * walk as u64)).max(1) as usize;
        let count = sensors_m.len().max(1);
        for first in (0..count).step_by(at_once) {
            let end = (first + at_once).min(count);
            let mut params = [voxels, first, end].map(|number| number as u32).to_vec();
            params.extend(spec.counts.map(|count| count as u32));
            params.extend(rays::strides(&spec));
            let groups = voxels.div_ceil(shader.workgroup_size as usize) as u32;
            launch(shader, &shader::PLAIN, &buffers, &params, groups);
        }
        hidden
    }
}
