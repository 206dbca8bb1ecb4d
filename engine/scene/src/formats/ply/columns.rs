//! What the columns of a vertex mean, and the cloud they make.

use std::path::Path;

use super::super::bytes::count;
use super::super::origin;
use super::header::{Element, Kind, Scalar};
use super::table::Table;
use crate::cloud::PointCloud;
use crate::error::{Error, Place, Result};

/// Most unused properties that a note lists.
const LISTED: usize = 6;

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
            let names: Vec<&str> = element.properties.iter().map(|p| p.name.as_str()).collect();
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
        .filter(|(index, _)| columns.iter().all(|c| c.property != *index))
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
    let column = |slot: usize| (0..rows).map(move |row| table.value(row, slot));
    cloud.colour = roles.slots([Role::Red, Role::Green, Role::Blue]).map(|slots| {
        let scale = colour_scale(table, slots, roles, &element.name, notes);
        (0..rows).map(|row| slots.map(|slot| (table.value(row, slot) * scale).round() as u8)).collect()
    });
    cloud.intensity = roles.slot(Role::Intensity).map(|slot| column(slot).map(|v| v as f32).collect());
    cloud.time = roles.slot(Role::Time).map(|slot| column(slot).collect());
    cloud.label = roles.slot(Role::Label).map(|slot| ids(column(slot), u16::MAX, "label", notes));
    cloud.ring = roles.slot(Role::Ring).map(|slot| ids(column(slot), u16::MAX, "ring", notes));
    cloud.instance = roles.slot(Role::Instance).map(|slot| ids(column(slot), u32::MAX, "instance", notes));
    cloud
}

/// Factor to 0..255. One for the whole file: single points cannot tell dark 16-bit colours from bright 8-bit ones.
fn colour_scale(table: &Table, slots: [usize; 3], roles: &Roles, element: &str, notes: &mut Vec<String>) -> f64 {
    let kinds = slots.map(|slot| roles.0[slot].kind);
    if kinds.iter().all(|kind| matches!(kind, Scalar::U8 | Scalar::I8)) {
        return 1.0;
    }
    let rows = 0..table.len();
    let largest = rows.flat_map(|row| slots.map(|slot| table.value(row, slot))).fold(0.0, f64::max);
    if kinds.iter().any(|kind| matches!(kind, Scalar::F32 | Scalar::F64)) {
        if largest <= 1.0 {
            return 255.0;
        }
        notes.push(format!("colours of the element {element} are floats up to {largest}; read as 0 to 255"));
    } else if largest > 255.0 {
        return 255.0 / 65_535.0;
    }
    1.0
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
