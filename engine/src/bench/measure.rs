//! Times two ways to compute the same, in turns, so that whatever else the machine does meets both.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use burn::tensor::Tensor;

use super::report::Timing;
use crate::{Error, Result, panic_text};

/// Computes its results anew; they need not be finished when it returns.
pub type Run = Box<dyn Fn() -> Result<Vec<Tensor<1>>>>;

/// Ours and Burn's way to the same results.
pub struct Pair {
    pub ours: Run,
    pub burns: Run,
}

/// Results are compared and waited for value by value.
pub fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let values = tensor.shape().num_elements();
    tensor.reshape([values])
}

/// What became of one side.
pub type Outcome = Result<Timing, String>;

/// Short runs are repeated to this length before the device is waited for, so that waiting weighs little.
const BATCH_S: f64 = 0.01;
const MOST_IN_BATCH: f64 = 64.0;
/// Fewest samples, unless they take longer than [`PATIENCE_S`] in all.
const SAMPLES: usize = 3;
const PATIENCE_S: f64 = 3.0;

/// Medians of both sides over about `seconds`, and the largest difference of their results relative to Burn's largest
/// value. `stopped` is asked between runs.
///
/// # Errors
/// [`Error::Interrupted`] when `stopped` says so. What fails on one side is that side's outcome.
pub fn measure(
    pair: &Pair,
    seconds: f64,
    stopped: &mut dyn FnMut() -> bool,
) -> Result<(Outcome, Outcome, Option<f64>)> {
    let mut check = || if stopped() { Err(Error::Interrupted) } else { Ok(()) };
    check()?;
    let mut ours = Side::warm_up(&pair.ours);
    check()?;
    let mut burns = Side::warm_up(&pair.burns);
    let difference = match (&mut ours, &mut burns) {
        (Ok(ours), Ok(burns)) => difference(&std::mem::take(&mut ours.values), &std::mem::take(&mut burns.values)),
        _ => None,
    };
    let begin = Instant::now();
    for sample in 0.. {
        let elapsed = begin.elapsed().as_secs_f64();
        if sample > 0 && elapsed >= seconds && (sample >= SAMPLES || elapsed >= PATIENCE_S) {
            break;
        }
        check()?;
        sample_of(&mut ours, &pair.ours);
        check()?;
        sample_of(&mut burns, &pair.burns);
        if ours.is_err() && burns.is_err() {
            break;
        }
    }
    Ok((ours.map(Side::timing), burns.map(Side::timing), difference))
}

struct Side {
    /// Results of the first run.
    values: Vec<f32>,
    /// Of the newest run, to size the next batch.
    last_s: f64,
    samples_s: Vec<f64>,
    runs: usize,
}

impl Side {
    fn warm_up(run: &Run) -> Result<Self, String> {
        let begin = Instant::now();
        let results = call(run)?;
        let mut values = Vec::new();
        for tensor in results {
            values.extend(tensor.try_into_vec_as::<f32>().map_err(|error| error.to_string())?);
        }
        Ok(Self { values, last_s: begin.elapsed().as_secs_f64(), samples_s: Vec::new(), runs: 0 })
    }

    /// One batch of runs; the clock stops when a value of the last one has arrived.
    fn sample(&mut self, run: &Run) -> Result<(), String> {
        let batch = (BATCH_S / self.last_s).clamp(1.0, MOST_IN_BATCH) as usize;
        let begin = Instant::now();
        for i in 0..batch {
            let results = call(run)?;
            if i + 1 == batch {
                finish(results)?;
            }
        }
        self.last_s = begin.elapsed().as_secs_f64() / batch as f64;
        self.samples_s.push(self.last_s);
        self.runs += batch;
        Ok(())
    }

    fn timing(mut self) -> Timing {
        self.samples_s.sort_by(f64::total_cmp);
        Timing { seconds: median(&self.samples_s), fastest_seconds: self.samples_s[0], runs: self.runs }
    }
}

fn sample_of(side: &mut Result<Side, String>, run: &Run) {
    if let Ok(timed) = side
        && let Err(error) = timed.sample(run)
    {
        *side = Err(error);
    }
}

/// Burn's operations panic where they cannot go on.
fn call(run: &Run) -> Result<Vec<Tensor<1>>, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(results) => results.map_err(|error| error.to_string()),
        Err(panic) => Err(panic_text(&*panic)),
    }
}

/// Waits for the device: what was asked for is computed in order, and a value can be looked at when all of it is there.
/// Data that nobody looks at may still be on its way.
fn finish(results: Vec<Tensor<1>>) -> Result<(), String> {
    for tensor in results {
        tensor.slice(0..1).try_into_vec_as::<f32>().map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// Largest difference relative to the largest value; none when there is nothing to relate to.
fn difference(ours: &[f32], burns: &[f32]) -> Option<f64> {
    if ours.len() != burns.len() {
        return Some(f64::INFINITY);
    }
    let largest = burns.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let apart = ours.iter().zip(burns).map(|(a, b)| (a - b).abs());
    // `max` would drop a NaN.
    let most = apart.fold(0.0f32, |most, apart| if apart > most || apart.is_nan() { apart } else { most });
    (largest > 0.0).then(|| f64::from(most) / f64::from(largest))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use burn::tensor::Device;

    use super::*;

    fn counting(value: f32, calls: &Rc<Cell<usize>>) -> Run {
        let calls = Rc::clone(calls);
        Box::new(move || {
            calls.set(calls.get() + 1);
            Ok(vec![Tensor::from_floats([value, 2.0], &Device::flex())])
        })
    }

    #[test]
    fn both_sides_run_and_their_difference_is_relative_to_the_largest_value() {
        let calls = Rc::new(Cell::new(0));
        let pair = Pair { ours: counting(1.5, &calls), burns: counting(1.0, &calls) };
        let (ours, burns, difference) = measure(&pair, 0.0, &mut || false).unwrap();
        let (ours, burns) = (ours.unwrap(), burns.unwrap());
        assert_eq!(ours.runs + burns.runs + 2, calls.get(), "all but the two that warm up are counted");
        assert_eq!(difference, Some(0.25));
    }

    #[test]
    fn what_fails_on_one_side_leaves_the_other() {
        let calls = Rc::new(Cell::new(0));
        let burns: Run = Box::new(|| panic!("no such kernel"));
        let pair = Pair { ours: counting(1.0, &calls), burns };
        let (ours, burns, difference) = measure(&pair, 0.0, &mut || false).unwrap();
        assert!(ours.unwrap().runs >= SAMPLES);
        assert_eq!((burns.unwrap_err().as_str(), difference), ("no such kernel", None));
        let pair = Pair { ours: Box::new(|| Err(Error::TooLarge("4 GiB".into()))), burns: counting(1.0, &calls) };
        assert_eq!(measure(&pair, 0.0, &mut || false).unwrap().0.unwrap_err(), "4 GiB");
    }

    #[test]
    fn it_stops_between_two_runs() {
        let calls = Rc::new(Cell::new(0));
        let pair = Pair { ours: counting(1.0, &calls), burns: counting(1.0, &calls) };
        let stopped = measure(&pair, 1e9, &mut || calls.get() >= 5);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }

    #[test]
    fn other_lengths_and_not_a_number_differ() {
        assert_eq!(difference(&[1.0], &[1.0, 2.0]), Some(f64::INFINITY));
        assert!(difference(&[f32::NAN, 1.0], &[1.0, 2.0]).unwrap().is_nan());
        assert_eq!(difference(&[0.0], &[0.0]), None);
    }
}
