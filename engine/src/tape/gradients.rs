//! Gradients of parameters, added up over segments.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Gradients, Tensor};

/// Adds what `found` holds of the parameters of `network` to `sum`; nothing else of `sum` is touched.
pub(super) fn collect<M: Module>(network: &M, mut found: Gradients, sum: &mut GradientsParams) {
    struct Collect<'a> {
        found: &'a mut Gradients,
        sum: &'a mut GradientsParams,
    }
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // Running statistics, and what is frozen.
            if !param.is_require_grad() {
                return;
            }
            let Some(gradient) = param.val().grad_remove(self.found) else { return };
            let gradient = match self.sum.remove::<D>(param.id) {
                Some(sum) => sum + gradient,
                None => gradient,
            };
            self.sum.register(param.id, gradient);
        }
    }
    network.visit(&mut Collect { found: &mut found, sum });
}
