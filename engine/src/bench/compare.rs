//! Two reports side by side.

use std::collections::HashMap;

use super::report::{About, Report, Row};

/// What two reports say of the same work.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What makes the times hard to compare, one sentence each.
    pub warnings: Vec<String>,
    pub pairs: Vec<ComparedRow>,
    /// Names of cases in one report only.
    pub only_in_first: Vec<String>,
    pub only_in_second: Vec<String>,
}

/// One case in both reports.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedRow {
    pub first: Row,
    pub second: Row,
}

impl ComparedRow {
    /// How many times as fast ours is in the second report.
    pub fn speedup(&self) -> Option<f64> {
        Some(self.first.ours?.seconds / self.second.ours?.seconds)
    }

    /// The same of Burn's operation, which did not change: how far the machine did.
    pub fn burns_speedup(&self) -> Option<f64> {
        Some(self.first.burns?.seconds / self.second.burns?.seconds)
    }
}

impl Comparison {
    /// Median of [`ComparedRow::speedup`].
    pub fn median_speedup(&self) -> Option<f64> {
        let mut speedups: Vec<f64> = self.pairs.iter().filter_map(ComparedRow::speedup).collect();
        speedups.sort_by(f64::total_cmp);
        speedups.get(speedups.len() / 2).copied()
    }
}

/// Pairs the cases of two reports by name, in the order of the first.
pub fn compare(first: &Report, second: &Report) -> Comparison {
    let by_name: HashMap<String, &Row> = second.cases.iter().map(|row| (row.name(), row)).collect();
    let known: Vec<String> = first.cases.iter().map(Row::name).collect();
    let (mut pairs, mut only_in_first) = (Vec::new(), Vec::new());
    for (name, row) in known.iter().zip(&first.cases) {
        match by_name.get(name) {
            Some(other) => pairs.push(ComparedRow { first: row.clone(), second: (*other).clone() }),
            None => only_in_first.push(name.clone()),
        }
    }
    let only_in_second = second.cases.iter().map(Row::name).filter(|name| !known.contains(name)).collect();
    let mut warnings = warnings(&first.about, &second.about);
    for (which, report) in [("first", first), ("second", second)] {
        if report.stopped {
            warnings.push(format!("the {which} run was stopped before its end"));
        }
    }
    if pairs.is_empty() {
        warnings.push("no case is in both".into());
    }
    Comparison { warnings, pairs, only_in_first, only_in_second }
}

fn warnings(first: &About, second: &About) -> Vec<String> {
    let autotune = |about: &About| if about.autotune { "on" } else { "off" }.to_owned();
    [
        ("device", first.device.clone(), second.device.clone()),
        ("version of occam", first.occam.clone(), second.occam.clone()),
        ("version of Burn", first.burn.clone(), second.burn.clone()),
        ("setting of autotune", autotune(first), autotune(second)),
    ]
    .into_iter()
    .filter(|(_, a, b)| a != b)
    .map(|(what, a, b)| format!("the {what} differs: {a} and {b}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, row};
    use super::*;

    #[test]
    fn cases_are_paired_by_name() {
        let first = report(vec![row("a", 0.4, 0.1), row("gone", 1.0, 1.0), row("b", 0.1, 0.1)]);
        let second = report(vec![row("b", 0.2, 0.1), row("new", 1.0, 1.0), row("a", 0.1, 0.2)]);
        let found = compare(&first, &second);
        let speedups: Vec<_> = found.pairs.iter().map(|pair| (pair.speedup(), pair.burns_speedup())).collect();
        assert_eq!(speedups, [(Some(4.0), Some(0.5)), (Some(0.5), Some(1.0))]);
        assert_eq!(found.only_in_first, ["unet gone conv2d forward f32"]);
        assert_eq!(found.only_in_second, ["unet new conv2d forward f32"]);
        assert_eq!(found.warnings, Vec::<String>::new());
        assert_eq!(found.median_speedup(), Some(4.0));
    }

    #[test]
    fn another_device_or_version_is_told() {
        let (first, mut second) = (report(Vec::new()), report(Vec::new()));
        second.about.device = "llvmpipe".into();
        second.about.autotune = true;
        let found = compare(&first, &second);
        assert_eq!(
            found.warnings,
            [
                "the device differs: CPU (2 threads) and llvmpipe",
                "the setting of autotune differs: off and on",
                "no case is in both"
            ]
        );
        assert_eq!(found.median_speedup(), None);
    }
}
