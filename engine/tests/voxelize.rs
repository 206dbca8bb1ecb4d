//! Voxelization against a plain loop over a `BTreeMap`, on every device.

use std::collections::BTreeMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::ops::voxelize::{KeyLayout, Voxels, occupancy, voxelize, voxelize_with};
use occam_scene::GridSpec;

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

    fn voxelize_on(&self, device: &Device, layout: KeyLayout) -> Columns {
        let (points, features, labels) = (self.points_on(device), self.features_on(device), self.labels_on(device));
        let voxels = voxelize_with(points, Some(features), Some(labels), &self.offsets, &self.spec, layout);
        Columns::read(voxels.unwrap_or_else(|e| panic!("{}: {e}", self.name)))
    }
}

fn assert_same<T: PartialEq + std::fmt::Debug>(found: &[T], expected: &[T], name: &str, what: &str) {
    assert_eq!(found.len(), expected.len(), "{name}: length of {what}");
    if let Some(i) = (0..found.len()).find(|i| found[*i] != expected[*i]) {
        panic!("{name}: {what}[{i}] is {:?}, expected {:?}", found[i], expected[i]);
    }
}

/// What voxelization gives, as plain columns.
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

    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -0.0, 0.0, 1e30, 0.1];
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
fn an_autodiff_device_gives_constants() {
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
