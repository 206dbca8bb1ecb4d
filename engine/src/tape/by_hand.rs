//! Segments whose backward pass is written out.
//!
//! Autodiff goes back through a segment with all that the segment keeps, and with the gradients of all its branches at once.
//! A backward pass that is written out chooses its order: it makes a tensor again just before its use, and adds up one
//! gradient at a time.

use std::rc::Rc;

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::{Held, Input, Learning, Mode, Record, Slot, Stored, Tape, Value, Var};
use crate::Result;
use crate::gpu::{Request, request};

/// A segment of `I` inputs and one output that goes forward and back by its own code. Nothing in it draws random numbers or
/// changes with the batch.
pub trait ByHand<M, const I: usize> {
    /// What the forward pass leaves for the backward pass.
    type Kept: 'static;

    /// The output, with whatever autodiff the tensors have.
    ///
    /// # Errors
    /// Those of its operations.
    fn run(&self, network: &M, inputs: [Value; I]) -> Result<Value>;

    /// The same without autodiff, and what the backward pass shall have: with [`Mode::Keep`] so much that nothing large is
    /// computed again.
    ///
    /// # Errors
    /// Those of its operations.
    fn forward(&self, network: &M, inputs: [Value; I], mode: Mode) -> Result<(Value, Self::Kept)>;

    /// Gradients of the inputs, and through [`add_gradient`] of the parameters, from that of the output; the same bits
    /// whatever was kept. An input is `None` where it is an addend: then the tape knows its gradient, and what comes out for
    /// it is not read.
    ///
    /// # Errors
    /// Those of its operations.
    fn backward(
        &self,
        network: &M,
        inputs: [Option<Value>; I],
        kept: Self::Kept,
        gradient: Value,
        sums: &mut GradientsParams,
    ) -> Result<[Option<Value>; I]>;

    /// What [`Mode::Keep`] costs for inputs of these dimensions; `size`: bytes of a value.
    fn keeps(&self, network: &M, inputs: [[usize; 5]; I], size: usize) -> Keeps;
}

/// What a segment holds when it keeps, above what it holds when it recomputes. Counted, not measured: a segment whose
/// backward pass is written out never holds as much while it recomputes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Keeps {
    /// From its forward to its backward pass.
    pub bytes: u64,
    /// At the peak of its forward pass.
    pub forward_bytes: u64,
    /// At the peak of its backward pass.
    pub backward_bytes: u64,
    /// Of the time of its forward pass, the share that it saves in the backward pass.
    pub saves: f64,
}

pub(super) type Back<'n, M> = Box<dyn FnOnce(&M, Value, &mut GradientsParams) -> Result<Vec<Option<Value>>> + 'n>;

impl<'n, M: Module> Tape<'n, M> {
    /// Runs one segment whose backward pass is written out. Its inputs have no gradient unless [`ByHand::backward`] gives one.
    ///
    /// # Errors
    /// Those of the segment, and of the gate before it.
    pub fn segment_by_hand<const I: usize>(
        &mut self,
        name: &str,
        inputs: [Input; I],
        segment: impl ByHand<M, I> + 'n,
    ) -> Result<Var> {
        if let Some(learning) = &mut self.learning {
            return learning.segment_by_hand(name, inputs, segment);
        }
        request(Request::Forward, name)?;
        let values = inputs.map(|input| match input {
            Input::Value(var) | Input::Addend(var) => var.into_value(),
        });
        Ok(Var { value: Stored::Plain(segment.run(self.network, values)?), slot: None })
    }
}

impl<'n, M: Module> Learning<'n, M> {
    fn segment_by_hand<const I: usize>(
        &mut self,
        name: &str,
        inputs: [Input; I],
        segment: impl ByHand<M, I> + 'n,
    ) -> Result<Var> {
        request(Request::Forward, name)?;
        let index = self.records.len();
        let mode = self.modes.get(index).copied().unwrap_or(self.precision.mode());
        self.watch.begin(self.waiting_bytes());
        let mut slots = Vec::with_capacity(I);
        let inputs = inputs.map(|input| {
            let (var, addend) = match input {
                Input::Value(var) => (var, false),
                Input::Addend(var) => (var, true),
            };
            slots.push((var.slot.expect("a variable of a tape that learns"), addend));
            (var.value, addend)
        });
        // As they are stored: in bf16 what is unpacked lives only for the forward pass.
        let held = inputs.each_ref().map(|(value, addend)| (!addend).then(|| value.clone()));
        let inputs = inputs.map(|(value, _)| value.into_value());
        let dims = inputs.each_ref().map(Tensor::dims);
        let size = inputs.first().map_or(4, |value| value.dtype().size());
        let keeps = segment.keeps(&self.frozen, dims, size);
        let (output, kept) = segment.forward(&self.frozen.valid(), inputs, mode)?;
        let back: Back<'n, M> = Box::new(move |network, gradient, sums| {
            let inputs = held.map(|value| value.map(Stored::into_value));
            segment.backward(network, inputs, kept, gradient, sums).map(Vec::from)
        });
        let output = self.var(output, true);
        let out_slots: Vec<Rc<Slot>> = output.slot.iter().cloned().collect();
        self.watch.forward(
            name,
            mode,
            slots.iter().map(|(slot, addend)| (slot.id, *addend)).collect(),
            out_slots.iter().map(|slot| slot.id).collect(),
        );
        self.watch.by_hand(index, keeps);
        self.records.push(Record { index, inputs: slots, outputs: out_slots, held: Held::ByHand { mode, back } });
        Ok(output)
    }

    /// `inputs` as in [`Record`]; addends have their gradients.
    pub(super) fn backward_by_hand(
        &mut self,
        index: usize,
        inputs: &[(Rc<Slot>, bool)],
        mode: Mode,
        back: Back<'n, M>,
        gradient: Value,
    ) -> Result<()> {
        if mode == Mode::Recompute {
            request(Request::Recompute, self.watch.name(index))?;
        }
        request(Request::Gradient, self.watch.name(index))?;
        let gradient_bytes = self.waiting_bytes() + super::trace::bytes(&gradient);
        self.watch.begin(gradient_bytes);
        let gradients = back(&self.frozen.valid(), gradient, &mut self.gradients)?;
        for ((slot, addend), gradient) in inputs.iter().zip(gradients) {
            if let Some(gradient) = gradient.filter(|_| slot.tracked && !addend) {
                slot.add(gradient);
            }
        }
        self.watch.backward(index);
        Ok(())
    }
}

/// Adds to the gradient of a parameter.
pub fn add_gradient<const D: usize>(sums: &mut GradientsParams, parameter: &Param<Tensor<D>>, gradient: Tensor<D>) {
    let gradient = match sums.remove::<D>(parameter.id) {
        Some(sum) => sum + gradient,
        None => gradient,
    };
    sums.register(parameter.id, gradient);
}
