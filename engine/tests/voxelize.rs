//! Voxelization against a plain loop over a `BTreeMap`, on every device.

use std::collections::BTreeMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops::voxelize::{KeyLayout, VoxelTable, Voxels, occupancy, voxelize, voxelize_with};
use occam_scene::GridSpec;

/// Software Vulkan (Debian: mesa-vulkan-drivers). One device for all tests.
fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

/// A cloud batch as plain columns.
struct Case {
    name: String,
    spec: GridSpec,
    points: Vec<[f32; 3]>,
    features: Vec<[f32; 2]>,
    labels: Vec<i32>,
    offsets: Vec<usize>,
}

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

impl Case {
    fn new(name: impl Into<String>, spec: GridSpec, points: Vec<[f32; 3]>, offsets: Vec<usize>) -> Self {
        let mut random = Random(points.len() as u64);
        let features = points.iter().map(|_| [random.unit() * 100.0 - 50.0, random.unit()]).collect();
        // Few labels, so that ties happen; 255 is the ignore id.
        let labels = points.iter().map(|_| [0, 1, 2, 7, 255][(random.next() % 5) as usize]).collect();
        Self { name: name.into(), spec, points, features, labels, offsets }
    }

    /// `count` points over the grid and a margin around it.
    fn scattered(name: &str, spec: GridSpec, count: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let points = (0..count)
            .map(|_| {
                std::array::from_fn(|a| {
                    spec.origin_m[a] + spec.voxel_size_m[a] * spec.counts[a] as f32 * (random.unit() * 1.2 - 0.1)
                })
            })
            .collect();
        Self::new(format!("{name}, {count} points"), spec, points, vec![0, count])
    }

    fn batch_of(&self, point: usize) -> usize {
        (0..self.offsets.len() - 1).find(|b| (self.offsets[*b]..self.offsets[b + 1]).contains(&point)).unwrap()
    }

    fn layout(&self) -> KeyLayout {
        KeyLayout::new(&self.spec, self.offsets.len() - 1).unwrap()
    }

    fn points_on(&self, device: &Device) -> Tensor<2> {
        Tensor::from_data(TensorData::new(self.points.as_flattened().to_vec(), [self.points.len(), 3]), device)
    }

    fn features_on(&self, device: &Device) -> Tensor<2> {
        Tensor::from_data(TensorData::new(self.features.as_flattened().to_vec(), [self.features.len(), 2]), device)
    }

    fn labels_on(&self, device: &Device) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(self.labels.clone(), [self.labels.len()]), device)
    }

    fn voxels_on(&self, device: &Device, layout: KeyLayout) -> Voxels {
        let (points, features, labels) = (self.points_on(device), self.features_on(device), self.labels_on(device));
        voxelize_with(points, Some(features), Some(labels), &self.offsets, &self.spec, layout)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    fn voxelize_on(&self, device: &Device, layout: KeyLayout) -> Columns {
        Columns::read(self.voxels_on(device, layout))
    }
}

fn assert_same<T: PartialEq + std::fmt::Debug>(found: &[T], expected: &[T], name: &str, what: &str) {
    assert_eq!(found.len(), expected.len(), "{name}: length of {what}");
    if let Some(i) = (0..found.len()).find(|i| found[*i] != expected[*i]) {
        panic!("{name}: {what}[{i}] is {:?}, expected {:?}", found[i], expected[i]);
    }
}

/// What voxelization gives, as plain columns.
#[derive(PartialEq)]
struct Columns {
    coords: Vec<i32>,
    count: Vec<i32>,
    mean: Vec<f32>,
    features: Vec<f32>,
    label: Vec<i32>,
    voxel_of_point: Vec<i32>,
}

fn ints<const D: usize>(tensor: Tensor<D, Int>) -> Vec<i32> {
    tensor.try_into_data().unwrap().try_to_vec::<i32>().unwrap()
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec::<f32>().unwrap()
}

impl Columns {
    /// Equal in everything, or a failure that names the case and the first difference.
    fn assert_equals(&self, expected: &Self, name: &str) {
        assert_same(&self.coords, &expected.coords, name, "coords");
        assert_same(&self.count, &expected.count, name, "count");
        assert_same(&self.mean, &expected.mean, name, "mean");
        assert_same(&self.features, &expected.features, name, "features");
        assert_same(&self.label, &expected.label, name, "label");
        assert_same(&self.voxel_of_point, &expected.voxel_of_point, name, "voxel of point");
    }

    /// Unit of rounding of f32.
    const U: f32 = 1.0 / (1 << 24) as f32;

