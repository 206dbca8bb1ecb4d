//! What a segment that may run twice must do only once.

use std::any::Any;

use burn::module::{ParamId, RunningState};
use burn::tensor::Tensor;

use crate::Result;

/// One run of a segment. The second run of a recomputed segment gets back what the first one put in.
#[derive(Default)]
pub struct Pass {
    kind: Kind,
    frozen_statistics: bool,
    kept: Vec<Box<dyn Any>>,
    next: usize,
    /// `None`: updates are made at once.
    updates: Option<Updates>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    /// There will be no second run.
    #[default]
    Only,
    First,
    Again,
}

/// What a network changes in itself once a step counts: running statistics. Dropped, nothing has happened.
#[must_use]
#[derive(Default)]
pub struct Updates(Vec<Update>);

type Update = Box<dyn FnOnce(&mut Prepared)>;

/// Running statistics as they will be, computed and not yet in their places. Dropped, nothing has happened.
#[must_use]
#[derive(Default)]
pub struct Prepared(Vec<(ParamId, RunningState<Tensor<1>>, Tensor<1>)>);

impl Updates {
    /// Computes all that they change, in the order in which they were asked for: what takes memory and may fail.
    pub fn prepare(self) -> Prepared {
        let mut prepared = Prepared::default();
        for update in self.0 {
            update(&mut prepared);
        }
        prepared
    }

    /// Makes them.
    pub fn apply(self) {
        self.prepare().apply();
    }

    /// Those of `later` come after these.
    pub fn append(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }
}

impl Prepared {
    /// Changes `state`, which the parameter `id` stands for, to what `mix` makes of its value.
    pub fn mix(&mut self, id: ParamId, state: RunningState<Tensor<1>>, mix: impl FnOnce(Tensor<1>) -> Tensor<1>) {
        if let Some((.., value)) = self.0.iter_mut().find(|(known, ..)| *known == id) {
            *value = mix(value.clone());
        } else {
            let value = mix(state.value_sync());
            self.0.push((id, state, value));
        }
    }

    /// Puts them in their places: nothing is computed.
    pub fn apply(self) {
        for (_, state, value) in self.0 {
            state.update(value);
        }
    }
}

impl Pass {
    /// Of a segment that runs once, without a step around it.
    pub fn only() -> Self {
        Self::default()
    }

    /// Of a segment that runs once in a step.
    pub(super) fn kept(frozen_statistics: bool) -> Self {
        Self { frozen_statistics, updates: Some(Updates::default()), ..Self::default() }
    }

    /// Of a segment that runs again.
    pub(super) fn first(frozen_statistics: bool) -> Self {
        Self { kind: Kind::First, ..Self::kept(frozen_statistics) }
    }

    /// From here on it is the second run.
    pub(super) fn again(&mut self) {
        self.kind = Kind::Again;
        self.next = 0;
    }

    /// What the first run asked for.
    pub(super) fn take_updates(&mut self) -> Updates {
        self.updates.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether this is the second run: the segment's outputs are not read, only their gradient is needed.
    pub fn is_again(&self) -> bool {
        self.kind == Kind::Again
    }

    /// Whether batch normalization takes its running statistics, as in prediction, and leaves them as they are.
    pub fn frozen_statistics(&self) -> bool {
        self.frozen_statistics
    }

    /// Changes something of the network when the step counts: once, whether the segment runs again or not; never, when the
    /// step fails. At once, where there is no step.
    pub fn update(&mut self, update: impl FnOnce(&mut Prepared) + 'static) {
        match &mut self.updates {
            _ if self.kind == Kind::Again => {}
            Some(updates) => updates.0.push(Box::new(update)),
            None => {
                let mut prepared = Prepared::default();
                update(&mut prepared);
                prepared.apply();
            }
        }
    }

    /// What `make` gives, computed in the first run only: neighbour lists, statistics, drawn numbers. Calls come in the same
    /// order in both runs.
    ///
    /// # Errors
    /// Those of `make`.
    ///
    /// # Panics
    /// When the runs differ in what they ask for.
    pub fn keep<T: Clone + 'static>(&mut self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.is_again() {
            return Ok(self.take());
        }
        let made = make()?;
        self.put(made.clone());
        Ok(made)
    }

    /// Keeps `value` for the second run.
    pub fn put<T: 'static>(&mut self, value: T) {
        if self.kind == Kind::First {
            self.kept.push(Box::new(value));
        }
    }

    /// In the second run: what the first one put, in the same order.
    ///
    /// # Panics
    /// When the runs differ.
    pub fn take<T: Clone + 'static>(&mut self) -> T {
        let found = self.kept.get(self.next).and_then(|kept| kept.downcast_ref::<T>());
        self.next += 1;
        found.expect("both runs of a segment ask for the same").clone()
    }
}
