//! `occam data demo`: the demo world as files, to practise with before the own scans are at hand.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use occam_engine::scene::PointCloud;
use occam_engine::scene::demo::Drive;
use occam_engine::scene::error::{Error, Place};
use occam_engine::scene::formats::{write_cloud_ply, write_trajectory};
use serde_json::json;

use crate::fail::usage;
use crate::parse;
use crate::print::{Output, human};
use crate::signals::Signals;

#[derive(Args)]
pub struct DemoArgs {
    /// Folder for the scans, or .ply file for one cloud
    output: PathBuf,

    /// What to write [default: one cloud for a name that ends in .ply, else scans]
    #[arg(long = "as", value_enum, value_name = "WHAT")]
    what: Option<What>,
    /// Scans to take along the street
    #[arg(long, default_value_t = 120, value_name = "N", value_parser = parse::at_least_one)]
    scans: usize,
    /// Tenths of a second from scan to scan: the car drives 0.4 to 1.2 m in each
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = parse::at_least_one)]
    every: usize,
    /// Seed of the demo world
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,
    /// Write the classes too, as a column `label` (ids of the label map demo)
    #[arg(long)]
    labels: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A folder of PLY files in the frame of the sensor, with poses.txt
    Scans,
    /// One PLY file with all scans moved into one frame
    Cloud,
}

pub fn run(args: &DemoArgs, out: Output) -> anyhow::Result<u8> {
    let path = args.output.as_path();
    let (Ok(scans), Ok(every)) = (u32::try_from(args.scans), u32::try_from(args.every)) else {
        return Err(usage("--scans and --every: expected numbers below 2^32"));
    };
    if scans.checked_mul(every).is_none() {
        return Err(usage("--scans times --every: expected less than 2^32 tenths of a second"));
    }
    let is_ply = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("ply"));
    let what = args.what.unwrap_or(if is_ply { What::Cloud } else { What::Scans });
    let mut written = match what {
        What::Cloud if !is_ply => {
            return Err(usage(format!("{}: expected a name that ends in .ply for one cloud", path.display())));
        }
        What::Cloud if path.exists() => {
            let error = Error::new(path, Place::File, "something of that name", "a new file");
            return Err(error.hint("Choose another name, or move away what is there").into());
        }
        What::Cloud => Written::default(),
        What::Scans => Written::folder(path)?,
    };
    let signals = Signals::install()?;
    let drive = Drive::new(args.seed, every);
    let mut poses = Vec::new();
    let mut merged = PointCloud { intensity: Some(Vec::new()), label: Some(Vec::new()), ..PointCloud::default() };
    let mut points = 0;
    for number in 0..scans {
        if signals.stop_asked() {
            out.note("stopped; nothing is left of the scans");
            return Ok(signals.exit_code());
        }
        let (scan, pose) = drive.scan(number);
        points += scan.len();
        poses.push(pose);
        let mut scan = PointCloud { instance: None, ring: None, time: None, ..scan };
        if what == What::Scans {
            scan.label = scan.label.filter(|_| args.labels);
            write_cloud_ply(&written.file(path.join(format!("{number:06}.ply"))), &scan)?;
            continue;
        }
        scan.transform(&pose);
        merged.positions.append(&mut scan.positions);
        merged.intensity.iter_mut().for_each(|all| all.extend(scan.intensity.iter().flatten()));
        merged.label.iter_mut().for_each(|all| all.extend(scan.label.iter().flatten()));
    }
    match what {
        What::Scans => write_trajectory(&written.file(path.join("poses.txt")), &poses)?,
        What::Cloud => {
            merged.label = merged.label.filter(|_| args.labels);
            write_cloud_ply(path, &merged)?;
        }
    }
    written.keep();
    let way_m: f64 = poses.windows(2).map(|two| (two[1].w_axis - two[0].w_axis).length()).sum();
    out.json(&json!({
        "event": "written",
        "path": path.to_string_lossy(),
        "scans": scans,
        "points": points,
        "way_m": way_m,
    }))?;
    out.line(format!(
        "{}: {} of {} along {way_m:.0} m of street{}",
        path.display(),
        human::counted(args.scans, "scan"),
        human::counted(points, "point"),
        if what == What::Cloud { ", in one cloud" } else { ", and poses.txt" }
    ))?;
    Ok(0)
}

/// What was written so far: removed again unless all of it is there, for scans without poses are of no use and would be
/// in the way of the next try.
#[derive(Default)]
struct Written {
    files: Vec<PathBuf>,
    /// Folder that was not there before.
    folder: Option<PathBuf>,
}

impl Written {
    /// A new or empty folder: scans of two drives must not mix.
    fn folder(path: &Path) -> anyhow::Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(path, Place::File, error.to_string(), "a folder that can be written")
                .hint("Choose another place, or check its permissions and the space left on the disk")
        };
        let new = !path.exists();
        fs::create_dir_all(path).map_err(failed)?;
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            let error = Error::new(path, Place::File, "a folder with files in it", "a new or empty folder");
            return Err(error.into());
        }
        Ok(Self { files: Vec::new(), folder: new.then(|| path.to_path_buf()) })
    }

    /// A file about to be written.
    fn file(&mut self, path: PathBuf) -> PathBuf {
        self.files.push(path.clone());
        path
    }

    fn keep(&mut self) {
        self.files.clear();
        self.folder = None;
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // What cannot be removed was not written; the error that led here is the one that matters.
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir(folder);
        }
    }
}
