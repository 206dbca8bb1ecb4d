//! Times of operations, as tables and as JSON.

use std::io;
use std::path::Path;

use occam_engine::bench::{About, Comparison, Report, Row};
use serde_json::{Value, json};

use super::{Output, Table, human};

/// Below this share of the speed of Burn's operation a case is listed at the end.
const LISTED_BELOW: f64 = 0.9;
/// Results in f32 that are further apart are told: one of the two is wrong.
const APART: f64 = 1e-3;

pub fn header(about: &About, cases: usize, out: Output) -> io::Result<()> {
    out.json(&json!({ "event": "started", "about": about, "cases": cases }))?;
    out.line(format!("device  {}", about.device))?;
    let autotune = if about.autotune { "on: its kernels are chosen by trial for each shape" } else { "off" };
    out.line(format!("beside  Burn {}, autotune {autotune}", about.burn))?;
    out.line(format!(
        "cases   {}; times are medians, ratio 2.00 is twice as fast as Burn's; best: of the fastest runs",
        human::count(cases)
    ))
}

pub fn report(report: &Report, gpu: bool, out: Output) -> io::Result<()> {
    for section in report.cases.chunk_by(|a, b| a.network == b.network && a.precision == b.precision) {
        out.result(format!("\n{} {}\n{}", section[0].network, section[0].precision, table(section)))?;
    }
    for row in &report.cases {
        for (who, error) in [("occam", &row.ours_error), ("Burn", &row.burns_error)] {
            if let Some(error) = error {
                Output::warning(format!("{}: {who} has no time: {error}", row.name()));
            }
        }
        if row.precision == "f32" && row.difference.is_some_and(|apart| apart > APART || apart.is_nan()) {
            let apart = row.difference.unwrap_or(f64::NAN);
            Output::warning(format!(
                "{}: the results differ by {apart:.1e} of the largest value, so one of the two is wrong",
                row.name()
            ));
        }
    }
    let slow = report.slower_than(LISTED_BELOW);
    out.json(&json!({
        "event": "done",
        "stopped": report.stopped,
        "cases": report.cases.len(),
        "slower_than_0.9_of_burn": slow.iter().map(|row| row.name()).collect::<Vec<_>>(),
    }))?;
    let timed = report.cases.iter().filter(|row| row.ratio().is_some()).count();
    if timed == 0 {
        return Ok(());
    }
    let fastest = report.cases.iter().filter_map(|row| Some((row.flops_per_second()?, row)));
    if let Some((speed, row)) = fastest.max_by(|a, b| a.0.total_cmp(&b.0)) {
        out.result(format!("\nfastest {} ({})", rate(speed), row.name()))?;
    }
    let even = report.slower_than(1.0).len() - slow.len();
    out.result(format!(
        "of {timed} cases beside Burn's: {} faster, {even} slower by less than a tenth, {} slower than {LISTED_BELOW} of Burn's",
        timed - even - slow.len(),
        slow.len()
    ))?;
    for row in &slow {
        out.result(format!("    {} {}", row.ratio().map(ratio).unwrap_or_default(), row.name()))?;
    }
    out.result(gain(report.about.autotune, gpu, slow.len()))
}

