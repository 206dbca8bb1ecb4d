//! Layers of networks against Burn's own modules, which are another implementation of the same definitions.

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::BatchNorm;
use burn::nn::conv::Conv3d;
use burn::optim::GradientsParams;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::nn::{Init, batch_norm, conv3d, conv3d_norm};
use occam_engine::ops::Activation::{Identity, Relu};
use occam_engine::tape::Pass;

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec::<f32>().unwrap()
}

fn wave<const D: usize>(shape: [usize; D], phase: f32, device: &Device) -> Tensor<D> {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.618 + phase).sin()).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0f32, |most, v| most.max(v.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= 2e-5 * scale, "{what}[{i}]: {found}, expected {expected}");
    }
}

/// A branch of a residual block.
#[derive(Module, Debug)]
struct Branch {
    conv1: Conv3d,
    bn1: BatchNorm,
    conv2: Conv3d,
    bn2: BatchNorm,
}

impl Branch {
    /// `dilation` of the second convolution.
    fn new(dilation: usize, device: &Device) -> Self {
        let mut init = Init::new(3, device);
        let uneven = |norm: BatchNorm| BatchNorm {
            gamma: norm.gamma.map(|gamma| (gamma + wave([4], 0.5, device) * 0.3).detach().require_grad()),
            beta: norm.beta.map(|beta| (beta + wave([4], 1.5, device) * 0.2).detach().require_grad()),
            ..norm
        };
        Self {
            // A bias before a normalisation has gradient 0: rounding would be compared with rounding.
            conv1: init.conv3d(2, 4, 1, false),
            bn1: uneven(init.batch_norm(4)),
            conv2: init.conv3d(4, 4, dilation, false),
            bn2: uneven(init.batch_norm(4)),
        }
    }

    fn ours(&self, x: Tensor<5>, residual: Tensor<5>) -> Tensor<5> {
        let inner = conv3d(&self.conv1, x, None, None, Identity).unwrap();
        let norm = batch_norm(&self.bn1, &inner, Relu, &mut Pass::only()).unwrap();
        conv3d_norm(&self.conv2, &self.bn2, inner, norm, residual, &mut Pass::only()).unwrap()
    }

    fn burns(&self, x: Tensor<5>, residual: Tensor<5>) -> Tensor<5> {
        let inner = relu(self.bn1.forward(self.conv1.forward(x)));
        residual + self.bn2.forward(self.conv2.forward(inner))
    }
}

/// Gradients of parameters, or what there is without them, in the order of the module.
#[derive(Default)]
struct Collect {
    gradients: Option<GradientsParams>,
    found: Vec<Vec<f32>>,
}

impl ModuleVisitor for Collect {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        match &self.gradients {
            None => self.found.push(values(param.val())),
            Some(gradients) => self.found.extend(gradients.get::<D>(param.id).map(values)),
        }
    }
}

/// Output, gradients of x, residual and parameters, parameters and statistics afterwards, and the output of the network as
/// it predicts.
fn train(branch: &Branch, ours: bool, device: &Device) -> Vec<Vec<f32>> {
    let device = device.clone().autodiff();
    let forward = |branch: &Branch, x, residual| {
        if ours { branch.ours(x, residual) } else { branch.burns(x, residual) }
    };
    let x = wave([2, 2, 3, 5, 7], 0.0, &device).require_grad();
    let residual = wave([2, 4, 3, 5, 7], 1.0, &device).require_grad();
    let y = forward(branch, x.clone(), residual.clone());
    let mut gradients = (y.clone() * wave(y.dims(), 2.0, &device)).sum().backward();
    let mut found = vec![values(y)];
    found.extend([x, residual].map(|leaf| values(leaf.grad_remove(&mut gradients).unwrap())));
    let mut collect = Collect { gradients: Some(GradientsParams::from_grads(gradients, branch)), ..Collect::default() };
    branch.visit(&mut collect);
    assert_eq!(collect.found.len(), 6, "weights, gamma and beta of both");
    collect.gradients = None;
    branch.visit(&mut collect);
    found.append(&mut collect.found);
    let plain = device.without_autodiff();
    let y = forward(&branch.valid(), wave([1, 2, 3, 4, 5], 4.0, &plain), wave([1, 4, 3, 4, 5], 5.0, &plain));
    found.push(values(y));
    found
}

#[test]
fn normalised_convolutions_equal_burns() {
    for (device, dilation) in [(cpu(), 1), (cpu(), 2), (vulkan(), 1)] {
        let [ours, burns] =
            [true, false].map(|ours| train(&Branch::new(dilation, &device.clone().autodiff()), ours, &device));
        assert_eq!(ours.len(), burns.len());
        for (part, (ours, burns)) in ours.iter().zip(&burns).enumerate() {
            assert_close(ours, burns, &format!("part {part}, dilation {dilation}"));
        }
    }
}
