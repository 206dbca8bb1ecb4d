//! Convolutions that cannot be: each is an error that names the operation, the shapes and the limit.

use burn::tensor::{DType, Device, Tensor};
use occam_engine::Error;
use occam_engine::ops::Activation;
use occam_engine::ops::conv::{ConvOptions, Epilogue, Prologue, conv, conv_transposed};

use crate::common::{cpu, settle, vulkan};

fn zeros(shape: [usize; 5], device: &Device) -> Tensor<5> {
    Tensor::zeros(shape, (device, DType::F32))
}

/// Whether all of `parts` are in the message.
#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
}

/// The message of a usage error holds all of `parts`.
#[track_caller]
fn refused(found: Result<Tensor<5>, Error>, parts: &[&str]) {
    match found {
        Err(Error::Usage(message)) => assert_says(&message, parts),
        other => panic!("expected a usage error with {parts:?}, found {:?}", other.map(|y| y.dims())),
    }
}

const X: [usize; 5] = [2, 4, 5, 6, 7];
const WEIGHT: [usize; 5] = [6, 4, 3, 3, 3];
const TRANSPOSED: [usize; 5] = [4, 6, 3, 3, 3];

#[test]
fn shapes_that_do_not_match_are_refused() {
    for device in [cpu(), vulkan(), cpu().autodiff(), vulkan().autodiff()] {
        let run = |x, weight, options: &ConvOptions, parts: &[&str]| {
            let all = [&["convolution"], parts].concat();
            refused(conv(zeros(x, &device), zeros(weight, &device), options, None, Epilogue::default()), &all);
        };
        let options = ConvOptions::default();
        run(X, [6, 5, 3, 3, 3], &options, &["2x4x5x6x7", "6x5x3x3x3", "channels"]);
        run(X, [6, 4, 3, 0, 3], &options, &["6x4x3x0x3", "at least 1"]);
        run(X, [0, 4, 3, 3, 3], &options, &["0x4x3x3x3"]);
        run([2, 0, 5, 6, 7], [6, 0, 3, 3, 3], &options, &["2x0x5x6x7", "6x0x3x3x3"]);
        run(X, [6, 4, 3, 3, 8], &options, &["2x4x5x6x7", "6x4x3x3x8", "kernel"]);
        run([2, 4, 5, 0, 7], WEIGHT, &options, &["2x4x5x0x7"]);
        run([2, 4, 5, 0, 7], WEIGHT, &ConvOptions { padding: [1, 5, 1], ..options }, &["2x4x5x0x7", "side"]);
        // Dilated, the kernel spans 5 voxels of 3 + 2 x 0.
        run(
            [2, 4, 3, 6, 7],
            WEIGHT,
            &ConvOptions { dilation: [2, 1, 1], ..options },
            &["2x4x3x6x7", "dilation", "2x1x1"],
        );
        run(X, WEIGHT, &ConvOptions { stride: [1, 0, 1], ..options }, &["stride", "1x0x1"]);
        run(X, WEIGHT, &ConvOptions { dilation: [1, 1, 0], ..options }, &["dilation", "1x1x0"]);
        run(X, WEIGHT, &ConvOptions { groups: 0, ..options }, &["groups", "0"]);
        // 4 channels in 3 groups; 6 out in 4 groups.
        run(X, [6, 1, 3, 3, 3], &ConvOptions { groups: 3, ..options }, &["groups", "3", "2x4x5x6x7"]);
        run(X, [6, 1, 3, 3, 3], &ConvOptions { groups: 4, ..options }, &["groups", "4", "6x1x3x3x3"]);
        run(X, WEIGHT, &ConvOptions { groups: 2, ..options }, &["2x4x5x6x7", "6x4x3x3x3", "2"]);
        settle(&device);
    }
}

