//! What a run found, as it is written to a file and read again.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use occam_scene::error::{Error, Place};
use occam_scene::formats::atomic_write;
use serde::{Deserialize, Serialize};

use crate::Result;

/// The kind of file, so that another JSON file is told from a report.
pub const KIND: &str = "occam bench kernels";

/// Every operation that was timed, and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`KIND`].
    pub kind: String,
    #[serde(flatten)]
    pub about: About,
    /// Whether it ended before every case was timed.
    #[serde(default)]
    pub stopped: bool,
    pub cases: Vec<Row>,
}

/// Who ran it, and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub occam: String,
    pub burn: String,
    pub device: String,
    /// Whether Burn's operations tried several kernels for each shape.
    pub autotune: bool,
    pub seconds_per_case: f64,
}

/// One operation of one layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub network: String,
    pub layer: String,
    pub operation: String,
    pub pass: String,
    /// What tensors hold: `f32` or `f16`.
    pub precision: String,
    pub shape: String,
    /// Multiplications and additions; none for what memory limits.
    pub flops: Option<u64>,
    /// Least bytes that move: every tensor once.
    pub bytes: u64,
    pub ours: Option<Timing>,
    pub burns: Option<Timing>,
    /// Why there is no time.
    pub ours_error: Option<String>,
    pub burns_error: Option<String>,
    /// Largest difference between the results, relative to Burn's largest value.
    pub difference: Option<f64>,
    /// The longest of our dispatches on a GPU of 1 TFLOP/s and 25 GB/s, by count; none where nothing is dispatched.
    pub longest_dispatch_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median of one run.
    pub seconds: f64,
    /// The fastest sample: what a busy machine disturbs least.
    pub fastest_seconds: f64,
    pub runs: usize,
}

impl Row {
    /// `lmscnet 64x64x16 conv1_1 conv2d weight gradient f32`: the same in two reports means the same work.
    pub fn name(&self) -> String {
        [&*self.network, &self.layer, &self.operation, &self.pass, &self.precision].join(" ")
    }

    /// How many times as fast as Burn's operation ours is.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.burns?.seconds / self.ours?.seconds)
    }

    /// The same of the fastest samples.
    pub fn fastest_ratio(&self) -> Option<f64> {
        Some(self.burns?.fastest_seconds / self.ours?.fastest_seconds)
    }

    pub fn flops_per_second(&self) -> Option<f64> {
        Some(self.flops? as f64 / self.ours?.seconds)
    }

    pub fn bytes_per_second(&self) -> Option<f64> {
        Some(self.bytes as f64 / self.ours?.seconds)
    }
}

impl Report {
    /// Cases in which ours is slower than `share` of Burn's speed, slowest first.
    pub fn slower_than(&self, share: f64) -> Vec<&Row> {
        let mut slow: Vec<&Row> = self.cases.iter().filter(|row| row.ratio().is_some_and(|r| r < share)).collect();
        slow.sort_by(|a, b| a.ratio().partial_cmp(&b.ratio()).unwrap_or(std::cmp::Ordering::Equal));
        slow
    }

    /// # Errors
    /// [`crate::Error::Input`] when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let write = |out: &mut dyn Write| {
            serde_json::to_writer_pretty(&mut *out, self).map_err(io::Error::from)?;
            writeln!(out)
        };
        Ok(atomic_write(path, write)?)
    }

    /// # Errors
    /// [`crate::Error::Input`] when the file cannot be read or is no report.
    pub fn read(path: &Path) -> Result<Self> {
        let expected = format!("a report that {KIND} --json wrote");
        let failed = |place, found: String| Error::new(path, place, found, &*expected);
        // A report of every case has some 200 KB.
        let most = 64 << 20;
        let size = fs::metadata(path).map_err(|error| Error::io(path, &error))?.len();
        if size > most {
            return Err(failed(Place::File, format!("{size} bytes")).into());
        }
        let bytes = fs::read(path).map_err(|error| Error::io(path, &error))?;
        let report: Self = serde_json::from_slice(&bytes)
            .map_err(|error| failed(Place::Line(error.line() as u64), error.to_string()))?;
        if report.kind != KIND {
            return Err(failed(Place::File, format!("the kind \"{}\"", report.kind)).into());
        }
        let broken = report.cases.iter().find(|row| {
            [row.ours, row.burns].into_iter().flatten().any(|t| !(t.seconds.is_finite() && t.seconds > 0.0))
        });
        if let Some(row) = broken {
            return Err(failed(Place::File, format!("a time that is no positive number at {}", row.name())).into());
        }
        Ok(report)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn row(layer: &str, ours: f64, burns: f64) -> Row {
        let timing = |seconds| Some(Timing { seconds, fastest_seconds: seconds / 2.0, runs: 3 });
        Row {
            network: "unet".into(),
            layer: layer.into(),
            operation: "conv2d".into(),
            pass: "forward".into(),
            precision: "f32".into(),
            shape: "1x1".into(),
            flops: Some(2_000_000),
            bytes: 500_000,
            ours: timing(ours),
            burns: timing(burns),
            ours_error: None,
            burns_error: None,
            difference: Some(1e-7),
            longest_dispatch_s: None,
        }
    }

    pub fn report(cases: Vec<Row>) -> Report {
        let about = About {
            occam: "0.1.0".into(),
            burn: "0.22.1".into(),
            device: "CPU (2 threads)".into(),
            autotune: false,
            seconds_per_case: 0.3,
        };
        Report { kind: KIND.into(), about, stopped: false, cases }
    }

    #[test]
    fn rates_and_ratio_are_of_the_median() {
        let row = row("a", 0.002, 0.001);
        assert_eq!(row.ratio(), Some(0.5));
        assert_eq!(row.flops_per_second(), Some(1e9));
        assert_eq!(row.bytes_per_second(), Some(2.5e8));
        assert_eq!(row.name(), "unet a conv2d forward f32");
    }

    #[test]
    fn slow_cases_are_those_below_the_share() {
        let mut failed = row("failed", 1.0, 0.1);
        failed.ours = None;
        let report = report(vec![row("even", 1.0, 0.95), row("slow", 1.0, 0.8), failed, row("slowest", 1.0, 0.1)]);
        let names = |share| report.slower_than(share).into_iter().map(|row| row.layer.clone()).collect::<Vec<_>>();
        assert_eq!(names(0.9), ["slowest", "slow"]);
        assert_eq!(names(1.0), ["slowest", "slow", "even"]);
    }

    #[test]
    fn a_report_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let report = report(vec![row("a", 0.002, 0.001)]);
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
    }

    #[test]
    fn a_file_that_is_no_report_is_told_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.json");
        let mut broken = report(vec![row("a", 1.0, 1.0)]);
        broken.cases[0].ours = Some(Timing { seconds: 0.0, fastest_seconds: 0.0, runs: 1 });
        let mut other = report(Vec::new());
        other.kind = "something else".into();
        let text = |report: &Report| serde_json::to_string(report).unwrap();
        for (bytes, word) in [
            (String::new(), "line 1"),
            ("{\"cases\": []}".into(), "kind"),
            (text(&other), "something else"),
            (text(&broken), "positive"),
            (text(&report(vec![row("a", 1.0, 1.0)]))[..200].to_owned(), "EOF"),
        ] {
            fs::write(&path, bytes).unwrap();
            let error = Report::read(&path).unwrap_err().to_string();
            assert!(error.contains("bad.json") && error.contains(word) && error.contains("bench kernels"), "{error}");
        }
        assert!(Report::read(&folder.path().join("none.json")).unwrap_err().to_string().contains("none.json"));
    }
}
