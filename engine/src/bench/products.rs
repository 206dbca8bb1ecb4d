//! Products of matrices and convolutions: each pass alone, ours and Burn's.

use burn::tensor::Tensor;

use super::Random;
use super::burn_conv::BurnConv;
use super::case::Pass;
use super::measure::{Pair, flat};
use crate::Result;
use crate::ops;
use crate::ops::conv::{ConvGeometry, ConvOptions, Epilogue, weight_gradient};
use crate::ops::gemm::{GemmOptions, Layout};

/// A product of `[batch, m, n, k]` with operands that lie as `layouts` say.
pub fn gemm(random: &Random, [batch, m, n, k]: [usize; 4], layouts: [Layout; 2]) -> Pair {
    let stored = |layout, rows, columns| match layout {
        Layout::Normal => [batch, rows, columns],
        Layout::Transposed => [batch, columns, rows],
    };
    let operands = [random.tensor(1, stored(layouts[0], m, k)), random.tensor(2, stored(layouts[1], k, n))];
    let upright = |tensor: Tensor<3>, layout| match layout {
        Layout::Normal => tensor,
        Layout::Transposed => tensor.swap_dims(1, 2),
    };
    pair(
        operands,
        move |[a, b]| ops::gemm(a, b, GemmOptions { a: layouts[0], b: layouts[1], ..GemmOptions::default() }),
        move |[a, b]| upright(a, layouts[0]).matmul(upright(b, layouts[1])),
    )
}

/// One pass of a convolution without bias. Burn's gradients are also given what they replace, as autodiff does.
pub fn conv(random: &Random, geometry: ConvGeometry, planes: bool, pass: Pass) -> Pair {
    let burn = BurnConv { geometry, planes };
    let [x, weight, y] = operands(random, &geometry);
    match pass {
        Pass::Forward | Pass::Step => pair(
            [x, weight],
            move |[x, weight]| forward(x, weight, &geometry),
            move |[x, weight]| burn.forward(x, weight),
        ),
        Pass::InputGradient => pair(
            [x, weight, y],
            move |[_, weight, y]| input_gradient(y, weight, &geometry),
            move |[x, weight, y]| burn.input_gradient(x, weight, y),
        ),
        Pass::WeightGradient => pair(
            [x, weight, y],
            move |[x, _, y]| Ok(weight_gradient(x, y, geometry)),
            move |[x, weight, y]| burn.weight_gradient(x, weight, y),
        ),
    }
}

/// One pass of the transposed convolution whose input is the output of the convolution of this geometry.
pub fn conv_transposed(random: &Random, geometry: ConvGeometry, planes: bool, pass: Pass) -> Pair {
    let burn = BurnConv { geometry, planes };
    let [x, weight, y] = operands(random, &geometry);
    match pass {
        Pass::Forward | Pass::Step => pair(
            [y, weight],
            move |[y, weight]| input_gradient(y, weight, &geometry),
            move |[y, weight]| burn.transposed(y, weight),
        ),
        Pass::InputGradient => pair(
            [x, weight],
            move |[x, weight]| forward(x, weight, &geometry),
            move |[x, weight]| burn.transposed_input_gradient(weight, x),
        ),
        Pass::WeightGradient => pair(
            [x, weight, y],
            move |[x, _, y]| Ok(weight_gradient(x, y, geometry)),
            move |[x, weight, y]| burn.transposed_weight_gradient(y, weight, x),
        ),
    }
}

/// Input, weights and output of the convolution of this geometry.
fn operands(random: &Random, geometry: &ConvGeometry) -> [Tensor<5>; 3] {
    [random.tensor(1, geometry.input()), random.tensor(2, geometry.weight()), random.tensor(3, geometry.output())]
}

fn forward(x: Tensor<5>, weight: Tensor<5>, geometry: &ConvGeometry) -> Result<Tensor<5>> {
    ops::conv(x, weight, &options(geometry), None, Epilogue::default())
}

/// The transposed convolution is the input gradient.
fn input_gradient(y: Tensor<5>, weight: Tensor<5>, geometry: &ConvGeometry) -> Result<Tensor<5>> {
    let g = geometry;
    let output_padding = std::array::from_fn(|axis| {
        (g.sides_in[axis] + 2 * g.padding[axis] - g.dilation[axis] * (g.kernel[axis] - 1) - 1) % g.stride[axis]
    });
    ops::conv_transposed(y, weight, &options(g), output_padding, Epilogue::default())
}

fn options(geometry: &ConvGeometry) -> ConvOptions {
    let ConvGeometry { stride, padding, dilation, groups, .. } = *geometry;
    ConvOptions { stride, padding, dilation, groups }
}

/// Two functions of the same operands.
fn pair<const D: usize, const N: usize>(
    operands: [Tensor<D>; N],
    ours: impl Fn([Tensor<D>; N]) -> Result<Tensor<D>> + 'static,
    burns: impl Fn([Tensor<D>; N]) -> Tensor<D> + 'static,
) -> Pair {
    let again = operands.clone();
    Pair {
        ours: Box::new(move || Ok(vec![flat(ours(operands.clone())?)])),
        burns: Box::new(move || Ok(vec![flat(burns(again.clone()))])),
    }
}
