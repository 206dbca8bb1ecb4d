//! What a step of SCPNet's completion block holds at its peak, counted by the allocator. One test, because all of a process is
//! counted.

use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use occam_engine::gpu::{self, CountingAllocator, DeviceChoice, memory_use, reset_peak};
use occam_engine::models::{Network, Passes, ScpNetConfig};
use occam_engine::nn::Init;
use occam_engine::ops::conv::{ConvOptions, Epilogue, conv};
use occam_engine::tape::Mode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const WIDTH: usize = 8;
const COUNTS: [usize; 3] = [64, 64, 16];
const CLASSES: usize = 3;

/// Peak above what was there, in tensors of the block's width.
fn units(device: &Device, run: impl FnOnce()) -> f64 {
    reset_peak();
    let before = memory_use(device).unwrap().in_use_bytes;
    run();
    let bytes = memory_use(device).unwrap().peak_bytes - before;
    bytes as f64 / (COUNTS.iter().product::<usize>() * WIDTH * 4) as f64
}

/// The block as the authors write it, one operation after another and tensors concatenated, by autodiff.
fn stock(device: &Device) {
    let device = device.clone().autodiff();
    let layer = |tensors: usize, kernel: usize, x: Tensor<5>| {
        let shape = [WIDTH, tensors * WIDTH, kernel, kernel, kernel];
        let weight = Tensor::<5>::full(shape, 1e-3, &device).require_grad();
        let options = ConvOptions { padding: [kernel / 2; 3], ..ConvOptions::default() };
        relu(conv(x, weight, &options, None, Epilogue::default()).unwrap())
    };
    let [nx, ny, nz] = COUNTS;
    let x = Tensor::<5>::ones([1, WIDTH, nz, nx, ny], &device).require_grad();
    let x1 = layer(1, 3, x.clone());
    let near = [3, 5, 7].map(|kernel| layer(1, kernel, x1.clone()));
    let joined = Tensor::cat(near.to_vec(), 1);
    let far = [3, 5, 7].map(|kernel| layer(3, kernel, joined.clone()));
    drop(joined);
    let all = Tensor::cat([vec![x1], near.to_vec(), far.to_vec()].concat(), 1);
    drop((near, far));
    let y0 = layer(7, 1, all);
    let [y1, y2, y3] = [3, 5, 7].map(|kernel| layer(1, kernel, x.clone()));
    (x + y0 + y1 + y2 + y3).sum().backward();
}

/// Counted by hand: the authors' graph keeps x, x1 to x7, x2 to x4 side by side, all seven side by side, what their ReLU and
/// those of y0 to y3 read. Recomputed, six tensors live at once; borders, bits, weights' gradients and what convolutions work
/// in come to less than two more at this size.
#[test]
fn recomputed_the_block_lives_in_six_tensors() {
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global().unwrap();
    let device = gpu::open(&DeviceChoice::Cpu).unwrap().device;
    let config = ScpNetConfig { counts: COUNTS, channels: 1, classes: CLASSES, width: WIDTH };
    let network = Network::ScpNet(config.init(&mut Init::new(1, &device.clone().autodiff())).unwrap());
    let [nx, ny, nz] = COUNTS;
    let features = Tensor::<5>::ones([1, 1, nz, nx, ny], &device);
    // Makes the parameters.
    let learn = |modes: &[Mode]| {
        let passes = Passes { modes, by_planes: true, ..Passes::default() };
        let learned =
            network.learn(features.clone(), &passes, &mut |_, logits, _| Ok(logits.powi_scalar(2).sum())).unwrap();
        drop(learned);
    };
    let _ = burn::module::Module::num_params(&network);
    let recomputed = units(&device, || learn(&[Mode::Recompute; 2]));
    let kept = units(&device, || learn(&[Mode::Keep; 2]));
    let stock = units(&device, || stock(&device));
    println!("recomputed {recomputed:.2}, kept {kept:.2}, stock {stock:.2} tensors");
    assert!(recomputed < 8.0, "{recomputed} tensors");
    assert!(stock > 22.0, "{stock} tensors");
    assert!(recomputed < kept && kept < stock, "{recomputed}, {kept}, {stock} tensors");
}
