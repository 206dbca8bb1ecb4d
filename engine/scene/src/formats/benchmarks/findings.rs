//! Where a file contradicts the format that it is said to have: it can be read, and would teach nonsense.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::Benchmark;
use super::truth::{GroundTruth, Places};

/// A contradiction between a file and its format. `Display` is one sentence a user can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind it is, for programs: `free-id`, `axis-order`.
    pub kind: &'static str,
    pub found: String,
    pub expected: String,
    pub advice: String,
}

impl Finding {
    pub fn new(
        kind: &'static str,
        found: impl Into<String>,
        expected: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { kind, found: found.into(), expected: expected.into(), advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, expected {}. {}", self.found, self.expected, self.advice)
    }
}

/// Classes that lie low and flat.
const GROUND: [&str; 8] =
    ["driveable_surface", "other_flat", "sidewalk", "terrain", "road", "ground", "parking", "other-ground"];
/// Classes without boxes, hence without velocity.
const BACKGROUND: [&str; 7] =
    ["driveable_surface", "other_flat", "sidewalk", "terrain", "manmade", "vegetation", "free"];
/// Fewer voxels than this say nothing about shape.
const ENOUGH: usize = 500;
/// 200 km/h; the labels are of city traffic.
const FASTEST_M_S: f32 = 55.0;

/// How ground lies in the layers of one axis.
struct Profile {
    /// Fewest layers that hold four fifths of it.
    layers: usize,
    /// Half of it lies at or below this layer.
    median: usize,
}

impl Profile {
    fn of(counts: &[usize]) -> Self {
        let all: usize = counts.iter().sum();
        let mut sorted = counts.to_vec();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        Self { layers: reach(&sorted, all * 4 / 5) + 1, median: reach(counts, all / 2) }
    }
}

/// Position at which the running sum first exceeds `target`.
fn reach(counts: &[usize], target: usize) -> usize {
    let mut sum = 0;
    counts
        .iter()
        .position(|n| {
            sum += n;
            sum > target
        })
        .unwrap_or(counts.len().saturating_sub(1))
}

/// `12.3 %`, for messages.
fn percent(part: usize, all: usize) -> String {
    format!("{:.1} %", part as f64 * 100.0 / all.max(1) as f64)
}

impl GroundTruth {
    /// What contradicts the format, most telling first; empty when nothing does. The thresholds leave room for odd
    /// scenes: a finding is a reason to look, not a proof.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut ids = BTreeMap::new();
        for id in &self.truth.ids {
            *ids.entry(*id).or_insert(0_usize) += 1;
        }
        let order = self.outside_the_grid();
        let one_class = self.one_class(&ids);
        let free = if one_class.is_none() { self.free_id(&ids) } else { None };
        let explained = one_class.is_some() || free.is_some();
        findings.extend(one_class);
        findings.extend(free);
        findings.extend(self.unknown_ids(&ids));
        let in_order = order.is_none();
        findings.extend(order);
        if in_order && !explained {
            findings.extend(self.extent());
            findings.extend(self.ground());
        }
        findings.extend(self.masks());
        findings.extend(self.flow());
        findings
    }

    fn name_of(&self, id: i64) -> String {
        match self.classes().of(id) {
            Some(class) if class == self.labels.ignore_id => format!("{id} (ignored)"),
            Some(class) => {
                let class = self.labels.classes.get(usize::from(class));
                class.map_or_else(|| id.to_string(), |class| format!("{id} ({})", class.name))
            }
            None => id.to_string(),
        }
    }

    /// Nothing but one id.
    fn one_class(&self, ids: &BTreeMap<i64, usize>) -> Option<Finding> {
        let lists = matches!(self.truth.places, Places::Listed(_));
        if ids.is_empty() {
            let advice = "The ground truth of this frame is missing or was made without points: leave the frame out";
            return Some(Finding::new("empty", "a list without voxels", "occupied voxels", advice));
        }
        let (&id, &count) = ids.iter().next().filter(|(_, count)| ids.len() == 1 && **count >= ENOUGH)?;
        let free = i64::from(self.labels.file_id(self.labels.empty_id));
        let found = format!("class {} in all {count} voxels{}", self.name_of(id), if lists { " listed" } else { "" });
        let advice = if id == free {
            "The ground truth of this frame is missing or was made without points: leave the frame out"
        } else if id == 0 {
            "A missing ground truth that some program filled with zeros? Fetch the file again, or leave the frame out"
        } else {
            "Fetch the file again, or leave the frame out"
        };
        Some(Finding::new("one-class", found, "several classes, as any street has", advice))
    }

