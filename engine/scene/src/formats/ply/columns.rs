//! What the columns of a vertex mean, and the cloud they make.

use std::path::Path;

use super::super::bytes::count;
use super::super::origin;
use super::header::{Element, Kind, Property, Scalar};
use super::table::Table;
use crate::cloud::PointCloud;
use crate::error::{Error, Place, Result};

/// Most unused properties that a note lists.
const LISTED: usize = 6;
/// Most properties that an error lists.
const MOST_NAMED: usize = 40;
/// Float colours in 0 to 1 may shine brighter than white; above this they are meant as 0 to 255.
const BRIGHTEST: f64 = 4.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    X,
    Y,
    Z,
    Red,
    Green,
    Blue,
    Intensity,
    Label,
    Instance,
    Ring,
    Time,
}

/// Names of each role in lower case and without CloudCompare's `scalar_`, the preferred one first.
const NAMES: [(Role, &[&str]); 11] = [
    (Role::X, &["x", "px", "pos_x"]),
    (Role::Y, &["y", "py", "pos_y"]),
    (Role::Z, &["z", "pz", "pos_z"]),
    (Role::Red, &["red", "r", "diffuse_red"]),
    (Role::Green, &["green", "g", "diffuse_green"]),
    (Role::Blue, &["blue", "b", "diffuse_blue"]),
    (Role::Intensity, &["intensity", "reflectance", "reflectivity", "remission"]),
    (Role::Label, &["label", "labels", "class", "classification", "semantic", "semantics", "sem_class", "sem_label"]),
    (Role::Instance, &["instance", "instance_id", "object_id"]),
    (Role::Ring, &["ring", "channel", "laser_id", "beam"]),
    (Role::Time, &["time", "timestamp", "gps_time", "gps-time", "gpstime"]),
];

/// A role, its property in the element, and its type.
#[derive(Debug, Clone, Copy)]
struct Column {
    role: Role,
    property: usize,
    kind: Scalar,
}

/// The columns that a cloud takes from an element, in the order of the table's slots.
#[derive(Debug)]
pub(super) struct Roles(Vec<Column>);

impl Roles {
    pub(super) fn of(path: &Path, element: &Element, notes: &mut Vec<String>) -> Result<Self> {
        let find = |names: &[&str]| {
            names.iter().find_map(|wanted| {
                element.properties.iter().enumerate().find_map(|(index, property)| {
                    let name = property.name.to_lowercase();
                    let name = name.strip_prefix("scalar_").unwrap_or(&name);
                    match property.kind {
                        Kind::Scalar(kind) if name == *wanted => Some((index, kind)),
                        _ => None,
                    }
                })
            })
        };
        let mut columns: Vec<Column> = NAMES
            .iter()
            .filter_map(|(role, names)| find(names).map(|(property, kind)| Column { role: *role, property, kind }))
            .collect();
        let has = |columns: &[Column], role| columns.iter().any(|c| c.role == role);
        let coordinates = [Role::X, Role::Y, Role::Z];
        if coordinates.iter().any(|role| !has(&columns, *role)) {
            let name = |p: &Property| match p.kind {
                Kind::Scalar(_) => p.name.clone(),
                Kind::List { .. } => format!("{} (a list)", p.name),
            };
            let names: Vec<String> = element.properties.iter().take(MOST_NAMED).map(name).collect();
            let found =
                if names.is_empty() { "no properties".into() } else { format!("the properties {}", names.join(", ")) };
            let expected = format!("x, y and z in the element {}", element.name);
            return Err(Error::new(path, Place::File, found, expected));
        }
        let colours = [Role::Red, Role::Green, Role::Blue];
        if colours.iter().any(|role| !has(&columns, *role)) {
            columns.retain(|c| !colours.contains(&c.role));
        }
        note_unused(element, &columns, notes);
        Ok(Self(columns))
    }

    /// Property of each slot.
    pub(super) fn properties(&self) -> Vec<usize> {
        self.0.iter().map(|column| column.property).collect()
    }

    fn slot(&self, role: Role) -> Option<usize> {
        self.0.iter().position(|column| column.role == role)
    }

    fn slots(&self, roles: [Role; 3]) -> Option<[usize; 3]> {
        let [a, b, c] = roles.map(|role| self.slot(role));
        Some([a?, b?, c?])
    }
}

fn note_unused(element: &Element, columns: &[Column], notes: &mut Vec<String>) {
    let unused: Vec<&str> = element
        .properties
        .iter()
        .enumerate()
        .filter(|(index, property)| {
            // The second of two equal names has a note of its own.
            let first = element.properties.iter().position(|p| p.name == property.name) == Some(*index);
            first && columns.iter().all(|c| c.property != *index)
        })
        .map(|(_, property)| property.name.as_str())
        .collect();
    if !unused.is_empty() {
        let listed = unused.len().min(LISTED);
        let more = unused.len() - listed;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!("not used: {}{more}", unused[..listed].join(", ")));
    }
}

