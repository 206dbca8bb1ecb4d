//! What to recompute: rules that look at the row of segments, and the plan that takes least time within a budget.

use std::fmt;
use std::str::FromStr;

use super::Mode;
use super::simulate::Profile;
use crate::{Error, Result};

/// How it is decided which segments run again in the backward pass.
///
/// Whatever the strategy, the tape holds the inputs of every segment; to recompute a segment saves what is inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Nothing is recomputed.
    None,
    /// Every k-th segment is kept, the others are recomputed. With 1 nothing is recomputed.
    Every(usize),
    /// [`Strategy::Every`] with the square root of the number of segments, rounded (Chen et al., arXiv 1604.06174).
    Sqrt,
    /// A segment is kept when its outputs go to more places than its inputs come from (fan-out over fan-in above 1), such
    /// as a stage of an encoder, from which skip connections start; one on a chain, and one that joins, are recomputed.
    Topology,
    /// Least time within a budget; see [`solve`].
    Plan,
}

/// Examples of everything [`Strategy`] is read from.
const NAMES: [&str; 5] = ["none", "every-2", "sqrt", "topology", "plan"];

impl FromStr for Strategy {
    type Err = Error;

    /// # Errors
    /// [`Error::Usage`] with the nearest name.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim().to_ascii_lowercase();
        let every = text.strip_prefix("every-").map(|count| count.parse::<usize>().ok().filter(|count| *count > 0));
        match (text.as_str(), every) {
            ("none", _) => Ok(Self::None),
            ("sqrt", _) => Ok(Self::Sqrt),
            ("topology", _) => Ok(Self::Topology),
            ("plan", _) => Ok(Self::Plan),
            (_, Some(Some(count))) => Ok(Self::Every(count)),
            (_, Some(None)) => Err(Error::Usage(format!(
                "unknown strategy {text:?}, expected a whole number of at least 1 after \"every-\", such as every-2"
            ))),
            _ => {
                let names = ["auto"].into_iter().chain(NAMES);
                let near = |name: &&str| strsim::jaro_winkler(name, &text);
                let nearest = names.max_by(|a, b| near(a).total_cmp(&near(b))).unwrap_or("plan");
                Err(Error::Usage(format!(
                    "unknown strategy {text:?}, did you mean \"{nearest}\"? Known are auto, {}",
                    NAMES.join(", ")
                )))
            }
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Every(count) => write!(f, "every-{count}"),
            Self::Sqrt => f.write_str("sqrt"),
            Self::Topology => f.write_str("topology"),
            Self::Plan => f.write_str("plan"),
        }
    }
}

impl Strategy {
    /// The modes by a rule; `None` of [`Strategy::Plan`], which needs a budget.
    pub fn modes(self, profile: &Profile) -> Option<Vec<Mode>> {
        let count = profile.segments.len();
        let keep = |kept: &dyn Fn(usize) -> bool| {
            (0..count).map(|segment| if kept(segment) { Mode::Keep } else { Mode::Recompute }).collect()
        };
        match self {
            Self::None => Some(keep(&|_| true)),
            Self::Every(every) => Some(keep(&|segment| segment.is_multiple_of(every))),
            Self::Sqrt => Self::Every(((count as f64).sqrt().round() as usize).max(1)).modes(profile),
            Self::Topology => Some(keep(&|segment| {
                let segment = &profile.segments[segment];
                segment.fan_out > segment.fan_in
            })),
            Self::Plan => None,
        }
    }
}

/// Modes with the least added time whose simulated peak is at most `budget_bytes` above what was in use before the step; of
/// those that take the same time, one with the fewest bytes kept. `None` when there are none.
///
/// Exact, by dynamic programming in the order of the segments. What a moment takes depends on its own segment and on how
/// much those before it hold together, so that of two choices for the first segments, one that holds no less and takes no
/// less time can be forgotten. Values that skip connections hold are there whatever is chosen, and are part of the profile.
pub fn solve(profile: &Profile, budget_bytes: u64) -> Option<Vec<Mode>> {
    search(profile, budget_bytes, |ms, _, added_ms| ms + added_ms)
}

