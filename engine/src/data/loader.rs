//! Prepares batches ahead of the trainer, on threads of its own, in an order that does not depend on how many.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::rng::Rng;
use super::{AugmentConfig, Batch, Dataset, augment};
use crate::{Error, Result};

/// What to load.
#[derive(Debug, Clone)]
pub struct LoaderConfig {
    /// Samples a batch.
    pub batch: usize,
    /// Threads.
    pub workers: usize,
    /// Decides the order and the augmentation.
    pub seed: u64,
    pub augment: AugmentConfig,
    /// Number of the first batch, counted from 0: where a resumed run goes on.
    pub first_batch: u64,
}

/// Batch after batch, epoch after epoch, without end. Each epoch has its own random order; a batch may hold the end of
/// one epoch and the beginning of the next.
///
/// At most `workers + 1` batches wait in memory. Dropping the loader stops its threads after the sample in hand.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    loaded: u64,
    failed: u64,
    /// Failures since the last sample that did not fail.
    failed_in_a_row: u64,
}

struct Shared {
    dataset: Arc<dyn Dataset>,
    config: LoaderConfig,
    state: Mutex<State>,
    /// A batch is ready, or one was taken, or the loader stops.
    changed: Condvar,
}

struct State {
    /// Number of the batch that the next free thread makes.
    next: u64,
    /// Number of the batch that the trainer gets next.
    wanted: u64,
    ready: BTreeMap<u64, Batch>,
    stopped: bool,
}

/// A run ends when more than a tenth of the samples fail, but not before this many did.
const TOLERATED_FAILURES: u64 = 10;
/// How often who waits for the threads looks whether to go on.
const SETTLE_POLL: Duration = Duration::from_millis(50);

