//! Soft counts on a GPU: `shaders/soft_*.wgsl` around the radix sort and the scan.
//!
//! Points are sorted by the cell between voxel centres they lie in; then each voxel gathers from the eight cells around
//! its centre, in order, and no thread adds to what another one writes.

use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::tensor::FloatTensor;
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, FloatDType, IntDType, Shape};
use occam_scene::GridSpec;

use super::SoftOps;
use crate::gpu::{Buffer, launch, new_tensor, shader, upload_u32};
use crate::ops::scan::exclusive_scan_cube;
use crate::ops::sort::sort_pairs_cube;
use crate::ops::voxelize::grid_params;

/// Most points of one cell that a thread reads in one dispatch, of eight cells: fuller cells take several, so that none
/// runs long.
const CELL_POINTS: usize = 16_384;

fn launch_over(shader: &'static shader::Shader, buffers: &[Buffer], params: &[u32], items: usize) {
    launch(shader, &shader::PLAIN, buffers, params, items.div_ceil(shader.workgroup_size as usize) as u32);
}

fn upload_offsets(like: &CubeTensor, offsets: &[usize]) -> CubeTensor {
    upload_u32(like, &offsets.iter().map(|offset| *offset as u32).collect::<Vec<_>>())
}

impl SoftOps for Cube {
    fn soft_counts(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self> {
        let points = into_contiguous(points);
        let (n, members, [x, y, z]) = (points.shape()[0], offsets.len() - 1, spec.counts);
        if n == 0 {
            return Cube::float_zeros(Shape::from([members, z, x, y]), &points.device, FloatDType::F32);
        }
        let cells = members * (x + 1) * (y + 1) * (z + 1);
        let keys = new_tensor(&points, [n], DType::U32);
        let counts = Cube::int_zeros(Shape::from([cells]), &points.device, IntDType::U32);
        let mut params = [n, members, x, y, z, cells].map(|number| number as u32).to_vec();
        params.extend(grid_params(&spec));
        let on_device = upload_offsets(&points, &offsets);
        let buffers = [Buffer::Read(&points), Buffer::Read(&on_device), Buffer::Write(&keys), Buffer::Update(&counts)];
        launch_over(&shader::SOFT_CELLS, &buffers, &params, n);

        let starts = exclusive_scan_cube(counts);
        let places = Cube::int_arange(0..n as i64, &points.device, IntDType::U32);
        let (_, order) = sort_pairs_cube(keys, places, usize::BITS - cells.leading_zeros());
        let sums = new_tensor(&points, [members, z, x, y], DType::F32);
        let buffers = [Buffer::Read(&points), Buffer::Read(&order), Buffer::Read(&starts), Buffer::Update(&sums)];
        let most = offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let voxels = members * spec.len();
        for skip in (0..most).step_by(CELL_POINTS) {
            let mut params = [voxels, x, y, z, skip, CELL_POINTS].map(|number| number as u32).to_vec();
            params.extend(grid_params(&spec));
            launch_over(&shader::SOFT_SUM, &buffers, &params, voxels);
        }
        sums
    }

    fn soft_counts_backward(
        points: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
    ) -> FloatTensor<Self> {
        let (points, gradient) = (into_contiguous(points), into_contiguous(gradient));
        let (n, [x, y, z]) = (points.shape()[0], spec.counts);
        let slopes = new_tensor(&points, [n, 3], DType::F32);
        if n > 0 {
            let mut params = [n, offsets.len() - 1, x, y, z].map(|number| number as u32).to_vec();
            params.extend(grid_params(&spec));
            let offsets = upload_offsets(&points, &offsets);
            let buffers =
                [Buffer::Read(&points), Buffer::Read(&offsets), Buffer::Read(&gradient), Buffer::Write(&slopes)];
            launch_over(&shader::SOFT_GRADIENT, &buffers, &params, n);
        }
        slopes
    }
}