#[test]
fn transposed_shapes_that_do_not_match_are_refused() {
    for device in [cpu(), vulkan(), cpu().autodiff()] {
        let run = |x, weight, options: &ConvOptions, output_padding, parts: &[&str]| {
            let (x, weight) = (zeros(x, &device), zeros(weight, &device));
            let all = [&["transposed convolution"], parts].concat();
            refused(conv_transposed(x, weight, options, output_padding, Epilogue::default()), &all);
        };
        let options = ConvOptions::default();
        run(X, WEIGHT, &options, [0; 3], &["2x4x5x6x7", "6x4x3x3x3"]);
        run(X, [4, 6, 0, 3, 3], &options, [0; 3], &["4x6x0x3x3"]);
        run(X, TRANSPOSED, &ConvOptions { stride: [0, 1, 1], ..options }, [0; 3], &["stride", "0x1x1"]);
        run(X, TRANSPOSED, &ConvOptions { groups: 3, ..options }, [0; 3], &["groups", "3"]);
        run(X, TRANSPOSED, &ConvOptions { groups: 0, ..options }, [0; 3], &["groups", "0"]);
        run(X, TRANSPOSED, &ConvOptions { stride: [2; 3], ..options }, [1, 2, 1], &["output padding", "1x2x1", "2"]);
        // 4 + 3 voxels less 2 x 4.
        run(X, TRANSPOSED, &ConvOptions { padding: [4, 0, 0], ..options }, [0; 3], &["2x4x5x6x7", "padding", "4"]);
        settle(&device);
    }
}

#[test]
fn prologues_and_epilogues_that_do_not_match_are_refused() {
    for device in [cpu(), vulkan(), vulkan().autodiff()] {
        let run = |prologue, epilogue, parts: &[&str]| {
            let (x, weight) = (zeros(X, &device), zeros(WEIGHT, &device));
            let options = ConvOptions { padding: [1; 3], ..Default::default() };
            refused(conv(x, weight, &options, prologue, epilogue), &[&["convolution"], parts].concat());
        };
        let vector = |n: usize| Tensor::<1>::zeros([n], (&device, DType::F32));
        let prologue = |scale, shift| Some(Prologue { scale, shift, activation: Activation::Relu });
        run(prologue(vector(6), vector(4)), Epilogue::default(), &["scale", "6", "4"]);
        run(prologue(vector(4), vector(1)), Epilogue::default(), &["shift", "1", "4"]);
        run(None, Epilogue { bias: Some(vector(4)), ..Default::default() }, &["bias", "4", "6"]);
        let residual = Epilogue { residual: Some(zeros(X, &device)), ..Default::default() };
        run(None, residual, &["residual", "2x4x5x6x7", "2x6x5x6x7"]);
        let half = Tensor::<5>::zeros([2, 6, 5, 6, 7], (&device, DType::F16));
        run(None, Epilogue { residual: Some(half), ..Default::default() }, &["residual", "F16", "F32"]);

        // What goes in, and its weights, are named: not the output, 2x6x7x8x9.
        let transposed = |epilogue, parts: &[&str]| {
            let (x, weight) = (zeros(X, &device), zeros(TRANSPOSED, &device));
            let found = conv_transposed(x, weight, &ConvOptions::default(), [0; 3], epilogue);
            refused(found, &[&["transposed convolution of 2x4x5x6x7, weights 4x6x3x3x3"], parts].concat());
        };
        transposed(Epilogue { bias: Some(vector(4)), ..Default::default() }, &["a bias of 4 values, expected 6"]);
        let residual = Epilogue { residual: Some(zeros(X, &device)), ..Default::default() };
        transposed(residual, &["a residual 2x4x5x6x7", "expected 2x6x7x8x9"]);
        settle(&device);
    }
}

#[test]
fn other_types_are_refused() {
    for device in [cpu(), vulkan()] {
        let weight = Tensor::<5>::zeros(WEIGHT, (&device, DType::F16));
        let found = conv(zeros(X, &device), weight, &ConvOptions::default(), None, Epilogue::default());
        refused(found, &["convolution", "F32", "F16"]);
        settle(&device);
    }
    // Burn's CPU backend stores these types; convolutions of them are not ours.
    for dtype in [DType::F64, DType::BF16] {
        let of = |shape: [usize; 5]| Tensor::<5>::zeros(shape, (&cpu(), dtype));
        let name = format!("{dtype:?}");
        let found = conv(of(X), of(WEIGHT), &ConvOptions::default(), None, Epilogue::default());
        refused(found, &["convolution", &name]);
        let found = conv_transposed(of(X), of(TRANSPOSED), &ConvOptions::default(), [0; 3], Epilogue::default());
        refused(found, &["transposed convolution", &name]);
    }
}

