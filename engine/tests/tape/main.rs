//! The tape: the same numbers whatever is kept or computed again, on networks, on small ones of a test's own, and over whole
//! steps.

mod networks;
mod steps;
mod toy;

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::tape::Mode::{self, Keep, Recompute};

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

/// Software Vulkan (Debian: mesa-vulkan-drivers).
fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec::<f32>().unwrap()
}

/// Numbers by path in the module.
type Named = BTreeMap<String, Vec<f32>>;

#[derive(Default)]
struct Collect<'a> {
    path: Vec<String>,
    gradients: Option<&'a GradientsParams>,
    found: Named,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = match self.gradients {
            Some(gradients) => gradients.get::<D>(param.id),
            None => Some(param.val()),
        };
        if let Some(value) = value {
            self.found.insert(self.path.join("."), values(value));
        }
    }
}

/// Parameters and running statistics.
fn parameters<M: Module>(module: &M) -> Named {
    let mut collect = Collect::default();
    module.visit(&mut collect);
    collect.found
}

/// Of every parameter that has one.
fn gradients<M: Module>(module: &M, gradients: &GradientsParams) -> Named {
    let mut collect = Collect { gradients: Some(gradients), ..Collect::default() };
    module.visit(&mut collect);
    collect.found
}

/// Equal to the bit, minus zero and all.
fn assert_same(found: &Named, expected: &Named, what: &str) {
    assert!(found.keys().eq(expected.keys()), "{what}");
    for (path, expected) in expected {
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert!(bits(&found[path]) == bits(expected), "{what}: {path} differs in a bit");
    }
}

/// No number further apart than `bound` times the largest of its tensor.
fn assert_close(found: &Named, expected: &Named, bound: f32, what: &str) {
    assert!(found.keys().eq(expected.keys()), "{what}");
    for (path, expected) in expected {
        let largest = expected.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        for (found, expected) in found[path].iter().zip(expected) {
            let apart = (found - expected).abs();
            assert!(apart <= bound * largest, "{what}: {path} {found}, expected {expected}, {}", apart / largest);
        }
    }
}

/// The same number in `0..end` for the same `i`; evenly spread.
fn hash(i: usize, end: usize) -> usize {
    let mut z = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) % end as u64) as usize
}

/// More segments than any network here has.
const SEGMENTS: usize = 64;

/// Nothing, every second, all, and three at random.
fn patterns() -> Vec<Vec<Mode>> {
    let pattern = |recompute: &dyn Fn(usize) -> bool| {
        (0..SEGMENTS).map(|segment| if recompute(segment) { Recompute } else { Keep }).collect()
    };
    let mut all = vec![pattern(&|_| false), pattern(&|segment| segment % 2 == 1), pattern(&|_| true)];
    all.extend((1..4).map(|seed| pattern(&|segment| hash(seed * SEGMENTS + segment, 2) == 1)));
    all
}

fn whole(pattern: &[Mode]) -> String {
    pattern.iter().map(|mode| if *mode == Keep { 'k' } else { 'r' }).collect()
}

fn wave<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.618).sin() + 0.1).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}