    /// Equal, but for the means: those of a device are f32 sums in another order.
    ///
    /// With u = 2^-24, an f32 sum of n values below m in any order is off by at most n u (n m), the mean by n u m; the
    /// device sums n / 16 values in a thread and then those, so n / 16 + 8 stands for n. Positions are summed relative to
    /// the centre of the voxel, m = size / 2, and the centre is added: two more roundings of the result, and two of the
    /// division.
    fn assert_close(&self, expected: &Self, case: &Case) {
        let name = &case.name;
        assert_same(&self.coords, &expected.coords, name, "coords");
        assert_same(&self.count, &expected.count, name, "count");
        assert_same(&self.label, &expected.label, name, "label");
        assert_same(&self.voxel_of_point, &expected.voxel_of_point, name, "voxel of point");
        assert_eq!((self.mean.len(), self.features.len()), (expected.mean.len(), expected.features.len()), "{name}");
        for (voxel, count) in self.count.iter().enumerate() {
            let terms = (*count as f32 / 16.0 + 8.0) * Self::U;
            for axis in 0..3 {
                let (found, mean) = (self.mean[3 * voxel + axis], expected.mean[3 * voxel + axis]);
                let bound = terms * case.spec.voxel_size_m[axis] / 2.0 + 4.0 * Self::U * mean.abs().max(found.abs());
                assert!((found - mean).abs() <= bound, "{name}: mean of voxel {voxel}: {found}, expected {mean}");
            }
            for column in 0..2 {
                let (found, mean) = (self.features[2 * voxel + column], expected.features[2 * voxel + column]);
                // Features lie within 50.
                let bound = terms * 50.0;
                assert!((found - mean).abs() <= bound, "{name}: features of voxel {voxel}: {found}, expected {mean}");
            }
        }
    }

    fn read(voxels: Voxels) -> Self {
        Self {
            coords: ints(voxels.coords),
            count: ints(voxels.count),
            mean: floats(voxels.mean),
            features: floats(voxels.features.unwrap()),
            label: ints(voxels.label.unwrap()),
            voxel_of_point: ints(voxels.voxel_of_point),
        }
    }
}

/// Bits of x, y, z in turn, 31 of each: Morton order as the textbook has it.
fn morton([x, y, z]: [usize; 3]) -> u128 {
    (0..31).fold(0, |key, bit| {
        key | ((x >> bit & 1) as u128) << (3 * bit)
            | ((y >> bit & 1) as u128) << (3 * bit + 1)
            | ((z >> bit & 1) as u128) << (3 * bit + 2)
    })
}

/// The definition, one point after the other, means in f64.
fn expected(case: &Case) -> Columns {
    struct Voxel {
        coords: [i32; 4],
        sums: [f64; 5],
        members: Vec<usize>,
        votes: BTreeMap<i32, usize>,
    }
    let mut voxels: BTreeMap<(usize, u128), Voxel> = BTreeMap::new();
    for (i, point) in case.points.iter().enumerate() {
        let Some(cell) = case.spec.voxel_of(*point) else { continue };
        let batch = case.batch_of(i);
        let voxel = voxels.entry((batch, morton(cell))).or_insert_with(|| Voxel {
            coords: [batch as i32, cell[0] as i32, cell[1] as i32, cell[2] as i32],
            sums: [0.0; 5],
            members: Vec::new(),
            votes: BTreeMap::new(),
        });
        let values = point.iter().chain(&case.features[i]);
        voxel.sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value));
        voxel.members.push(i);
        if case.labels[i] != 255 {
            *voxel.votes.entry(case.labels[i]).or_default() += 1;
        }
    }
    let mut columns = Columns {
        coords: vec![],
        count: vec![],
        mean: vec![],
        features: vec![],
        label: vec![],
        voxel_of_point: vec![-1; case.points.len()],
    };
    for (row, voxel) in voxels.into_values().enumerate() {
        let means = voxel.sums.map(|sum| (sum / voxel.members.len() as f64) as f32);
        columns.coords.extend(voxel.coords);
        columns.count.push(voxel.members.len() as i32);
        columns.mean.extend(&means[..3]);
        columns.features.extend(&means[3..]);
        let mut winner = (255, 0);
        for (label, votes) in voxel.votes {
            if votes > winner.1 {
                winner = (label, votes);
            }
        }
        columns.label.push(winner.0);
        voxel.members.iter().for_each(|point| columns.voxel_of_point[*point] = row as i32);
    }
    columns
}

