//! The face of a run in a terminal, in a log file and in JSON.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use occam_engine::data::{self, Layout};
use occam_engine::scene::formats;
use occam_engine::scene::metrics::Scores;
use occam_engine::session::{Event, RunInfo, StepRecord, Summary};
use occam_engine::train::TrainConfig;
use serde_json::{Value, json};

use super::{Output, human, plan, scores};

/// Least time between two lines of progress where no bar can be drawn.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// A slow run says something at least this often.
const LINE_AT_LEAST_EVERY: Duration = Duration::from_secs(30);

/// Prints one run. What it prints may get lost; the run's folder holds everything.
pub struct TrainPrinter {
    out: Output,
    /// Names by class id.
    classes: Vec<String>,
    /// As the user named it; `None` for the demo world.
    data: Option<PathBuf>,
    /// Folder of the run, once it has begun.
    run: Option<PathBuf>,
    /// Whether the data decided the preset.
    by_data: bool,
    bar: Option<ProgressBar>,
    total_steps: usize,
    /// Steps of earlier sessions.
    steps_before: usize,
    first_step: Option<Instant>,
    last_line: Option<(Instant, usize)>,
    /// Of the last validation.
    validation: Option<(f64, f64)>,
}

impl TrainPrinter {
    pub fn new(out: Output, config: &TrainConfig) -> Self {
        Self {
            out,
            classes: Vec::new(),
            data: config.data.path.clone(),
            run: None,
            by_data: false,
            bar: None,
            total_steps: 0,
            steps_before: 0,
            first_step: None,
            last_line: None,
            validation: None,
        }
    }

    /// Says in the header that the data decided the preset.
    #[must_use]
    pub fn chosen_by_data(self, by_data: bool) -> Self {
        Self { by_data, ..self }
    }

