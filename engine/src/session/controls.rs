//! What faces asked for, as the trainer sees it between two steps.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, TryRecvError};

use super::Command;
use crate::Progress;

/// Orders that wait to be carried out.
pub struct Controls {
    orders: Receiver<Command>,
    paused: bool,
    step_once: bool,
    save: bool,
    evaluate: bool,
    stop: bool,
}

/// What the trainer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Step,
    Save,
    Evaluate,
    Stop,
}

impl Controls {
    pub fn new(orders: Receiver<Command>) -> Self {
        Self { orders, paused: false, step_once: false, save: false, evaluate: false, stop: false }
    }

    /// What to do next; waits while the run is paused.
    pub fn next(&mut self) -> Next {
        loop {
            self.poll();
            if self.stop {
                return Next::Stop;
            }
            if std::mem::take(&mut self.save) {
                return Next::Save;
            }
            if std::mem::take(&mut self.evaluate) {
                return Next::Evaluate;
            }
            if !self.paused || std::mem::take(&mut self.step_once) {
                return Next::Step;
            }
            match self.orders.recv() {
                Ok(command) => self.take(command),
                Err(_) => self.stop = true,
            }
        }
    }

    /// Whether the run shall end.
    pub fn stopped(&mut self) -> bool {
        self.poll();
        self.stop
    }

    /// For work of many parts within the run: `Break` once the run shall end.
    pub fn watch(&mut self) -> impl FnMut(Progress<'_>) -> ControlFlow<()> {
        |_| if self.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn poll(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.stop = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Pause => self.paused = true,
            Command::Resume => self.paused = false,
            Command::StepOnce => self.step_once = self.paused,
            Command::SaveCheckpoint => self.save = true,
            Command::Evaluate => self.evaluate = true,
            Command::Stop => self.stop = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_paused_run_steps_once_saves_and_evaluates_on_demand() {
        let (sender, orders) = channel();
        let mut controls = Controls::new(orders);
        assert_eq!(controls.next(), Next::Step);
        for command in [Command::Pause, Command::StepOnce, Command::SaveCheckpoint, Command::Evaluate] {
            sender.send(command).unwrap();
        }
        assert_eq!([(); 3].map(|()| controls.next()), [Next::Save, Next::Evaluate, Next::Step]);
        sender.send(Command::Resume).unwrap();
        assert_eq!([(); 2].map(|()| controls.next()), [Next::Step, Next::Step]);
        sender.send(Command::Stop).unwrap();
        assert!(controls.stopped());
        assert_eq!(controls.next(), Next::Stop);
    }

    #[test]
    fn a_paused_run_without_a_face_ends() {
        let (sender, orders) = channel();
        sender.send(Command::Pause).unwrap();
        drop(sender);
        assert_eq!(Controls::new(orders).next(), Next::Stop);
    }
}
