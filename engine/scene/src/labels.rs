//! Classes: their names and colours, and how the ids of a data set's files map to them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};

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
const BUILT_IN: [(&str, &str); 7] = [
    ("demo", include_str!("../../../assets/labels/demo.toml")),
    ("semantic-kitti", include_str!("../../../assets/labels/semantic-kitti.toml")),
    ("occ3d-nuscenes", include_str!("../../../assets/labels/occ3d-nuscenes.toml")),
    ("openocc", include_str!("../../../assets/labels/openocc.toml")),
    ("nuscenes", include_str!("../../../assets/labels/nuscenes.toml")),
    ("carla-sc", include_str!("../../../assets/labels/carla-sc.toml")),
    ("occupancy", include_str!("../../../assets/labels/occupancy.toml")),
];

/// Bytes of a label map at most; 256 classes take a tenth of it.
const MAX_FILE_BYTES: u64 = 1 << 18;

impl LabelMap {
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        toml::from_str(text).ok()
    }

    /// The built-in map of that name, else the one in the TOML file `name`.
    ///
    /// # Errors
    /// As [`Self::read`]; the hint lists the built-in maps.
    pub fn find(name: &str) -> Result<Self, Error> {
        if let Some(map) = Self::built_in(name) {
            return Ok(map);
        }
        Self::read(Path::new(name)).map_err(|mut error| {
            let known = Self::built_in_names().collect::<Vec<_>>().join(", ");
            error.hint = format!("A label map is a TOML file, or one of {known}. {}", error.hint);
            error
        })
    }

    /// Reads a map from a TOML file of the form of the built-in ones.
    ///
    /// # Errors
    /// For a file that cannot be read, with the line of what is no map, and for one that contradicts itself.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bad = |place, found: String| Error::new(path, place, found, "a label map in TOML");
        let found = std::fs::metadata(path).map_err(|e| Error::io(path, &e))?;
        if !found.is_file() || found.len() > MAX_FILE_BYTES {
            return Err(bad(Place::File, format!("no file of at most {MAX_FILE_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, &e))?;
        let map: Self = toml::from_str(&text).map_err(|e| {
            let line = e
                .span()
                .map_or(1, |span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() as u64 + 1);
            bad(Place::Line(line), e.message().to_owned())
        })?;
        map.check().map_err(|why| bad(Place::File, why))?;
        Ok(map)
    }

    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// What is wrong with the map, if anything: a free-space id that is no class, an ignored id that is one, more classes
    /// than ids, names that are missing or taken, a file id with two meanings.
    pub fn check(&self) -> Result<(), String> {
        if self.len() > 256 {
            return Err(format!("{} classes, expected at most 256: a class id is one byte", self.len()));
        }
        if usize::from(self.empty_id) >= self.len() {
            return Err(format!("empty_id is {}, expected the id of one of the {} classes", self.empty_id, self.len()));
        }
        if let Some(class) = self.classes.get(usize::from(self.ignore_id)) {
            return Err(format!("ignore_id is {}, the id of class \"{}\"", self.ignore_id, class.name));
        }
        let mut names = BTreeSet::new();
        let mut meanings: BTreeMap<u16, &str> = self.ignored_file_ids.iter().map(|id| (*id, "ignored")).collect();
        for (id, class) in self.classes.iter().enumerate() {
            if class.name.trim().is_empty() {
                return Err(format!("class {id} has no name"));
            }
            if !names.insert(&class.name) {
                return Err(format!("two classes are called \"{}\"", class.name));
            }
            for file_id in &class.file_ids {
                if let Some(other) = meanings.insert(*file_id, &class.name) {
                    return Err(format!("file id {file_id} means \"{other}\" and \"{}\"", class.name));
                }
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_map_parses_and_is_consistent() {
        for (name, text) in BUILT_IN {
            let map: LabelMap = toml::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
            map.check().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(map.name, name);
            assert_eq!(LabelMap::built_in(name), Some(map.clone()));
            // Two classes of one colour cannot be told apart in a picture.
            let colours: BTreeSet<[u8; 3]> = map.classes.iter().map(|c| c.colour).collect();
            assert_eq!(colours.len(), map.len(), "{name}: two classes share a colour");
            for class in 0..map.len() as u8 {
                assert_eq!(map.lookup().get(&map.file_id(class)), Some(&class), "{name}: writing and reading {class}");
            }
        }
        assert_eq!(LabelMap::built_in_names().count(), BUILT_IN.len());
        assert_eq!(LabelMap::built_in("no such map"), None);
    }

    #[test]
    fn a_map_is_read_from_a_file_or_refused_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map.toml");
        std::fs::write(&path, BUILT_IN[0].1).unwrap();
        assert_eq!(LabelMap::read(&path).unwrap(), LabelMap::built_in(BUILT_IN[0].0).unwrap());
        let refuse = |text: &str| {
            std::fs::write(&path, text).unwrap();
            LabelMap::read(&path).unwrap_err().to_string()
        };
        let message = refuse("name = \"x\"\nempty_id = 0\nclases = []\n");
        assert!(message.contains("map.toml, line 3") && message.contains("clases"), "{message}");
        assert!(refuse("name = \"x\"\nempty_id = 3\nclasses = []\n").contains("empty_id is 3"));
        assert!(refuse(&" ".repeat(300_000)).contains("no file of at most"));
        assert!(LabelMap::read(folder.path()).unwrap_err().to_string().contains("no file of at most"));
    }

    /// The learning map and its inverse as published with the SemanticKITTI tools, with the rule of the completion task.
    #[test]
    fn semantic_kitti_follows_the_completion_rule() {
        let map = LabelMap::built_in("semantic-kitti").unwrap();
        let published: [(u16, u8); 34] = [
            (0, 0),
            (1, 255),
            (10, 1),
            (11, 2),
            (13, 5),
            (15, 3),
            (16, 5),
            (18, 4),
            (20, 5),
            (30, 6),
            (31, 7),
            (32, 8),
            (40, 9),
            (44, 10),
            (48, 11),
            (49, 12),
            (50, 13),
            (51, 14),
            (52, 255),
            (60, 9),
            (70, 15),
            (71, 16),
            (72, 17),
            (80, 18),
            (81, 19),
            (99, 255),
            (252, 1),
            (253, 7),
            (254, 6),
            (255, 8),
            (256, 5),
            (257, 5),
            (258, 4),
            (259, 5),
        ];
        assert_eq!(map.lookup(), published.into_iter().collect());
        let inverse = [0, 10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81];
        assert_eq!((0..20).map(|class| map.file_id(class)).collect::<Vec<_>>(), inverse);
        assert_eq!((map.len(), map.empty_id, map.ignore_id), (20, 0, 255));
    }

    #[test]
    fn occ3d_has_free_space_last_and_the_demo_map_first() {
        let occ3d = LabelMap::built_in("occ3d-nuscenes").unwrap();
        assert_eq!((occ3d.len(), occ3d.empty_id, occ3d.classes[17].name.as_str()), (18, 17, "free"));
        let demo = LabelMap::built_in("demo").unwrap();
        assert_eq!((demo.len(), demo.empty_id), (12, 0));
    }

    #[test]
    fn check_finds_what_makes_a_map_ambiguous() {
        let good = LabelMap::built_in("demo").unwrap();
        let broken = |change: fn(&mut LabelMap)| {
            let mut map = good.clone();
            change(&mut map);
            map.check().unwrap_err()
        };
        assert!(broken(|m| m.empty_id = 12).contains("empty_id is 12"));
        assert!(broken(|m| m.ignore_id = 3).contains("class \"terrain\""));
        assert!(broken(|m| m.classes[2].name = "road".into()).contains("two classes are called \"road\""));
        assert!(broken(|m| m.classes[2].name = " ".into()).contains("class 2 has no name"));
        assert!(broken(|m| m.classes[2].file_ids = vec![1]).contains("file id 1 means \"road\" and \"sidewalk\""));
        assert!(broken(|m| m.ignored_file_ids = vec![4]).contains("file id 4 means \"ignored\" and \"building\""));
        assert!(broken(|m| m.classes.clear()).contains("0 classes"));
        assert!(broken(|m| m.classes = vec![m.classes[1].clone(); 257]).contains("at most 256"));
    }

    #[test]
    fn ids_outside_the_map_have_a_colour_and_keep_their_number() {
        let map = LabelMap::built_in("demo").unwrap();
        assert_eq!((map.colour(200), map.file_id(200)), ([128; 3], 200));
    }
}
