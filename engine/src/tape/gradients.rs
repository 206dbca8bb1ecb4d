//! Gradients of parameters, added up over segments.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Gradients, Tensor};

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
            let gradient = match self.sum.remove::<D>(param.id) {
                Some(sum) => sum + gradient,
                None => {
                    self.bytes += (gradient.shape().num_elements() * gradient.dtype().size()) as u64;
                    gradient
                }
            };
            self.sum.register(param.id, gradient);
        }
    }
    let mut collect = Collect { found: &mut found, sum, bytes: 0 };
    network.visit(&mut collect);
    collect.bytes
}