fn small_grid() -> GridSpec {
    GridSpec::new([-3.2, -2.0, -1.0], [0.4, 0.4, 0.5], [16, 10, 6])
}

/// Sizes and positions that break careless code.
fn cases() -> Vec<Case> {
    let spec = small_grid();
    let mut cases = Vec::new();
    // 64 and 256 are workgroup sizes.
    for count in [0, 1, 2, 63, 64, 65, 255, 256, 257, 5000] {
        cases.push(Case::scattered("scattered", spec, count, 1));
    }

    let cell = |a: usize, i: usize| spec.origin_m[a] + spec.voxel_size_m[a] * i as f32;
    let mut borders = Vec::new();
    for x in 0..=16 {
        for y in 0..=10 {
            let corner = [cell(0, x), cell(1, y), cell(2, (x + y) % 7)];
            borders.push(corner);
            borders.push(corner.map(f32::next_down));
            borders.push(corner.map(f32::next_up));
        }
    }
    let count = borders.len();
    cases.push(Case::new("on cell borders", spec, borders, vec![0, count]));

    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -0.0, 0.0, 1e30, 0.1, -1e-40];
    let mut points = Vec::new();
    for x in odd {
        for y in odd {
            for z in odd {
                points.push([x, y, z]);
            }
        }
    }
    let count = points.len();
    cases.push(Case::new("not finite or huge", spec, points, vec![0, count]));

    cases.push(Case::new("all in one voxel", spec, vec![[0.1, 0.2, 0.3]; 3000], vec![0, 3000]));
    cases.push(Case::new("none in the grid", spec, vec![[100.0, 0.0, 0.0]; 300], vec![0, 300]));

    let at_zero = GridSpec::new([0.0; 3], [1.0; 3], [4, 4, 4]);
    let tiny = [1e-40, -1e-40, 0.0, -0.0, 1.0, f32::MIN_POSITIVE, -f32::MIN_POSITIVE];
    let points: Vec<_> = tiny.into_iter().flat_map(|x| tiny.map(|y| [x, y, 0.5])).collect();
    let count = points.len();
    cases.push(Case::new("subnormal", at_zero, points, vec![0, count]));

    let far = GridSpec::new([100_000.0, -200_000.0, 5_000.0], [0.25, 0.25, 0.5], [64, 64, 8]);
    cases.push(Case::scattered("far from the origin", far, 4000, 2));

    let mut batch = Case::scattered("batch with an empty member", spec, 3001, 3);
    batch.offsets = vec![0, 1200, 1200, 3001];
    cases.push(batch);

    let wide = GridSpec::new([-2048.0, -2048.0, -50.0], [0.25, 0.25, 0.8], [16_384, 16_384, 7]);
    let mut two_words = Case::scattered("more than 2^32 keys", wide, 3000, 4);
    two_words.offsets = vec![0, 1000, 1500, 3000];
    assert_eq!(two_words.layout().words(), 2);
    cases.push(two_words);
    // 33 bits a voxel: the highest of z stands in the second word.
    let huge = GridSpec::new([-600.0; 3], [1.0; 3], [1290; 3]);
    let mut high_bits = Case::scattered("33 bits a voxel", huge, 3000, 13);
    high_bits.offsets = vec![0, 1500, 3000];
    cases.push(high_bits);
    cases
}

#[test]
fn the_cpu_gives_what_a_plain_loop_gives() {
    let device = Device::flex();
    for case in cases() {
        case.voxelize_on(&device, case.layout()).assert_equals(&expected(&case), &case.name);
    }
}

#[test]
fn a_large_cloud_takes_the_counting_path_and_gives_the_same() {
    let case = Case::scattered("large", GridSpec::new([0.0; 3], [0.2; 3], [64, 64, 16]), 200_000, 5);
    case.voxelize_on(&Device::flex(), case.layout()).assert_equals(&expected(&case), &case.name);
}

#[test]
fn two_words_give_what_one_gives_on_the_cpu() {
    let device = Device::flex();
    for case in cases() {
        let (one, two) = (case.layout(), case.layout().in_two_words());
        case.voxelize_on(&device, two).assert_equals(&case.voxelize_on(&device, one), &case.name);
    }
}

#[test]
fn the_kernels_give_what_the_cpu_gives() {
    let (vulkan, cpu) = (vulkan(), Device::flex());
    for case in cases() {
        let found = case.voxelize_on(&vulkan, case.layout());
        found.assert_close(&case.voxelize_on(&cpu, case.layout()), &case);
        assert!(case.voxelize_on(&vulkan, case.layout()) == found, "{}: two runs differ", case.name);
    }
}

