//! The voxel feature encoder.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use occam_engine::ops::voxelize::voxelize;
use occam_engine::scene::GridSpec;
use occam_engine::{Error, ops};

use crate::common::{Sums, Values, assert_within, cpu, read, settle, tensor, vulkan};
use crate::golden;

#[derive(Debug, Clone)]
struct Case {
    points: usize,
    width: usize,
    channels: usize,
    dtype: DType,
    kind: Values,
    features: Vec<f64>,
    weight: Vec<f64>,
    bias: Vec<f64>,
    upstream: Vec<f64>,
    order: Vec<u32>,
    starts: Vec<u32>,
}

struct Outcome {
    y: Vec<f64>,
    by_features: Vec<f64>,
    by_weight: Vec<f64>,
    by_bias: Vec<f64>,
}

impl Case {
    /// Voxels of so many points, which are dealt out back to front; every seventh point is in none.
    fn new(counts: &[u32], width: usize, channels: usize, dtype: DType, kind: Values) -> Self {
        let mut starts = vec![0];
        for count in counts {
            starts.push(starts[starts.len() - 1] + count);
        }
        let named = starts[counts.len()] as usize;
        let points = named + named / 6 + 1;
        let order: Vec<u32> = (0..points as u32).rev().filter(|point| point % 7 != 3).take(named).collect();
        assert_eq!(order.len(), named);
        let seed = (width * 37 + channels) as u32;
        Self {
            points,
            width,
            channels,
            dtype,
            kind,
            features: kind.take(dtype, points * width, seed),
            weight: kind.take(DType::F32, channels * width, seed + 1),
            bias: kind.take(DType::F32, channels, seed + 2),
            upstream: kind.take(dtype, counts.len() * channels, seed + 3),
            order,
            starts,
        }
    }

    fn voxels(&self) -> usize {
        self.starts.len() - 1
    }

    /// By the definition, in f64: values, and for each the margin between the largest and the next point's value, with the sums
    /// of gradients.
    fn expected(&self) -> (Sums, [Sums; 3]) {
        let Self { width, channels, .. } = *self;
        let mut y = Sums::zeros(self.voxels() * channels);
        let mut gradients = [self.features.len(), self.weight.len(), channels].map(Sums::zeros);
        for voxel in 0..self.voxels() {
            let points = &self.order[self.starts[voxel] as usize..self.starts[voxel + 1] as usize];
            for channel in 0..channels {
                let mut best = (0.0, 0.0, None);
                for point in points.iter().map(|point| *point as usize) {
                    let (mut sum, mut magnitude) = (self.bias[channel], self.bias[channel].abs());
                    for f in 0..width {
                        let term = self.weight[channel * width + f] * self.features[point * width + f];
                        sum += term;
                        magnitude += term.abs();
                    }
                    if sum > best.0 {
                        best = (sum, magnitude, Some(point));
                    }
                }
                let place = voxel * channels + channel;
                (y.value[place], y.magnitude[place]) = (best.0, best.1);
                let Some(point) = best.2 else { continue };
                let gradient = self.upstream[place];
                gradients[2].add(channel, gradient);
                for f in 0..width {
                    gradients[0].add(point * width + f, gradient * self.weight[channel * width + f]);
                    gradients[1].add(channel * width + f, gradient * self.features[point * width + f]);
                }
            }
        }
        (y, gradients)
    }

    fn outcome(&self, device: &Device) -> Outcome {
        let Self { points, width, channels, dtype, .. } = *self;
        let leaf = device.clone().autodiff();
        let features = tensor(&self.features, [points, width], dtype, &leaf).require_grad();
        let weight = tensor(&self.weight, [channels, width], DType::F32, &leaf).require_grad();
        let bias = tensor(&self.bias, [channels], DType::F32, &leaf).require_grad();
        let upstream = tensor(&self.upstream, [self.voxels(), channels], dtype, &leaf);
        let [order, starts] = [&self.order, &self.starts].map(|values| ints(values, device));
        let y = ops::voxel_encoder(features.clone(), order, starts, weight.clone(), bias.clone()).unwrap();
        assert_eq!(y.dtype(), dtype);
        let mut gradients = (y.clone() * upstream).sum().backward();
        Outcome {
            y: read(y),
            by_features: read(features.grad_remove(&mut gradients).unwrap()),
            by_weight: read(weight.grad_remove(&mut gradients).unwrap()),
            by_bias: read(bias.grad_remove(&mut gradients).unwrap()),
        }
    }

