//! Networks and losses against PyTorch (golden files of tests/generators/lmscnet.py and loss.py) and against formulas.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::Error;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::losses::{Targets, class_weights, cross_entropy};
use occam_engine::models::Network;
use occam_engine::scene::downscale_target;

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn golden(name: &str) -> BTreeMap<String, TensorData> {
    tensors(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name))
}

fn tensors(path: &Path) -> BTreeMap<String, TensorData> {
    let mut store = SafetensorsStore::from_file(path);
    let all = store.get_all_tensors().unwrap();
    all.iter().map(|(name, tensor)| (name.clone(), bridge::to_data(tensor).unwrap())).collect()
}

fn floats(data: &TensorData) -> Vec<f32> {
    data.try_to_vec::<f32>().unwrap()
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    floats(&tensor.try_into_data().unwrap())
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0f32, |most, v| most.max(v.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * scale, "{what}[{i}]: {found}, PyTorch {expected}");
    }
}

// ---------------------------------------------------------------------------------------------- LMSCNet

const COUNTS: [usize; 3] = [16, 24, 8];
const CLASSES: usize = 5;

/// The numbers of the paper's networks: 256 x 256 x 32 voxels, 20 classes.
#[test]
fn parameter_counts_are_those_of_the_paper() {
    for (name, expected) in [("lmscnet-ss", 348_044), ("lmscnet", 393_128)] {
        let network = Network::new(name, [256, 256, 32], 1, 20, 0, &cpu()).unwrap();
        // Running mean and variance are no parameters: 2 x 8 in each of a head's six batch normalizations.
        let statistics = 6 * 2 * 8 * network.scales().len();
        assert_eq!(network.num_params() - statistics, expected, "{name}");
    }
}

#[test]
fn logits_have_the_shapes_of_the_scales() {
    let device = cpu();
    let network = Network::new("lmscnet", [24, 16, 8], 1, 3, 0, &device).unwrap();
    let shapes: Vec<[usize; 5]> =
        network.forward(Tensor::zeros([2, 1, 8, 24, 16], &device)).unwrap().iter().map(Tensor::dims).collect();
    assert_eq!(shapes, [[2, 3, 8, 24, 16], [2, 3, 4, 12, 8], [2, 3, 2, 6, 4], [2, 3, 1, 3, 2]]);
    assert_eq!(network.scales(), [1, 2, 4, 8]);
}

#[test]
fn a_network_that_cannot_be_is_refused_with_what_to_do() {
    let refuse = |name: &str, counts, classes| match Network::new(name, counts, 1, classes, 0, &cpu()) {
        Err(Error::Usage(message)) => message,
        other => panic!("{:?}", other.map(|_| ())),
    };
    let message = refuse("lmscnet", [64, 60, 16], 12);
    assert!(message.contains("60 voxels along y") && message.contains("take 56 or 64"), "{message}");
    let message = refuse("lmscnet", [64, 64, 5], 12);
    assert!(message.contains("5 voxels along z") && message.contains("take 8"), "{message}");
    assert!(refuse("lmscnet", [8, 8, 8], 1).contains("at least 2"));
    assert!(refuse("lmsc-net-ss", [8, 8, 8], 2).contains("did you mean \"lmscnet-ss\"?"));
}

#[test]
fn a_seed_decides_the_weights_on_every_device() {
    let weights = |seed, device: &Device| {
        let network = Network::new("lmscnet-ss", [8, 8, 8], 1, 2, seed, device).unwrap();
        let mut all = Collect::default();
        network.visit(&mut all);
        all.parameters
    };
    let on_cpu = weights(1, &cpu());
    assert!(on_cpu == weights(1, &vulkan()));
    assert!(on_cpu != weights(2, &cpu()));
    // He et al.: uniform within sqrt(6 / fan in), so the mean square is 2 / fan in.
    let weight = &on_cpu["encoder_block4.1.weight"];
    let mean_square = weight.iter().map(|w| w * w).sum::<f32>() / weight.len() as f32;
    assert!((mean_square * (20.0 * 9.0) / 2.0 - 1.0).abs() < 0.1, "{mean_square}");
    assert!(on_cpu["encoder_block4.1.bias"].iter().all(|&bias| bias == 0.0));
}

