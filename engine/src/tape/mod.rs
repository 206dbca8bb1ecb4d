//! A network as a row of segments, of which each keeps what its backward pass needs or is computed again there.
//!
//! A network is plain code over values ([`Var`]) that it hands from segment to segment. A tape that only runs
//! ([`Tape::plain`]) makes the ordinary graph of it, or none. A tape that learns ([`Tape::learning`]) cuts the graph at the
//! borders of the segments: a segment that is kept runs with autodiff at once; one that is recomputed runs without, holds
//! its inputs, and runs again when the backward pass gets there (Chen et al., arXiv 1604.06174). Either way the tape hands
//! the gradient of a segment's outputs in and adds up what comes out, in the same order, so that losses and gradients are
//! equal bit for bit whatever is recomputed.

mod by_hand;
mod gradients;
mod pass;
mod plan;
mod simulate;
mod slabs;
mod stored;
mod trace;

use std::cell::RefCell;
use std::rc::Rc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

use crate::gpu::{Request, request};
use crate::ops::{hollow, inject};
use crate::{Error, Result};

pub use by_hand::{ByHand, Keeps, add_gradient};
pub use pass::{Pass, Prepared, Updates};
pub use plan::{Strategy, least, solve};
pub use simulate::{Loss, Moment, Peaks, Profile, Segment, Simulation};
pub use trace::{Lap, LossRun, SegmentRun, Summit, Trace};

use by_hand::Back;
use slabs::{Slabs, slab};
use stored::Stored;
use trace::Watch;

/// What segments work on: `[B, C, Z, X, Y]`; a map without height has `Z` 1.
pub type Value = Tensor<5>;

/// What a segment does with the tensors that its backward pass needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Keep,
    Recompute,
}

/// In what values between segments and their gradients are stored. Parameters, biases, statistics and losses are f32 in all of
/// them, and so are sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    #[default]
    F32,
    /// Values and gradients in f16; layers round their weights to it where they use them.
    F16,
    /// Values rounded to bf16 and held in half the bytes; arithmetic and gradients in f32.
    Bf16,
}

impl Precision {
    /// As it is written in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// What a segment does that nobody has a plan for. In bf16 it is computed again: what a kept one holds is f32.
    pub fn mode(self) -> Mode {
        match self {
            Self::F32 | Self::F16 => Mode::Keep,
            Self::Bf16 => Mode::Recompute,
        }
    }
}

/// How a tape learns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Learn<'a> {
    /// Segment `i` in order of running does what `modes[i]` says; those beyond do what [`Precision::mode`] says.
    pub modes: &'a [Mode],
    /// Decides all that segments draw: the device's generator begins each run of segment `i` with a seed made of this and
    /// `i`, so that the second run draws what the first one drew, and every choice of modes the same.
    pub seed: u64,
    /// Whether batch normalization takes its running statistics, and leaves them as they are.
    pub frozen_statistics: bool,
    /// Whether [`Tape::backward`] gives times and bytes of every segment.
    pub traced: bool,
    pub precision: Precision,
}

/// What a backward pass gives.
pub struct Gathered {
    /// Of all losses, by the parameters of the network.
    pub gradients: GradientsParams,
    /// What the network does once the step counts.
    pub updates: Updates,
    pub trace: Option<Trace>,
    /// When most was in use.
    pub summit: Summit,
}

/// A value between segments. It lives as long as somebody holds it; a segment holds those it needs for its backward pass.
#[derive(Debug, Clone)]
pub struct Var {
    value: Stored,
    /// None where the tape only runs.
    slot: Option<Rc<Slot>>,
}

/// Where the gradient of a value adds up.
#[derive(Debug)]
struct Slot {
    /// In order of making.
    id: usize,
    /// Whether anything before it learns.
    tracked: bool,
    gradient: RefCell<Option<Value>>,
}

impl Slot {
    fn add(&self, gradient: Value) {
        let mut place = self.gradient.borrow_mut();
        *place = Some(match place.take() {
            Some(sum) => sum + gradient,
            None => gradient,
        });
    }
}

impl Var {
    /// `[B, C, Z, X, Y]`.
    pub fn dims(&self) -> [usize; 5] {
        self.value.dims()
    }

    /// The value; of a tape that learns, without autodiff.
    pub fn into_value(self) -> Value {
        self.value.into_value()
    }
}

