//! What a network sees: features of voxels, channel by channel.

use std::collections::BTreeMap;
use std::path::Path;

use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::models::Network;

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

fn tensors(path: &Path) -> BTreeMap<String, TensorData> {
    let mut store = SafetensorsStore::from_file(path);
    let all = store.get_all_tensors().unwrap();
    all.iter().map(|(name, tensor)| (name.clone(), bridge::to_data(tensor).unwrap())).collect()
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

/// The format's definition: length of the header (u64), header (JSON), values.
fn write_safetensors(path: &Path, tensors: &BTreeMap<String, TensorData>) {
    let mut header = serde_json::Map::new();
    let mut body = Vec::new();
    for (name, data) in tensors {
        let begin = body.len();
        body.extend(data.try_to_vec::<f32>().unwrap().iter().flat_map(|v| v.to_le_bytes()));
        let shape = data.shape().to_vec();
        let entry = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, body.len()] });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    std::fs::write(path, [(header.len() as u64).to_le_bytes().as_slice(), &header, &body].concat()).unwrap();
}

/// A network of two channels whose second one weighs nothing is the network of one channel: so the weights of channel 0
/// come first, all heights of it, and nothing but the first convolution knows how many channels there are.
#[test]
fn channels_follow_one_another_whole_in_the_first_convolution() {
    let (x, y, z) = (8, 16, 8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut two = Network::new("lmscnet", [x, y, z], 2, 3, 1, &cpu()).unwrap();
    let mut one = Network::new("lmscnet", [x, y, z], 1, 3, 2, &cpu()).unwrap();
    one.save_weights(&path).unwrap();
    let mut wide = tensors(&path);
    let first = "Encoder_block1.0.weight";
    let narrow = wide[first].try_to_vec::<f32>().unwrap();
    // Nine weights an input channel; each output channel now has another z of them that are zero.
    let kernels = narrow.chunks(z * 9).flat_map(|kernel| kernel.iter().copied().chain(vec![0.0; z * 9])).collect();
    wide.insert(first.into(), TensorData::new::<f32, _>(kernels, [z, 2 * z, 3, 3]));
    write_safetensors(&path, &wide);
    two.load_weights(&path).unwrap();
    assert!(one.load_weights(&path).unwrap_err().to_string().contains("[8, 16, 3, 3], expected shape [8, 8, 3, 3]"));

    let wave = |scale: f64| -> Vec<f32> { (0..x * y * z).map(|i| (scale * i as f64).sin() as f32).collect() };
    let shape = [1, 1, z, x, y];
    let channel = |values: Vec<f32>| Tensor::<5>::from_data(TensorData::new(values, shape), &cpu());
    let both = Tensor::cat(vec![channel(wave(1.3)), channel(wave(0.7))], 1);
    for (two, one) in two.forward(both).into_iter().zip(one.forward(channel(wave(1.3)))) {
        let (two, one) = (values(two), values(one));
        assert!(two.iter().zip(&one).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs())));
    }
    assert!(Network::new("lmscnet", [x, y, z], 0, 3, 1, &cpu()).is_err());
}
