//! What operations on `[batch, channels, length]` share: how a reduction of every channel is cut into parts, on a GPU and
//! on the CPU. The parts follow from the sizes alone and are combined in order, so that results do not depend on the
//! number of threads.

mod cpu;
mod cube;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};
use burn::tensor::{Shape, Tensor};

use crate::gpu::{check_binding, check_dtype};
use crate::{Error, Result};

pub(crate) use cpu::{Moments, Partial, change, lane_sums, visit, visit_into};
pub(crate) use cube::{Finish, reduce_cube};

/// Values of one workgroup of the kernels that include `each_value.wgsl`.
pub(crate) const EACH_VALUE: usize = 4096;

/// Rows shorter than this are taken by columns, when there are some.
const SHORT_ROW: usize = 32;
const SOME_ROWS: usize = 8;

/// Sizes of a tensor `[batch, channels, length]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub channels: usize,
    pub length: usize,
}

impl Sizes {
    pub fn of(shape: &Shape) -> Self {
        let [batch, channels, length] = shape.dims();
        Self { batch, channels, length }
    }

    /// Values of one channel.
    pub fn values(self) -> usize {
        self.batch * self.length
    }

    fn by_columns(self) -> bool {
        self.length < SHORT_ROW && self.batch >= SOME_ROWS
    }
}

/// Checks what every operation on channels asks of its input: f32 or f16, and that what it reduces to fits.
pub(crate) fn check<const D: usize>(operation: &str, x: &Tensor<D>, sizes: Sizes) -> Result<()> {
    check_dtype(&x.device(), &format!("{operation}: the input {:?}", x.dims()), x.dtype())?;
    let what = format!("{operation} of {:?}: its partial results", x.dims());
    check_binding(&x.device(), &what, cube::partial_bytes(sizes))
}

/// That a vector has one value a channel.
pub(crate) fn check_vector(operation: &str, name: &str, vector: &Tensor<1>, channels: usize) -> Result<()> {
    let [found] = vector.dims();
    if found == channels {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{operation}: {name} has {found} values, expected {channels}, one a channel of the input"
    )))
}

/// That a tensor is like another in shape and type.
pub(crate) fn check_like<const D: usize>(operation: &str, name: &str, other: &Tensor<D>, x: &Tensor<D>) -> Result<()> {
    if (other.dims(), other.dtype()) == (x.dims(), x.dtype()) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{operation}: the {name} is {:?} of {:?}, expected {:?} of {:?} as the input",
        other.dims(),
        other.dtype(),
        x.dims(),
        x.dtype()
    )))
}

/// A tensor without its place in the graph of derivatives.
pub(crate) fn primitive<B: Backend, C: CheckpointStrategy>(tensor: FloatTensor<Autodiff<B, C>>) -> FloatTensor<B> {
    tensor.into_primitive()
}
