//! What recomputing costs and saves, as text, JSON and a picture.

use occam_engine::render::{Chart, Image, Series, Style, stack};
use occam_engine::train::{PlanReport, Study, StudyRow};
use serde_json::json;

use super::{Output, Table, human};

/// `plan recomputes 3 of 11 segments, predicted peak 404.0 MiB of 450.0 MiB, about 6 % more time`.
pub fn chosen(report: &PlanReport) -> String {
    let (count, all) = (report.recomputed(), report.segments.len());
    let what = if count == 0 { "nothing".into() } else { format!("{count} of {all} segments") };
    let budget = report.budget_bytes.map_or_else(String::new, |budget| format!(" of {}", human::bytes(budget)));
    let time = match report.added_share() {
        _ if count == 0 => String::new(),
        share if share < 0.005 => ", less than 1 % more time".into(),
        share => format!(", about {:.0} % more time", share * 100.0),
    };
    format!(
        "{} recomputes {what}, predicted peak {}{budget}{time}",
        report.strategy,
        human::bytes(report.predicted_bytes)
    )
}

pub fn study(study: &Study, out: Output) -> anyhow::Result<()> {
    let mut value = json!(study);
    value["event"] = "plan".into();
    for (row, json) in study.rows.iter().zip(value["rows"].as_array_mut().into_iter().flatten()) {
        json["error"] = json!(row.error());
    }
    out.json(&value)?;
    let samples = human::counted(study.samples, "sample");
    out.line(format!("device      {}", study.device))?;
    out.line(format!("step        {}, {}, {samples}, {}", study.network, human::counts(study.grid), study.precision))?;
    if let [small, large] = study.measured_grids[..] {
        let (small, large) = (human::counts(small), human::counts(large));
        out.line(format!("measured    {small} and {large}; extended in proportion to the voxels"))?;
    }
    let budget = study.budget_bytes.map_or_else(|| "none".into(), human::bytes);
    out.result(format!("budget      {budget}"))?;
    let memory = if study.refused.is_some() { "no choice fits the budget".into() } else { chosen(&study.chosen) };
    out.result(format!("memory      {memory}"))?;
    out.result(format!(
        "            {} between steps; the smallest budget that a plan fits in is {}",
        human::bytes(study.chosen.fixed_bytes),
        human::bytes(study.chosen.smallest_bytes)
    ))?;
    if let (Some(measured), Some(ms)) = (study.measured_bytes, study.step_ms) {
        let step = human::duration(ms / 1e3);
        out.result(format!("measured    peak {}, {step} a step", human::bytes(measured)))?;
    } else if study.measured_grids.is_empty() && study.refused.is_none() {
        out.result("measured    not run: it does not fit this machine")?;
    }
    let mut segments = Table::new(["segment", "keeps", "ms again", ""]).left(&[3]);
    for segment in &study.chosen.segments {
        segments.row([
            segment.name.clone(),
            human::bytes(segment.kept_bytes),
            format!("{:.1}", segment.recompute_ms),
            if segment.recomputed && study.refused.is_none() { "recomputed".into() } else { String::new() },
        ]);
    }
    out.result(format!("\n{segments}"))?;
    out.result(strategies(&study.rows))?;
    Ok(())
}

fn strategies(rows: &[StudyRow]) -> Table {
    let mut table =
        Table::new(["strategy", "budget", "recomputed", "predicted", "measured", "error", "ms added", "ms a step"]);
    for row in rows {
        table.row([
            row.name.clone(),
            row.budget_bytes.map_or_else(|| "-".into(), human::bytes),
            row.recomputed.to_string(),
            human::bytes(row.predicted_bytes),
            row.measured_bytes.map_or_else(|| (if row.not_run { "not run" } else { "-" }).into(), human::bytes),
            row.error().map_or_else(|| "-".into(), |error| format!("{:+.1} %", error * 100.0)),
            format!("{:.1}", row.added_ms),
            row.step_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.0}")),
        ]);
    }
    table
}

const GREY: [u8; 3] = [150, 150, 160];
const BLUE: [u8; 3] = [30, 90, 200];
const GREEN: [u8; 3] = [20, 150, 90];
/// Of `none` and the rules.
const RULES: [[u8; 3]; 4] = [GREY, [220, 130, 20], [160, 60, 170], GREEN];

/// What is in use over the moments of a step; and peak against time of every strategy.
pub fn picture(study: &Study) -> Image {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let curve = |name: &str, colour, bytes: &dyn Fn(usize) -> u64| Series {
        name: name.into(),
        colour,
        points: (0..study.moments.len()).map(|at| [at as f64, mib(bytes(at))]).collect(),
        style: Style::Steps,
    };
    let level = study.budget_bytes.map(|budget| (mib(budget), "budget".to_owned()));
    let mut series = vec![
        curve("none", GREY, &|at| study.moments[at].none_bytes),
        curve("smallest plan", GREEN, &|at| study.moments[at].smallest_bytes),
    ];
    if study.budget_bytes.is_some() && study.refused.is_none() {
        series.push(curve("this plan", BLUE, &|at| study.moments[at].chosen_bytes));
    }
    let over_time = Chart {
        title: format!("{} at {}: memory over one step", study.network, human::counts(study.grid)),
        x_label: "moments: forward, loss, backward".into(),
        y_label: "MiB".into(),
        series,
        level,
        ..Chart::default()
    };
    let time = |row: &StudyRow| row.step_ms.unwrap_or(study.chosen.step_ms + row.added_ms);
    let marks = |name: &str, colour, wanted: &dyn Fn(&StudyRow) -> bool| Series {
        name: name.into(),
        colour,
        points: study
            .rows
            .iter()
            .filter(|row| !row.not_run && wanted(row))
            .map(|row| [time(row), mib(row.measured_bytes.unwrap_or(row.predicted_bytes))])
            .collect(),
        style: Style::Marks,
    };
    let rules = study.rows.iter().filter(|row| row.budget_bytes.is_none() && !row.not_run);
    let mut ways: Vec<Series> =
        rules.zip(RULES).map(|(rule, colour)| marks(&rule.name, colour, &|row| row.name == rule.name)).collect();
    ways.push(marks("plans", BLUE, &|row| row.budget_bytes.is_some()));
    let peaks = Chart {
        title: "peak and time of a step".into(),
        x_label: "ms a step".into(),
        y_label: "MiB at the peak".into(),
        series: ways,
        x_from_points: true,
        y_from_points: true,
        level: None,
    };
    stack(&[over_time.draw([1000, 520]), peaks.draw([1000, 420])])
}

#[cfg(test)]
mod tests {
    use occam_engine::train::PlannedSegment;

    use super::*;

    #[test]
    fn what_was_chosen_is_one_line() {
        let segment = |recomputed| PlannedSegment { recomputed, ..PlannedSegment::default() };
        let mut report = PlanReport {
            strategy: "plan".into(),
            budget_bytes: Some(450 << 20),
            predicted_bytes: 404 << 20,
            step_ms: 100.0,
            added_ms: 6.2,
            segments: [true, false, true, false, false].map(segment).to_vec(),
            ..PlanReport::default()
        };
        assert_eq!(
            chosen(&report),
            "plan recomputes 2 of 5 segments, predicted peak 404.0 MiB of 450.0 MiB, about 6 % more time"
        );
        report.added_ms = 0.1;
        assert!(chosen(&report).ends_with("less than 1 % more time"));
        report.segments.clear();
        report.budget_bytes = None;
        assert_eq!(chosen(&report), "plan recomputes nothing, predicted peak 404.0 MiB");
    }
}
