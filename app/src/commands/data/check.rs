//! `occam data check`: does a ground truth contradict the format it is said to have?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use occam_engine::scene::completion::check_voxels;
use occam_engine::scene::error::{Error, Place};
use occam_engine::scene::formats::benchmarks::{Benchmark, Finding, GroundTruth};
use occam_engine::scene::formats::sequence_folders;
use serde_json::json;

use crate::fail;
use crate::print::{Output, human, program};
use crate::signals::Signals;

/// Lines printed for one kind of finding; the sum says how many there were.
const SHOWN: usize = 10;

#[derive(Args)]
pub struct CheckArgs {
    /// Ground truth files of occupancy benchmarks, or folders of one benchmark each, SemanticKITTI's layout among them
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// What they are said to be: semantic-kitti, occ3d-nuscenes, openocc, occnet, surroundocc, openoccupancy or
    /// carla-sc [default: what their names or arrays tell, for a folder those of its first file that tells]
    #[arg(long, value_name = "BENCHMARK")]
    format: Option<Benchmark>,
}

/// What came out so far.
#[derive(Default)]
struct Tally {
    /// Files of the paths begun.
    listed: usize,
    checked: usize,
    suspicious: usize,
    /// How many files have a finding of a kind.
    kinds: BTreeMap<&'static str, usize>,
    unreadable: usize,
    /// Exit code of the first file that could not be read.
    failed: Option<u8>,
}

/// Every file is checked; warnings leave the exit code 0, a file that cannot be read makes it 2.
pub fn run(args: &CheckArgs, out: Output) -> anyhow::Result<u8> {
    let signals = Signals::install()?;
    let mut tally = Tally::default();
    let mut begun = 0;
    for path in &args.files {
        if signals.stop_asked() {
            break;
        }
        begun += 1;
        let result = if path.is_dir() {
            folder(path, args.format, out, &signals, &mut tally)
        } else {
            tally.listed += 1;
            file(path, args.format, out, true, &mut tally)
        };
        if let Err(error) = result {
            // A folder without files to check counts as one.
            tally.listed += usize::from(path.is_dir());
            tally.fail(error, out)?;
        }
    }
    let left = args.files.len() - begun;
    let interrupted = signals.stop_asked();
    if interrupted {
        let more = if left > 0 { format!(", {} not begun", human::counted(left, "path")) } else { String::new() };
        out.result(format!(
            "stopped after {} of {}{more}: {}",
            human::count(tally.done()),
            human::counted(tally.listed, "file"),
            tally.sum()
        ))?;
    } else if args.files.len() > 1 || args.files.iter().any(|path| path.is_dir()) {
        out.result(tally.sum())?;
    }
    out.json(&json!({
        "event": "checked",
        "files": tally.checked,
        "with_warnings": tally.suspicious,
        "unreadable": tally.unreadable,
        "kinds": tally.kinds,
        "interrupted": interrupted,
    }))?;
    Ok(if interrupted { signals.exit_code() } else { tally.failed.unwrap_or(0) })
}

/// All files of a folder and the folders below that can be of the format, until the user stops it.
fn folder(
    path: &Path,
    format: Option<Benchmark>,
    out: Output,
    signals: &Signals,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let files = files_below(path)?;
    let told = format.or_else(|| first_told(&files, signals));
    if signals.stop_asked() {
        return Ok(());
    }
    let none = |found: String, expected: String| Error::new(path, Place::File, found, expected);
    let unbuilt = !sequence_folders(path)?.is_empty();
    let fitting: Vec<&PathBuf> =
        files.iter().filter(|file| told.is_some_and(|format| GroundTruth::name_fits(file, format))).collect();
    let (format, files) = match told {
        Some(format) if !fitting.is_empty() => (format, fitting),
        None | Some(Benchmark::SemanticKitti) if unbuilt => {
            return Err(none("no voxels/ in its sequences".into(), "voxels/ with a .label file a scan".into())
                .hint(format!("{} data build {} makes them", program(), path.display()))
                .into());
        }
        Some(format) => return Err(none("no file".into(), format!("the files of {format}")).into()),
        None => {
            let found = "no file whose name or arrays tell a benchmark";
            return Err(none(found.into(), "ground truth of an occupancy benchmark".into())
                .hint("Say what it is with --format")
                .into());
        }
    };
    tally.listed += files.len();
    out.line(format!("{}: {}, {}", path.display(), format, human::counted(files.len(), "file")))?;
    let bar = out.bar(files.len(), "files");
    for path in files {
        if signals.stop_asked() {
            break;
        }
        let mut check = || file(path, Some(format), out, false, tally).or_else(|error| tally.fail(error, out));
        match &bar {
            // Lines and the bar do not write over each other.
            Some(bar) => bar.suspend(check)?,
            None => check()?,
        }
        if let Some(bar) = &bar {
            bar.inc(1);
        }
    }
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    Ok(())
}

