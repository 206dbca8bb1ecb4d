//! SCPNet's completion block against PyTorch, where its tensors are concatenated (golden file of
//! tests/generators/scpnet.py), forward and back in every mode.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::models::{Network, Passes, ScpNetConfig};
use occam_engine::nn::Init;
use occam_engine::tape::Mode;

const CONFIG: ScpNetConfig = ScpNetConfig { counts: [9, 7, 6], channels: 2, classes: 3, width: 4 };

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn tensors(path: &Path) -> BTreeMap<String, TensorData> {
    let mut store = SafetensorsStore::from_file(path);
    let all = store.get_all_tensors().unwrap();
    all.iter().map(|(name, tensor)| (name.clone(), bridge::to_data(tensor).unwrap())).collect()
}

fn golden() -> BTreeMap<String, Vec<f32>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/scpnet.safetensors");
    tensors(&path).into_iter().map(|(name, data)| (name, data.try_to_vec().unwrap())).collect()
}

/// A network whose weights follow the formula of tests/generators/lmscnet.py. It goes through a file, and so do the names.
fn formula_network(device: &Device) -> Network {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut network = Network::ScpNet(CONFIG.init(&mut Init::new(3, device)).unwrap());
    network.save_weights(&path).unwrap();
    let (mut header, mut body) = (serde_json::Map::new(), Vec::new());
    for (place, (name, data)) in tensors(&path).into_iter().enumerate() {
        let shape = data.shape().to_vec();
        let fan_in = if shape.len() > 1 { shape[1..].iter().product::<usize>() } else { 25 };
        let scale = (2.0f64 / fan_in as f64).sqrt();
        let begin = body.len();
        let values = (0..data.num_elements()).map(|i| ((0.7 * i as f64 + place as f64).sin() * scale) as f32);
        body.extend(values.flat_map(f32::to_le_bytes));
        header.insert(name, serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, body.len()] }));
    }
    let header = serde_json::to_vec(&header).unwrap();
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(&path, [&length[..], &header, &body].concat()).unwrap();
    network.load_weights(&path).unwrap();
    network
}

fn features(device: &Device) -> Tensor<5> {
    let ScpNetConfig { counts: [x, y, z], channels, .. } = CONFIG;
    let values: Vec<f32> =
        (0..channels * x * y * z).map(|i| if (1.3 * i as f64).sin() > 0.6 { 1.0 } else { 0.0 }).collect();
    Tensor::from_data(TensorData::new(values, [1, channels, z, x, y]), device)
}

/// Gradients by PyTorch's names of parameters.
fn by_name(network: &Network, gradients: GradientsParams) -> BTreeMap<String, Vec<f32>> {
    struct Collect {
        path: Vec<String>,
        gradients: GradientsParams,
        found: BTreeMap<String, Vec<f32>>,
    }
    impl ModuleVisitor for Collect {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.into());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
            let gradient = self.gradients.get::<D>(parameter.id).expect("every parameter has a gradient");
            let [_, layer, name] = self.path.as_slice() else { panic!("{:?}", self.path) };
            let inside = if ["embed", "conv_classes"].contains(&layer.as_str()) { "" } else { "0." };
            self.found
                .insert(format!("{layer}.{inside}{name}"), gradient.try_into_data().unwrap().try_to_vec().unwrap());
        }
    }
    let mut collect = Collect { path: Vec::new(), gradients, found: BTreeMap::new() };
    network.visit(&mut collect);
    collect.found
}

/// In parts of the largest of each tensor.
fn assert_close(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * largest, "{what}[{i}]: {found}, PyTorch {expected}");
    }
}

fn assert_golden(gradients: &BTreeMap<String, Vec<f32>>, what: &str) {
    let golden = golden();
    assert_eq!((golden.len(), gradients.len()), (15, 14), "{what}");
    for (name, found) in gradients {
        assert_close(found, &golden[&format!("gradient.{name}")], 1e-5, &format!("{what} {name}"));
    }
}

/// Gradients of the mean of the squared logits.
fn learn(network: &Network, device: &Device, modes: &[Mode], by_planes: bool) -> BTreeMap<String, Vec<f32>> {
    let count = (CONFIG.counts.iter().product::<usize>() * CONFIG.classes) as f32;
    let passes = Passes { modes, by_planes, ..Passes::default() };
    let learned = network.learn(features(device), &passes, &mut |_, logits, _| Ok(logits.powi_scalar(2).sum() / count));
    by_name(network, learned.unwrap().gradients)
}

#[test]
fn logits_and_all_gradients_equal_pytorch() {
    for device in [cpu(), vulkan()] {
        let network = formula_network(&device.clone().autodiff());
        let logits = network.forward(features(&device).autodiff()).unwrap().remove(0);
        assert_eq!(logits.dims(), [1, 3, 6, 9, 7]);
        let values: Vec<f32> = logits.clone().try_into_data().unwrap().try_to_vec().unwrap();
        assert_close(&values, &golden()["logits"], 1e-5, "logits");
        let gradients = GradientsParams::from_grads(logits.powi_scalar(2).mean().backward(), &network);
        assert_golden(&by_name(&network, gradients), "autodiff");
        assert_golden(&learn(&network, &device, &[Mode::Keep; 2], false), "kept");
        assert_golden(&learn(&network, &device, &[Mode::Recompute; 2], true), "recomputed");
        device.sync().unwrap();
    }
}

/// The bits of every gradient, whatever is kept.
#[test]
fn every_mode_gives_the_same_bits() {
    use Mode::{Keep, Recompute};
    let device = cpu();
    let network = formula_network(&device.clone().autodiff());
    let expected = learn(&network, &device, &[Keep, Keep], true);
    for modes in [[Keep, Recompute], [Recompute, Keep], [Recompute, Recompute]] {
        assert!(learn(&network, &device, &modes, true) == expected, "{modes:?}");
    }
}

/// Counted by hand: pairs of tensors of 32 channels times taps, and what stands for the rest of SCPNet.
#[test]
fn the_block_has_the_parameters_of_the_paper() {
    let network = Network::new("scpnet-dense", [256, 256, 32], 1, 20, 0, &cpu()).unwrap();
    let [three, five, seven] = [27, 125, 343];
    let first = three + (three + five + seven);
    let block = 32 * 32 * (first + 3 * (three + five + seven) + 7 + (three + five + seven));
    assert_eq!(block, 2_569_216);
    assert_eq!(network.num_params(), block + 32 + (32 + 1) * 20);
}

#[test]
fn any_grid_with_voxels_will_do() {
    let network = Network::new("scpnet-dense", [3, 1, 2], 3, 5, 0, &cpu()).unwrap();
    let logits = network.forward(Tensor::zeros([2, 3, 2, 3, 1], &cpu())).unwrap();
    assert_eq!(logits.iter().map(Tensor::dims).collect::<Vec<_>>(), [[2, 5, 2, 3, 1]]);
    assert_eq!((network.scales(), network.name()), (&[1][..], "scpnet-dense"));
    let refused = Network::new("scpnet-dense", [8, 0, 8], 1, 3, 0, &cpu()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("0 voxels along y"), "{refused}");
}