/// Values of every float parameter by path.
#[derive(Default)]
struct Collect {
    path: Vec<String>,
    parameters: BTreeMap<String, Vec<f32>>,
    gradients: Option<GradientsParams>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        let value = match &self.gradients {
            Some(gradients) => gradients.get::<D>(parameter.id),
            None => Some(parameter.val()),
        };
        if let Some(value) = value {
            let path = self
                .path
                .iter()
                .filter(|name| !["LmscNet", "SscNet"].contains(&name.as_str()))
                .cloned()
                .collect::<Vec<_>>()
                .join(".");
            self.parameters.insert(path, values(value));
        }
    }
}

/// The network with the weights the generator computes: value `i` of the tensor at place `k` in the order of names is
/// a multiple of `sin(0.7 i + k)`. They come in through a file under the names of the authors' code.
fn formula_network(name: &str, counts: [usize; 3], classes: usize, device: &Device) -> Network {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut network = Network::new(name, counts, 1, classes, 3, device).unwrap();
    network.save_weights(&path).unwrap();
    let filled: Vec<(String, Vec<usize>, Vec<f32>)> = tensors(&path)
        .into_iter()
        .enumerate()
        .map(|(place, (name, data))| {
            let shape = data.shape().to_vec();
            let wave = (0..data.num_elements()).map(|i| (0.7 * i as f64 + place as f64).sin());
            let near_one = name.ends_with("running_var") || (name.contains(".bn") && name.ends_with("weight"));
            let fan_in = if shape.len() > 1 { shape[1..].iter().product::<usize>() } else { 25 };
            let scale = (2.0f64 / fan_in as f64).sqrt();
            let values = wave.map(|v| if near_one { 1.0 + 0.5 * v } else { v * scale } as f32).collect();
            (name, shape, values)
        })
        .collect();
    write_safetensors(&path, &filled);
    network.load_weights(&path).unwrap();
    network
}

/// The format's definition: length of the header (u64), header (JSON), values.
fn write_safetensors(path: &Path, tensors: &[(String, Vec<usize>, Vec<f32>)]) {
    let mut header = serde_json::Map::new();
    let mut body = Vec::new();
    for (name, shape, values) in tensors {
        let begin = body.len();
        body.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        header.insert(
            name.clone(),
            serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, body.len()] }),
        );
    }
    let header = serde_json::to_vec(&header).unwrap();
    let bytes = [(header.len() as u64).to_le_bytes().as_slice(), &header, &body].concat();
    std::fs::write(path, bytes).unwrap();
}

fn formula_occupancy([x, y, z]: [usize; 3], device: &Device) -> Tensor<5> {
    let voxels: Vec<f32> = (0..x * y * z).map(|i| if (1.3 * i as f64).sin() > 0.6 { 1.0 } else { 0.0 }).collect();
    Tensor::from_data(TensorData::new(voxels, [1, 1, z, x, y]), device)
}

#[test]
fn inference_equals_pytorch() {
    for (name, file) in [("lmscnet-ss", "lmscnet-ss.safetensors"), ("lmscnet", "lmscnet-ms.safetensors")] {
        let golden = golden(file);
        let network = formula_network(name, COUNTS, CLASSES, &cpu());
        for (scale, logits) in network.scales().iter().zip(network.forward(formula_occupancy(COUNTS, &cpu())).unwrap())
        {
            let expected = &golden[&format!("eval.logits.{scale}")];
            assert_eq!(logits.dims().as_slice(), expected.shape().as_slice());
            assert_close(&values(logits), &floats(expected), 1e-5, &format!("{name} 1:{scale}"));
        }
    }
}

#[test]
fn inference_on_vulkan_equals_pytorch() {
    let device = vulkan();
    let network = formula_network("lmscnet-ss", COUNTS, CLASSES, &device);
    let logits = network.forward(formula_occupancy(COUNTS, &device)).unwrap().remove(0);
    let expected = &golden("lmscnet-ss.safetensors")["eval.logits.1"];
    assert_close(&values(logits), &floats(expected), 1e-5, "logits");
}

