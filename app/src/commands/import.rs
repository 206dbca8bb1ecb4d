//! `occam import`: weights that PyTorch trained, as a run that predicts, is scored and trains on.

use std::path::{Path, PathBuf};

use clap::Args;
use occam_engine::models::{Network, WeightsInfo};
use occam_engine::scene::labels::Class;
use occam_engine::scene::{GridSpec, LabelMap};
use occam_engine::train::{self, TrainConfig};
use serde_json::json;

use crate::fail::usage;
use crate::parse;
use crate::print::{Output, human, program, shell_word};

#[derive(Args)]
pub struct ImportArgs {
    /// File of weights: .pt, .pth or .safetensors of LMSCNet, LMSCNet-SS or SSCNet-full, as their authors' code saves them
    weights: PathBuf,

    /// Folder of the new run [default: runs/ and the name of the file]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Data set whose grid and classes the weights were trained with, such as semantic-kitti or carla-sc [default: the
    /// only one with the file's number of classes and height]
    #[arg(long, value_name = "NAME")]
    like: Option<String>,
    /// Voxels along x, y, z, or along x and y where the file tells the height [default: the data set's]
    #[arg(long, value_name = "XxY[xZ]", value_parser = parse::sides)]
    grid: Option<(usize, usize, Option<usize>)>,
    /// Edges of a voxel in metres, one number or three such as 0.4,0.4,0.375 [default: the data set's]
    #[arg(long, value_name = "M", value_parser = parse::edges)]
    voxel: Option<[f32; 3]>,
    /// Lowest corner of the grid, in metres from the sensor [default: the data set's]
    #[arg(long, value_name = "X,Y,Z", value_parser = parse::position, allow_hyphen_values = true)]
    origin: Option<[f64; 3]>,
    /// Names and colours of the classes: a built-in map or a TOML file like one [default: the data set's, else numbers]
    #[arg(long, value_name = "MAP")]
    labels: Option<String>,
}

pub fn run(args: &ImportArgs, out: Output) -> anyhow::Result<u8> {
    let info = Network::describe_weights(&args.weights)?;
    let setup = args.setup(&info)?;
    let labels = args.labels(&info, setup.as_ref().map(|(_, labels)| labels))?;
    let grid = args.grid(&info, setup.as_ref().map(|(grid, _)| *grid), &labels)?;

    let mut config = TrainConfig::from_layers("semantic-kitti", None, &[])?;
    info.network.clone_into(&mut config.model.network);
    config.model.weights = Some(args.weights.clone());
    config.grid = grid;
    // Flips want a grid around the sensor, and the run is not trained.
    (config.augment.flip_x, config.augment.flip_y) = (false, false);
    let stem = args.weights.file_stem().unwrap_or(args.weights.as_os_str());
    let output = args.output.clone().unwrap_or_else(|| config.runs.join(stem));
    let Some(name) = output.file_name().and_then(|name| name.to_str()) else {
        return Err(usage(format!(
            "--output {}: expected a path that ends with the name of a folder",
            output.display()
        )));
    };
    name.clone_into(&mut config.name);
    config.runs = output.parent().map(Path::to_path_buf).unwrap_or_default();
    if config.runs.as_os_str().is_empty() {
        config.runs = PathBuf::from(".");
    }
    let flags = matching_flags(&config)?;
    let run = train::import(&args.weights, config, labels.clone())?;

    let classes: Vec<&str> = labels.classes.iter().map(|class| class.name.as_str()).collect();
    out.json(&json!({
        "event": "imported",
        "run": run.to_string_lossy(),
        "network": info.network,
        "grid": grid.counts,
        "voxel_size_m": grid.voxel_size_m,
        "origin_m": grid.origin_m,
        "classes": classes,
    }))?;
    out.line(format!("network  {info}"))?;
    let origin = grid.origin_m.map(|v| v.to_string());
    out.line(format!("grid     {} from {} m", human::grid(&grid), origin.join(", ")))?;
    out.line(format!("classes  {}", classes.join(", ")))?;
    out.result(format!("{}\n", run.display()))?;
    let (program, run) = (program(), shell_word(&run.to_string_lossy()));
    out.line(format!("\nPredict with it: {program} predict {run} SCAN -o out.png"))?;
    out.line(format!("Train from it:   {program} train DATA --weights {run} {flags}"))?;
    Ok(0)
}

