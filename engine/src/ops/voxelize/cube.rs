//! Voxelization on a GPU: `shaders/voxel_*.wgsl` around the radix sort, the scan and the segmented sum.
//!
//! Keys of points, a stable sort of (key, point), heads of runs, their scan: that gives the voxel of every place and the
//! places of every voxel. One number comes back to the host on the way, the number of voxels, because it is the length
//! of everything that follows.

use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::wgpu::{CubeTensor, into_contiguous};
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, FloatDType, IntDType, Shape, Slice};
use occam_scene::GridSpec;

use super::backend::{Groups, VoxelOps};
use super::keys::{KeyLayout, grid_params};
use crate::gpu::{Buffer, launch, new_tensor, shader, upload_u32};
use crate::ops::scan::exclusive_scan_cube;
use crate::ops::segment::segment_sum_cube;
use crate::ops::sort::sort_pairs_cube;
use crate::{Error, Result};

/// Runs a shader that has one thread for each of `items`.
fn launch_over(shader: &'static shader::Shader, buffers: &[Buffer], params: &[u32], items: usize) {
    launch(shader, &shader::PLAIN, buffers, params, items.div_ceil(shader.workgroup_size as usize) as u32);
}

fn upload_offsets(like: &CubeTensor, offsets: &[usize]) -> CubeTensor {
    upload_u32(like, &offsets.iter().map(|offset| *offset as u32).collect::<Vec<_>>())
}

/// Number of rows of a tensor.
fn rows(tensor: &CubeTensor) -> usize {
    tensor.shape()[0]
}

fn read_u32(tensor: &CubeTensor, place: usize) -> Result<u32> {
    let one = Cube::int_slice(tensor.clone(), &[Slice::from(place..place + 1)]);
    let data = pollster::block_on(Cube::int_into_data(one)).map_err(|e| Error::Failed(format!("voxelization: {e}")))?;
    data.iter::<u32>().next().ok_or_else(|| Error::Failed("voxelization: the device returned nothing".into()))
}

/// One word of the keys of many items, and how many of its bits matter.
struct Word {
    keys: CubeTensor,
    bits: u32,
}

/// Items sorted by keys.
struct Sorted {
    /// Highest word of the keys.
    highest: CubeTensor,
    /// Item of each place.
    order: CubeTensor,
    /// Runs of equal keys before each place, `[n + 1]`.
    ranks: CubeTensor,
    /// Highest word of the key of an item that is in no run; these stand last.
    none: u32,
}

impl Sorted {
    /// Sorts by the words, lowest first. There is at least one item and one word.
    fn new(words: &[Word], none: u32) -> Self {
        let n = rows(&words[0].keys);
        let mut order = Cube::int_arange(0..n as i64, &words[0].keys.device, IntDType::U32);
        let mut highest = words[0].keys.clone();
        for (place, word) in words.iter().enumerate() {
            let keys = match place {
                0 => word.keys.clone(),
                _ => Cube::int_select(word.keys.clone(), 0, order.clone()),
            };
            (highest, order) = sort_pairs_cube(keys, order, word.bits);
        }
        let heads = new_tensor(&order, [n], DType::U32);
        for (place, word) in words.iter().enumerate() {
            let is_highest = place + 1 == words.len();
            let keys = if is_highest {
                highest.clone()
            } else {
                into_contiguous(Cube::int_select(word.keys.clone(), 0, order.clone()))
            };
            let params = [n as u32, (place == 0).into(), is_highest.into(), none];
            launch_over(&shader::VOXEL_HEADS, &[Buffer::Read(&keys), Buffer::Update(&heads)], &params, n);
        }
        Self { highest, order, ranks: exclusive_scan_cube(heads), none }
    }

    fn len(&self) -> usize {
        rows(&self.order)
    }

    /// First place of each run and the end of the last, in a tensor for up to `runs` runs.
    fn starts(&self, runs: usize) -> CubeTensor {
        let starts = new_tensor(&self.order, [runs + 1], DType::U32);
        let buffers = [Buffer::Read(&self.highest), Buffer::Read(&self.ranks), Buffer::Update(&starts)];
        launch_over(&shader::VOXEL_STARTS, &buffers, &[self.len() as u32, self.none], self.len());
        starts
    }
}

/// Groups without any voxel, for `points`.
fn no_groups(points: &CubeTensor, error: Option<Error>) -> Groups<Cube> {
    let device = &points.device;
    Groups {
        coords: new_tensor(points, [0, 4], DType::I32),
        count: new_tensor(points, [0], DType::I32),
        mean: new_tensor(points, [0, 3], DType::F32),
        voxel_of_point: Cube::int_full(Shape::from([rows(points)]), (-1i32).into(), device, IntDType::I32),
        order: new_tensor(points, [0], DType::U32),
        starts: upload_u32(points, &[0]),
        error,
    }
}