/// Checks one file. `alone`: says so when nothing is wrong.
fn file(path: &Path, format: Option<Benchmark>, out: Output, alone: bool, tally: &mut Tally) -> anyhow::Result<()> {
    std::fs::metadata(path).map_err(|error| Error::io(path, &error))?;
    let truth = match format {
        Some(format) => GroundTruth::open_as(path, format)?,
        None => GroundTruth::open(path)?.ok_or_else(|| {
            let found = "a file whose name and arrays do not tell its benchmark";
            Error::new(path, Place::File, found, "ground truth of an occupancy benchmark")
                .hint("Say what it is with --format")
        })?,
    };
    let mut findings = truth.findings();
    if let Some(scan) = scan_of(path).filter(|_| truth.benchmark() == Benchmark::SemanticKitti) {
        findings.extend(check_voxels(path, &scan, truth.labels())?);
    }
    tally.add(path, &findings, out)?;
    if alone && findings.is_empty() {
        out.result(format!("{}: {}, nothing suspicious", path.display(), truth.benchmark()))?;
    }
    out.json(&json!({
        "file": path.to_string_lossy(),
        "format": truth.benchmark().name(),
        "findings": findings,
        "notes": truth.notes(),
    }))?;
    Ok(())
}

/// The scan of SemanticKITTI that a voxel file belongs to.
fn scan_of(label: &Path) -> Option<PathBuf> {
    let sequence = label.parent()?.parent()?;
    let scan = sequence.join("velodyne").join(label.file_name()?).with_extension("bin");
    scan.is_file().then_some(scan)
}

impl Tally {
    fn add(&mut self, path: &Path, findings: &[Finding], out: Output) -> anyhow::Result<()> {
        self.checked += 1;
        self.suspicious += usize::from(!findings.is_empty());
        for finding in findings {
            let seen = self.kinds.entry(finding.kind).or_default();
            *seen += 1;
            if *seen <= SHOWN {
                out.result(format!("{}: warning: {finding}", path.display()))?;
            } else if *seen == SHOWN + 1 {
                out.result(format!("more warnings of the kind {} are counted, not printed", finding.kind))?;
            }
        }
        Ok(())
    }

    /// Counts a file that cannot be read; any other error ends the command, such as a reader of the output that left.
    fn fail(&mut self, error: anyhow::Error, out: Output) -> anyhow::Result<()> {
        if !error.is::<Error>() {
            return Err(error);
        }
        let code = fail::report(&error, out);
        self.failed.get_or_insert(code);
        self.unreadable += 1;
        Ok(())
    }

    fn done(&self) -> usize {
        self.checked + self.unreadable
    }

    fn sum(&self) -> String {
        let mut parts = vec![format!("{} checked", human::counted(self.checked, "file"))];
        if self.unreadable > 0 {
            parts.push(format!("{} unreadable", human::count(self.unreadable)));
        }
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, files)| format!("{kind} {}", human::count(*files))).collect();
        match self.suspicious {
            // Nothing was found where nothing was looked at.
            0 if self.checked == 0 => {}
            0 => parts.push("nothing suspicious".into()),
            some => parts.push(format!("{} with warnings ({})", human::count(some), kinds.join(", "))),
        }
        parts.join(", ")
    }
}

/// Files of a folder and of the folders below, in order of their paths. Links to folders are not followed: they may lead
/// back.
fn files_below(path: &Path) -> occam_engine::scene::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(folder) = open.pop() {
        let failed = |error: std::io::Error| Error::io(&folder, &error);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                open.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The format of the first file that tells one.
fn first_told(files: &[PathBuf], signals: &Signals) -> Option<Benchmark> {
    let mut files = files.iter().filter(|file| Benchmark::ALL.iter().any(|b| GroundTruth::name_fits(file, *b)));
    files.by_ref().take_while(|_| !signals.stop_asked()).find_map(|file| {
        // What cannot be read tells nothing; it is reported when its turn comes.
        GroundTruth::open(file).ok().flatten().map(|truth| truth.benchmark())
    })
}