impl ImportArgs {
    /// Grid and classes of the named or the only fitting data set.
    fn setup(&self, info: &WeightsInfo) -> anyhow::Result<Option<(GridSpec, LabelMap)>> {
        let Some(name) = self.like.as_deref().or_else(|| train::guess_setup(info)) else { return Ok(None) };
        train::setup(name).map(Some).ok_or_else(|| {
            let known: Vec<&str> = train::setups().collect();
            usage(format!("--like {name}: found no such data set, expected one of {}", known.join(", ")))
        })
    }

    fn grid(&self, info: &WeightsInfo, like: Option<GridSpec>, labels: &LabelMap) -> anyhow::Result<GridSpec> {
        let missing = |flag: &str| {
            usage(format!(
                "the file holds {info}, but nothing says which grid these weights were trained with: give {flag}"
            ))
        };
        let counts = match (self.grid, like) {
            (Some((x, y, z)), _) => [x, y, z.or(info.height).ok_or_else(|| missing("--grid with three numbers"))?],
            (None, Some(like)) => like.counts,
            (None, None) => return Err(missing("--like, or --grid, --voxel and --origin")),
        };
        let voxel = self.voxel.or(like.map(|like| like.voxel_size_m)).ok_or_else(|| missing("--voxel"))?;
        let origin = self.origin.map(|origin| origin.map(|v| v as f32)).or(like.map(|like| like.origin_m));
        let origin = origin.ok_or_else(|| missing("--origin"))?;
        let ids = (labels.empty_id, labels.ignore_id);
        Ok(GridSpec { empty_id: ids.0, ignore_id: ids.1, ..GridSpec::new(origin, voxel, counts) })
    }

    fn labels(&self, info: &WeightsInfo, like: Option<&LabelMap>) -> anyhow::Result<LabelMap> {
        let labels = match (&self.labels, like) {
            (Some(name), _) => LabelMap::find(name)?,
            (None, Some(like)) => like.clone(),
            (None, None) => numbered(info.classes),
        };
        if labels.len() == info.classes {
            return Ok(labels);
        }
        Err(usage(format!(
            "the file holds {info}, but the label map {} has {} classes: give --labels with another one",
            labels.name,
            labels.len()
        )))
    }
}

/// Flags of `train` for network and grid of the run: the preset that has them, and what it lacks.
fn matching_flags(config: &TrainConfig) -> anyhow::Result<String> {
    let mut base = TrainConfig::from_layers("demo", None, &[])?;
    for (name, _) in train::presets() {
        let preset = TrainConfig::from_layers(name, None, &[])?;
        if preset.grid == config.grid {
            base = preset;
            break;
        }
    }
    let mut sets = Vec::new();
    if base.model.network != config.model.network {
        sets.push(format!("model.network={}", config.model.network));
    }
    let (own, new) = (base.grid, config.grid);
    for (key, differs, value) in [
        ("origin_m", own.origin_m != new.origin_m, format!("{:?}", new.origin_m)),
        ("voxel_size_m", own.voxel_size_m != new.voxel_size_m, format!("{:?}", new.voxel_size_m)),
        ("counts", own.counts != new.counts, format!("{:?}", new.counts)),
        ("empty_id", own.empty_id != new.empty_id, new.empty_id.to_string()),
        ("ignore_id", own.ignore_id != new.ignore_id, new.ignore_id.to_string()),
    ] {
        if differs {
            sets.push(format!("grid.{key}={value}"));
        }
    }
    let around = |axis: usize| new.origin_m[axis] < 0.0 && new.end_m()[axis] > 0.0;
    for (axis, (name, flip)) in [("x", base.augment.flip_x), ("y", base.augment.flip_y)].into_iter().enumerate() {
        if flip && !around(axis) {
            sets.push(format!("augment.flip_{name}=false"));
        }
    }
    let sets = sets.iter().map(|set| format!(" --set {}", shell_word(set)));
    Ok(format!("--preset {}{}", base.preset, sets.collect::<String>()))
}

/// Classes without names, the first of them free space.
fn numbered(classes: usize) -> LabelMap {
    let colour = |id: usize| {
        // Far apart for neighbouring numbers.
        let channel = |step: usize| (60 + id * step % 180) as u8;
        [channel(67), channel(131), channel(97)]
    };
    let class = |id: usize| match id {
        0 => Class { name: "free".into(), colour: [255; 3], file_ids: vec![0] },
        _ => Class { name: format!("class {id}"), colour: colour(id), file_ids: vec![id as u16] },
    };
    LabelMap {
        name: "numbered".into(),
        empty_id: 0,
        ignore_id: 255,
        ignored_file_ids: Vec::new(),
        classes: (0..classes).map(class).collect(),
    }
}