impl VoxelOps for Cube {
    fn voxel_groups(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec, layout: KeyLayout) -> Groups<Self> {
        let points = into_contiguous(points);
        let (n, members) = (rows(&points), offsets.len() as u32 - 1);
        if n == 0 {
            return no_groups(&points, None);
        }
        let offsets = upload_offsets(&points, &offsets);
        let grid = grid_params(&spec);
        let (highest_bits, none) = layout.highest_word();
        let words: Vec<Word> = (0..layout.words())
            .map(|word| {
                let is_highest = word + 1 == layout.words();
                let keys = new_tensor(&points, [n], DType::U32);
                let mut params = vec![n as u32, members, if is_highest { none } else { 0 }];
                params.extend(layout.params(word));
                params.extend(grid);
                let buffers = [Buffer::Read(&points), Buffer::Read(&offsets), Buffer::Write(&keys)];
                launch_over(&shader::VOXEL_KEYS, &buffers, &params, n);
                Word { keys, bits: if is_highest { highest_bits } else { u32::BITS } }
            })
            .collect();
        let sorted = Sorted::new(&words, none);
        let voxels = match read_u32(&sorted.ranks, n) {
            Ok(0) => return no_groups(&points, None),
            Ok(voxels) => voxels as usize,
            Err(error) => return no_groups(&points, Some(error)),
        };

        let voxel_of_point = new_tensor(&points, [n], DType::I32);
        let buffers = [
            Buffer::Read(&sorted.highest),
            Buffer::Read(&sorted.order),
            Buffer::Read(&sorted.ranks),
            Buffer::Write(&voxel_of_point),
        ];
        launch_over(&shader::VOXEL_ROWS, &buffers, &[n as u32, none], n);

        let starts = sorted.starts(voxels);
        let coords = new_tensor(&points, [voxels, 4], DType::I32);
        let count = new_tensor(&points, [voxels], DType::I32);
        let centres = new_tensor(&points, [voxels, 3], DType::F32);
        let buffers = [
            Buffer::Read(&points),
            Buffer::Read(&offsets),
            Buffer::Read(&sorted.order),
            Buffer::Read(&starts),
            Buffer::Write(&coords),
            Buffer::Write(&count),
            Buffer::Write(&centres),
        ];
        let mut params = vec![voxels as u32, members];
        params.extend(grid);
        launch_over(&shader::VOXEL_COORDS, &buffers, &params, voxels);

        let centred = new_tensor(&points, [n, 3], DType::F32);
        let buffers = [
            Buffer::Read(&points),
            Buffer::Read(&sorted.order),
            Buffer::Read(&sorted.ranks),
            Buffer::Read(&centres),
            Buffer::Write(&centred),
        ];
        launch_over(&shader::VOXEL_CENTRED, &buffers, &[n as u32], n);
        let mean = Cube::float_add(centres, mean_of_segments(centred, starts.clone(), count.clone()));
        Groups { coords, count, mean, voxel_of_point, order: sorted.order, starts, error: None }
    }

    fn voxel_mean_features(
        features: FloatTensor<Self>,
        _voxel_of_point: IntTensor<Self>,
        order: IntTensor<Self>,
        starts: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        let voxels = rows(&starts) - 1;
        if voxels == 0 {
            return new_tensor(&features, [0, features.shape()[1]], DType::F32);
        }
        let ends = Cube::int_slice(starts.clone(), &[Slice::from(1..voxels + 1)]);
        let count = Cube::int_sub(ends, Cube::int_slice(starts.clone(), &[Slice::from(0..voxels)]));
        mean_of_segments(Cube::float_select(features, 0, order), starts, count)
    }

    fn voxel_majority(
        labels: IntTensor<Self>,
        voxel_of_point: IntTensor<Self>,
        _order: IntTensor<Self>,
        starts: IntTensor<Self>,
        ignore: i32,
    ) -> IntTensor<Self> {
        let voxels = rows(&starts) - 1;
        let winners = new_tensor(&labels, [voxels], DType::I32);
        if voxels == 0 {
            return winners;
        }
        // With the sign turned over, unsigned order is the order of the labels.
        let turned = into_contiguous(Cube::bitwise_xor_scalar(labels.clone(), i32::MIN.into()));
        let none = u32::MAX;
        let words = [
            Word { keys: as_u32(turned), bits: u32::BITS },
            // The bits of `none` that take part are still above every row.
            Word { keys: as_u32(into_contiguous(voxel_of_point)), bits: usize::BITS - voxels.leading_zeros() },
        ];
        let sorted = Sorted::new(&words, none);
        let labels = into_contiguous(Cube::int_select(labels, 0, sorted.order.clone()));
        let runs = sorted.starts(sorted.len());
        let buffers = [
            Buffer::Read(&starts),
            Buffer::Read(&sorted.ranks),
            Buffer::Read(&runs),
            Buffer::Read(&labels),
            Buffer::Write(&winners),
        ];
        launch_over(&shader::VOXEL_MAJORITY, &buffers, &[voxels as u32, ignore as u32], voxels);
        winners
    }