/// What goes into a segment.
#[derive(Debug, Clone)]
pub enum Input {
    /// A value that the segment computes with.
    Value(Var),
    /// A value that the segment only adds to its first output: its gradient is that of the output, and nobody keeps the
    /// value for the backward pass.
    Addend(Var),
}

impl From<Var> for Input {
    fn from(var: Var) -> Self {
        Self::Value(var)
    }
}

impl From<&Var> for Input {
    fn from(var: &Var) -> Self {
        Self::Value(var.clone())
    }
}

type Run<'n, M> = Box<dyn Fn(&M, &mut Pass, Vec<Value>) -> Result<Vec<Value>> + 'n>;

/// What the backward pass of a segment starts from.
enum Held<'n, M> {
    /// Inputs and outputs with the graph between them. `None`: an addend, or nothing before it learns. The outputs are hollow:
    /// their values live only as long as somebody needs them.
    Graph { leaves: Vec<Option<Value>>, outputs: Vec<Value> },
    /// Inputs without autodiff, and how to go on from there.
    Inputs { values: Vec<HeldInput>, run: Run<'n, M>, pass: Pass },
    /// What a backward pass that is written out holds, with it.
    ByHand { mode: Mode, back: Back<'n, M> },
}

// Segments have a handful of inputs, nearly all of them values.
#[allow(clippy::large_enum_variant)]
enum HeldInput {
    Value(Stored),
    Addend([usize; 5]),
}

struct Record<'n, M> {
    index: usize,
    inputs: Vec<(Rc<Slot>, bool)>,
    outputs: Vec<Rc<Slot>>,
    held: Held<'n, M>,
}

/// See the module.
pub struct Tape<'n, M: Module> {
    network: &'n M,
    learning: Option<Learning<'n, M>>,
}

struct Learning<'n, M: Module> {
    network: &'n M,
    /// The network without gradients of its own: shares its tensors and running statistics.
    frozen: M,
    modes: Vec<Mode>,
    precision: Precision,
    seed: u64,
    frozen_statistics: bool,
    records: Vec<Record<'n, M>>,
    values: usize,
    gradients: GradientsParams,
    parameter_gradient_bytes: u64,
    updates: Updates,
    watch: Watch,
    /// Whether the backward pass came to its end.
    finished: bool,
}

/// The last layer of a network, from features to logits, which can be taken a few planes at a time.
pub struct Classifier<M> {
    /// Logits of features.
    pub run: fn(&M, Value, Planes) -> Result<Value>,
    /// Planes along z on either side that a plane of logits depends on.
    pub halo: usize,
    /// Planes of logits for each plane of features.
    pub scale: usize,
}

impl<M> Clone for Classifier<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Classifier<M> {}

/// Which planes along z a classifier is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planes {
    All,
    /// Some of them; the first and last [`Classifier::halo`] planes are context (zeros beyond the grid) and have no logits.
    Some,
}

/// What a network ends in: features at one scale, and how to make logits of them.
pub struct Head<M> {
    pub features: Var,
    pub classifier: Classifier<M>,
}

impl<M: Module> Head<M> {
    /// Logits of a head of a tape that only runs, `planes` planes of features at a time, from the lowest up: `take` gets them
    /// one after another, each `[B, classes, planes * scale, X, Y]`, the last one perhaps with fewer.
    ///
    /// # Errors
    /// Those of the classifier and of `take`.
    pub fn by_planes(self, network: &M, planes: usize, take: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        let Self { features, classifier } = self;
        let features = features.into_value();
        let count = features.dims()[2];
        if planes >= count {
            return take((classifier.run)(network, features, Planes::All)?);
        }
        for start in (0..count).step_by(planes.max(1)) {
            let slab = slab(&features, start, (start + planes).min(count), classifier.halo);
            take((classifier.run)(network, slab, Planes::Some)?)?;
        }
        Ok(())
    }
}

impl<'n, M: Module> Tape<'n, M> {
    /// A tape that only runs: values go through as they are, with or without autodiff, and batch normalization does what the
    /// network's training flag says.
    pub fn plain(network: &'n M) -> Self {
        Self { network, learning: None }
    }

