//! Gradients to new weights: global norm, clipping, AdamW, and the optimizer's state in a file.

use std::io;
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::{AdamW, AdamWConfig, AdamWState, AdaptiveMomentumState, GradientsParams, Optimizer as _};
use burn::store::{ModuleSnapshot, SafetensorsStore};
use burn::tensor::{Device, Tensor};
use occam_scene::error::Place;

use super::OptimConfig;
use crate::gpu::{Request, read, request, settle};
use crate::models::weights;
use crate::{Error, Result};

/// Square of the global L2 norm of all gradients, one scalar on the device. It is finite exactly when every gradient
/// is, short of overflow. `None` without any gradient.
pub fn squared_norm<M: Module>(module: &M, gradients: &GradientsParams) -> Option<Tensor<1>> {
    struct Sum<'a>(&'a GradientsParams, Option<Tensor<1>>);
    impl ModuleVisitor for Sum<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                let square = gradient.square().sum();
                self.1 = Some(match self.1.take() {
                    Some(sum) => sum + square,
                    None => square,
                });
            }
        }
    }
    let mut sum = Sum(gradients, None);
    module.visit(&mut sum);
    sum.1
}

/// Bytes of everything that a module learns or holds, such as running statistics.
pub fn parameter_bytes<M: Module>(module: &M) -> u64 {
    struct Bytes(u64);
    impl ModuleVisitor for Bytes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            self.0 += (value.shape().num_elements() * value.dtype().size()) as u64;
        }
    }
    let mut bytes = Bytes(0);
    module.visit(&mut bytes);
    bytes.0
}

/// Reads all tensors of a module: whether the device still has them.
///
/// # Errors
/// Those of the device.
pub fn read_back<M: Module>(module: &M) -> Result<()> {
    struct Read(Result<()>);
    impl ModuleVisitor for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if self.0.is_ok() {
                self.0 = read(param.val().without_autodiff()).map(drop);
            }
        }
    }
    let mut read = Read(Ok(()));
    module.visit(&mut read);
    read.0
}

/// Multiplies every gradient by `factor`.
pub(super) fn scale_gradients<M: Module>(module: &M, gradients: &mut GradientsParams, factor: f64) {
    struct Scale<'a>(&'a mut GradientsParams, f64);
    impl ModuleVisitor for Scale<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.remove::<D>(param.id) {
                self.0.register(param.id, gradient * self.1);
            }
        }
    }
    module.visit(&mut Scale(gradients, factor));
}

/// Multiplies every gradient so that the global norm, which is `norm`, becomes at most `limit`; 0 means no limit
/// (Pascanu, Mikolov, Bengio, ICML 2013).
pub fn clip<M: Module>(module: &M, gradients: &mut GradientsParams, norm: f64, limit: f64) {
    if limit > 0.0 && norm > limit {
        scale_gradients(module, gradients, limit / (norm + 1e-6));
    }
}

/// AdamW (Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019) over all parameters of a module.
///
/// The arithmetic is Burn's; the moments are kept here, by the parameter's place in the module. Burn's own module
/// optimizer restores moments on the default device of the build, which may be a GPU that nobody asked for or that is
/// not there, and knows parameters by numbers that a new process deals out anew.
pub struct Optimizer {
    rule: AdamW,
    /// By place; `None` for what is not trained, such as running statistics. What is trained has a gradient every step.
    states: Vec<Option<AdamWState<1>>>,
}

/// Moments as a module, so that they are stored the way weights are.
#[derive(Module, Debug)]
struct Moments {
    first: Vec<Param<Tensor<1>>>,
    second: Vec<Param<Tensor<1>>>,
}

impl Optimizer {
    pub fn new(config: &OptimConfig) -> Self {
        let rule = AdamWConfig::new()
            .with_beta_1(config.beta1 as f32)
            .with_beta_2(config.beta2 as f32)
            .with_epsilon(config.epsilon as f32)
            .with_weight_decay(config.weight_decay as f32)
            .build();
        Self { rule, states: Vec::new() }
    }