    fn check(&self, device: &Device) {
        let (y, [by_features, by_weight, by_bias]) = self.expected();
        let found = self.outcome(device);
        let Self { points, width, channels, dtype, kind, .. } = self;
        let what = format!("{points}x{width} to {}x{channels} {dtype:?} {kind:?} on {device:?}", self.voxels());
        for (name, found, expected, dtype, terms) in [
            ("y", &found.y, &y, *dtype, *width),
            ("by features", &found.by_features, &by_features, *dtype, *channels),
            ("by weight", &found.by_weight, &by_weight, DType::F32, self.voxels()),
            ("by bias", &found.by_bias, &by_bias, DType::F32, self.voxels()),
        ] {
            let tolerance = |place: usize| {
                let of_sum = kind.error(DType::F32, terms) * expected.magnitude[place];
                of_sum + kind.rounding(dtype, expected.value[place], of_sum)
            };
            assert_within(found, &expected.value, tolerance, &format!("{what}: {name}"));
        }
    }
}

fn ints(values: &[u32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, DType::U32))
}

/// Points of voxels: none, one, around the four that a thread takes at once and the block of the CPU, many voxels.
fn counts(voxels: usize) -> Vec<u32> {
    let some = [0, 1, 3, 4, 5, 0, 2, 127, 1, 128, 129, 0, 300, 1, 0];
    some.into_iter().chain((0..voxels as u32).map(|i| i * 7919 % 5)).collect()
}

/// Widths and channels around one, four, and a workgroup. Whole numbers are full of equal maxima and exact.
fn check_sizes(device: &Device) {
    for (width, channels, voxels) in [(1, 1, 0), (3, 8, 40), (4, 32, 3), (9, 33, 200), (10, 64, 70), (5, 257, 1)] {
        for dtype in [DType::F32, DType::F16] {
            for kind in [Values::Integers, Values::Reals] {
                Case::new(&counts(voxels), width, channels, dtype, kind).check(device);
            }
        }
    }
    settle(device);
}

#[test]
fn the_encoder_equals_its_definition() {
    check_sizes(&cpu());
    // Several tasks.
    Case::new(&counts(9000), 4, 5, DType::F32, Values::Integers).check(&cpu());
}

#[test]
fn the_encoder_on_vulkan_equals_its_definition() {
    check_sizes(&vulkan());
}

#[test]
fn the_encoder_equals_pytorch() {
    for device in [cpu(), vulkan()] {
        let of = |tensor: &str| golden(&format!("encoder.{tensor}")).1;
        let (shape, features) = golden("encoder.features");
        let whole = |tensor: &str| of(tensor).iter().map(|value| *value as u32).collect();
        let case = Case {
            points: shape[0],
            width: shape[1],
            channels: of("bias").len(),
            dtype: DType::F32,
            kind: Values::Reals,
            features,
            weight: of("weight"),
            bias: of("bias"),
            upstream: of("gradient"),
            order: whole("order"),
            starts: whole("starts"),
        };
        let found = case.outcome(&device);
        for (tensor, found) in [
            ("y", found.y),
            ("by_features", found.by_features),
            ("by_weight", found.by_weight),
            ("by_bias", found.by_bias),
        ] {
            let expected = of(tensor);
            let largest = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            assert_within(&found, &expected, |_| 1e-6 * largest, &format!("encoder.{tensor} on {device:?}"));
        }
        settle(&device);
    }
}

/// Of equal values the first in order has the gradient, and nobody where ReLU gives 0.
#[test]
fn the_first_of_equal_points_learns() {
    for device in [cpu(), vulkan()] {
        let mut case = Case::new(&[3, 2], 1, 2, DType::F32, Values::Integers);
        (case.points, case.order, case.starts) = (5, vec![4, 2, 0, 1, 3], vec![0, 3, 5]);
        case.features = vec![2.0, -1.0, 2.0, 0.0, 1.0];
        (case.weight, case.bias, case.upstream) = (vec![1.0, -1.0], vec![0.0, 1.0], vec![10.0, 20.0, 30.0, 40.0]);
        let found = case.outcome(&device);
        // Voxel 0 holds 1, 2, 2: channel 0 has 2 by point 2, channel 1 has -1, -2 and 0 at most, which ReLU stops. Voxel 1
        // holds -1 and 0: channel 0 has nothing above 0, channel 1 has 2 by point 1.
        assert_eq!(found.y, [2.0, 0.0, 0.0, 2.0]);
        assert_eq!(found.by_features, [0.0, -40.0, 10.0, 0.0, 0.0]);
        assert_eq!((found.by_weight, found.by_bias), (vec![20.0, -40.0], vec![10.0, 40.0]));
        settle(&device);
    }
}

