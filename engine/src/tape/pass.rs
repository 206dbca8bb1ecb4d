//! What a segment that may run twice must do only once.

use std::any::Any;

use crate::Result;

/// One run of a segment. The second run of a recomputed segment gets back what the first one put in.
#[derive(Default)]
pub struct Pass {
    kind: Kind,
    kept: Vec<Box<dyn Any>>,
    next: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    /// There will be no second run.
    #[default]
    Only,
    First,
    Again,
}

impl Pass {
    /// Of a segment that runs once.
    pub fn only() -> Self {
        Self::default()
    }

    /// Of a segment that may run again.
    pub(super) fn first() -> Self {
        Self { kind: Kind::First, ..Self::default() }
    }

    /// From here on it is the second run.
    pub(super) fn again(&mut self) {
        self.kind = Kind::Again;
        self.next = 0;
    }

    /// Whether this is the second run: running statistics have been updated, and the segment's outputs are not read, only
    /// their gradient is needed.
    pub fn is_again(&self) -> bool {
        self.kind == Kind::Again
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
