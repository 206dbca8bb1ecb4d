//! `occam predict`: scans in, occupancy grids and pictures out.

mod folder;
mod notes;
mod outputs;
mod placement;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use occam_engine::data::{self, Frame};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::render::{self, PreviewOptions};
use occam_engine::scene::error::{Error as InputError, Place};
use occam_engine::scene::formats::{self, ReadOptions, VoxelShape};
use occam_engine::scene::{GridSpec, PointCloud, VoxelGrid, demo};
use occam_engine::train::{Model, load_model};
use serde_json::json;

use self::notes::Notes;
use self::outputs::{Kind, Target};
use crate::fail::{self, usage};
use crate::parse;
use crate::print::{Output, human};
use crate::signals::Signals;

/// The world that is scanned when the user names none: far from the seeds that a run trains on by default.
const DEMO_SEED: u64 = 20_000;

/// 32-bit floats a point in SemanticKITTI's scans.
const KITTI_STRIDE: usize = 4;

#[derive(Args)]
pub struct PredictArgs {
    /// Run folder, checkpoint folder or weights file
    model: PathBuf,
    /// Scans of any readable format, or folders in SemanticKITTI's layout; without one, a scan of the demo world
    scans: Vec<PathBuf>,

    /// File (.ply, .label, .npz or .png) or folder to write to; a folder gets every kind. The scans of a folder become
    /// sequences/NN/predictions/NNNNNN.label, as SemanticKITTI's evaluate_completion.py reads them
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Kinds of files to write to a folder, or that of a file with another ending; repeatable or with commas [default:
    /// by the ending]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    format: Vec<Kind>,
    /// What voxels are in a PLY file
    #[arg(long = "as", value_enum, default_value_t, value_name = "SHAPE")]
    shape: Shape,
    /// Where the sensor stood, in metres of the file [default: what the file says, else the cloud is centred]
    #[arg(long, value_name = "X,Y,Z", value_parser = parse::position, allow_hyphen_values = true)]
    origin: Option<[f64; 3]>,
    /// 32-bit floats a point in .bin files: 4 for KITTI, 5 for nuScenes [default: the plausible one]
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    stride: Option<usize>,
    /// Predict from the points that are there when a PLY file was cut off
    #[arg(long)]
    lenient: bool,
    /// Seed of the demo world to scan instead of files
    #[arg(long, value_name = "SEED", conflicts_with = "scans")]
    demo: Option<u64>,
    /// auto, cpu, or a GPU's name or index from `occam gpus`
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// One cube a voxel
    #[default]
    Cubes,
    /// One point in the middle of a voxel
    Points,
}

/// Where a cloud comes from.
enum Source {
    Scan(PathBuf),
    /// A scan of a folder in SemanticKITTI's layout.
    Recorded(PathBuf),
    Demo(u64),
}

/// A cloud as it was read, not yet in the frame of the grid.
struct Input {
    name: String,
    cloud: PointCloud,
    notes: Vec<String>,
}

impl Source {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Scan(path) | Self::Recorded(path) => Some(path),
            Self::Demo(_) => None,
        }
    }

    fn read(&self, spec: &GridSpec, options: &ReadOptions) -> anyhow::Result<Input> {
        match self {
            Self::Demo(seed) => Ok(Input {
                name: format!("demo world {seed}"),
                cloud: demo::scene(*seed, 0, spec).cloud,
                notes: Vec::new(),
            }),
            Self::Scan(path) | Self::Recorded(path) => {
                // The layout says what its scans are.
                let kitti = matches!(self, Self::Recorded(_)).then_some(KITTI_STRIDE);
                let options = &ReadOptions { bin_stride: options.bin_stride.or(kitti), ..*options };
                let read = formats::read_cloud(path, options)?;
                if read.cloud.is_empty() {
                    let found = match read.cloud.dropped_non_finite {
                        0 => "no points".to_owned(),
                        all => format!("{}, none with finite coordinates", human::counted(all, "point")),
                    };
                    return Err(InputError::new(path, Place::File, found, "at least one point to predict from").into());
                }
                Ok(Input { name: path.display().to_string(), cloud: read.cloud, notes: read.notes })
            }
        }
    }
}