#[test]
fn no_point_and_no_voxel_give_nothing() {
    for device in [cpu(), vulkan()] {
        for (voxels, dtype) in [(3, DType::F32), (0, DType::F16)] {
            let found = Case::new(&vec![0; voxels], 4, 5, dtype, Values::Reals).outcome(&device);
            assert_eq!((found.y, found.by_features), (vec![0.0; voxels * 5], vec![0.0; 4]));
            assert_eq!((found.by_weight, found.by_bias), (vec![0.0; 20], vec![0.0; 5]));
        }
        settle(&device);
    }
}

/// An overflow is not hidden.
#[test]
fn not_a_number_is_larger_than_everything() {
    for device in [cpu(), vulkan()] {
        let mut case = Case::new(&[5, 2], 1, 1, DType::F32, Values::Integers);
        case.weight[0] = 1.0;
        case.features.fill(1.0);
        case.features[case.order[3] as usize] = f64::NAN;
        let found = case.outcome(&device).y;
        assert!(found[0].is_nan() && !found[1].is_nan(), "{found:?} on {device:?}");
        settle(&device);
    }
}

/// One voxel with more values than a thread of a GPU takes in one dispatch.
#[test]
fn a_voxel_of_many_points_is_split() {
    let mut case = Case::new(&[2, 4200, 1], 500, 2, DType::F32, Values::Integers);
    case.check(&vulkan());
    // The largest of all points last, where the third dispatch finds it.
    let last = case.order[4201] as usize;
    case.weight.fill(1.0);
    case.features[last * 500..][..500].fill(4.0);
    case.check(&vulkan());
}

#[test]
fn neither_runs_nor_threads_change_a_bit() {
    let case = Case::new(&counts(20_000), 9, 32, DType::F32, Values::Reals);
    let all = |found: Outcome| [found.y, found.by_features, found.by_weight, found.by_bias];
    let expected = all(case.outcome(&cpu()));
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| all(case.outcome(&cpu()))) == expected, "{threads} threads");
    }
    let case = Case::new(&counts(300), 9, 32, DType::F32, Values::Reals);
    let device = vulkan();
    assert!(all(case.outcome(&device)) == all(case.outcome(&device)), "two runs on a GPU");
}

/// What `voxelize` gives goes in: each voxel gets the largest height of its points, and points outside count for nothing.
#[test]
fn voxels_of_a_cloud_are_encoded() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [4, 4, 1]);
    let points = [[0.5, 0.5, 0.25], [2.5, 1.5, 0.5], [9.0, 0.5, 0.75], [0.25, 0.75, 0.875], [2.5, 1.5, 0.125]];
    let data = TensorData::new(points.as_flattened().to_vec(), [5, 3]);
    for device in [cpu(), vulkan()] {
        let points = Tensor::<2>::from_data(data.clone(), &device);
        let voxels = voxelize(points.clone(), None, None, &[0, 5], &spec).unwrap();
        let (weight, bias) = (Tensor::from_floats([[0.0, 0.0, 2.0]], &device), Tensor::from_floats([0.5], &device));
        let y = ops::voxel_encoder(points, voxels.order, voxels.starts, weight, bias).unwrap();
        assert_eq!(read(y), [2.25, 1.5]);
        settle(&device);
    }
}

#[test]
fn what_does_not_fit_together_is_told() {
    let device = cpu();
    let refusal = |weight: [usize; 2], bias: usize, order: usize, starts: usize, dtype: DType| {
        let features = Tensor::<2>::zeros([6, 4], (&device, dtype));
        let (weight, bias) = (Tensor::zeros(weight, &device), Tensor::zeros([bias], &device));
        let [order, starts] = [order, starts].map(|n| ints(&vec![0; n], &device));
        match ops::voxel_encoder(features, order, starts, weight, bias) {
            Err(Error::Usage(text)) => text,
            other => panic!("{:?}", other.map(|y| y.dims())),
        }
    };
    for (text, part) in [
        (refusal([3, 5], 3, 6, 2, DType::F32), "found weights 3x5 (channels, features)"),
        (refusal([0, 4], 0, 6, 2, DType::F32), "found weights 0x4"),
        (refusal([3, 4], 2, 6, 2, DType::F32), "found 2 biases, expected one for each of 3 channels"),
        (refusal([3, 4], 3, 7, 2, DType::F32), "found 7 points in order"),
        (refusal([3, 4], 3, 6, 0, DType::F32), "0 starts"),
        (refusal([3, 4], 3, 6, 2, DType::F64), "F64"),
    ] {
        assert!(text.contains(part) && text.contains("the voxel encoder of features 6x4"), "{text}");
    }
}
