//! `occam bench precision`: what coordinates lose in f16 and in bf16.

use std::path::PathBuf;

use clap::Args;
use occam_engine::bench::{Band, CoordinateError, CoordinateErrors, coordinate_errors};
use occam_engine::scene::formats::{self, ReadOptions};
use serde_json::json;

use super::check_folder;
use crate::fail::usage;
use crate::parse;
use crate::print::{Output, Table, human};

#[derive(Args)]
pub struct PrecisionArgs {
    /// A scan: PLY, KITTI or nuScenes .bin, .npy or .npz
    cloud: PathBuf,
    /// Edge of the blocks that coordinates are taken relative to, metres
    #[arg(long, default_value_t = 10.0, value_name = "M", value_parser = parse::metres)]
    block: f32,
    /// 32-bit floats a point in .bin files: 4 for KITTI, 5 for nuScenes [default: the plausible one]
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    stride: Option<usize>,
    /// Also write what was found to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(args: &PrecisionArgs, out: Output) -> anyhow::Result<u8> {
    if let Some(path) = &args.json {
        check_folder(path)?;
    }
    let options = ReadOptions { bin_stride: args.stride, ..ReadOptions::default() };
    let read = formats::read_cloud(&args.cloud, &options)?;
    for note in &read.notes {
        out.note(note);
    }
    if read.cloud.is_empty() {
        return Err(usage(format!("{}: found no points, expected some to measure", args.cloud.display())));
    }
    let found = coordinate_errors(&read.cloud, f64::from(args.block));
    let mut value = json!(found);
    value["kind"] = "occam bench precision".into();
    value["file"] = args.cloud.display().to_string().into();
    if let Some(path) = &args.json {
        let text = serde_json::to_vec_pretty(&value)?;
        formats::atomic_write(path, |file| file.write_all(&text))?;
    }
    out.json(&value)?;
    out.line(format!(
        "{}: {}, {}; error of a coordinate in metres, mean and largest\n",
        args.cloud.display(),
        read.format,
        human::counted(found.points, "point")
    ))?;
    out.result(table(&found))?;
    out.result(format!("\n{}", verdict(&found)))?;
    if let Some(path) = &args.json {
        out.line(format!("file    {}", path.display()))?;
    }
    Ok(0)
}

fn table(found: &CoordinateErrors) -> Table {
    let block = |format: &str| format!("{format} in {} m blocks", found.block_m);
    let mut header = vec!["distance".to_owned(), "points".to_owned()];
    for format in ["f16".to_owned(), "bf16".to_owned(), block("f16"), block("bf16")] {
        header.extend([format, "max".to_owned()]);
    }
    let mut table = Table::with_header(header);
    for band in &found.bands {
        let name = match band.to_m {
            Some(to) => format!("{} to {to} m", band.from_m),
            None => format!("from {} m", band.from_m),
        };
        table.row(cells(name, band));
    }
    table.row(cells("all".into(), &found.all));
    table
}

fn cells(name: String, band: &Band) -> Vec<String> {
    let mut cells = vec![name, human::count(band.points)];
    for error in [band.f16, band.bf16, band.f16_in_block, band.bf16_in_block] {
        cells.extend([error.mean_m, error.max_m].map(metres));
    }
    cells
}

fn metres(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.5}"))
}

/// Which format keeps coordinates better here.
fn verdict(found: &CoordinateErrors) -> String {
    let Band { f16, bf16, .. } = found.all;
    let beyond = |error: CoordinateError, name: &str| match error.out_of_range {
        0 => String::new(),
        n => format!("; {} beyond the range of {name}", human::counted(n, "value")),
    };
    let lost = f16.out_of_range + bf16.out_of_range > 0;
    let beyond = beyond(f16, "f16") + &beyond(bf16, "bf16");
    let (Some(f16), Some(bf16)) = (f16.mean_m, bf16.mean_m) else {
        return format!("no coordinate is within the range of f16{beyond}");
    };
    let [f16_text, bf16_text] = [f16, bf16].map(|mean| format!("{:.3} cm", mean * 100.0));
    // Means are of what was within range: with values lost they compare different coordinates. Nor is there much to compare
    // where both are off by less than a hundredth of a millimetre.
    let than = if lost {
        "not comparable, since values are lost".into()
    } else if f16.max(bf16) < 1e-5 {
        "both keep them".into()
    } else if f16 < bf16 {
        format!("f16 keeps them {:.1} times better than bf16", bf16 / f16)
    } else if bf16 < f16 {
        format!("bf16 keeps them {:.1} times better than f16", f16 / bf16)
    } else {
        "both keep them alike".into()
    };
    format!(
        "coordinates as in the file are off by {f16_text} in f16 and by {bf16_text} in bf16 in the mean: {than}{beyond}"
    )
}
