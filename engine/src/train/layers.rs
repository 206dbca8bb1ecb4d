//! How a configuration comes together: defaults < preset < file < flags, with errors that name the key.

use std::io::Read;
use std::path::Path;

use occam_scene::GridSpec;
use occam_scene::error::Place;
use toml::{Table, Value};

use super::TrainConfig;
use crate::{Error, Result};

/// Presets that ship with the program: name and TOML text. The first is complete, and the default of every key.
const PRESETS: &[(&str, &str)] = &[
    ("demo", include_str!("../../../assets/presets/demo.toml")),
    ("carla-sc", include_str!("../../../assets/presets/carla-sc.toml")),
    ("own-scans", include_str!("../../../assets/presets/own-scans.toml")),
    ("scpnet-dense", include_str!("../../../assets/presets/scpnet-dense.toml")),
    ("semantic-kitti", include_str!("../../../assets/presets/semantic-kitti.toml")),
    ("semantic-kitti-small", include_str!("../../../assets/presets/semantic-kitti-small.toml")),
    ("tiny", include_str!("../../../assets/presets/tiny.toml")),
];

/// Keys that may be absent from a complete configuration, with an example of their type.
const OPTIONAL: &[(&str, &str, &str)] = &[
    ("data", "path", "a path"),
    ("data", "voxels", "a path"),
    ("data", "labels", "a label map"),
    ("model", "weights", "a path"),
];

/// Table that a run adds to its `config.toml`; it decides nothing and is passed over on reading.
pub(super) const RUN_TABLE: &str = "run";

/// Names of the presets, each with the sentence that begins its file.
pub fn presets() -> impl Iterator<Item = (&'static str, &'static str)> {
    PRESETS.iter().map(|(name, text)| (*name, text.lines().next().unwrap_or_default().trim_start_matches("# ")))
}

impl TrainConfig {
    /// Builds a configuration from a preset, a TOML file with any of its keys, and `key=value` pairs with dotted keys,
    /// such as `("optim.lr", "1e-3")`. Values are TOML; text may stand without quotes.
    ///
    /// # Errors
    /// `Error::Usage` for an unknown preset or key (with the nearest known one), a wrong type or a value out of range;
    /// `Error::Input` for a file that cannot be read or is not TOML.
    pub fn from_layers(preset: &str, file: Option<&Path>, sets: &[(String, String)]) -> Result<Self> {
        let config = Self::unchecked(preset, None, file, sets)?;
        config.check()?;
        Ok(config)
    }

    /// As [`TrainConfig::from_layers`], with `grid` in place of the preset's grid, and before [`TrainConfig::check`]: for
    /// callers that change values further.
    ///
    /// # Errors
    /// Those of [`TrainConfig::from_layers`], except for values out of range.
    pub fn unchecked(
        preset: &str,
        grid: Option<&GridSpec>,
        file: Option<&Path>,
        sets: &[(String, String)],
    ) -> Result<Self> {
        let mut layers = Layers::new()?;
        let Some((_, text)) = PRESETS.iter().find(|(name, _)| *name == preset) else {
            let names: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
            let near = match suggestion(preset, names.iter().copied()) {
                near if near.is_empty() => ".".into(),
                near => near,
            };
            return Err(Error::Usage(format!("unknown preset {preset:?}{near} There are {}", names.join(", "))));
        };
        layers.merge(parse(text, preset)?, &format!("preset {preset}"))?;
        if let Some(grid) = grid {
            let grid = Table::try_from(grid).map_err(|e| Error::Failed(format!("grid: {e}")))?;
            layers.merge(Table::from_iter([("grid".into(), Value::Table(grid))]), "grid")?;
        }
        if let Some(path) = file {
            let text = read(path)?;
            let mut table: Table = text.parse().map_err(|e: toml::de::Error| {
                let line = e.span().map_or(1, |s| text[..s.start.min(text.len())].matches('\n').count() as u64 + 1);
                occam_scene::Error::new(path, Place::Line(line), e.message().to_owned(), "TOML")
            })?;
            table.remove(RUN_TABLE);
            table.remove("preset");
            layers.merge(table, &path.display().to_string())?;
        }
        for (key, text) in sets {
            layers.set(key, text)?;
        }
        layers.table.insert("preset".into(), Value::String(preset.to_owned()));
        layers.table.try_into().map_err(|e: toml::de::Error| {
            // Two lines: what is wrong, and the key.
            Error::Usage(format!("configuration: {}", e.to_string().trim().replace('\n', " ")))
        })
    }
}