    /// A tape that learns. `network` lives on a device with autodiff.
    pub fn learning(network: &'n M, device: &Device, how: &Learn<'_>) -> Self {
        // Burn makes parameters when they are first looked at. One that a copy without gradients is first to look at would
        // have none anywhere.
        network.visit(&mut Touch);
        let learning = Learning {
            network,
            finished: false,
            frozen: network.clone().no_grad(),
            modes: how.modes.to_vec(),
            precision: how.precision,
            seed: how.seed,
            frozen_statistics: how.frozen_statistics,
            parameter_gradient_bytes: 0,
            records: Vec::new(),
            values: 0,
            gradients: GradientsParams::new(),
            updates: Updates::default(),
            watch: Watch::new(device, how.traced),
        };
        Self { network, learning: Some(learning) }
    }

    pub fn network(&self) -> &'n M {
        self.network
    }

    /// A value that comes from outside and has no gradient.
    pub fn input(&mut self, value: Value) -> Var {
        match &mut self.learning {
            None => Var { value: Stored::Plain(value), slot: None },
            Some(learning) => learning.var(value.without_autodiff(), false),
        }
    }

    /// Runs one segment. `run` gets the values of `inputs` in order; it may run twice, and gives the same both times: what is
    /// drawn or counted on the way goes through its [`Pass`].
    ///
    /// # Errors
    /// Those of `run`, and of the gate before it.
    pub fn segment<const I: usize, const O: usize>(
        &mut self,
        name: &str,
        inputs: [Input; I],
        run: impl Fn(&M, &mut Pass, [Value; I]) -> Result<[Value; O]> + 'n,
    ) -> Result<[Var; O]> {
        let Some(learning) = &mut self.learning else {
            request(Request::Forward, name)?;
            let values = inputs.map(|input| match input {
                Input::Value(var) | Input::Addend(var) => var.into_value(),
            });
            return Ok(run(self.network, &mut Pass::only(), values)?
                .map(|value| Var { value: Stored::Plain(value), slot: None }));
        };
        let run: Run<'n, M> = Box::new(move |network, pass, values| {
            let values = values.try_into().expect("as many values as inputs");
            run(network, pass, values).map(Vec::from)
        });
        let outputs = learning.segment(name, inputs.into(), run)?;
        Ok(outputs.try_into().unwrap_or_else(|_| unreachable!("as many variables as outputs")))
    }

    /// Computes a loss over the logits of `head`, `planes` planes of features at a time, with its gradient at once: what is
    /// above a loss is a number known beforehand, `factor`. At no time there are more logits than those of `planes` planes.
    /// `loss` gets logits and the range of their planes along z, and gives a number that adds up over the calls; with
    /// `planes` at least those of the features it is called once, with all logits.
    ///
    /// Gives the sum, not multiplied by `factor`.
    ///
    /// # Errors
    /// Those of the classifier and of `loss`.
    ///
    /// # Panics
    /// On a tape that only runs.
    pub fn loss(
        &mut self,
        head: Head<M>,
        planes: usize,
        factor: f64,
        loss: &mut dyn FnMut(Value, std::ops::Range<usize>) -> Result<Tensor<1>>,
    ) -> Result<Tensor<1>> {
        self.learning.as_mut().expect("a tape that learns").loss(head, planes, factor, loss)
    }

    /// Goes back through all segments. The network is as it was before: what its layers note on the way is handed out.
    ///
    /// # Errors
    /// Those of segments that run again, and of the gate before each.
    ///
    /// # Panics
    /// On a tape that only runs.
    pub fn backward(self) -> Result<Gathered> {
        self.learning.expect("a tape that learns").backward()
    }
}

/// Looks at every parameter.
struct Touch;

impl ModuleVisitor for Touch {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}

impl<'n, M: Module> Learning<'n, M> {
    fn var(&mut self, value: Value, tracked: bool) -> Var {
        let id = self.values;
        self.values += 1;
        let value = Stored::new(value, self.precision);
        self.watch.value(id, value.bytes());
        Var { value, slot: Some(Rc::new(Slot { id, tracked, gradient: RefCell::new(None) })) }
    }