impl Loader {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Error::Usage`] for a data set without samples; [`Error::Failed`] when a thread cannot be started.
    pub fn start(dataset: Arc<dyn Dataset>, config: LoaderConfig) -> Result<Self> {
        if dataset.is_empty() {
            return Err(Error::Usage(format!("{} holds no samples to train on", dataset.name())));
        }
        let first = config.first_batch;
        let workers = config.workers;
        let state = State { next: first, wanted: first, ready: BTreeMap::new(), stopped: false };
        let shared = Arc::new(Shared { dataset, config, state: Mutex::new(state), changed: Condvar::new() });
        let mut loader = Self { shared, threads: Vec::new(), loaded: 0, failed: 0, failed_in_a_row: 0 };
        for number in 0..workers {
            let shared = Arc::clone(&loader.shared);
            let thread = std::thread::Builder::new()
                .name(format!("occam-load-{number}"))
                .spawn(move || shared.work())
                .map_err(|e| Error::Failed(format!("cannot start a loader thread: {e}. Use fewer data.workers.")))?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }

    /// The next batch; waits for it. Its `failures` are the samples that were skipped; a batch can be empty.
    ///
    /// # Errors
    /// [`Error::Failed`] when more than a tenth of the samples failed, or all of a whole epoch, with the last failure.
    pub fn next_batch(&mut self) -> Result<Batch> {
        let mut state = self.shared.lock();
        let batch = loop {
            let wanted = state.wanted;
            if let Some(batch) = state.ready.remove(&wanted) {
                state.wanted += 1;
                break batch;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        self.shared.changed.notify_all();
        self.loaded += batch.len() as u64;
        self.failed += batch.failures.len() as u64;
        self.failed_in_a_row = if batch.is_empty() { self.failed_in_a_row + batch.failures.len() as u64 } else { 0 };
        let whole_epoch = self.failed_in_a_row >= self.shared.dataset.len() as u64;
        let too_many = self.failed * 10 > self.loaded + self.failed;
        if self.failed >= TOLERATED_FAILURES && (too_many || whole_epoch) {
            let last = batch.failures.last().map(|(_, error)| format!("; the last: {error}")).unwrap_or_default();
            return Err(Error::Failed(format!(
                "{} of {} samples of {} could not be read{last}",
                self.failed,
                self.loaded + self.failed,
                self.shared.dataset.name()
            )));
        }
        Ok(batch)
    }

    /// Waits until as many batches wait as may, so that the threads rest: what is in use then is what they hold between
    /// steps. False when `go_on` said so before.
    pub fn settle(&self, go_on: &mut dyn FnMut() -> bool) -> bool {
        let full = self.shared.config.workers + 1;
        let mut state = self.shared.lock();
        while state.ready.len() < full {
            if !go_on() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, SETTLE_POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A worker catches the panics of its data set, and there is nothing to do about others at this point.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let ahead = self.config.workers as u64 + 1;
        let mut order = Order::default();
        loop {
            let mut state = self.lock();
            while !state.stopped && state.next >= state.wanted + ahead {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopped {
                return;
            }
            let number = state.next;
            state.next += 1;
            drop(state);
            let Some(batch) = self.batch(number, &mut order) else { return };
            self.lock().ready.insert(number, batch);
            self.changed.notify_all();
        }
    }

    /// Batch `number`, or `None` when the loader stops meanwhile.
    fn batch(&self, number: u64, order: &mut Order) -> Option<Batch> {
        let (size, len) = (self.config.batch as u64, self.dataset.len() as u64);
        let mut batch = Batch::new();
        for place in number * size..(number + 1) * size {
            if self.lock().stopped {
                return None;
            }
            let (epoch, place) = (place / len, (place % len) as usize);
            let index = order.of(self.config.seed, epoch, len as usize)[place];
            let sample = catch_unwind(AssertUnwindSafe(|| self.dataset.sample(index)));
            match sample {
                Ok(Ok(sample)) => {
                    let sample = augment(sample, &self.config.augment, self.config.seed, epoch, index as u64);
                    batch.push(&sample);
                }
                Ok(Err(error)) => batch.failures.push((index, error)),
                Err(panic) => {
                    batch
                        .failures
                        .push((index, Error::Failed(format!("sample {index}: {}", crate::panic_text(&*panic)))));
                }
            }
        }
        Some(batch)
    }
}

/// The order of the epoch that was asked for last.
#[derive(Default)]
struct Order {
    epoch: Option<u64>,
    order: Vec<usize>,
}

impl Order {
    fn of(&mut self, seed: u64, epoch: u64, len: usize) -> &[usize] {
        if self.epoch != Some(epoch) {
            self.order = Rng::of(&[seed, epoch]).permutation(len);
            self.epoch = Some(epoch);
        }
        &self.order
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use occam_scene::{GridSpec, LabelMap, PointCloud, VoxelGrid};

    use super::super::Sample;
    use super::*;

    /// Samples whose single point tells their number; fails or panics where told.
    struct Numbers {
        spec: GridSpec,
        labels: LabelMap,
        len: usize,
        bad: fn(usize) -> bool,
        panics: bool,
        /// From this many on, every one is bad.
        good: usize,
        made: AtomicUsize,
    }

    impl Numbers {
        fn new(len: usize) -> Self {
            Self {
                spec: GridSpec::new([-1.0; 3], [1.0; 3], [2, 2, 2]),
                labels: LabelMap::built_in("demo").unwrap(),
                len,
                bad: |_| false,
                panics: false,
                good: usize::MAX,
                made: AtomicUsize::new(0),
            }
        }
    }

    impl Dataset for Numbers {
        fn name(&self) -> String {
            "numbers".into()
        }
        fn len(&self) -> usize {
            self.len
        }
        fn spec(&self) -> &GridSpec {
            &self.spec
        }
        fn labels(&self) -> &LabelMap {
            &self.labels
        }
        fn sample(&self, index: usize) -> Result<Sample> {
            let made = self.made.fetch_add(1, Ordering::SeqCst);
            // Later samples of a batch are ready before earlier ones of others.
            std::thread::sleep(Duration::from_micros((index as u64 * 7919) % 1000));
            if (self.bad)(index) || made >= self.good {
                assert!(!self.panics, "sample {index} is bad");
                return Err(Error::Usage(format!("sample {index} is bad")));
            }
            Ok(Sample {
                id: index.to_string(),
                cloud: PointCloud { positions: vec![[index as f32; 3]; index % 3], ..PointCloud::default() },
                target: VoxelGrid::empty(self.spec),
            })
        }
    }

    fn config(workers: usize) -> LoaderConfig {
        LoaderConfig {
            batch: 4,
            workers,
            seed: 5,
            augment: AugmentConfig {
                flip_x: true,
                flip_y: true,
                rotate_deg: 9.0,
                scale: 0.1,
                jitter_m: 0.1,
                drop: 0.5,
            },
            first_batch: 0,
        }
    }

    fn batches(dataset: Numbers, config: LoaderConfig, count: usize) -> Vec<(Vec<String>, Vec<[f32; 3]>)> {
        let mut loader = Loader::start(Arc::new(dataset), config).unwrap();
        (0..count).map(|_| loader.next_batch().map(|b| (b.ids, b.positions)).unwrap()).collect()
    }

    #[test]
    fn the_number_of_workers_changes_nothing() {
        let one = batches(Numbers::new(10), config(1), 12);
        assert_eq!(one, batches(Numbers::new(10), config(5), 12));
        assert_ne!(one, batches(Numbers::new(10), LoaderConfig { seed: 6, ..config(1) }, 12));
    }

    #[test]
    fn an_epoch_holds_every_sample_once_and_the_next_has_another_order() {
        let ids: Vec<String> = batches(Numbers::new(8), config(3), 4).into_iter().flat_map(|b| b.0).collect();
        let (first, second) = ids.split_at(8);
        assert_ne!(first, second);
        for epoch in [first, second] {
            let mut sorted = epoch.to_vec();
            sorted.sort();
            assert_eq!(sorted, ["0", "1", "2", "3", "4", "5", "6", "7"]);
        }
    }

    #[test]
    fn a_resumed_loader_goes_on_where_the_other_stopped() {
        let all = batches(Numbers::new(10), config(2), 9);
        assert_eq!(batches(Numbers::new(10), LoaderConfig { first_batch: 6, ..config(2) }, 3), all[6..]);
    }

    #[test]
    fn failing_samples_are_skipped_and_reported_in_the_same_place() {
        for panics in [false, true] {
            let dataset = Numbers { bad: |i| i == 17, panics, ..Numbers::new(40) };
            let mut loader = Loader::start(Arc::new(dataset), config(3)).unwrap();
            let mut failures = Vec::new();
            let mut samples = 0;
            for _ in 0..10 {
                let batch = loader.next_batch().unwrap();
                samples += batch.len();
                failures.extend(batch.failures);
            }
            assert_eq!(samples, 39);
            assert_eq!(failures.len(), 1);
            assert!(failures[0].0 == 17 && failures[0].1.to_string().contains("sample 17 is bad"));
        }
    }

    #[test]
    fn too_many_failures_end_the_run_with_the_last_reason() {
        let dataset = Numbers { bad: |i| i % 2 == 0, ..Numbers::new(40) };
        let mut loader = Loader::start(Arc::new(dataset), config(2)).unwrap();
        let error = (0..40).find_map(|_| loader.next_batch().err()).expect("half of the samples fail");
        assert!(error.to_string().contains("is bad"), "{error}");
    }

    #[test]
    fn a_data_set_that_goes_away_ends_the_run_after_an_epoch() {
        let dataset = Numbers { good: 400, ..Numbers::new(20) };
        let mut loader = Loader::start(Arc::new(dataset), config(1)).unwrap();
        let batches = (0..200).take_while(|_| loader.next_batch().is_ok()).count();
        // 100 good batches of 4, then 20 failures: fewer than a tenth of all.
        assert_eq!(batches, 104);
    }

    #[test]
    fn the_queue_is_bounded_and_dropping_stops_the_threads() {
        let dataset = Arc::new(Numbers::new(1000));
        let mut loader = Loader::start(Arc::clone(&dataset) as Arc<dyn Dataset>, config(2)).unwrap();
        loader.next_batch().unwrap();
        loader.next_batch().unwrap();
        // Two were taken and three may wait: the threads come that far and no further.
        let made = || dataset.made.load(Ordering::SeqCst);
        while made() < 4 * (2 + 3) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(made(), 4 * (2 + 3));
        drop(loader);
        // All threads are gone: nobody else holds the data set.
        assert_eq!(Arc::strong_count(&dataset), 1);
    }

    #[test]
    fn a_data_set_without_samples_is_refused() {
        assert!(matches!(Loader::start(Arc::new(Numbers::new(0)), config(1)), Err(Error::Usage(_))));
    }
}