pub fn run(args: &PredictArgs, out: Output) -> anyhow::Result<u8> {
    let (sources, stems) = sources(args)?;
    let target = if sources.iter().any(|source| matches!(source, Source::Recorded(_))) {
        Target::layout(&args.output, &args.format)?
    } else {
        Target::choose(&args.output, &args.format, args.scans.len())?
    };
    let signals = Signals::install()?;
    let device = gpu::open(&args.device)?;
    if let Some(notice) = &device.notice {
        out.note(notice);
    }
    let model = load_model(&args.model, &device.device)?;
    let options = ReadOptions { bin_stride: args.stride, lenient: args.lenient };
    let inputs: Vec<PathBuf> = sources.iter().filter_map(|source| source.path().map(Path::to_path_buf)).collect();
    outputs::spare_inputs(&target, &inputs, &stems)?;
    let mut failures = Vec::new();
    let mut notes = Notes::new(out);
    for (source, stem) in sources.iter().zip(&stems) {
        if signals.stop_asked() {
            return Ok(signals.exit_code());
        }
        // One bad scan does not cost the others.
        if let Err(error) = predict(&model, source, stem, &target, args, &options, &mut notes, out) {
            if sources.len() > 1 {
                Output::warning(fail::one_line(&format!("{error:#}")));
            }
            failures.push(error);
        }
    }
    let failed = failures.len();
    match failures.into_iter().next() {
        None => Ok(0),
        Some(only) if sources.len() == 1 => Err(only),
        Some(first) => Err(first.context(format!("{failed} of {} scans failed; the first", sources.len()))),
    }
}

/// What to predict from, and the names of the predictions without ending.
fn sources(args: &PredictArgs) -> anyhow::Result<(Vec<Source>, Vec<String>)> {
    if args.scans.is_empty() {
        let seed = args.demo.unwrap_or(DEMO_SEED);
        return Ok((vec![Source::Demo(seed)], vec![format!("demo-{seed}")]));
    }
    let (mut sources, mut stems) = (Vec::new(), Vec::new());
    let is_folder = |path: &&PathBuf| path.is_dir();
    for path in args.scans.iter().filter(is_folder) {
        for folder::Recorded { scan, stem } in folder::scans(path)? {
            sources.push(Source::Recorded(scan));
            stems.push(stem);
        }
    }
    let files: Vec<PathBuf> = args.scans.iter().filter(|path| !is_folder(path)).cloned().collect();
    stems.extend(outputs::stems(&files));
    sources.extend(files.into_iter().map(Source::Scan));
    Ok((sources, stems))
}

#[allow(clippy::too_many_arguments)]
fn predict(
    model: &Model,
    source: &Source,
    stem: &str,
    target: &Target,
    args: &PredictArgs,
    options: &ReadOptions,
    notes: &mut Notes,
    out: Output,
) -> anyhow::Result<()> {
    let spec = &model.spec;
    let Input { name, mut cloud, notes: of_file } = source.read(spec, options)?;
    for note in of_file {
        notes.say(&name, &note);
    }
    model.config.input.check(&cloud, &name)?;
    // Before it is moved: the numbers the user knows from the file.
    let bounds = cloud.bounds().map(|(low, high)| [low, high].map(|corner| file_coordinates(&cloud, corner)));
    let recorded = matches!(source, Source::Recorded(_));
    if recorded {
        // As the network was trained and is scored.
        model.config.data.rules().keep_in_range(&mut cloud);
    }
    let origin = args.origin.or(recorded.then_some([0.0; 3]));
    if let (Source::Scan(path), None, None) = (source, origin, cloud.sensor)
        && let Some(how) = as_in_training(&mut cloud, path, model)?
    {
        notes.say(&name, how);
    }
    if let Some(guess) = placement::place(&mut cloud, spec, origin) {
        notes.say(&name, &guess);
        if model.config.input.visibility {
            notes.say(
                &name,
                "this model looks along the rays from the sensor (input.visibility), so that the place matters: give \
                 --origin",
            );
        }
    }
    let inside = placement::inside(&cloud, spec);
    if inside == 0 {
        return Err(nothing_inside(&name, bounds, &cloud, spec));
    }
    let grid = model.predict(&cloud)?;
    let files = target.files(stem);
    for (path, kind) in &files {
        if let (Target::Folder(..), Some(folder)) = (target, path.parent()) {
            fs::create_dir_all(folder).map_err(|error| {
                InputError::new(folder, Place::File, error.to_string(), "a folder for the predictions")
            })?;
        }
        if recorded && *kind == Kind::Label {
            formats::write_voxel_labels(path, &folder::as_scored(&grid, &model.labels)?, &model.labels)?;
        } else {
            write(*kind, path, &cloud, &grid, model, args.shape)?;
        }
    }
    let (points, occupied) = (cloud.len(), grid.occupied());
    if occupied == 0 {
        notes.say(&name, "the model sees no occupied voxel: was it trained long enough, and on scans like this one?");
    }
    out.json(&json!({
        "event": "predicted",
        "scan": name,
        "points": points,
        "points_inside": inside,
        "voxels": spec.len(),
        "occupied_voxels": occupied,
        "files": files.iter().map(|(path, _)| path.to_string_lossy()).collect::<Vec<_>>(),
    }))?;
    out.line(format!(
        "{name}: {} of {} inside the grid, {} of {} voxels occupied",
        human::count(inside),
        human::counted(points, "point"),
        human::count(occupied),
        human::count(spec.len())
    ))?;
    for (path, _) in &files {
        out.line(format!("  {}", path.display()))?;
    }
    Ok(())
}