/// One voxel holds 66,000 of the points.
#[test]
fn the_kernels_take_a_crowded_voxel() {
    let spec = GridSpec::new([-8.0, -8.0, -2.0], [0.25, 0.25, 0.5], [64, 64, 8]);
    let mut case = Case::scattered("crowded", spec, 70_000, 8);
    case.points[2000..68_000].iter_mut().enumerate().for_each(|(i, p)| *p = [0.001, 0.1, 1e-5 * (i % 999) as f32]);
    let expected = case.voxelize_on(&Device::flex(), case.layout());
    case.voxelize_on(&vulkan(), case.layout()).assert_close(&expected, &case);
}

#[test]
fn two_words_give_what_one_gives_on_the_gpu() {
    let device = vulkan();
    for case in cases().into_iter().filter(|case| case.layout().words() == 1 && !case.points.is_empty()) {
        let one = case.voxelize_on(&device, case.layout());
        let two = case.voxelize_on(&device, case.layout().in_two_words());
        assert!(one == two, "{}", case.name);
    }
}

fn the_table_agrees(device: &Device) {
    for case in cases() {
        let members = case.offsets.len() - 1;
        let voxels = case.voxels_on(device, case.layout());
        let table = VoxelTable::new(&voxels, members, &case.spec).unwrap();
        let rows = ints(table.rows(case.points_on(device), &case.offsets).unwrap());
        assert_same(&rows, &ints(voxels.voxel_of_point.clone()), &case.name, "rows");

        let sorted = VoxelTable::with_slots(&voxels, case.layout().in_two_words(), &case.spec, 2).unwrap();
        let rows = ints(sorted.rows(case.points_on(device), &case.offsets).unwrap());
        assert_same(&rows, &ints(voxels.voxel_of_point), &case.name, "rows by search");
    }
}

#[test]
fn the_table_agrees_with_voxel_of_point_on_the_cpu() {
    the_table_agrees(&Device::flex());
}

#[test]
fn the_table_agrees_with_voxel_of_point_on_the_gpu() {
    the_table_agrees(&vulkan());
}

/// A table of a few voxels is asked for points all over the grid.
fn other_points_are_found_or_missed(device: &Device) {
    let known = Case::scattered("known", small_grid(), 300, 9);
    let asked = Case::scattered("asked", small_grid(), 2000, 10);
    let columns = known.voxelize_on(device, known.layout());
    let row_of: BTreeMap<_, _> = columns.coords.chunks(4).enumerate().map(|(row, c)| (c[1..].to_vec(), row)).collect();
    let expected: Vec<i32> = asked
        .points
        .iter()
        .map(|point| {
            let voxel = asked.spec.voxel_of(*point).map(|voxel| voxel.map(|i| i as i32).to_vec());
            voxel.and_then(|voxel| row_of.get(&voxel)).map_or(-1, |row| *row as i32)
        })
        .collect();
    assert!(expected.iter().filter(|row| **row >= 0).count() > 100);
    let voxels = known.voxels_on(device, known.layout());
    for layout in [known.layout(), known.layout().in_two_words()] {
        // Full to the last slot but few: probing runs far.
        let slots = voxels.len().next_power_of_two();
        let table = VoxelTable::with_slots(&voxels, layout, &known.spec, slots).unwrap();
        let rows = ints(table.rows(asked.points_on(device), &asked.offsets).unwrap());
        assert_same(&rows, &expected, "asked", "rows");
    }
}

#[test]
fn other_points_are_found_or_missed_on_both_devices() {
    other_points_are_found_or_missed(&Device::flex());
    other_points_are_found_or_missed(&vulkan());
}

#[test]
fn a_table_that_overflows_is_an_error() {
    for device in [Device::flex(), vulkan()] {
        let case = Case::scattered("overflow", small_grid(), 500, 11);
        let voxels = case.voxels_on(&device, case.layout());
        let count = voxels.len();
        let error = VoxelTable::with_slots(&voxels, case.layout(), &case.spec, 128).unwrap_err();
        let lost = format!("overflowed: {} of {count} voxels", count - 128);
        assert!(matches!(&error, Error::Failed(text) if text.contains(&lost)), "{error}");
        let error = VoxelTable::with_slots(&voxels, case.layout(), &case.spec, 100).unwrap_err();
        assert!(matches!(error, Error::Usage(_)), "{error}");
    }
}