/// Logits with the batch's own statistics, gradients of layers all over the network, running statistics afterwards.
#[test]
fn training_equals_pytorch() {
    for (name, file) in [("lmscnet-ss", "lmscnet-ss.safetensors"), ("lmscnet", "lmscnet-ms.safetensors")] {
        let golden = golden(file);
        let device = cpu().autodiff();
        let network = formula_network(name, COUNTS, CLASSES, &device);
        let logits = network.forward(formula_occupancy(COUNTS, &device)).unwrap();
        if let Some(expected) = golden.get("train.logits.1") {
            assert_close(&values(logits[0].clone()), &floats(expected), 1e-5, name);
        }
        let loss = logits.into_iter().map(|level| level.powi_scalar(2).mean()).reduce(|a, b| a + b).unwrap();
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        let mut by_path = Collect { gradients: Some(gradients), ..Collect::default() };
        network.visit(&mut by_path);
        let ours = [
            ("Encoder_block1.0.bias", "encoder_block1.0.bias"),
            ("deconv1_2.weight", "deconv1_2.weight"),
            ("deconv_1_8__1_1.bias", "deconv_1_8_to_1_1.bias"),
            ("seg_head_1_1.conv1.2.weight", "seg_head_1_1.conv1.2.weight"),
            ("seg_head_1_1.bn1.2.weight", "seg_head_1_1.bn1.2.gamma"),
            ("seg_head_1_1.conv_classes.bias", "seg_head_1_1.conv_classes.bias"),
        ];
        for (theirs, ours) in ours {
            assert_close(
                &by_path.parameters[ours],
                &floats(&golden[&format!("gradient.{theirs}")]),
                1e-5,
                &format!("{name} {theirs}"),
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("after.safetensors");
        network.valid().save_weights(&path).unwrap();
        let after = tensors(&path);
        for buffer in ["running_mean", "running_var"] {
            let name = format!("seg_head_1_1.bn2.1.{buffer}");
            // PyTorch's running variance is unbiased, Burn's is not: they differ by a tenth of 1/3072.
            assert_close(&floats(&after[&name]), &floats(&golden[&format!("after.{name}")]), 1e-4, &name);
        }
    }
}

// ---------------------------------------------------------------------------------------------- SSCNet

const SSCNET_COUNTS: [usize; 3] = [16, 8, 8];

/// Logits, and gradients of every kind of layer, against tests/generators/sscnet.py.
#[test]
fn sscnet_equals_pytorch() {
    let golden = golden("sscnet.safetensors");
    for device in [cpu(), vulkan()] {
        let device = device.autodiff();
        let network = formula_network("sscnet", SSCNET_COUNTS, 3, &device);
        let logits = network.forward(formula_occupancy(SSCNET_COUNTS, &device)).unwrap().remove(0);
        assert_eq!(logits.dims(), [1, 3, 8, 16, 8]);
        assert_close(&values(logits.clone()), &floats(&golden["logits"]), 1e-5, "logits");
        let gradients = GradientsParams::from_grads(logits.powi_scalar(2).sum().backward(), &network);
        let mut by_path = Collect { gradients: Some(gradients), ..Collect::default() };
        network.visit(&mut by_path);
        let mut compared = 0;
        for (key, expected) in golden.iter().filter_map(|(key, data)| Some((key.strip_prefix("gradient.")?, data))) {
            // Of large gradients the file holds some channels: the first, or those from a number on.
            let (name, first) = key.split_once(".from.").unwrap_or((key, "0"));
            let expected_values = floats(expected);
            let channel = expected.shape().to_vec()[1..].iter().product::<usize>();
            let start = first.parse::<usize>().unwrap() * channel;
            let found = &by_path.parameters[name][start..start + expected_values.len()];
            let largest = expected_values.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            let scaled = |values: &[f32]| values.iter().map(|v| v / largest).collect::<Vec<_>>();
            assert_close(&scaled(found), &scaled(&expected_values), 1e-5, key);
            compared += 1;
        }
        assert_eq!(compared, 10);
    }
}

#[test]
fn sscnet_takes_sides_that_divide_by_4_and_any_channels() {
    let refused = Network::new("sscnet", [64, 62, 8], 1, 3, 0, &cpu()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("62 voxels along y") && refused.contains("take 60 or 64"), "{refused}");
    let network = Network::new("sscnet", [8, 4, 12], 3, 5, 0, &cpu()).unwrap();
    let logits = network.forward(Tensor::zeros([2, 3, 12, 8, 4], &cpu())).unwrap();
    assert_eq!(logits.iter().map(Tensor::dims).collect::<Vec<_>>(), [[2, 5, 12, 8, 4]]);
    assert_eq!(network.scales(), [1]);
    // 20 classes, as PyTorch counts the network of tests/generators/sscnet_torch.py.
    let full = Network::new("sscnet", [256, 256, 32], 1, 20, 0, &cpu()).unwrap();
    assert_eq!(full.num_params(), 1_086_772);
}

#[test]
fn the_loss_of_a_step_falls_below_that_of_chance() {
    use burn::optim::AdamWConfig;
    let device = cpu().autodiff();
    let mut network = Network::new("lmscnet-ss", [8, 16, 8], 1, 3, 5, &device).unwrap();
    let mut optimizer = AdamWConfig::new().init();
    let weights = Tensor::ones([3], &cpu());
    let voxels = 8 * 16 * 8;
    let occupancy: Vec<f32> = (0..voxels).map(|i| ((i / 3) % 2) as f32).collect();
    let targets: Vec<u8> = occupancy.iter().map(|&o| 2 * o as u8).collect();
    let occupancy = Tensor::<5>::from_data(TensorData::new(occupancy, [1, 1, 8, 8, 16]), &device);
    let targets = Targets::new(&targets, [1, 8, 8, 16], 3, 255, &cpu());
    let mut losses = Vec::new();
    for _ in 0..30 {
        let logits = network.forward(occupancy.clone()).unwrap().remove(0);
        let loss = cross_entropy(logits, &targets, &weights, 255).unwrap();
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(1e-2, network, gradients);
    }
    assert!(losses[29] < 0.3 * losses[0], "{losses:?}");
}

#[test]
fn class_shares_move_every_logit_by_their_logarithm() {
    for name in Network::NAMES {
        let mut network = Network::new(name, [8, 8, 8], 1, 3, 1, &cpu()).unwrap();
        let input = Tensor::<5>::ones([1, 1, 8, 8, 8], &cpu());
        network.set_class_shares(&[1.0, 1.0, 1.0]);
        let even = network.forward(input.clone()).unwrap();
        // 6 : 2 : 0 is 3/4, 1/4 and one in a million, against a third each.
        network.set_class_shares(&[6.0, 2.0, 0.0]);
        for (before, after) in even.into_iter().zip(network.forward(input).unwrap()) {
            let voxels = before.dims()[2..].iter().product::<usize>();
            let moved = values(after - before);
            let expected: Vec<f32> = [0.75f32, 0.25, 1e-6].map(|share| (share * 3.0).ln()).to_vec();
            for (class, expected) in expected.into_iter().enumerate() {
                assert_close(&moved[class * voxels..][..voxels], &vec![expected; voxels], 1e-4, name);
            }
        }
    }
}

#[test]
fn a_grid_too_high_for_the_weights_is_refused_before_they_are_made() {
    let Err(error) = Network::new("lmscnet-ss", [8, 8, 1032], 1, 4, 1, &cpu()) else {
        panic!("1032 voxels are too high")
    };
    assert!(error.exit_code() == 3 && error.to_string().contains("1032 voxels along z"), "{error}");
}

// ---------------------------------------------------------------------------------------------- losses

fn loss_and_gradient(case: &str, device: &Device) -> (f32, Vec<f32>, f32, Vec<f32>) {
    let golden = golden("loss.safetensors");
    let get = |name: &str| golden[&format!("{case}.{name}")].clone();
    let logits = Tensor::<5>::from_data(get("logits"), &device.clone().autodiff()).require_grad();
    let labels: Vec<u8> = get("targets").iter::<u8>().collect();
    let [batch, classes, z, x, y] = logits.dims();
    let targets = Targets::new(&labels, [batch, z, x, y], classes, 255, device);
    let weights = Tensor::<1>::from_data(golden["weights"].clone(), device);
    let loss = cross_entropy(logits.clone(), &targets, &weights, 255).unwrap();
    let gradients = loss.backward();
    let gradient = values(logits.grad(&gradients).unwrap());
    (values(loss)[0], gradient, floats(&get("loss"))[0], floats(&get("gradient")))
}

#[test]
fn cross_entropy_equals_pytorch() {
    for device in [cpu(), vulkan()] {
        for case in ["plain", "ignore", "absent", "all-ignored", "large"] {
            let (loss, gradient, expected_loss, expected_gradient) = loss_and_gradient(case, &device);
            assert!((loss - expected_loss).abs() <= 1e-6 * expected_loss.max(1.0), "{case}: {loss}, {expected_loss}");
            assert_eq!(gradient.len(), expected_gradient.len());
            for (found, expected) in gradient.iter().zip(&expected_gradient) {
                assert!((found - expected).abs() <= 1e-7, "{case}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn cross_entropy_of_equal_logits_is_the_logarithm_of_the_classes() {
    let device = cpu();
    let targets = Targets::new(&[0, 2, 255, 1], [1, 1, 2, 2], 3, 255, &device);
    let weights = Tensor::<1>::from_data([0.5, 1.0, 4.0], &device);
    let loss = cross_entropy(Tensor::zeros([1, 3, 1, 2, 2], &device), &targets, &weights, 255).unwrap();
    assert!((values(loss)[0] - 3f32.ln()).abs() < 1e-6);
}

/// Weights that the published frequencies of SemanticKITTI give in the authors' numpy code.
#[test]
fn class_weights_of_semantic_kitti() {
    let counts = [
        5_417_730_330,
        15_783_539,
        125_136,
        118_809,
        646_799,
        821_951,
        262_978,
        283_696,
        204_750,
        61_688_703,
        4_502_961,
        44_883_650,
        2_269_923,
        56_840_218,
        15_719_652,
        158_442_623,
        2_061_623,
        36_970_522,
        1_151_988,
        334_146,
    ];
    let expected = [
        0.04462, 0.06033, 0.0852, 0.08558, 0.07474, 0.07342, 0.08013, 0.07965, 0.08177, 0.05575, 0.06527, 0.05676,
        0.06833, 0.056, 0.06035, 0.05296, 0.06878, 0.05739, 0.07165, 0.07862,
    ];
    for (found, expected) in class_weights(&counts).iter().zip(expected) {
        assert!((found - expected).abs() < 6e-6, "{found}, {expected}");
    }
}

#[test]
fn class_weights_of_absent_classes_are_finite_and_largest() {
    let weights = class_weights(&[0, 1, 2, 3, 4]);
    assert!((weights[0] - 1.0 / 3.001f32.ln()).abs() < 1e-6);
    assert!(weights[..4].iter().all(|&w| w == weights[0]) && weights[4] < weights[0] && weights[4] > 0.0);
    assert!(class_weights(&[]).is_empty());
}

/// Counted by hand: blocks of 2 x 2 x 2 along the last axis.
#[test]
fn coarse_targets_take_the_majority_of_what_is_occupied() {
    let block = |labels: [u8; 8]| {
        // Two blocks side by side, the second all ignored.
        let mut both = Vec::new();
        for pair in labels.chunks(2) {
            both.extend_from_slice(pair);
            both.extend_from_slice(&[255, 255]);
        }
        let coarse = downscale_target(&both, [2, 2, 4], 2, 0, 255);
        assert_eq!(coarse[1], 255);
        coarse[0]
    };
    assert_eq!(block([0, 0, 0, 0, 0, 0, 0, 7]), 7, "one occupied voxel outvotes the empty ones");
    assert_eq!(block([3, 5, 5, 3, 5, 255, 0, 0]), 5);
    assert_eq!(block([5, 3, 3, 5, 0, 0, 0, 0]), 3, "ties go to the lowest id");
    assert_eq!(block([255, 255, 255, 255, 255, 255, 255, 0]), 0, "empty when any voxel is");
    assert_eq!(block([255, 255, 9, 255, 255, 255, 255, 255]), 9);
    // Another empty id (Occ3D: 17), factor 4, one block.
    let mut labels = [17u8; 64];
    assert_eq!(downscale_target(&labels, [4, 4, 4], 4, 17, 255), [17]);
    labels[63] = 0;
    assert_eq!(downscale_target(&labels, [4, 4, 4], 4, 17, 255), [0]);
}
