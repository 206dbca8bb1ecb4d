//! What a step looks at before it moves anything: loss, global norm, and what of the gradients is not finite or zero.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

use super::optimizer::{scale_gradients, squared_norm};
use crate::gpu::read;
use crate::ops::nonfinite_counts;
use crate::{Error, Result};

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    pub loss: f64,
    /// Global L2 norm.
    pub norm: f64,
    /// Share of all values of all gradients that are 0.
    pub zero_share: f64,
    /// Name of the first parameter whose gradient is not finite.
    pub nonfinite: Option<String>,
}

impl Look {
    pub fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.norm.is_finite() && self.nonfinite.is_none()
    }
}

/// Looks at `loss`, `[1]`, and all gradients of `module` in one read: on a GPU it is here that a failed operation shows.
/// `device` is without autodiff.
///
/// # Errors
/// [`Error::Failed`] when the device fails, and without any gradient.
pub fn look<M: Module>(module: &M, loss: Tensor<1>, gradients: &GradientsParams, device: &Device) -> Result<Look> {
    let named = NamedGradients::of(module, gradients);
    let square = squared_norm(module, gradients);
    let square = square.ok_or_else(|| Error::Failed("a network without gradients".into()))?;
    let sizes: Vec<usize> = named.gradients.iter().map(|gradient| gradient.dims()[0]).collect();
    let counts = nonfinite_counts(named.gradients, device)?.reshape([2 * sizes.len()]);
    // As f32, which counts exactly to 2^24, and beyond that never comes to 0.
    let numbers = Tensor::cat(vec![loss, square.without_autodiff(), counts.float()], 0);
    let numbers: Vec<f64> = read(numbers)?.iter::<f64>().collect();
    let (head, counts) = numbers.split_at(2);
    let zeros: f64 = counts.iter().skip(1).step_by(2).sum();
    let first = counts.iter().step_by(2).position(|nonfinite| *nonfinite > 0.0);
    Ok(Look {
        // A sum over no voxel is -0.
        loss: head[0] + 0.0,
        norm: head[1].sqrt(),
        zero_share: zeros / sizes.iter().sum::<usize>().max(1) as f64,
        nonfinite: first.map(|place| named.names[place].clone()),
    })
}

/// Divides every gradient by the loss scale.
pub fn unscale<M: Module>(module: &M, gradients: &mut GradientsParams, scale: f64) {
    if scale != 1.0 {
        scale_gradients(module, gradients, 1.0 / scale);
    }
}

/// Gradients in a row each, with the names of their parameters.
struct NamedGradients<'a> {
    source: &'a GradientsParams,
    path: Vec<String>,
    names: Vec<String>,
    gradients: Vec<Tensor<1>>,
}

impl<'a> NamedGradients<'a> {
    fn of<M: Module>(module: &M, source: &'a GradientsParams) -> Self {
        let mut found = Self { source, path: Vec::new(), names: Vec::new(), gradients: Vec::new() };
        module.visit(&mut found);
        found
    }
}

impl ModuleVisitor for NamedGradients<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        // A variant of an enum is which network it is, not a part of it.
        self.path.push(if container.starts_with("Enum") { String::new() } else { name.to_owned() });
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.source.get::<D>(param.id) {
            let path: Vec<&str> = self.path.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            self.names.push(path.join("."));
            self.gradients.push(gradient.without_autodiff().reshape([-1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Network;

    /// A network whose gradients are set by hand: all ones, then one value of one of them each of the odd kinds.
    #[test]
    fn the_first_gradient_that_is_not_finite_is_told_by_name() {
        type Change<'a> = &'a dyn Fn(&str, usize, Vec<f32>) -> Vec<f32>;
        let device = Device::flex();
        let network = Network::new("lmscnet-ss", [8, 8, 8], 1, 3, 0, &device.clone().autodiff()).unwrap();
        let look_at = |change: Change<'_>| {
            struct Set<'a> {
                names: Vec<String>,
                change: Change<'a>,
                gradients: GradientsParams,
                place: usize,
            }
            impl ModuleVisitor for Set<'_> {
                fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                    let value = param.val();
                    if !value.is_require_grad() {
                        return;
                    }
                    let values = vec![1.0; value.shape().num_elements()];
                    let name = self.names.get(self.place).cloned().unwrap_or_default();
                    let values = (self.change)(&name, self.place, values);
                    let device = value.device().without_autodiff();
                    let gradient = Tensor::<1>::from_data(values.as_slice(), &device).reshape(value.dims());
                    self.gradients.register::<D>(param.id, gradient);
                    self.place += 1;
                }
            }
            let mut set = Set { names: Vec::new(), change, gradients: GradientsParams::new(), place: 0 };
            network.visit(&mut set);
            set.names = NamedGradients::of(&network, &set.gradients).names;
            (set.gradients, set.names)
        };
        let (gradients, names) = look_at(&|_, _, values| values);
        assert_eq!(names[..3], ["encoder_block1.0.weight", "encoder_block1.0.bias", "encoder_block1.1.weight"]);
        let of_head = names.iter().position(|name| name == "seg_head_1_1.bn1.2.gamma").unwrap();
        let loss = || Tensor::<1>::from_data([2.5], &device);
        let found = look(&network, loss(), &gradients, &device).unwrap();
        let parameters = network.num_params() as f64;
        let ones = found.norm * found.norm;
        assert!((ones - ones.round()).abs() < 1e-3 && ones.round() <= parameters, "{found:?}");
        assert_eq!((found.loss, found.zero_share, &found.nonfinite), (2.5, 0.0, &None));
        assert!(found.is_finite());

        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (gradients, _) = look_at(&|_, place, mut values| {
                if place >= of_head {
                    *values.last_mut().unwrap() = odd;
                }
                values
            });
            let found = look(&network, loss(), &gradients, &device).unwrap();
            assert_eq!(found.nonfinite.as_deref(), Some("seg_head_1_1.bn1.2.gamma"));
            assert!(!found.is_finite() && found.zero_share == 0.0);
        }

        let (gradients, _) = look_at(&|_, _, values| values.iter().map(|_| -0.0).collect());
        let found = look(&network, loss(), &gradients, &device).unwrap();
        assert_eq!((found.zero_share, found.norm), (1.0, 0.0));
        // A loss that is no number, with gradients that are.
        let found = look(&network, Tensor::<1>::from_data([f32::NAN], &device), &gradients, &device).unwrap();
        assert!(!found.is_finite() && found.nonfinite.is_none());
    }

    #[test]
    fn gradients_are_divided_by_the_scale() {
        let device = Device::flex();
        let network = Network::new("sscnet", [4, 4, 4], 1, 3, 0, &device.clone().autodiff()).unwrap();
        let x = Tensor::<5>::ones([1, 1, 4, 4, 4], &device.clone().autodiff());
        let loss = network.forward(x).unwrap().remove(0).square().sum();
        let mut gradients = GradientsParams::from_grads(loss.backward(), &network);
        let zero = || Tensor::<1>::zeros([1], &device);
        let before = look(&network, zero(), &gradients, &device).unwrap().norm;
        unscale(&network, &mut gradients, 512.0);
        assert_eq!(look(&network, zero(), &gradients, &device).unwrap().norm, before / 512.0);
    }
}
