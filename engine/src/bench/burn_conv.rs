//! Burn's own convolutions, one function for each pass, over tensors of five axes.

use burn::backend::Dispatch;
use burn::backend::ops::ModuleOps;
use burn::tensor::Tensor;
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};

use crate::ops::conv::ConvGeometry;

/// What Burn computes for one pass of a convolution: `x` is of [`ConvGeometry::input`], `weight` of
/// [`ConvGeometry::weight`] and `y`, the output or its gradient, of [`ConvGeometry::output`].
#[derive(Clone, Copy)]
pub struct BurnConv {
    pub geometry: ConvGeometry,
    /// Depth 1: through the operations for planes.
    pub planes: bool,
}

impl BurnConv {
    /// `y`.
    pub fn forward(self, x: Tensor<5>, weight: Tensor<5>) -> Tensor<5> {
        self.run(
            [x, weight],
            |[x, w]| Dispatch::conv2d(x, w, None, self.options2()),
            |[x, w]| Dispatch::conv3d(x, w, None, self.options3()),
        )
    }

    /// Gradient of `x`, whose values do not matter.
    pub fn input_gradient(self, x: Tensor<5>, weight: Tensor<5>, y: Tensor<5>) -> Tensor<5> {
        self.run(
            [x, weight, y],
            |[x, w, y]| Dispatch::conv2d_x_backward(x, w, y, self.options2()),
            |[x, w, y]| Dispatch::conv3d_x_backward(x, w, y, self.options3()),
        )
    }

    /// Gradient of `weight`, whose values do not matter.
    pub fn weight_gradient(self, x: Tensor<5>, weight: Tensor<5>, y: Tensor<5>) -> Tensor<5> {
        self.run(
            [x, weight, y],
            |[x, w, y]| Dispatch::conv2d_weight_backward(x, w, y, self.options2()),
            |[x, w, y]| Dispatch::conv3d_weight_backward(x, w, y, self.options3()),
        )
    }

    /// From `y` to what has the shape of `x`.
    pub fn transposed(self, y: Tensor<5>, weight: Tensor<5>) -> Tensor<5> {
        self.run(
            [y, weight],
            |[y, w]| Dispatch::conv_transpose2d(y, w, None, self.transposed2()),
            |[y, w]| Dispatch::conv_transpose3d(y, w, None, self.transposed3()),
        )
    }

    /// Gradient of the transposed convolution's input, of the shape of `y`.
    pub fn transposed_input_gradient(self, weight: Tensor<5>, x: Tensor<5>) -> Tensor<5> {
        self.run(
            [weight, x],
            |[w, x]| Dispatch::conv_transpose2d_x_backward(w, x, self.transposed2()),
            |[w, x]| Dispatch::conv_transpose3d_x_backward(w, x, self.transposed3()),
        )
    }

    /// Gradient of the transposed convolution's weights, whose values do not matter.
    pub fn transposed_weight_gradient(self, y: Tensor<5>, weight: Tensor<5>, x: Tensor<5>) -> Tensor<5> {
        self.run(
            [y, weight, x],
            |[y, w, x]| Dispatch::conv_transpose2d_weight_backward(y, w, x, self.transposed2()),
            |[y, w, x]| Dispatch::conv_transpose3d_weight_backward(y, w, x, self.transposed3()),
        )
    }

    /// Runs the operation for planes, depth taken away and put back, or for volumes.
    fn run<const N: usize>(
        self,
        tensors: [Tensor<5>; N],
        planes: impl FnOnce([Operand; N]) -> Operand,
        volumes: impl FnOnce([Operand; N]) -> Operand,
    ) -> Tensor<5> {
        if !self.planes {
            return Tensor::from_dispatch(volumes(tensors.map(Tensor::into_dispatch)));
        }
        let flat = tensors.map(|tensor| {
            let [a, b, _, height, width] = tensor.dims();
            tensor.reshape([a, b, height, width]).into_dispatch()
        });
        let y: Tensor<4> = Tensor::from_dispatch(planes(flat));
        y.unsqueeze_dim(2)
    }

    fn options2(self) -> ConvOptions<2> {
        let g = self.geometry;
        ConvOptions::new(last(g.stride), last(g.padding), last(g.dilation), g.groups)
    }

    fn options3(self) -> ConvOptions<3> {
        let g = self.geometry;
        ConvOptions::new(g.stride, g.padding, g.dilation, g.groups)
    }

    fn transposed2(self) -> ConvTransposeOptions<2> {
        let g = self.geometry;
        ConvTransposeOptions::new(last(g.stride), last(g.padding), [0; 2], last(g.dilation), g.groups)
    }

    fn transposed3(self) -> ConvTransposeOptions<3> {
        let g = self.geometry;
        ConvTransposeOptions::new(g.stride, g.padding, [0; 3], g.dilation, g.groups)
    }
}

type Operand = burn::backend::tensor::FloatTensor<Dispatch>;

fn last([_, a, b]: [usize; 3]) -> [usize; 2] {
    [a, b]
}