/// Whether anything would still gain from Burn's autotune.
fn gain(autotune: bool, gpu: bool, slow: usize) -> String {
    match (gpu, autotune, slow) {
        (false, _, _) => "autotune has no part in this: on the CPU Burn has one implementation of each operation".into(),
        (true, true, 0) => "none of these would gain from Burn's autotune, which was on".into(),
        (true, true, _) => "the listed cases would gain from Burn's autotune, which was on".into(),
        (true, false, 0) => {
            "none of these would gain from Burn's operations as they are; autotune was off, a build with `--features \
             autotune` times them tuned"
                .into()
        }
        (true, false, _) => {
            "the listed cases would gain from Burn's operations even without autotune; a build with `--features autotune` \
             times them tuned"
                .into()
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let dispatched = rows.iter().any(|row| row.longest_dispatch_s.is_some());
    let header = ["layer", "operation", "ms", "Burn ms", "ratio", "best", "GFLOP/s", "GB/s", "MFLOP", "MB"];
    let header = header.into_iter().chain(dispatched.then_some("longest ms")).map(String::from).collect();
    let mut table = Table::with_header(header).left(&[1]);
    for row in rows {
        let mut cells = vec![
            row.layer.clone(),
            format!("{} {}", row.operation, row.pass),
            cell(row.ours.map(|timing| timing.seconds * 1e3)),
            cell(row.burns.map(|timing| timing.seconds * 1e3)),
            row.ratio().map_or_else(|| "-".into(), ratio),
            row.fastest_ratio().map_or_else(|| "-".into(), ratio),
            cell(row.flops_per_second().map(|speed| speed / 1e9)),
            cell(row.bytes_per_second().map(|speed| speed / 1e9)),
            cell(row.flops.map(|flops| flops as f64 / 1e6)),
            cell(Some(row.bytes as f64 / 1e6)),
        ];
        cells.extend(dispatched.then(|| cell(row.longest_dispatch_s.map(|seconds| seconds * 1e3))));
        table.row(cells);
    }
    table
}

/// Three digits that count, whatever the size: `0.0123`, `1.23`, `12.3`, `1,230`.
fn cell(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 0.1 => format!("{value:.4}"),
        Some(value) if value < 1.0 => format!("{value:.3}"),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => human::count(value.round() as usize),
    }
}

fn ratio(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { human::count(value.round() as usize) }
}

/// `850 GFLOP/s`, `12.3 TFLOP/s`.
fn rate(flops_per_second: f64) -> String {
    if flops_per_second < 1e12 {
        format!("{:.1} GFLOP/s", flops_per_second / 1e9)
    } else {
        format!("{:.2} TFLOP/s", flops_per_second / 1e12)
    }
}

pub fn row_json(row: &Row) -> Value {
    let mut value = json!(row);
    value["event"] = "case".into();
    value["name"] = row.name().into();
    value["ratio"] = json!(row.ratio());
    value["fastest_ratio"] = json!(row.fastest_ratio());
    value["flops_per_second"] = json!(row.flops_per_second());
    value["bytes_per_second"] = json!(row.bytes_per_second());
    value
}

pub fn comparison(comparison: &Comparison, files: [&Path; 2], out: Output) -> anyhow::Result<()> {
    let pairs: Vec<Value> = comparison
        .pairs
        .iter()
        .map(|pair| {
            json!({
                "name": pair.first.name(),
                "first_s": pair.first.ours.map(|timing| timing.seconds),
                "second_s": pair.second.ours.map(|timing| timing.seconds),
                "speedup": pair.speedup(),
                "burns_speedup": pair.burns_speedup(),
            })
        })
        .collect();
    out.json(&json!({
        "event": "compared",
        "files": files.map(Path::to_string_lossy),
        "warnings": comparison.warnings,
        "cases": pairs,
        "median_speedup": comparison.median_speedup(),
        "only_in_first": comparison.only_in_first,
        "only_in_second": comparison.only_in_second,
    }))?;
    let mut table = Table::new(["case", "A ms", "B ms", "speed-up", "Burn's"]);
    for pair in &comparison.pairs {
        table.row([
            pair.first.name(),
            cell(pair.first.ours.map(|timing| timing.seconds * 1e3)),
            cell(pair.second.ours.map(|timing| timing.seconds * 1e3)),
            pair.speedup().map_or_else(|| "-".into(), ratio),
            pair.burns_speedup().map_or_else(|| "-".into(), ratio),
        ]);
    }
    let [a, b] = files.map(Path::display);
    out.line(format!("A  {a}\nB  {b}\n"))?;
    out.result(&table)?;
    for (file, names) in [(a, &comparison.only_in_first), (b, &comparison.only_in_second)] {
        if !names.is_empty() {
            out.line(format!("\nonly in {file}: {}", names.join("; ")))?;
        }
    }
    if let Some(median) = comparison.median_speedup() {
        out.line(format!(
            "\nB is {} times as fast as A in the median; the column of Burn's, which is the same code in both, tells how far \
             the machine was not the same",
            ratio(median)
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in
            [(0.01234, "0.0123"), (0.1234, "0.123"), (1.2345, "1.23"), (12.345, "12.3"), (1234.5, "1,235")]
        {
            assert_eq!(cell(Some(value)), text);
        }
        assert_eq!(cell(None), "-");
        assert_eq!(ratio(0.876), "0.88");
        assert_eq!(ratio(1234.0), "1,234");
        assert_eq!(rate(8.5e11), "850.0 GFLOP/s");
        assert_eq!(rate(1.234e13), "12.34 TFLOP/s");
    }

    #[test]
    fn what_autotune_could_do_depends_on_device_build_and_times() {
        assert!(gain(true, false, 5).contains("no part"));
        assert!(gain(true, true, 0).contains("none of these would gain from Burn's autotune"));
        assert!(gain(true, true, 1).starts_with("the listed cases"));
        assert!(gain(false, true, 0).contains("a build with `--features autotune`"));
        assert!(gain(false, true, 1).contains("even without autotune"));
    }
}