    fn voxel_occupancy(points: FloatTensor<Self>, offsets: Vec<usize>, spec: GridSpec) -> FloatTensor<Self> {
        let points = into_contiguous(points);
        let (n, members) = (rows(&points), offsets.len() - 1);
        let [x, y, z] = spec.counts;
        let volumes = Cube::float_zeros(Shape::from([members, z, x, y]), &points.device, FloatDType::F32);
        if n > 0 {
            let offsets = upload_offsets(&points, &offsets);
            let mut params = [n, members, x, y, z].map(|number| number as u32).to_vec();
            params.extend(grid_params(&spec));
            let buffers = [Buffer::Read(&points), Buffer::Read(&offsets), Buffer::Update(&volumes)];
            launch_over(&shader::VOXEL_OCCUPANCY, &buffers, &params, n);
        }
        volumes
    }

    fn voxel_table(
        coords: IntTensor<Self>,
        layout: KeyLayout,
        slots: usize,
    ) -> (IntTensor<Self>, IntTensor<Self>, IntTensor<Self>) {
        let coords = into_contiguous(coords);
        let voxels = rows(&coords);
        let slot_keys = Cube::int_full(Shape::from([slots]), u32::MAX.into(), &coords.device, IntDType::U32);
        let slot_rows = new_tensor(&coords, [slots], DType::U32);
        let lost = upload_u32(&coords, &[0]);
        let mut params = vec![voxels as u32, slots as u32 - 1];
        params.extend(layout.params(0));
        let buffers =
            [Buffer::Read(&coords), Buffer::Update(&slot_keys), Buffer::Update(&slot_rows), Buffer::Update(&lost)];
        launch_over(&shader::VOXEL_TABLE_INSERT, &buffers, &params, voxels);
        (slot_keys, slot_rows, lost)
    }

    fn voxel_find(
        points: FloatTensor<Self>,
        slot_keys: IntTensor<Self>,
        slot_rows: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self> {
        let points = into_contiguous(points);
        let n = rows(&points);
        let found = new_tensor(&points, [n], DType::I32);
        if n > 0 {
            let mut params = vec![n as u32, offsets.len() as u32 - 1, rows(&slot_keys) as u32 - 1];
            params.extend(layout.params(0));
            params.extend(grid_params(&spec));
            let offsets = upload_offsets(&points, &offsets);
            let buffers = [
                Buffer::Read(&points),
                Buffer::Read(&offsets),
                Buffer::Read(&slot_keys),
                Buffer::Read(&slot_rows),
                Buffer::Write(&found),
            ];
            launch_over(&shader::VOXEL_TABLE_FIND, &buffers, &params, n);
        }
        found
    }

    fn voxel_search(
        points: FloatTensor<Self>,
        coords: IntTensor<Self>,
        offsets: Vec<usize>,
        spec: GridSpec,
        layout: KeyLayout,
    ) -> IntTensor<Self> {
        let (points, coords) = (into_contiguous(points), into_contiguous(coords));
        let (n, voxels) = (rows(&points), rows(&coords));
        if n == 0 || voxels == 0 {
            return Cube::int_full(Shape::from([n]), (-1i32).into(), &points.device, IntDType::I32);
        }
        let found = new_tensor(&points, [n], DType::I32);
        let mut params = vec![n as u32, offsets.len() as u32 - 1, voxels as u32];
        params.extend(layout.params(0));
        params.extend(grid_params(&spec));
        let offsets = upload_offsets(&points, &offsets);
        let buffers = [Buffer::Read(&points), Buffer::Read(&offsets), Buffer::Read(&coords), Buffer::Write(&found)];
        launch_over(&shader::VOXEL_SEARCH, &buffers, &params, n);
        found
    }
}

/// Mean of the rows of each segment, `[n, F]` to `[V, F]`; `count` is `[V]`, at least 1 each.
fn mean_of_segments(values: CubeTensor, starts: CubeTensor, count: CubeTensor) -> CubeTensor {
    let voxels = rows(&count);
    let count = Cube::float_reshape(Cube::int_into_float(count, FloatDType::F32), Shape::from([voxels, 1]));
    Cube::float_div(segment_sum_cube(values, starts), count)
}

/// The same words taken as u32.
fn as_u32(tensor: CubeTensor) -> CubeTensor {
    CubeTensor { dtype: DType::U32, ..tensor }
}