    /// An id that fills the grid as free space does, and is not it.
    fn free_id(&self, ids: &BTreeMap<i64, usize>) -> Option<Finding> {
        let (&top, &count) = ids.iter().max_by_key(|(_, count)| **count)?;
        let free = i64::from(self.labels.file_id(self.labels.empty_id));
        let share = percent(count, self.truth.ids.len());
        if matches!(self.truth.places, Places::Listed(_)) {
            // Free space is not listed; id 0 of most lists is noise.
            let ignored = self.classes().of(top) == Some(self.labels.ignore_id);
            return (ignored && count > self.spec.len() / 2).then(|| {
                Finding::new(
                    "free-id",
                    format!("id {top} in {share} of the rows, as free space would be"),
                    format!("rows of occupied voxels only; {top} is noise and becomes ignored"),
                    "Drop the rows of free space, or it will not be learned",
                )
            });
        }
        if top != free && count > self.truth.ids.len() / 2 {
            let advice = match top {
                15 | 23 => {
                    "Free space of Occ3D-Waymo is 23, 15 by its own page: if the file is from there, renumber its classes"
                        .to_owned()
                }
                _ => match self.with_free_id(top) {
                    Some(other) => format!(
                        "That is the free id of {other}: name the format with --format {}, or renumber the classes",
                        other.name()
                    ),
                    None => "Renumber the classes of the file".to_owned(),
                },
            };
            let found = format!("id {} in {share} of the voxels, as free space would be", self.name_of(top));
            return Some(Finding::new("free-id", found, format!("free space with id {free}"), advice));
        }
        (!ids.contains_key(&free)).then(|| {
            let found = format!("no voxel with id {free}");
            let advice = "Free space has another id here, or only occupied voxels were kept";
            Finding::new("free-id", found, format!("free space with id {free}"), advice)
        })
    }

    /// A benchmark with this free id whose files the file could be one of: another kind of file cannot be read as its.
    fn with_free_id(&self, id: i64) -> Option<Benchmark> {
        let fits = |other: &Benchmark| other.free_file_id() == Some(id) && Self::name_fits(&self.path, *other);
        Benchmark::ALL.into_iter().find(fits)
    }

    fn unknown_ids(&self, ids: &BTreeMap<i64, usize>) -> Option<Finding> {
        const NAMED: usize = 8;
        let classes = self.classes();
        let unknown: Vec<_> = ids.iter().filter(|(id, _)| classes.of(**id).is_none()).collect();
        if unknown.is_empty() {
            return None;
        }
        let named: Vec<_> = unknown.iter().take(NAMED).map(|(id, count)| format!("{id} ({count} voxels)")).collect();
        let more = if unknown.len() > NAMED { format!(" and {} more", unknown.len() - NAMED) } else { String::new() };
        Some(Finding::new(
            "class-ids",
            format!("ids that are no class: {}{more}", named.join(", ")),
            format!("ids of the label map \"{}\"", self.labels.name),
            "The file is of another set or version, or was renumbered; reading it fails",
        ))
    }

