//! Classes: their names and colours, and how the ids of a data set's files map to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One class of a network or grid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    pub name: String,
    /// Red, green, blue.
    pub colour: [u8; 3],
    /// Ids in the files of the data set that mean this class. The first is the one predictions are written with.
    #[serde(default)]
    pub file_ids: Vec<u16>,
}

/// The classes of a data set. A class id is the index in `classes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelMap {
    pub name: String,
    /// Class id of free space.
    pub empty_id: u8,
    /// Class id of voxels that neither train nor count.
    #[serde(default = "default_ignore")]
    pub ignore_id: u8,
    /// Ids in files that become `ignore_id`.
    #[serde(default)]
    pub ignored_file_ids: Vec<u16>,
    pub classes: Vec<Class>,
}

fn default_ignore() -> u8 {
    255
}

/// Label maps that ship with the program: name and TOML text.
const BUILT_IN: [(&str, &str); 3] = [
    ("demo", include_str!("../../../assets/labels/demo.toml")),
    ("semantic-kitti", include_str!("../../../assets/labels/semantic-kitti.toml")),
    ("occ3d-nuscenes", include_str!("../../../assets/labels/occ3d-nuscenes.toml")),
];

impl LabelMap {
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        toml::from_str(text).ok()
    }

    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Number of classes, free space included.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// File id to class id; ids that the map does not know are absent.
    pub fn lookup(&self) -> BTreeMap<u16, u8> {
        let mut table: BTreeMap<u16, u8> = self.ignored_file_ids.iter().map(|id| (*id, self.ignore_id)).collect();
        for (class, entry) in self.classes.iter().enumerate() {
            for id in &entry.file_ids {
                table.insert(*id, class as u8);
            }
        }
        table
    }

    /// Id that a class is written with; the class id itself where the map names none.
    pub fn file_id(&self, class: u8) -> u16 {
        self.classes
            .get(usize::from(class))
            .and_then(|c| c.file_ids.first().copied())
            .unwrap_or_else(|| u16::from(class))
    }

    /// Colour of a class; grey for ids outside the map.
    pub fn colour(&self, class: u8) -> [u8; 3] {
        self.classes.get(usize::from(class)).map_or([128; 3], |c| c.colour)
    }
}