/// Modes with the smallest simulated peak there is, and that peak.
pub fn least(profile: &Profile) -> (Vec<Mode>, u64) {
    let modes = search(profile, u64::MAX, |peak, bytes, _| f64::max(peak, bytes as f64)).unwrap_or_default();
    let peak = profile.simulate(&modes).peak_bytes;
    (modes, peak)
}

/// What was chosen for the first segments.
#[derive(Clone, Copy)]
struct Choice {
    /// That they hold together.
    bytes: u64,
    /// What is made least.
    cost: f64,
    /// Place of the last segment's choice among the links.
    link: usize,
}

/// A segment's choice, and that of the segment before.
struct Link {
    mode: Mode,
    before: usize,
}

/// Place of the link before the first.
const NO_LINK: usize = usize::MAX;

/// The modes with the least cost at which no moment takes more than `budget`. `fold` adds a segment to a cost: what the
/// highest of its moments takes, and the time it adds. It never falls when bytes or the cost before rise.
fn search(profile: &Profile, budget: u64, fold: impl Fn(f64, u64, f64) -> f64) -> Option<Vec<Mode>> {
    let first = profile.losses_after(0).map(|loss| profile.losses[loss].peak_bytes);
    if first.chain([profile.end_bytes]).any(|bytes| bytes > budget) {
        return None;
    }
    let mut links: Vec<Link> = Vec::new();
    let mut front = vec![Choice { bytes: 0, cost: 0.0, link: NO_LINK }];
    for (number, segment) in profile.segments.iter().enumerate() {
        let mut next = Vec::with_capacity(2 * front.len());
        for mode in [Mode::Keep, Mode::Recompute] {
            let (kept, added_ms) = match mode {
                Mode::Keep => (segment.kept_bytes, 0.0),
                Mode::Recompute => (0, segment.again_ms),
            };
            let losses = profile.losses_after(number + 1).map(|loss| profile.losses[loss].peak_bytes + kept);
            let passes = [segment.forward.of(mode), segment.backward.of(mode)];
            let peak = losses.chain(passes).max().unwrap_or(0);
            for choice in front.iter().filter(|choice| choice.bytes.saturating_add(peak) <= budget) {
                links.push(Link { mode, before: choice.link });
                let cost = fold(choice.cost, choice.bytes + peak, added_ms);
                next.push(Choice { bytes: choice.bytes + kept, cost, link: links.len() - 1 });
            }
        }
        front = next;
        prune(&mut front);
    }
    // The last of the front has the least cost; of equal ones the first in bytes is left.
    let mut link = front.last()?.link;
    let mut modes = Vec::with_capacity(profile.segments.len());
    while let Some(Link { mode, before }) = links.get(link) {
        modes.push(*mode);
        link = *before;
    }
    modes.reverse();
    Some(modes)
}

/// Leaves only choices that no other beats or equals in both bytes and cost; bytes then rise and costs fall.
fn prune(front: &mut Vec<Choice>) {
    front.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.cost.total_cmp(&b.cost)));
    let mut least = f64::INFINITY;
    front.retain(|choice| {
        let better = choice.cost < least;
        least = least.min(choice.cost);
        better
    });
}

#[cfg(test)]
mod tests {
    use super::super::simulate::{Loss, Peaks, Segment};
    use super::*;

    /// Numbers without a library: the high bits of a linear congruential sequence (Knuth's MMIX).
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// A network of `count` segments with losses anywhere.
    fn random(draw: &mut Draw, count: usize) -> Profile {
        let loss =
            |draw: &mut Draw| Loss { after: draw.below(count as u64 + 1) as usize, peak_bytes: 200 + draw.below(300) };
        let peaks = |draw: &mut Draw| Peaks { keep: 100 + draw.below(200), recompute: 100 + draw.below(200) };
        let losses = (0..draw.below(3)).map(|_| loss(draw)).collect();
        let segments = (0..count).map(|_| Segment {
            kept_bytes: draw.below(100),
            forward: peaks(draw),
            backward: peaks(draw),
            // Few different times, so that equal ones occur.
            again_ms: draw.below(8) as f64,
            ..Segment::default()
        });
        Profile { segments: segments.collect(), losses, end_bytes: draw.below(200), step_ms: 100.0 }
    }

    fn all_modes(count: usize) -> impl Iterator<Item = Vec<Mode>> {
        let mode = |bit: bool| if bit { Mode::Recompute } else { Mode::Keep };
        (0..1u32 << count).map(move |bits| (0..count).map(|at| mode(bits >> at & 1 == 1)).collect())
    }