/// Builds the cloud; non-finite points are still in it.
pub(super) fn cloud(table: &Table, element: &Element, roles: &Roles, notes: &mut Vec<String>) -> PointCloud {
    let rows = table.len();
    let mut cloud = PointCloud::default();
    if let Some([x, y, z]) = roles.slots([Role::X, Role::Y, Role::Z]) {
        origin::set_positions(&mut cloud, rows, |row| [table.value(row, x), table.value(row, y), table.value(row, z)]);
    }
    note_absurd_positions(&cloud, notes);
    let column = |slot: usize| (0..rows).map(move |row| table.value(row, slot));
    cloud.colour = roles.slots([Role::Red, Role::Green, Role::Blue]).map(|slots| {
        let scale = colour_scale(table, slots, roles, &element.name, notes);
        (0..rows).map(|row| slots.map(|slot| (table.value(row, slot) * scale).round() as u8)).collect()
    });
    cloud.intensity = roles.slot(Role::Intensity).map(|slot| column(slot).map(|v| v as f32).collect());
    cloud.time = roles.slot(Role::Time).map(|slot| seconds(column(slot).collect(), roles.0[slot].kind, notes));
    cloud.label = roles.slot(Role::Label).map(|slot| ids(column(slot), u16::MAX, "label", notes));
    cloud.ring = roles.slot(Role::Ring).map(|slot| ids(column(slot), u16::MAX, "ring", notes));
    cloud.instance = roles.slot(Role::Instance).map(|slot| ids(column(slot), u32::MAX, "instance", notes));
    cloud
}

/// Bytes in the other order, or a property too few, make coordinates that no scanner measures.
fn note_absurd_positions(cloud: &PointCloud, notes: &mut Vec<String>) {
    let step = cloud.len().div_ceil(1023).max(1);
    let coordinates = || cloud.positions.iter().step_by(step).flatten().filter(|c| c.is_finite() && **c != 0.0);
    let absurd = coordinates().filter(|c| !(1e-20..=1e9).contains(&c.abs())).count();
    if absurd * 2 > coordinates().count() {
        notes.push("most coordinates make no sense in metres: the byte order or the header may be wrong".into());
    }
}

/// Seconds since the first of them.
fn seconds(mut times: Vec<f64>, kind: Scalar, notes: &mut Vec<String>) -> Vec<f64> {
    let start = times.iter().copied().filter(|time| time.is_finite()).fold(f64::INFINITY, f64::min);
    if start.is_finite() && start != 0.0 {
        for time in &mut times {
            *time -= start;
        }
        notes.push(format!("times count from the first one, {start}"));
    }
    if kind.range().is_some() {
        notes.push("times are whole numbers; taken for seconds, though they may be of another unit".into());
    }
    times
}

/// Factor to 0..255. One for the whole file: single points cannot tell dark 16-bit colours from bright 8-bit ones.
fn colour_scale(table: &Table, slots: [usize; 3], roles: &Roles, element: &str, notes: &mut Vec<String>) -> f64 {
    let kinds = slots.map(|slot| roles.0[slot].kind);
    if kinds.iter().all(|kind| matches!(kind, Scalar::U8 | Scalar::I8)) {
        return 1.0;
    }
    let values = || (0..table.len()).flat_map(|row| slots.map(|slot| table.value(row, slot))).filter(|v| v.is_finite());
    let largest = values().fold(0.0, f64::max);
    if kinds.iter().any(|kind| matches!(kind, Scalar::F32 | Scalar::F64)) {
        let unit = largest <= 1.0 || (largest <= BRIGHTEST && values().any(|value| value.fract() != 0.0));
        let range = match (unit, largest > 255.0) {
            (true, _) => 1.0,
            (false, false) => 255.0,
            (false, true) => 65_535.0,
        };
        if largest > 1.0 {
            notes.push(format!("colours of the element {element} are floats up to {largest}; read as 0 to {range}"));
        }
        return 255.0 / range;
    }
    if largest > 255.0 { 255.0 / 65_535.0 } else { 1.0 }
}

/// Whole numbers of 0 to `largest`; anything else becomes `largest`, which no class or beam has, and is counted.
fn ids<T: TryFrom<u64> + Copy>(
    values: impl Iterator<Item = f64>,
    largest: T,
    what: &str,
    notes: &mut Vec<String>,
) -> Vec<T> {
    let mut odd = 0;
    let mut id = |value: f64| {
        let whole = if value >= 0.0 && value.fract() == 0.0 { T::try_from(value as u64).ok() } else { None };
        whole.unwrap_or_else(|| {
            odd += 1;
            largest
        })
    };
    let ids = values.map(&mut id).collect();
    if odd > 0 {
        let bits = 8 * size_of::<T>();
        notes.push(format!("{} fit no {what} of {bits} bits and became the largest one", count(odd, "value")));
    }
    ids
}