/// Bytes of a configuration file at most; all keys together have a few thousand.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text of a configuration file; refuses what may never end, such as pipes and devices.
fn read(path: &Path) -> Result<String> {
    let failed = |e: std::io::Error| occam_scene::Error::io(path, &e);
    let found = std::fs::metadata(path).map_err(failed)?;
    if !found.is_file() || found.len() > MAX_FILE_BYTES {
        let what = match (found.is_file(), found.is_dir()) {
            (true, _) => format!("{} bytes", found.len()),
            (_, true) => "a folder".into(),
            _ => "a pipe or a device".into(),
        };
        return Err(occam_scene::Error::new(path, Place::File, what, "a TOML file of at most 1 MiB").into());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn parse(text: &str, what: &str) -> Result<Table> {
    text.parse().map_err(|e: toml::de::Error| Error::Failed(format!("preset {what}: {}", e.message())))
}

/// A table in which every known key has a value of its type.
struct Layers {
    table: Table,
}

impl Layers {
    fn new() -> Result<Self> {
        Ok(Self { table: parse(PRESETS[0].1, PRESETS[0].0)? })
    }

    fn known_keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for (name, value) in &self.table {
            match value {
                Value::Table(inner) => keys.extend(inner.keys().map(|k| format!("{name}.{k}"))),
                _ => keys.push(name.clone()),
            }
        }
        keys.extend(OPTIONAL.iter().map(|(table, key, _)| format!("{table}.{key}")));
        keys
    }

    fn unknown(&self, key: &str, source: &str) -> Error {
        let keys = self.known_keys();
        Error::Usage(format!("{source}: unknown key `{key}`{}", suggestion(key, keys.iter().map(String::as_str))))
    }

    fn merge(&mut self, over: Table, source: &str) -> Result<()> {
        for (name, value) in over {
            match value {
                Value::Table(inner) if self.table.get(&name).is_some_and(Value::is_table) => {
                    for (key, value) in inner {
                        self.put(Some(&name), &key, value, source)?;
                    }
                }
                value => self.put(None, &name, value, source)?,
            }
        }
        Ok(())
    }

    /// Puts one value in its place, if the key is known and the type fits.
    fn put(&mut self, table: Option<&str>, key: &str, value: Value, source: &str) -> Result<()> {
        let dotted = table.map_or_else(|| key.to_owned(), |t| format!("{t}.{key}"));
        let Some(old) = self.get(table, key) else {
            return Err(self.unknown(&dotted, source));
        };
        let fitted = fit(&old, value).map_err(|value| {
            Error::Usage(format!("{source}: `{dotted}`: found {value}, expected {}", describe(&old)))
        })?;
        let place = match table {
            Some(table) => self.table.get_mut(table).and_then(Value::as_table_mut),
            None => Some(&mut self.table),
        };
        if let Some(place) = place {
            place.insert(key.to_owned(), fitted);
        }
        Ok(())
    }

    /// The present value of a key, or an example of its type for one that may be absent.
    fn get(&self, table: Option<&str>, key: &str) -> Option<Value> {
        let place = match table {
            Some(table) => self.table.get(table)?.as_table()?,
            None => &self.table,
        };
        place.get(key).cloned().or_else(|| {
            let optional = OPTIONAL.iter().find(|(t, k, _)| Some(*t) == table && *k == key);
            optional.map(|(.., example)| Value::String((*example).to_owned()))
        })
    }

    /// `key=value` from the command line.
    fn set(&mut self, dotted: &str, text: &str) -> Result<()> {
        let source = format!("{dotted}={text}");
        let (table, key) = match dotted.split_once('.') {
            Some((table, key)) => (Some(table), key),
            None => (None, dotted),
        };
        let Some(old) = self.get(table, key).filter(|old| !old.is_table()) else {
            return Err(self.unknown(dotted, &source));
        };
        let parsed = format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
        let value = match parsed {
            Some(value) if value.is_str() || !old.is_str() => value,
            _ => Value::String(text.to_owned()),
        };
        self.put(table, key, value, &source)
    }
}

/// `value` if it has the type of `old`; whole numbers become floats where a float is meant. `Err` gives it back.
fn fit(old: &Value, value: Value) -> Result<Value, Value> {
    match (old, value) {
        (Value::Float(_), Value::Integer(i)) => Ok(Value::Float(i as f64)),
        (Value::Array(old), Value::Array(new)) => {
            let given = Value::Array(new.clone());
            if old.len() != new.len() {
                return Err(given);
            }
            let fitted: Result<Vec<_>, _> = old.iter().zip(new).map(|(o, n)| fit(o, n)).collect();
            fitted.map(Value::Array).map_err(|_| given)
        }
        (Value::Integer(_), Value::Integer(i)) if i < 0 => Err(Value::Integer(i)),
        (old, value) if old.same_type(&value) => Ok(value),
        (_, value) => Err(value),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::String(_) => "text".into(),
        Value::Integer(_) => "a whole number, 0 or more".into(),
        Value::Float(_) => "a number".into(),
        Value::Boolean(_) => "true or false".into(),
        Value::Array(values) => {
            format!("{} values in brackets, each {}", values.len(), values.first().map_or_else(String::new, describe))
        }
        Value::Table(_) => "a table".into(),
        Value::Datetime(_) => "a date".into(),
    }
}

/// `; did you mean ...?`, or nothing when no known name is near. A key is compared with and without its table.
fn suggestion<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = |known: &str| {
        let last = |s: &str| s.rsplit('.').next().unwrap_or_default().to_owned();
        strsim::jaro_winkler(found, known).max(strsim::jaro_winkler(&last(found), &last(known)) - 0.01)
    };
    let best = known.map(|k| (near(k), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((score, name)) if score > 0.75 => format!("; did you mean `{name}`?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, value: &str) -> Result<TrainConfig> {
        TrainConfig::from_layers("demo", None, &[(key.into(), value.into())])
    }

    fn message(result: Result<TrainConfig>) -> String {
        let error = result.expect_err("an error");
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn every_preset_is_a_valid_configuration() {
        for (name, about) in presets() {
            let config = TrainConfig::from_layers(name, None, &[]).unwrap();
            assert_eq!(config.preset, name);
            assert!(about.len() > 20, "{name}");
        }
    }

    #[test]
    fn the_demo_trains_on_the_grid_of_the_demo_world() {
        let config = TrainConfig::from_layers("demo", None, &[]).unwrap();
        assert_eq!(config.grid, occam_scene::demo::default_spec());
        assert!(config.data.demo_validation >= 20);
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_preset() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, "[optim]\nlr = 1\nbeta1 = 0.5\n[run]\nversion = \"0\"\n").unwrap();
        let config = TrainConfig::from_layers("tiny", Some(&file), &[("optim.beta1".into(), "0.25".into())]).unwrap();
        assert_eq!((config.optim.lr, config.optim.beta1), (1.0, 0.25));
        assert_eq!(config.grid.counts, [32, 32, 16]);
    }

    #[test]
    fn values_are_toml_and_text_needs_no_quotes() {
        assert_eq!(set("optim.lr", "2e-3").unwrap().optim.lr, 0.002);
        assert_eq!(set("grid.counts", "[8, 64, 24]").unwrap().grid.counts, [8, 64, 24]);
        assert_eq!(set("grid.voxel_size_m", "[1, 0.5, 0.25]").unwrap().grid.voxel_size_m, [1.0, 0.5, 0.25]);
        assert_eq!(set("device", "cpu").unwrap().device, "cpu");
        assert_eq!(set("device", "0").unwrap().device, "0");
        assert_eq!(set("device", "\"cpu\"").unwrap().device, "cpu");
        assert_eq!(set("data.path", "/some/where").unwrap().data.path, Some("/some/where".into()));
    }

    #[test]
    fn what_the_network_sees_is_chosen_by_keys() {
        assert_eq!(set("seed", "2").unwrap().input.channels(), 1);
        let config = set("input.visibility", "true").unwrap();
        assert_eq!((config.input.visibility, config.input.channels()), (true, 2));
        assert!(message(set("input.visible", "true")).contains("did you mean `input.visibility`?"));
        assert!(message(set("input.height", "1")).contains("true or false"));
    }

    #[test]
    fn an_unknown_key_or_preset_gets_the_nearest_one() {
        assert!(message(set("optim.lrr", "1")).contains("did you mean `optim.lr`?"));
        assert!(message(set("batch", "1")).contains("did you mean `steps.batch`?"));
        assert!(message(set("optim", "1")).contains("unknown key `optim`"));
        assert!(message(set("a.b.c", "1")).contains("unknown key `a.b.c`"));
        assert!(message(TrainConfig::from_layers("dmo", None, &[])).contains("did you mean `demo`? There"));
        assert!(message(TrainConfig::from_layers("zzz", None, &[])).contains("\"zzz\". There are demo,"));
    }

    #[test]
    fn a_wrong_type_names_key_found_and_expected() {
        let text = message(set("optim.lr", "fast"));
        assert!(text.contains("`optim.lr`") && text.contains("\"fast\"") && text.contains("a number"), "{text}");
        assert!(message(set("steps.batch", "2.5")).contains("a whole number"));
        assert!(message(set("steps.batch", "-1")).contains("a whole number"));
        assert!(message(set("grid.counts", "[1, 2]")).contains("3 values"));
        assert!(message(set("augment.flip_x", "1")).contains("true or false"));
    }

    #[test]
    fn a_value_out_of_range_names_key_found_and_expected() {
        for (key, value) in [
            ("steps.batch", "0"),
            ("optim.lr", "0"),
            ("optim.lr", "nan"),
            ("loss.lovasz", "-1"),
            ("loss.focal", "1001"),
            ("loss.focal_gamma", "nan"),
            ("optim.beta2", "1.0"),
            ("augment.drop", "1.0"),
            ("optim.schedule", "linear"),
            ("augment.flip_x", "true"),
            ("grid.ignore_id", "300"),
            ("data.demo_train", "99999999999"),
            ("data.demo_validation", "99999999999"),
            ("data.workers", "257"),
            ("steps.batch", "99999999999"),
            ("steps.accumulate", "99999999999"),
            ("steps.steps", "99999999999"),
        ] {
            let text = message(set(key, value));
            assert!(text.contains(key) && text.contains("expected"), "{text}");
        }
        assert!(message(set("name", "../up")).contains("separators"));
        assert!(message(set("grid.counts", "[0, 1, 1]")).contains("grid"));
        let error = set("grid.counts", "[2048, 2048, 1024]").unwrap_err();
        assert!(error.exit_code() == 3 && error.to_string().contains("2^31"), "{error}");
        assert!(message(set("steps.steps", "0")).contains("steps.epochs"));
        let no_loss = ["loss.cross_entropy", "loss.lovasz"].map(|key| (key.to_owned(), "0".to_owned()));
        assert!(message(TrainConfig::from_layers("demo", None, &no_loss)).contains("loss.focal"));
    }

    #[test]
    fn a_configuration_is_a_file_with_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long.toml");
        std::fs::File::create(&long).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        let mut cases = vec![(folder.path(), "a folder"), (&long, "1048577 bytes")];
        if cfg!(unix) {
            cases.push((Path::new("/dev/zero"), "a device"));
        }
        for (path, found) in cases {
            let text = message(TrainConfig::from_layers("demo", Some(path), &[]));
            assert!(text.contains(found) && text.contains(&path.display().to_string()), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_no_configuration_file_can_hold_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let path = std::path::PathBuf::from(std::ffi::OsString::from_vec(b"bad-\xff".to_vec()));
        let fine = TrainConfig::from_layers("demo", None, &[]).unwrap();
        let runs = TrainConfig { runs: path.clone(), ..fine.clone() };
        let data = TrainConfig { data: crate::data::DataConfig { path: Some(path), ..fine.data.clone() }, ..fine };
        for (config, key) in [(runs, "runs = bad-"), (data, "data.path = bad-")] {
            let error = config.check().unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_toml_names_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bad.toml");
        std::fs::write(&file, "seed = 1\nthis is not\n").unwrap();
        assert!(message(TrainConfig::from_layers("demo", Some(&file), &[])).contains("line 2"));
        let missing = folder.path().join("none.toml");
        assert!(message(TrainConfig::from_layers("demo", Some(&missing), &[])).contains("none.toml"));
    }
}