    fn segment(&mut self, name: &str, inputs: Vec<Input>, run: Run<'n, M>) -> Result<Vec<Var>> {
        request(Request::Forward, name)?;
        let index = self.records.len();
        let mode = self.modes.get(index).copied().unwrap_or(self.precision.mode());
        let mut slots = Vec::with_capacity(inputs.len());
        let mut values = Vec::with_capacity(inputs.len());
        for input in inputs {
            let (var, addend) = match input {
                Input::Value(var) => (var, false),
                Input::Addend(var) => (var, true),
            };
            slots.push((var.slot.expect("a variable of a tape that learns"), addend));
            values.push(var.value);
        }
        self.watch.begin(self.waiting_bytes());
        self.seed_segment(index);
        let (held, outputs) = match mode {
            Mode::Keep => {
                let leaves = slots.iter().zip(values).map(|((slot, addend), value)| {
                    let value = value.into_value().autodiff();
                    if slot.tracked && !addend { value.require_grad() } else { value }
                });
                let leaves: Vec<Value> = leaves.collect();
                let has_gradient = |(slot, addend): &(Rc<Slot>, bool)| slot.tracked && !addend;
                let kept = slots.iter().zip(&leaves).map(|(slot, leaf)| has_gradient(slot).then(|| leaf.clone()));
                let kept = kept.collect();
                let mut pass = Pass::kept(self.frozen_statistics);
                let outputs = run(self.network, &mut pass, leaves)?;
                self.updates.append(pass.take_updates());
                let values: Vec<Value> = outputs.iter().map(|output| output.clone().without_autodiff()).collect();
                let outputs = outputs.into_iter().map(hollow).collect();
                (Held::Graph { leaves: kept, outputs }, values)
            }
            Mode::Recompute => {
                let held = slots.iter().zip(&values).map(|((_, addend), value)| {
                    if *addend { HeldInput::Addend(value.dims()) } else { HeldInput::Value(value.clone()) }
                });
                let held = held.collect();
                // With autodiff but without anything to track, so that layers do what they do in training.
                let inputs = values.into_iter().map(|value| value.into_value().autodiff()).collect();
                let mut pass = Pass::first(self.frozen_statistics);
                let outputs = run(&self.frozen, &mut pass, inputs)?;
                self.updates.append(pass.take_updates());
                let values = outputs.into_iter().map(Tensor::without_autodiff).collect();
                (Held::Inputs { values: held, run, pass }, values)
            }
        };
        let outputs: Vec<Var> = outputs.into_iter().map(|value| self.var(value, true)).collect();
        let out_slots: Vec<Rc<Slot>> = outputs.iter().filter_map(|var| var.slot.clone()).collect();
        self.watch.forward(
            name,
            mode,
            slots.iter().map(|(slot, addend)| (slot.id, *addend)).collect(),
            out_slots.iter().map(|slot| slot.id).collect(),
        );
        self.records.push(Record { index, inputs: slots, outputs: out_slots, held });
        Ok(outputs)
    }

    fn loss(
        &mut self,
        head: Head<M>,
        planes: usize,
        factor: f64,
        loss: &mut dyn FnMut(Value, std::ops::Range<usize>) -> Result<Tensor<1>>,
    ) -> Result<Tensor<1>> {
        let Head { features, classifier } = head;
        let slot = features.slot.expect("a variable of a tape that learns");
        let features = features.value.into_value();
        let count = features.dims()[2];
        let whole = planes >= count;
        self.watch.begin(self.waiting_bytes());
        let mut total: Option<Tensor<1>> = None;
        let mut gradient = Slabs::new(if whole { 0 } else { classifier.halo });
        for start in (0..count).step_by(planes.clamp(1, count.max(1))) {
            request(Request::Loss, "loss")?;
            let end = (start + planes).min(count);
            let slab = if whole { features.clone() } else { slab(&features, start, end, classifier.halo) };
            let leaf = slab.autodiff();
            let leaf = if slot.tracked { leaf.require_grad() } else { leaf };
            let which = if whole { Planes::All } else { Planes::Some };
            let logits = (classifier.run)(self.network, leaf.clone(), which)?;
            let part = loss(logits, start * classifier.scale..end * classifier.scale)?;
            let value = part.clone().without_autodiff();
            total = Some(match total {
                Some(sum) => sum + value,
                None => value,
            });
            let root = if factor == 1.0 { part } else { part.mul_scalar(factor) };
            let mut gradients = root.backward();
            if let Some(found) = slot.tracked.then(|| leaf.grad_remove(&mut gradients)).flatten() {
                gradient.add(found);
            }
            self.parameter_gradient_bytes += gradients::collect(self.network, gradients, &mut self.gradients);
        }
        // Before its gradient is put together, which needs as much.
        drop(features);
        if let Some(gradient) = gradient.joined() {
            slot.add(gradient);
        }
        self.watch.loss(slot.id);
        total.ok_or_else(|| Error::Usage("a loss over a grid without voxels".into()))
    }