/// Somebody's own scans are placed as those that the model learned from: says how, or nothing for other models and for
/// scans whose place nobody knows.
fn as_in_training(cloud: &mut PointCloud, path: &Path, model: &Model) -> anyhow::Result<Option<&'static str>> {
    let config = &model.config.data;
    let own_scans = model.labels.name == "occupancy" || config.labels.is_some();
    if !own_scans || config.path.as_deref() == Some(path) {
        return Ok(None);
    }
    let how = match config.frame {
        Frame::Sensor => {
            cloud.sensor = Some(std::array::from_fn(|axis| -cloud.origin[axis] as f32));
            "taken as in the frame of its sensor, as in training; --origin X,Y,Z says otherwise"
        }
        Frame::World => {
            let Some(world_from_sensor) = data::sensor_pose(path)? else { return Ok(None) };
            cloud.transform(&world_from_sensor.inverse());
            cloud.sensor = Some([0.0; 3]);
            "moved into the frame of its sensor by its pose, as in training"
        }
    };
    Ok(Some(how))
}

fn write(
    kind: Kind,
    path: &Path,
    cloud: &PointCloud,
    grid: &VoxelGrid,
    model: &Model,
    shape: Shape,
) -> anyhow::Result<()> {
    let labels = &model.labels;
    match kind {
        Kind::Ply => {
            let shape = match shape {
                Shape::Cubes => VoxelShape::Cubes,
                Shape::Points => VoxelShape::Points,
            };
            formats::write_voxels_ply(path, grid, labels, shape)?;
        }
        Kind::Label => formats::write_voxel_labels(path, grid, labels)?,
        Kind::Npz => formats::write_npz_semantics(path, grid)?,
        Kind::Png => {
            let picture = render::preview(Some(grid), Some(cloud), labels, &PreviewOptions::default());
            render::write_png(path, &picture)?;
        }
    }
    Ok(())
}

fn file_coordinates(cloud: &PointCloud, position: [f32; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| cloud.origin[axis] + f64::from(position[axis]))
}

fn nothing_inside(name: &str, bounds: Option<[[f64; 3]; 2]>, placed: &PointCloud, spec: &GridSpec) -> anyhow::Error {
    let corner = |p: [f64; 3]| p.map(|v| format!("{v:.2}")).join(",");
    let [low, high] = bounds.unwrap_or_default();
    let [grid_low, grid_high] = [spec.origin_m, spec.end_m()].map(|p| file_coordinates(placed, p));
    // The sensor that would bring the middle of the cloud to the middle of the grid.
    let sensor = std::array::from_fn(|axis| {
        let middle_of_grid = f64::midpoint(f64::from(spec.origin_m[axis]), f64::from(spec.end_m()[axis]));
        f64::midpoint(low[axis], high[axis]) - middle_of_grid
    });
    usage(format!(
        "{name}: no point inside the grid: found points from {} to {} m, expected some between {} and {} m (the grid around \
         the sensor). Say where the sensor stood, such as --origin {}",
        corner(low),
        corner(high),
        corner(grid_low),
        corner(grid_high),
        corner(sensor)
    ))
}