    /// Voxels outside the grid, and whether another order of the columns explains them.
    fn outside_the_grid(&self) -> Option<Finding> {
        let Places::Listed(places) = &self.truth.places else { return None };
        let counts = self.spec.counts.map(|n| n as i64);
        let inside = |[x, y, z]: [i64; 3]| {
            (0..counts[0]).contains(&x) && (0..counts[1]).contains(&y) && (0..counts[2]).contains(&z)
        };
        let outside = places.iter().filter(|place| !inside(**place)).count();
        let (number, _) = places.iter().enumerate().find(|(_, place)| !inside(**place))?;
        let [x, y, z] = places[number];
        let found = format!("{outside} of {} voxels outside the grid, the first at {x}, {y}, {z}", places.len());
        let expected = format!("x, y, z below {}, {}, {}", counts[0], counts[1], counts[2]);
        let turned = places.iter().all(|[x, y, z]| inside([*z, *y, *x]));
        Some(if turned {
            let order = if self.benchmark == Benchmark::OpenOccupancy { "x, y, z" } else { "z, y, x" };
            let advice = format!("The columns seem to be {order}: reverse the first three; reading it as it is fails");
            Finding::new("axis-order", found, expected, advice)
        } else {
            let advice = "The file is of another set or another grid; reading it fails";
            Finding::new("outside-grid", found, expected, advice)
        })
    }

    /// A list that keeps to a corner of the grid.
    fn extent(&self) -> Option<Finding> {
        let Places::Listed(places) = &self.truth.places else { return None };
        let highest = |axis: usize| places.iter().map(|place| place[axis]).max().unwrap_or(0);
        let [nx, ny, _] = self.spec.counts;
        let (x, y, z) = (highest(0), highest(1), highest(2));
        let corner = (x as usize) < nx / 2 && (y as usize) < ny / 2;
        (corner && places.len() >= 2 * ENOUGH).then(|| {
            Finding::new(
                "extent",
                format!("no voxel beyond {x}, {y}, {z}"),
                format!("voxels all over a grid of {nx}x{ny}x{}", self.spec.counts[2]),
                "The file is of a coarser grid or another set; it would be read into one corner",
            )
        })
    }

    /// Ground lies in a few low layers, whatever the scene, unless the axes are mixed up.
    fn ground(&self) -> Option<Finding> {
        let classes = self.classes();
        let is_ground: Vec<bool> = self.labels.classes.iter().map(|c| GROUND.contains(&c.name.as_str())).collect();
        let mut ground = self.spec.counts.map(|n| vec![0; n]);
        let mut others = vec![0; self.spec.counts[2]];
        for (number, id) in self.truth.ids.iter().enumerate() {
            let (Some(class), Some(index)) = (classes.of(*id), self.index(number)) else { continue };
            if class == self.spec.empty_id || class == self.spec.ignore_id {
                continue;
            }
            let voxel = self.spec.voxel_at(index);
            if is_ground.get(usize::from(class)).copied().unwrap_or(false) {
                (0..3).for_each(|axis| ground[axis][voxel[axis]] += 1);
            } else {
                others[voxel[2]] += 1;
            }
        }
        let (grounds, rest): (usize, usize) = (ground[2].iter().sum(), others.iter().sum());
        if grounds < ENOUGH {
            return None;
        }
        let [x, y, z] = [0, 1, 2].map(|axis| Profile::of(&ground[axis]));
        let layers = self.spec.counts[2];
        let few = "ground in a few low layers along z";
        let (flat, axis) = if x.layers <= y.layers { (&x, "x") } else { (&y, "y") };
        if flat.layers < z.layers {
            let found = format!("ground in {} layers along z and in {} along {axis}", z.layers, flat.layers);
            let advice = format!("Height seems to run along {axis}: the axes are in another order than the format's");
            return Some(Finding::new("axis-order", found, few, advice));
        }
        if z.layers * 4 >= layers * 3 {
            let found = format!("ground spread over {} of {layers} layers along z", z.layers);
            let advice =
                "The array was reshaped in another axis order than it was written in, or height is no axis of it";
            return Some(Finding::new("axis-order", found, few, advice));
        }
        let rest = (rest >= ENOUGH).then(|| Profile::of(&others))?;
        (z.median > rest.median).then(|| {
            let found =
                format!("ground at layer {} and everything else at layer {}, by the median", z.median, rest.median);
            Finding::new("upside-down", found, few, "The z axis seems to point down: reverse it")
        })
    }

