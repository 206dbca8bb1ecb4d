//! Stanford PLY, as programs really write it.
//!
//! The reader takes what strict parsers refuse (NaN spelt in many ways, `.5`, rows split over lines, CR line ends, odd
//! names, lists and foreign elements before the points) and refuses what would cost memory or lie: counts beyond the
//! file, negative list lengths, numbers outside their type. Writing goes through `ply_rs`.

mod ascii;
mod columns;
mod header;
mod table;
mod write;

#[cfg(test)]
mod tests;

use std::path::Path;

use super::bytes::{check_room, count, without_bom};
use super::{ReadCloud, ReadOptions};
use crate::error::{Error, Place, Result};
use header::{Element, Header};

pub use write::{VoxelShape, write_cloud_ply, write_voxels_ply};

/// Names of the element that holds the points, the usual one first.
const POINT_ELEMENTS: [&str; 4] = ["vertex", "vertices", "point", "points"];

/// Whether the first line is `ply`.
pub(super) fn is_ply(bytes: &[u8]) -> bool {
    let bytes = without_bom(bytes);
    bytes.get(..3).is_some_and(|magic| magic.eq_ignore_ascii_case(b"ply"))
        && bytes.get(3).is_none_or(u8::is_ascii_whitespace)
}

/// Reads the points of a PLY file. Elements behind them are not looked at.
pub(super) fn read(path: &Path, bytes: &[u8], options: &ReadOptions) -> Result<ReadCloud> {
    let header = Header::parse(path, bytes)?;
    let index = POINT_ELEMENTS
        .iter()
        .find_map(|wanted| header.elements.iter().position(|e| e.name.eq_ignore_ascii_case(wanted)))
        .ok_or_else(|| {
            let names: Vec<&str> = header.elements.iter().map(|e| e.name.as_str()).collect();
            let found = if names.is_empty() { "no element".into() } else { format!("only {}", names.join(", ")) };
            Error::new(path, Place::File, found, "an element named vertex with the points")
        })?;
    let element = &header.elements[index];
    let mut notes = header.notes.clone();
    let roles = columns::Roles::of(path, element, &mut notes)?;
    let table = table::read(path, bytes, &header, index, &roles.properties(), options.lenient, &mut notes)?;
    check_room(path, table.len())?;
    let cloud = columns::cloud(&table, element, &roles, &mut notes);
    Ok(ReadCloud { cloud, format: format!("PLY {}", header.encoding.name()), notes })
}

/// Error for an element that has fewer rows than its header says.
fn too_short(path: &Path, place: Place, element: &Element, rows: u64, left: &str) -> Error {
    let found = format!("{}{left}", count(rows, "row"));
    Error::new(path, place, found, format!("{} of the element {}", element.count, element.name)).hint(
        "The file was cut off or its header is wrong: copy or export it again. To keep the rows \
               that are there, occam predict and occam data info take --lenient",
    )
}