    /// New weights. Parameters without a gradient stay. Old weights and moments live until the new ones are whole: on an
    /// error nothing has changed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the gate refuses a parameter.
    pub fn step<M: Module>(&mut self, lr: f64, module: M, gradients: GradientsParams) -> Result<M> {
        struct Step<'a> {
            lr: f64,
            rule: &'a AdamW,
            old: &'a [Option<AdamWState<1>>],
            new: Vec<Option<AdamWState<1>>>,
            gradients: GradientsParams,
            refused: Option<Error>,
        }
        impl ModuleMapper for Step<'_> {
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                if self.refused.is_some() {
                    return param;
                }
                let old = self.old.get(self.new.len()).cloned().flatten();
                let Some(gradient) = self.gradients.remove::<D>(param.id) else {
                    self.new.push(old);
                    return param;
                };
                if let Err(error) = request(Request::Optimizer, "a parameter") {
                    self.refused = Some(error);
                    return param;
                }
                let (id, tensor, mapper) = param.consume();
                let tracked = tensor.is_require_grad();
                let shape = tensor.dims();
                // The same size for every rank, so that one list holds all states.
                let flat = tensor.without_autodiff().reshape([-1]);
                let (flat, state) = self.rule.step(self.lr, flat, gradient.reshape([-1]), old);
                self.new.push(state);
                let tensor = Tensor::from_inner(flat.reshape(shape)).set_require_grad(tracked);
                Param::from_mapped_value(id, tensor, mapper)
            }
        }
        let new = Vec::with_capacity(self.states.len());
        let mut step = Step { lr, rule: &self.rule, old: &self.states, new, gradients, refused: None };
        let module = module.map(&mut step);
        let Step { new, refused, .. } = step;
        // The last parameter's allocation may have been the one that failed.
        refused.map_or_else(settle, Err)?;
        self.states = new;
        Ok(module)
    }

    /// Bytes of the moments.
    pub fn bytes(&self) -> u64 {
        let moments = self.states.iter().flatten().flat_map(|state| {
            let AdaptiveMomentumState { moment_1, moment_2, .. } = &state.momentum;
            [moment_1, moment_2]
        });
        moments.map(|moment| (moment.shape().num_elements() * moment.dtype().size()) as u64).sum()
    }

    /// Reads the moments: whether the device still has them.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_back(&self) -> Result<()> {
        for state in self.states.iter().flatten() {
            for moment in [&state.momentum.moment_1, &state.momentum.moment_2] {
                read(moment.clone())?;
            }
        }
        Ok(())
    }

    /// Writes the moments as safetensors. The count of steps is the run's own and belongs in its state file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut moments = Moments { first: Vec::new(), second: Vec::new() };
        for state in self.states.iter().flatten() {
            moments.first.push(Param::from_tensor(state.momentum.moment_1.clone()));
            moments.second.push(Param::from_tensor(state.momentum.moment_2.clone()));
        }
        weights::write(&moments, SafetensorsStore::from_bytes(None).clear_metadata(), path)
    }

    /// Reads the moments that [`Optimizer::save`] wrote after `steps` steps of this `module`.
    ///
    /// # Errors
    /// [`Error::Input`] for a file that does not belong to the module.
    pub fn load<M: Module>(&mut self, path: &Path, module: &M, steps: usize, device: &Device) -> Result<()> {
        struct Sizes(Vec<Option<usize>>);
        impl ModuleVisitor for Sizes {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let tensor = param.val();
                self.0.push(tensor.is_require_grad().then(|| tensor.shape().num_elements()));
            }
        }
        let mut sizes = Sizes(Vec::new());
        module.visit(&mut sizes);
        let zeros = |n: &usize| Param::from_tensor(Tensor::<1>::zeros([*n], device));
        let mut moments = Moments {
            first: sizes.0.iter().flatten().map(zeros).collect(),
            second: sizes.0.iter().flatten().map(zeros).collect(),
        };
        let bad = |found: String| {
            Error::Input(occam_scene::Error::new(path, Place::File, found, "the optimizer's state of this network"))
        };
        let result = moments.load_from(&mut SafetensorsStore::from_file(path)).map_err(|e| bad(e.to_string()))?;
        if let Some(error) = result.errors.first() {
            return Err(bad(error.to_string()));
        }
        let mut pairs = moments.first.into_iter().zip(moments.second);
        self.states = sizes
            .0
            .iter()
            .map(|size| {
                let (first, second) = size.and_then(|_| pairs.next())?;
                let momentum = AdaptiveMomentumState {
                    time: steps,
                    moment_1: first.val(),
                    moment_2: second.val(),
                    max_moment_2: None,
                };
                Some(AdamWState { momentum })
            })
            .collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::TrainConfig;

    /// A loss of `a * ga + b * gb` has the gradients `ga` and `gb`; `still` is not trained, as running statistics.
    #[derive(Module, Debug)]
    struct Three {
        a: Param<Tensor<1>>,
        b: Param<Tensor<2>>,
        still: Param<Tensor<1>>,
    }

    fn three() -> Three {
        let device = Device::flex().autodiff();
        let one = || Param::from_tensor(Tensor::<1>::ones([1], &device).require_grad());
        Three {
            a: one(),
            b: Param::from_tensor(Tensor::<2>::ones([1, 1], &device).require_grad()),
            still: one().set_require_grad(false),
        }
    }

    fn gradients(module: &Three, ga: f32, gb: f32) -> GradientsParams {
        let loss = (module.a.val() * ga).sum() + (module.b.val() * gb).sum();
        GradientsParams::from_grads(loss.backward(), module)
    }

    fn number<const D: usize>(tensor: Tensor<D>) -> f64 {
        f64::from(tensor.into_scalar::<f32>())
    }

    fn optimizer() -> Optimizer {
        let mut config = TrainConfig::from_layers("demo", None, &[]).unwrap().optim;
        (config.weight_decay, config.beta1, config.beta2, config.epsilon) = (0.01, 0.9, 0.999, 1e-8);
        Optimizer::new(&config)
    }

    #[test]
    fn the_norm_is_over_all_gradients_and_clipping_keeps_their_ratio() {
        let module = three();
        let mut gradients = gradients(&module, 3.0, -4.0);
        assert_eq!(number(squared_norm(&module, &gradients).unwrap()), 25.0);
        clip(&module, &mut gradients, 5.0, 10.0);
        assert_eq!(number(gradients.get::<1>(module.a.id).unwrap()), 3.0);
        clip(&module, &mut gradients, 5.0, 0.0);
        assert_eq!(number(gradients.get::<1>(module.a.id).unwrap()), 3.0);
        clip(&module, &mut gradients, 5.0, 1.0);
        assert!((number(gradients.get::<1>(module.a.id).unwrap()) - 0.6).abs() < 1e-6);
        assert!((number(gradients.get::<2>(module.b.id).unwrap()) + 0.8).abs() < 1e-6);
    }

    #[test]
    fn two_steps_are_those_of_the_paper() {
        let (mut optimizer, mut module) = (optimizer(), three());
        for gradient in [0.5, -0.5] {
            let gradients = gradients(&module, gradient, gradient);
            module = optimizer.step(0.1, module, gradients).unwrap();
        }
        // Step 1: 1 * (1 - 0.1 * 0.01) - 0.1 * 0.5 / 0.5 = 0.899.
        // Step 2: m = 0.9 * 0.05 - 0.1 * 0.5 = -0.005, over 1 - 0.9^2; v = 0.25 after correction;
        // 0.899 * 0.999 + 0.1 * (0.005 / 0.19) / 0.5 = 0.9033642.
        for value in [number(module.a.val()), number(module.b.val())] {
            assert!((value - 0.903_364_2).abs() < 2e-6, "{value}");
        }
        assert_eq!(number(module.still.val()), 1.0);
        assert!(module.a.val().is_require_grad());
    }

    #[test]
    fn a_stored_optimizer_takes_the_same_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("optimizer.safetensors");
        let (mut first, mut module) = (optimizer(), three());
        for gradient in [0.5, -0.25] {
            let gradients = gradients(&module, gradient, 2.0);
            module = first.step(0.1, module, gradients).unwrap();
        }
        first.save(&path).unwrap();
        let mut second = optimizer();
        second.load(&path, &module, 2, &Device::flex()).unwrap();
        let next = |optimizer: &mut Optimizer| {
            let stepped = optimizer.step(0.1, module.clone(), gradients(&module, 0.125, 1.0)).unwrap();
            (number(stepped.a.val()), number(stepped.b.val()))
        };
        assert_eq!(next(&mut first), next(&mut second));
        assert_ne!(next(&mut optimizer()), next(&mut second));
        let missing = second.load(&folder.path().join("none"), &module, 2, &Device::flex()).unwrap_err();
        assert_eq!(missing.exit_code(), 2);
    }
}