    /// Bytes of gradients that wait for segments which have not gone back yet, and of those of parameters.
    fn waiting_bytes(&self) -> u64 {
        let slots = self.records.iter().flat_map(|record| &record.outputs);
        let waiting = slots.filter_map(|slot| slot.gradient.borrow().as_ref().map(trace::bytes)).sum::<u64>();
        waiting + self.parameter_gradient_bytes
    }

    fn backward(mut self) -> Result<Gathered> {
        while let Some(Record { index, inputs, outputs, held }) = self.records.pop() {
            let upstream: Vec<Option<Value>> = outputs.iter().map(|slot| slot.gradient.take()).collect();
            let Some(first) = upstream.first() else { continue };
            if upstream.iter().all(Option::is_none) {
                continue;
            }
            for (slot, _) in inputs.iter().filter(|(slot, addend)| *addend && slot.tracked) {
                if let Some(gradient) = first {
                    slot.add(gradient.clone());
                }
            }
            let gradient_bytes = self.waiting_bytes() + upstream.iter().flatten().map(trace::bytes).sum::<u64>();
            let (leaves, outputs) = match held {
                Held::ByHand { mode, back } => {
                    let gradient = upstream.into_iter().next().flatten();
                    let gradient = gradient.expect("one output, which has a gradient");
                    self.backward_by_hand(index, &inputs, mode, back, gradient)?;
                    continue;
                }
                Held::Graph { leaves, outputs } => (leaves, outputs),
                Held::Inputs { values, run, mut pass } => {
                    request(Request::Recompute, self.watch.name(index))?;
                    self.watch.begin(gradient_bytes);
                    let (mut leaves, mut given) = (Vec::new(), Vec::new());
                    for ((slot, _), value) in inputs.iter().zip(values) {
                        match value {
                            HeldInput::Value(value) => {
                                let leaf = value.into_value().autodiff();
                                let leaf = if slot.tracked { leaf.require_grad() } else { leaf };
                                given.push(leaf.clone());
                                leaves.push(slot.tracked.then_some(leaf));
                            }
                            HeldInput::Addend(dims) => {
                                // Its value is of no use to the derivative; a view of one zero takes no memory.
                                let device = self.watch.device().clone().autodiff();
                                let dtype = first.as_ref().map_or(burn::tensor::DType::F32, Tensor::dtype);
                                given.push(Tensor::<5>::zeros([1; 5], (&device, dtype)).expand(dims));
                                leaves.push(None);
                            }
                        }
                    }
                    pass.again();
                    self.seed_segment(index);
                    let outputs = run(self.network, &mut pass, given)?;
                    self.watch.again(index);
                    (leaves, outputs)
                }
            };
            request(Request::Gradient, self.watch.name(index))?;
            let mut root: Option<Tensor<1>> = None;
            for (output, gradient) in outputs.into_iter().zip(upstream) {
                if let Some(gradient) = gradient {
                    let term = inject(output, gradient);
                    root = Some(match root {
                        Some(sum) => sum + term,
                        None => term,
                    });
                }
            }
            let Some(root) = root else { continue };
            // The outputs are gone: what is in use now is what the segment's graph holds.
            self.watch.begin(gradient_bytes);
            let mut gradients = root.backward();
            for ((slot, _), leaf) in inputs.iter().zip(leaves) {
                // The value is of no use any more, and its place may be needed for the sum.
                if let Some(gradient) = leaf.and_then(|leaf| leaf.grad_remove(&mut gradients)) {
                    slot.add(gradient);
                }
            }
            self.parameter_gradient_bytes += gradients::collect(self.network, gradients, &mut self.gradients);
            self.watch.backward(index);
        }
        self.finished = true;
        let (trace, summit) = self.watch.finish();
        let (gradients, updates) = (std::mem::take(&mut self.gradients), std::mem::take(&mut self.updates));
        Ok(Gathered { gradients, updates, trace, summit })
    }

    /// Before each run of a segment.
    fn seed_segment(&self, index: usize) {
        // An odd constant (that of SplitMix64) times distinct numbers gives distinct seeds.
        let seed = self.seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.watch.device().seed(seed);
    }
}

impl<M: Module> Drop for Learning<'_, M> {
    fn drop(&mut self) {
        // A panic may come from a device that does nothing any more.
        if !self.finished && !std::thread::panicking() {
            self.records.clear();
            gradients::forget_graphs(self.network);
        }
    }
}
