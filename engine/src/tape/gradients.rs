//! Gradients of parameters, added up over segments; and graphs that nobody goes back through.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Gradients, Tensor};

use crate::ops::inject;

/// Adds what `found` holds of the parameters of `network` to `sum`; nothing else of `sum` is touched. Gives the bytes by which
/// `sum` has grown.
pub(super) fn collect<M: Module>(network: &M, mut found: Gradients, sum: &mut GradientsParams) -> u64 {
    struct Collect<'a> {
        found: &'a mut Gradients,
        sum: &'a mut GradientsParams,
        bytes: u64,
    }
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // Running statistics, and what is frozen.
            if !param.is_require_grad() {
                return;
            }
            let Some(gradient) = param.val().grad_remove(self.found) else { return };
            let gradient = if let Some(sum) = self.sum.remove::<D>(param.id) {
                sum + gradient
            } else {
                self.bytes += (gradient.shape().num_elements() * gradient.dtype().size()) as u64;
                gradient
            };
            self.sum.register(param.id, gradient);
        }
    }
    let mut collect = Collect { found: &mut found, sum, bytes: 0 };
    network.visit(&mut collect);
    collect.bytes
}

/// Frees the graphs of a pass that was given up.
///
/// Burn keeps what a graph holds until a backward pass comes by, also when nobody can ask for that any more. One through
/// every parameter, of gradients that take no memory, comes by all graphs of the network.
pub(super) fn forget_graphs<M: Module>(network: &M) {
    struct Roots(Option<Tensor<1>>);
    impl ModuleVisitor for Roots {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if !param.is_require_grad() {
                return;
            }
            let value = param.val();
            let device = value.device().without_autodiff();
            let nothing = Tensor::<D>::zeros([1; D], (&device, value.dtype())).expand(value.shape());
            let root = inject(value, nothing);
            self.0 = Some(match self.0.take() {
                Some(sum) => sum + root,
                None => root,
            });
        }
    }
    let mut roots = Roots(None);
    network.visit(&mut roots);
    if let Some(root) = roots.0 {
        drop(root.backward());
    }
}