    fn masks(&self) -> Vec<Finding> {
        let classes = self.classes();
        let occupied: Vec<usize> = (0..self.truth.ids.len())
            .filter(|number| {
                classes
                    .of(self.truth.ids[*number])
                    .is_some_and(|class| class != self.spec.empty_id && class != self.spec.ignore_id)
            })
            .filter_map(|number| self.index(number))
            .collect();
        let mut findings = Vec::new();
        for (name, mask) in [("mask_lidar", &self.truth.mask_lidar), ("mask_camera", &self.truth.mask_camera)] {
            let Some(mask) = mask else { continue };
            let some = "some voxels in and some out";
            if !mask.contains(&true) {
                findings.push(Finding::new(
                    "mask",
                    format!("{name} 0 everywhere"),
                    some,
                    "Nothing would count under it",
                ));
            } else if !mask.contains(&false) {
                findings.push(Finding::new("mask", format!("{name} 1 everywhere"), some, "It masks nothing"));
            } else if name == "mask_camera" && !occupied.is_empty() && occupied.iter().all(|voxel| mask[*voxel]) {
                // What LiDAR marked as occupied it has seen; cameras miss the far side of things.
                let found = format!("{name} over each of {} occupied voxels", occupied.len());
                findings.push(Finding::new("mask", found, "some of them out of sight", "It masks free space only"));
            }
        }
        if let Some(ignored) = &self.truth.ignored {
            let name = if self.benchmark == Benchmark::CarlaSc { "counts" } else { "list of invalid voxels" };
            let mut out = vec![false; self.spec.len()];
            for voxel in ignored {
                out[*voxel] = true;
            }
            if !out.contains(&false) {
                let found = format!("a {name} that leaves out every voxel");
                findings.push(Finding::new("mask", found, "voxels that count", "Leave the frame out"));
            } else if self.benchmark == Benchmark::OccNet && !occupied.iter().any(|voxel| out[*voxel]) {
                findings.push(Finding::new(
                    "mask",
                    format!("{} invalid voxels, none of them occupied", ignored.len()),
                    "some occupied voxels among them",
                    "Known of the release: the list changes no score of an occupied class",
                ));
            } else if !out.contains(&true) {
                findings.push(Finding::new(
                    "mask",
                    format!("a {name} that leaves out no voxel"),
                    "some",
                    "It masks nothing",
                ));
            }
        }
        findings
    }

    fn flow(&self) -> Vec<Finding> {
        let Some(flow) = &self.truth.flow else { return Vec::new() };
        let classes = self.classes();
        let background = |id: i64| {
            let class = classes.of(id).and_then(|class| self.labels.classes.get(usize::from(class)));
            class.is_some_and(|class| BACKGROUND.contains(&class.name.as_str()))
        };
        let (mut moving_background, mut unknown, mut absurd, mut fastest) = (0, 0, 0, 0.0_f32);
        for (id, [x, y]) in self.truth.ids.iter().zip(flow) {
            let speed = x.hypot(*y);
            unknown += usize::from(!speed.is_finite());
            moving_background += usize::from(speed > 0.0 && background(*id));
            if speed.is_finite() {
                absurd += usize::from(speed > FASTEST_M_S);
                fastest = fastest.max(speed);
            }
        }
        let mut findings = Vec::new();
        if unknown > 0 {
            let found = format!("flow of {unknown} voxels that is NaN or infinite");
            findings.push(Finding::new("flow", found, "velocities in m/s", "It is read as 0"));
        }
        if moving_background > 0 {
            let found = format!("{moving_background} voxels of background or free space with flow");
            let advice = "Classes and flow seem not to belong together: check their order, and the version of the set";
            findings.push(Finding::new("flow", found, "flow of things only", advice));
        }
        if absurd > 0 {
            let found = format!("{absurd} voxels faster than {FASTEST_M_S} m/s, up to {fastest:.1} m/s");
            findings.push(Finding::new("flow", found, "speeds of city traffic", "Check the unit: the set has m/s"));
        }
        findings
    }
}

impl Benchmark {
    /// Id of free space in files with one id a voxel.
    fn free_file_id(self) -> Option<i64> {
        match self {
            Self::SemanticKitti | Self::Occ3dNuscenes | Self::OpenOcc | Self::CarlaSc => {
                Some(i64::from(self.spec().empty_id))
            }
            Self::OccNet | Self::SurroundOcc | Self::OpenOccupancy => None,
        }
    }
}
