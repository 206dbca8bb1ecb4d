//! The kernels in every form that software Vulkan runs, beside the twins on the CPU, which have tests of their own.

use burn::backend::ops::FloatTensorOps;
use burn::backend::wgpu::CubeTensor;
use burn::backend::{Cube, DispatchDevice};
use burn::tensor::TensorData;
use half::f16;

use super::backend::{Load, Plan, Store};
use super::cpu::{self, Element, LoadAs, StoreAs};
use super::{ConvGeometry, ConvOptions, cube};
use crate::gpu::{DeviceChoice, TileForm, open};
use crate::ops::Activation;

fn on_device<T: burn::tensor::Element>(values: &[T], shape: impl Into<Vec<usize>>) -> CubeTensor {
    let device = open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device;
    let DispatchDevice::Cube(device) = device.as_dispatch() else { panic!("not a GPU") };
    Cube::float_from_data(TensorData::new(values.to_vec(), shape.into()), device)
}

fn read<T: burn::tensor::Element>(tensor: CubeTensor) -> Vec<T> {
    pollster::block_on(Cube::float_into_data(tensor)).unwrap().try_to_vec().unwrap()
}

/// Whole numbers from -2 to 2, so small that every sum is exact in f16.
fn counted<T: Element>(count: usize, step: usize) -> Vec<T> {
    let wide: Vec<f32> = (0..count).map(|i| (i * step % 31 % 5) as f32 - 2.0).collect();
    let mut values = vec![T::zeroed(); count];
    T::store(&wide, &mut values);
    values
}

fn agree<T: Element + burn::tensor::Element + PartialEq>(geometry: &ConvGeometry, form: TileForm, loads: bool) {
    let of = |shape: [usize; 5]| shape.iter().product::<usize>();
    let (x, weight) = (counted::<T>(of(geometry.input()), 7), counted::<T>(of(geometry.weight()), 11));
    let gradient = counted::<T>(of(geometry.output()), 13);
    let (scale, shift) = (counted::<f32>(geometry.channels_in, 3), counted::<f32>(geometry.channels_in, 1));
    let (bias, rest) = (counted::<f32>(geometry.channels_out, 2), counted::<T>(of(geometry.output()), 5));
    let load = loads.then_some(LoadAs { scale: &scale, shift: &shift, relu: true });
    let store = StoreAs { bias: Some(&bias), residual: Some(&rest), relu: true };
    let bare = StoreAs { bias: None, residual: None, relu: false };

    let [on_x, on_weight, on_gradient] = [
        on_device(&x, geometry.input()),
        on_device(&weight, geometry.weight()),
        on_device(&gradient, geometry.output()),
    ];
    let vectors = [&scale, &shift].map(|vector| on_device(vector, [geometry.channels_in]));
    let plan = Plan {
        geometry: *geometry,
        load: loads.then_some(Load { activation: Activation::Relu }),
        store: Store { bias: true, residual: true, activation: Activation::Relu },
    };
    let plain = Plan { store: Store::default(), ..plan };
    let what = format!("{form:?} {geometry}, loads {loads}");

    let [on_scale, on_shift] = vectors.clone();
    let on_bias = on_device(&bias, [geometry.channels_out]);
    let all = [on_scale, on_shift, on_bias, on_device(&rest, geometry.output())];
    let y = read::<T>(cube::forward(on_x.clone(), on_weight.clone(), all, &plan, form));
    assert!(y == cpu::forward(&x, &weight, geometry, load, store), "{what}: forward");
    let absent = [on_gradient.clone(), on_gradient.clone()];
    let slopes = read::<T>(cube::input_gradient(on_weight, on_gradient.clone(), absent, &plain, form));
    assert!(slopes == cpu::input_gradient(&weight, &gradient, geometry, bare), "{what}: input gradient");
    let slopes = read::<T>(cube::weight_gradient(on_x, on_gradient, vectors, &plain, form));
    assert!(slopes == cpu::weight_gradient(&x, load, &gradient, geometry), "{what}: weight gradient");
}

/// Channels above and below a tile, rests in every direction, more chunks than one, samples and rows that end inside a
/// step of k, fewer channels than a step.
#[test]
fn every_form_computes_what_the_processor_does() {
    let none = ConvOptions::default();
    let cases = [
        ([1, 3, 4, 5, 19], [5, 3, 3, 3, 3], ConvOptions { padding: [1; 3], ..none }),
        ([2, 1, 5, 6, 7], [9, 1, 3, 5, 3], ConvOptions { stride: [2, 3, 2], padding: [1, 2, 1], ..none }),
        ([3, 6, 1, 9, 5], [4, 3, 1, 2, 3], ConvOptions { dilation: [1, 3, 2], groups: 2, ..none }),
        ([1, 17, 1, 1, 3], [40, 17, 1, 1, 1], none),
        ([2, 2, 3, 4, 3], [2, 1, 2, 2, 2], ConvOptions { stride: [2; 3], padding: [0, 1, 2], groups: 2, ..none }),
        ([1, 2, 1, 40, 41], [3, 2, 1, 3, 3], ConvOptions { padding: [0, 1, 1], ..none }),
    ];
    for (x, weight, options) in cases {
        let geometry = ConvGeometry::new(x, weight, &options).unwrap();
        for form in [TileForm::Staged, TileForm::Direct, TileForm::Lanes] {
            agree::<f32>(&geometry, form, true);
            agree::<f16>(&geometry, form, false);
        }
    }
}