#[test]
fn a_grid_beyond_the_device_is_too_large() {
    let device = vulkan();
    let spec = GridSpec::new([0.0; 3], [0.1; 3], [2048, 2048, 64]);
    let points = Tensor::zeros([1, 3], &device);
    let error = occupancy(points, &[0, 1], &spec).unwrap_err();
    let text = "the dense grid 1x64x2048x2048 in f32: 1.00 GiB (1073741824 bytes)";
    assert!(matches!(&error, Error::TooLarge(found) if found.contains(text)), "{error}");

    // 128 MiB hold 11,184,810 points.
    let error = occupancy(Tensor::zeros([12_000_000, 3], &device), &[0, 12_000_000], &small_grid()).unwrap_err();
    let text = "12000000 points in f32: 137.33 MiB (144000000 bytes)";
    assert!(matches!(&error, Error::TooLarge(found) if found.contains(text)), "{error}");
}

/// The definition of dense occupancy, `[B, Z, X, Y]`.
fn expected_occupancy(case: &Case) -> Vec<f32> {
    let [nx, ny, nz] = case.spec.counts;
    let mut volumes = vec![0.0; (case.offsets.len() - 1) * nx * ny * nz];
    for (i, point) in case.points.iter().enumerate() {
        if let Some([x, y, z]) = case.spec.voxel_of(*point) {
            volumes[((case.batch_of(i) * nz + z) * nx + x) * ny + y] = 1.0;
        }
    }
    volumes
}

fn occupancy_is_as_expected(device: &Device) {
    for case in cases().into_iter().filter(|case| case.spec.len() < 1 << 20) {
        let volumes = occupancy(case.points_on(device), &case.offsets, &case.spec).unwrap();
        let [nx, ny, nz] = case.spec.counts;
        assert_eq!(volumes.dims(), [case.offsets.len() - 1, nz, nx, ny]);
        assert_same(&floats(volumes), &expected_occupancy(&case), &case.name, "occupancy");
    }
}

#[test]
fn occupancy_on_the_cpu() {
    occupancy_is_as_expected(&Device::flex());
}

#[test]
fn occupancy_on_the_gpu() {
    occupancy_is_as_expected(&vulkan());
}

/// More workgroups than one dispatch takes: what only the last points set must be there.
#[test]
fn a_long_cloud_is_split_into_dispatches() {
    const COUNT: usize = 16_384 * 256 + 3 * 256 + 17;
    let mut case = Case::new("long", small_grid(), vec![[-3.1, -1.9, -0.9]; 1], vec![0, COUNT]);
    case.points = vec![case.points[0]; COUNT];
    let last = Case::scattered("last", small_grid(), 1000, 12).points;
    case.points[COUNT - 1000..].copy_from_slice(&last);
    let volumes = occupancy(case.points_on(&vulkan()), &case.offsets, &case.spec).unwrap();
    assert_same(&floats(volumes), &expected_occupancy(&case), &case.name, "occupancy");
}

#[test]
fn an_autodiff_device_gives_the_same_values() {
    let case = Case::scattered("autodiff", small_grid(), 500, 6);
    let device = Device::flex().autodiff();
    case.voxelize_on(&device, case.layout()).assert_equals(&expected(&case), &case.name);
    occupancy_is_as_expected(&device);
}

#[test]
fn what_does_not_fit_together_is_a_usage_error() {
    let device = Device::flex();
    let case = Case::scattered("usage", small_grid(), 10, 7);
    let voxels = |features, labels, offsets: &[usize]| {
        voxelize(case.points_on(&device), features, labels, offsets, &case.spec).map(|v| v.len())
    };
    assert!(voxels(None, None, &[0, 10]).is_ok());
    for offsets in [&[][..], &[0], &[0, 9], &[1, 10], &[0, 7, 3, 10]] {
        let error = voxels(None, None, offsets).unwrap_err();
        assert!(matches!(&error, Error::Usage(text) if text.contains("10 points")), "{offsets:?}: {error}");
    }
    let short = Some(Tensor::zeros([9, 2], &device));
    assert!(
        matches!(voxels(short, None, &[0, 10]), Err(Error::Usage(text)) if text == "9 rows of features for 10 points")
    );
    let short = Some(Tensor::zeros([9], &device));
    assert!(matches!(voxels(None, short, &[0, 10]), Err(Error::Usage(text)) if text == "9 labels for 10 points"));
    let senseless = GridSpec::new([0.0; 3], [0.0; 3], [1, 1, 1]);
    assert!(matches!(occupancy(case.points_on(&device), &[0, 10], &senseless), Err(Error::Usage(_))));
}