#[track_caller]
fn too_large(found: Result<Tensor<5>, Error>, parts: &[&str]) {
    match found {
        Err(Error::TooLarge(message)) => assert_says(&message, parts),
        other => panic!("expected too large with {parts:?}, found {:?}", other.map(|y| y.dims())),
    }
}

#[test]
fn sizes_beyond_the_limit_of_a_binding_are_refused() {
    let device = vulkan();
    // 600 x 256 x 256 x 4 bytes of output.
    let x = zeros([1, 1, 1, 256, 256], &device);
    let found = conv(x, zeros([600, 1, 1, 1, 1], &device), &ConvOptions::default(), None, Epilogue::default());
    too_large(found, &["convolution", "134217728", "157286400"]);
    // 8 x 8 times the voxels.
    let options = ConvOptions { stride: [1, 8, 8], ..Default::default() };
    let (x, weight) = (zeros([1, 1, 1, 256, 256], &device), zeros([1, 9, 1, 8, 8], &device));
    too_large(
        conv_transposed(x, weight, &options, [0; 3], Epilogue::default()),
        &["transposed convolution", "134217728", "150994944"],
    );
    // The input.
    let x = Tensor::empty([1, 1, 1, 1, 34_000_000], (&device, DType::F32));
    let options = ConvOptions { stride: [1, 1, 1000], ..Default::default() };
    too_large(
        conv(x, zeros([1, 1, 1, 1, 1], &device), &options, None, Epilogue::default()),
        &["convolution", "134217728", "136000000"],
    );
    settle(&device);
}

/// Sizes that no memory holds, though integers do: more than 2^47 bytes, which is all that a process can address.
#[test]
fn sizes_beyond_the_memory_are_refused_on_the_cpu() {
    let device = cpu();
    let (options, far) = (ConvOptions::default(), 1 << 40);
    let transposed = |stride| {
        let (x, weight) = (zeros(X, &device), zeros(TRANSPOSED, &device));
        conv_transposed(x, weight, &ConvOptions { stride, ..options }, [0; 3], Epilogue::default())
    };
    // 5 steps of 2^40 and a kernel of 3; then (6 - 1) 2^40 and (7 - 1) 2^40 beside each other, 2^85 values.
    too_large(transposed([1, far, 1]), &["transposed convolution of 2x4x5x6x7", "2x6x7x5497558138883x9"]);
    too_large(transposed([1, far, far]), &["transposed convolution of 2x4x5x6x7"]);
    let padded = |dilation, padding| {
        let (x, weight) = (zeros(X, &device), zeros(WEIGHT, &device));
        conv(x, weight, &ConvOptions { dilation, padding, ..options }, None, Epilogue::default())
    };
    too_large(padded([1; 3], [1, far, 1]), &["convolution of 2x4x5x6x7", "2x6x5x2199023255556x7"]);
    // The output is as small as the input, but taps are 2^40 voxels apart.
    too_large(padded([1, far, 1], [1, far, 1]), &["convolution of 2x4x5x6x7"]);
}

/// Sizes past every integer are refused on every device, before anything is allocated.
#[test]
fn sizes_past_every_integer_are_refused() {
    for device in [cpu(), vulkan()] {
        let both = |options: &ConvOptions| {
            let (x, epilogue) = (zeros(X, &device), Epilogue::default());
            let plain = conv(x.clone(), zeros(WEIGHT, &device), options, None, epilogue.clone());
            let transposed = conv_transposed(x, zeros(TRANSPOSED, &device), options, [0; 3], epilogue);
            [("convolution", plain), ("transposed convolution", transposed)]
        };
        for huge in [usize::MAX, usize::MAX / 2] {
            let options = ConvOptions::default();
            let [stretched, _] = both(&ConvOptions { dilation: [1, huge, 1], ..options });
            let [padded, cropped] = both(&ConvOptions { padding: [huge, 1, 1], ..options });
            let [_, spread] = both(&ConvOptions { stride: [1, huge, 1], ..options });
            let [few, many] = both(&ConvOptions { groups: huge, ..options });
            for (name, found) in [stretched, padded, cropped, spread, few, many] {
                assert_says(&found.unwrap_err().to_string(), &[name, "2x4x5x6x7"]);
            }
        }
        settle(&device);
    }
}
