//! Where the trainer puts what faces may see. Nothing here waits for a face, except the very last event.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};

use super::{EvalRecord, Event, History, Snapshot, StepRecord};

pub struct Outbox {
    pub history: Arc<Mutex<History>>,
    pub latest: Arc<Mutex<Option<Snapshot>>>,
    events: SyncSender<Event>,
    warnings: usize,
}

/// Warnings of one run that are told; a broken disk could give one a step.
const MOST_WARNINGS: usize = 50;

impl Outbox {
    pub fn new(events: SyncSender<Event>) -> Self {
        Self { history: Arc::default(), latest: Arc::default(), events, warnings: 0 }
    }

    pub fn send(&self, event: Event) {
        match self.events.try_send(event) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(event)) => tracing::debug!(?event, "no face looks: event lost"),
        }
    }

    pub fn warn(&mut self, text: String) {
        self.warnings += 1;
        match self.warnings {
            1..MOST_WARNINGS => self.send(Event::Warning(text)),
            MOST_WARNINGS => self.send(Event::Warning(format!("{text} (further warnings are not shown)"))),
            _ => {}
        }
    }

    pub fn step(&self, record: StepRecord) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    /// What was recorded after `step` comes again.
    pub fn back_to(&self, step: usize) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.steps.retain(|record| record.step <= step);
        history.evaluations.retain(|record| record.step <= step);
    }

    pub fn evaluation(&self, record: EvalRecord) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push_evaluation(record);
    }

    pub fn show(&self, snapshot: Snapshot) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// The last event. The run is over, so it may wait for room; a session that is dropped makes some.
    pub fn finish(&self, event: Event) {
        // Without a face nobody needs it.
        let _ = self.events.send(event);
    }
}