    /// The sentence for a run that ended before it took a step.
    pub fn nothing_saved(&self) -> String {
        match &self.run {
            Some(run) if run.exists() => format!("stopped before the next step: {} is as it was", run.display()),
            Some(run) => {
                format!("stopped before the first step: nothing was saved, and {} is removed again", run.display())
            }
            None => "stopped before the first step: nothing was saved".into(),
        }
    }

    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Started(info) => self.started(info),
            Event::Preparing { what, done, total } => {
                self.json(&json!({ "event": "preparing", "what": what, "done": done, "total": total }));
                let (done, total) = (human::count(*done), human::counted(*total, "scene"));
                self.line(&format!("preparing   {what}: {done} of {total}"));
            }
            Event::Loaded { baselines } => {
                self.json(&json!({ "event": "loaded", "baselines": scores::json_named(baselines, &self.classes) }));
                if let Some((name, best)) = baselines.iter().max_by(|a, b| a.1.iou.total_cmp(&b.1.iou)) {
                    self.line(&format!("to beat     IoU {} ({name})", human::percent(best.iou)));
                }
                self.start_bar();
            }
            Event::Evaluated { step, scores: found } => {
                self.validation = Some((found.iou, found.miou));
                let scores = scores::json(found, &self.classes);
                self.json(&json!({ "event": "evaluated", "step": step, "scores": scores }));
                self.line(&format!(
                    "step {step}: validation {}",
                    scores_text(found.iou, found.miou, &self.classes, ", ")
                ));
            }
            Event::Checkpoint { step, path } => {
                self.json(&json!({ "event": "checkpoint", "step": step, "path": path.to_string_lossy() }));
                self.line(&format!("step {step}: saved {}", path.display()));
            }
            Event::Planned(report) => {
                let mut value = json!(report);
                value["event"] = "planned".into();
                self.json(&value);
                self.line(&format!("memory      {}", plan::chosen(report)));
            }
            Event::Warning(text) => {
                self.json(&json!({ "event": "warning", "message": text }));
                self.aside(|_| Output::warning(text));
            }
            // Whoever started the run reports the error.
            Event::Failed(_) => self.clear(),
            Event::Done(summary) => self.done(summary),
        }
    }

    fn started(&mut self, info: &RunInfo) {
        self.run = Some(info.run.clone());
        (self.total_steps, self.steps_before) = (info.total_steps, info.steps_before);
        self.classes = info.labels.classes.iter().map(|class| class.name.clone()).collect();
        self.json(&json!({
            "event": "started",
            "run": info.run.to_string_lossy(),
            "device": info.device,
            "network": info.network,
            "input": info.input,
            "parameters": info.parameters,
            "train_samples": info.train_samples,
            "validation_samples": info.validation_samples,
            "total_steps": info.total_steps,
            "steps_before": info.steps_before,
            "seed": info.seed,
            "preset": info.preset,
            "grid": info.grid.counts,
            "voxel_size_m": info.grid.voxel_size_m,
            "classes": self.classes,
        }));
        self.line(&format!("device      {}", info.device));
        self.line(&format!(
            "data        {}: {} scenes to train on, {} to validate on",
            self.data.as_ref().map_or("demo world".into(), |data| data.to_string_lossy()),
            human::count(info.train_samples),
            human::count(info.validation_samples)
        ));
        let how = if self.by_data { " (chosen by the data)" } else { "" };
        self.line(&format!("preset      {}{how}", info.preset));
        self.line(&format!("grid        {}", human::grid(&info.grid)));
        self.line(&format!("network     {}, {}", info.network, human::counted(info.parameters, "parameter")));
        if info.input.len() > 1 {
            self.line(&format!("sees        {}", info.input.join(", ")));
        }
        self.line(&format!("steps       {}, seed {}", human::count(info.total_steps), info.seed));
        self.line(&format!("run         {}", info.run.display()));
    }

    fn start_bar(&mut self) {
        if self.out.wants_bar() {
            // The template is constant; a bar without style would do as well.
            let style = ProgressStyle::with_template("[{wide_bar}] {pos}/{len}  ETA {prefix}\n{wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> ");
            self.bar = Some(ProgressBar::new(self.total_steps as u64).with_style(style));
        }
    }

    pub fn step(&mut self, record: &StepRecord) {
        if self.out.is_json() {
            let mut value = serde_json::to_value(record).unwrap_or_default();
            if let Value::Object(fields) = &mut value {
                fields.insert("event".into(), "step".into());
            }
            self.json(&value);
            return;
        }
        let now = Instant::now();
        let began = *self
            .first_step
            .get_or_insert_with(|| now.checked_sub(Duration::from_secs_f64(record.step_ms / 1e3)).unwrap_or(now));
        let left = self.total_steps.saturating_sub(record.step);
        let taken = record.step.saturating_sub(self.steps_before);
        let eta = human::duration(seconds_left((now - began).as_secs_f64(), taken, left));
        let text = self.progress_text(record);
        if let Some(bar) = &self.bar {
            bar.set_prefix(eta);
            bar.set_message(text);
            bar.set_position(record.step as u64);
        } else if self.line_is_due(record.step, now) {
            self.last_line = Some((now, record.step));
            self.line(&format!("step {}/{}  {text}  ETA {eta}", record.step, self.total_steps));
        }
    }

    fn line_is_due(&self, step: usize, now: Instant) -> bool {
        let Some((then, last)) = self.last_line else { return true };
        let quiet_for = now - then;
        step == self.total_steps
            || quiet_for >= LINE_AT_LEAST_EVERY
            || quiet_for >= LINE_EVERY && (step - last) * 20 >= self.total_steps
    }

    fn progress_text(&self, record: &StepRecord) -> String {
        let mut parts = vec![format!("loss {:.4}", record.loss)];
        if let Some((iou, miou)) = self.validation {
            parts.push(scores_text(iou, miou, &self.classes, "  "));
        }
        parts.push(format!("{}/step", human::duration(record.step_ms / 1e3)));
        if let Some(in_use) = record.in_use_bytes {
            let peak = record.peak_bytes.map(|p| format!(", peak {}", human::bytes(p))).unwrap_or_default();
            parts.push(format!("memory {}{peak}", human::bytes(in_use)));
        }
        parts.join("  ")
    }

    /// The user asked to stop; the engine finishes the step.
    pub fn stopping(&mut self) {
        self.aside(|out| out.note("finishing the step and saving; Ctrl-C again stops at once"));
    }

    fn done(&mut self, summary: &Summary) {
        self.clear();
        self.json(&json!({
            "event": "done",
            "run": summary.run.to_string_lossy(),
            "steps": summary.steps,
            "seconds": summary.seconds,
            "interrupted": summary.interrupted,
            "first_losses_mean": summary.first_losses_mean,
            "last_losses_mean": summary.last_losses_mean,
            "validation": summary.validation.as_ref().map(|s| scores::json(s, &self.classes)),
            "baselines": scores::json_named(&summary.baselines, &self.classes),
            "peak_bytes": summary.peak_bytes,
        }));
        let run = summary.run.display().to_string();
        if self.out.is_quiet() {
            let _ = self.out.result(&run);
            return;
        }
        let named = summary.baselines.iter().map(|(name, scores)| (name.as_str(), scores));
        let columns: Vec<(&str, &Scores)> =
            summary.validation.iter().map(|scores| ("this run", scores)).chain(named).collect();
        if summary.validation.is_some() {
            self.line(&format!("\n{}", scores::table(&columns, &self.classes)));
        }
        if summary.interrupted {
            self.line(&ended_early(summary.steps, self.total_steps));
        }
        self.line(&format!(
            "loss        {:.4} in the first tenth of the steps, {:.4} in the last",
            summary.first_losses_mean, summary.last_losses_mean
        ));
        self.line(&format!(
            "time        {} for {}",
            human::duration(summary.seconds),
            human::counted(summary.steps.saturating_sub(self.steps_before), "step")
        ));
        if let Some(peak) = summary.peak_bytes {
            self.line(&format!("memory      {} at its peak", human::bytes(peak)));
        }
        self.line(&format!("run         {run}"));
        let (program, run) = (super::program(), super::shell_word(&run));
        let word = |path: &Path| super::shell_word(&path.to_string_lossy());
        let (scan, data) = match &self.data {
            Some(data) => {
                let scan = last_scan(data).unwrap_or_else(|| PathBuf::from("SCAN.bin"));
                (format!(" {}", word(&scan)), format!(" {}", word(data)))
            }
            None => (String::new(), String::new()),
        };
        let mut next =
            vec![format!("{program} predict {run}{scan} -o prediction.png"), format!("{program} eval {run}{data}")];
        if summary.interrupted {
            next.insert(0, format!("{program} resume {run}"));
        }
        self.line(&format!("next        {}", next.join("\n            ")));
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        // A reader that left does not end the run.
        self.aside(|out| drop(out.line(text)));
    }

    fn json(&self, value: &Value) {
        let _ = self.out.json(value);
    }

    fn aside(&self, print: impl FnOnce(Output)) {
        match &self.bar {
            Some(bar) => bar.suspend(|| print(self.out)),
            None => print(self.out),
        }
    }
}

