//! Products and convolutions in every tile, cut into dispatches of two workgroups: a device chooses few of the tiles by
//! itself, and cuts only what takes long. Against the CPU, which knows no tiles.

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::Activation;
use super::conv::{ConvOptions, Epilogue, Prologue, conv, conv_transposed};
use super::gemm::{GemmOptions, Layout, gemm};
use crate::gpu::{self, DeviceChoice, MOST_GROUPS, ONLY_TILE, TILES, TileForm};

/// Whole numbers from -4 to 4, whose sums are exact in any order.
fn whole<const D: usize>(shape: [usize; D], seed: u32, dtype: DType, device: &Device) -> Tensor<D> {
    let hash = |i: usize| (i as u32 ^ seed).wrapping_mul(0x9e37_79b1).rotate_left(13).wrapping_mul(0x85eb_ca6b) >> 8;
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| (hash(i) % 9) as f32 - 4.0).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, dtype)).require_grad()
}

/// Named values of a result and its gradients.
type Values = Vec<(&'static str, Vec<f32>)>;

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec_as().unwrap()
}

/// `y`, then the gradients of `leaves` and `vectors` for whole upstream gradients.
fn with_gradients<const D: usize>(
    y: Tensor<D>,
    leaves: Vec<(&'static str, Tensor<D>)>,
    vectors: Vec<(&'static str, Tensor<1>)>,
) -> Values {
    let upstream = whole(y.dims(), 9, y.dtype(), &y.device()).detach();
    let mut gradients = (y.clone() * upstream).sum().backward();
    let mut all = vec![("y", values(y))];
    all.extend(leaves.into_iter().map(|(name, leaf)| (name, values(leaf.grad_remove(&mut gradients).unwrap()))));
    all.extend(vectors.into_iter().map(|(name, leaf)| (name, values(leaf.grad_remove(&mut gradients).unwrap()))));
    all
}

/// Several tiles of most shapes each way, and an odd rest.
fn product(dtype: DType, device: &Device) -> Values {
    let a = whole([2, 45, 133], 1, dtype, device);
    let b = whole([2, 45, 70], 2, dtype, device);
    let bias = whole([70], 3, dtype, device);
    let (layout, bias_option) = (Layout::Transposed, Some(bias.clone()));
    let options = GemmOptions { a: layout, bias: bias_option, activation: Activation::Relu, ..Default::default() };
    let y = gemm(a.clone(), b.clone(), options).unwrap();
    with_gradients(y, vec![("a", a), ("b", b)], vec![("bias", bias)])
}

fn convolution(dtype: DType, device: &Device) -> Values {
    let x = whole([2, 6, 3, 9, 11], 1, dtype, device);
    let weight = whole([34, 3, 1, 3, 2], 2, dtype, device);
    let [scale, shift] = [3, 4].map(|seed| whole([6], seed, DType::F32, device));
    let (bias, residual) = (whole([34], 5, DType::F32, device), whole([2, 34, 3, 5, 11], 6, dtype, device));
    let prologue = Prologue { scale: scale.clone(), shift: shift.clone(), activation: Activation::Relu };
    let epilogue =
        Epilogue { bias: Some(bias.clone()), residual: Some(residual.clone()), activation: Activation::Relu };
    let options = ConvOptions { stride: [1, 2, 1], padding: [0, 1, 1], dilation: [1, 1, 2], groups: 2 };
    let y = conv(x.clone(), weight.clone(), &options, Some(prologue), epilogue).unwrap();
    let leaves = vec![("x", x), ("weight", weight), ("residual", residual)];
    with_gradients(y, leaves, vec![("scale", scale), ("shift", shift), ("bias", bias)])
}

fn transposed(dtype: DType, device: &Device) -> Values {
    let x = whole([2, 5, 2, 6, 7], 1, dtype, device);
    let weight = whole([5, 18, 2, 4, 3], 2, dtype, device);
    let options = ConvOptions { stride: [2, 3, 2], padding: [0, 1, 1], ..Default::default() };
    let y = conv_transposed(x.clone(), weight.clone(), &options, [0, 1, 1], Epilogue::default()).unwrap();
    with_gradients(y, vec![("x", x), ("weight", weight)], Vec::new())
}

#[test]
fn every_tile_and_every_cut_gives_the_same() {
    let opened = gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap();
    let lanes = opened.adapter.unwrap().subgroup_sizes == Some((8, 8));
    let (vulkan, cpu) = (opened.device.autodiff(), Device::flex().autodiff());
    let runs =
        [("product", product as fn(DType, &Device) -> Values), ("conv", convolution), ("transposed", transposed)];
    let tiles: Vec<_> = TILES.iter().filter(|tile| tile.form != TileForm::Lanes || lanes).collect();
    for (place, (name, run)) in runs.into_iter().enumerate() {
        let dtypes = [DType::F32, DType::F16];
        let expected = dtypes.map(|dtype| run(dtype, &cpu));
        for (index, tile) in tiles.iter().enumerate() {
            // How a tile is computed and what it is made from depend on each other in nothing: each with one type.
            let half = (place + index) % 2;
            ONLY_TILE.set(Some(tile));
            MOST_GROUPS.set(2);
            let found = run(dtypes[half], &vulkan);
            for ((part, found), (_, expected)) in found.iter().zip(&expected[half]) {
                let wrong = (0..expected.len()).find(|place| found[*place] != expected[*place]);
                let what = format!("{name} {:?} {part} in {tile:?}", dtypes[half]);
                assert_eq!((wrong, found.len()), (None, expected.len()), "{what}");
            }
        }
    }
}