    #[test]
    fn the_plan_is_as_good_as_the_best_of_all_choices() {
        let mut draw = Draw(7);
        let (mut some, mut none) = (0, 0);
        for round in 0..200 {
            let count = 1 + draw.below(if round % 20 == 0 { 12 } else { 8 }) as usize;
            let profile = random(&mut draw, count);
            let all: Vec<_> = all_modes(count).map(|modes| profile.simulate(&modes)).collect();
            let lowest = all.iter().map(|simulation| simulation.peak_bytes).min().unwrap();
            let highest = all.iter().map(|simulation| simulation.peak_bytes).max().unwrap();
            assert_eq!(least(&profile).1, lowest, "round {round}: {profile:?}");
            for budget in [lowest - 1, lowest, lowest + draw.below(highest - lowest + 1), highest] {
                let fits = all.iter().filter(|simulation| simulation.peak_bytes <= budget);
                let best = fits.map(|simulation| simulation.added_ms).min_by(f64::total_cmp);
                let found = solve(&profile, budget).map(|modes| profile.simulate(&modes));
                if let Some(found) = &found {
                    assert!(found.peak_bytes <= budget, "round {round}, budget {budget}: {found:?}");
                }
                let found = found.map(|found| found.added_ms);
                assert_eq!(found, best, "round {round}, budget {budget}: {profile:?}");
                *(if found.is_some() { &mut some } else { &mut none }) += 1;
            }
        }
        assert!(some >= 600 && none >= 200, "{some} budgets with a plan, {none} without");
    }

    /// A network of 60 segments is planned at once: the front stays small.
    #[test]
    fn a_long_network_is_planned() {
        let mut draw = Draw(11);
        let mut profile = random(&mut draw, 60);
        for segment in &mut profile.segments {
            segment.kept_bytes *= 1 << 20;
            segment.again_ms += draw.below(1000) as f64 / 1000.0;
        }
        let (low, high) = (least(&profile).1, profile.simulate(&[]).peak_bytes);
        let budget = u64::midpoint(low, high);
        let modes = solve(&profile, budget).unwrap();
        assert!(profile.simulate(&modes).peak_bytes <= budget);
    }

    #[test]
    fn strategies_are_read_from_their_names() {
        for name in NAMES {
            assert_eq!(name.parse::<Strategy>().unwrap().to_string(), name);
        }
        assert_eq!(" Every-7 ".parse::<Strategy>().unwrap(), Strategy::Every(7));
        for (wrong, word) in [
            ("sqr", "\"sqrt\""),
            ("topologic", "\"topology\""),
            ("every2", "\"every-2\""),
            ("every-0", "at least 1"),
            ("every-x", "at least 1"),
            ("", "known are"),
        ] {
            let error = wrong.parse::<Strategy>().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().to_lowercase().contains(word), "{error}");
        }
    }

    #[test]
    fn rules_keep_what_they_say() {
        use Mode::{Keep, Recompute};
        let segment = |fan_in, fan_out| Segment { fan_in, fan_out, ..Segment::default() };
        // Out of one into two places; on a chain; out of two into the loss; out of one into nothing; out of nothing.
        let segments = [(1, 2), (1, 1), (2, 1), (1, 0), (0, 1)].map(|(fan_in, fan_out)| segment(fan_in, fan_out));
        let profile = Profile { segments: segments.to_vec(), ..Profile::default() };
        let modes = |strategy: Strategy| strategy.modes(&profile);
        assert_eq!(modes(Strategy::Topology), Some(vec![Keep, Recompute, Recompute, Recompute, Keep]));
        assert_eq!(modes(Strategy::Every(2)), Some(vec![Keep, Recompute, Keep, Recompute, Keep]));
        // The root of 5 is 2.2.
        assert_eq!(modes(Strategy::Sqrt), modes(Strategy::Every(2)));
        assert_eq!(modes(Strategy::Every(1)), Some(vec![Keep; 5]));
        assert_eq!(modes(Strategy::None), Some(vec![Keep; 5]));
        assert_eq!(modes(Strategy::Plan), None);
        assert_eq!(Strategy::Sqrt.modes(&Profile::default()), Some(vec![]));
    }
}