/// Seconds that `left` steps take at the pace of the `taken` ones.
fn seconds_left(seconds: f64, taken: usize, left: usize) -> f64 {
    seconds / taken.max(1) as f64 * left as f64
}

/// Of a run that ended before its last step was done and scored.
fn ended_early(steps: usize, total: usize) -> String {
    if steps < total {
        format!("stopped after step {steps} of {total}, saved")
    } else {
        format!("all {total} steps are done and saved, and the last one has no scores; resume scores it")
    }
}

/// IoU and, where it says more than that, mIoU.
fn scores_text(iou: f64, miou: f64, classes: &[String], between: &str) -> String {
    let iou = format!("IoU {}", human::percent(iou));
    if scores::one_class(classes.len()) { iou } else { format!("{iou}{between}mIoU {}", human::percent(miou)) }
}

/// The last scan of the data, one that the run validated on; one cloud is no scan.
fn last_scan(data: &Path) -> Option<PathBuf> {
    let folder = match data::layout(data).ok()? {
        Layout::Cloud(_) => return None,
        Layout::Pairs(pairs) => return pairs.last_scan().map(Path::to_path_buf),
        Layout::Scans(mut folders) => folders.pop()?,
        Layout::SemanticKitti => formats::sequence_folders(data).ok()?.pop()?,
    };
    data::find_scans(&folder).ok()?.pop()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_time_left_is_at_the_pace_of_this_session() {
        // A run of 100 steps that goes on after step 90 and takes 2 s for each of the next 5.
        let (step, before, total) = (95, 90, 100);
        assert!((seconds_left(10.0, step - before, total - step) - 10.0).abs() < 1e-9);
        assert!(seconds_left(3.0, 0, 2).is_finite());
    }

    #[test]
    fn a_run_that_was_not_scored_is_not_said_to_have_stopped() {
        assert_eq!(ended_early(3, 6), "stopped after step 3 of 6, saved");
        let text = ended_early(6, 6);
        assert!(text.contains("all 6 steps") && text.contains("no scores") && !text.contains("stopped"), "{text}");
    }

    #[test]
    fn two_classes_have_one_score() {
        let names = |count| vec![String::new(); count];
        assert_eq!(scores_text(0.5, 0.5, &names(2), ", "), "IoU 50.0 %");
        assert_eq!(scores_text(0.5, 0.25, &names(3), ", "), "IoU 50.0 %, mIoU 25.0 %");
    }

    #[test]
    fn the_scan_to_paste_is_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(last_scan(folder.path()), None);
        for name in
            ["sequences/00/velodyne/000007.bin", "sequences/01/velodyne/000001.bin", "sequences/01/velodyne/b.txt"]
        {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(last_scan(folder.path()), Some(folder.path().join("sequences/01/velodyne/000001.bin")));
        let one = folder.path().join("sequences/00");
        assert_eq!(last_scan(&one), Some(one.join("velodyne/000007.bin")));
    }
}
