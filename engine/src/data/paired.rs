//! Scans with a ground truth of an occupancy benchmark each: a CarlaSC folder, or a folder of pairs `NAME.bin` (or `.ply`)
//! and `NAME.npz` (or `.npy`).
//!
//! A pair lies in one frame: that of its benchmark (`formats::benchmarks::Frame`). The sets that are made from nuScenes
//! hold no scans; put each LiDAR sweep, moved into the frame of the set, beside its ground truth.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use occam_scene::error::Place;
use occam_scene::formats::benchmarks::{Benchmark, GroundTruth};
use occam_scene::formats::{ReadOptions, files_ending, list, read_cloud};
use occam_scene::{GridSpec, LabelMap};

use super::{DataConfig, Dataset, Sample};
use crate::{Error, Result};

/// One example on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    id: String,
    scan: PathBuf,
    truth: PathBuf,
}

/// What a folder of pairs holds, by names and the arrays of its first ground truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairs {
    benchmark: Benchmark,
    /// Drive by drive, in the order of time.
    training: Vec<Vec<Pair>>,
    /// Empty: the end of each drive validates.
    validation: Vec<Vec<Pair>>,
}

impl Pairs {
    pub fn benchmark(&self) -> Benchmark {
        self.benchmark
    }

    /// Drives, and pairs in all of them.
    pub fn counts(&self) -> (usize, usize) {
        let drives = || self.training.iter().chain(&self.validation);
        (drives().count(), drives().map(Vec::len).sum())
    }

    /// The last scan of those that validate.
    pub fn last_scan(&self) -> Option<&Path> {
        let drives = if self.validation.is_empty() { &self.training } else { &self.validation };
        drives.last()?.last().map(|pair| pair.scan.as_path())
    }

    /// Looks for pairs; `None` where there are none. CarlaSC is found from a scene (`cartesian/`), from a folder of scenes,
    /// and from the folder that holds `Train/` and `Val/`, which then are the split.
    ///
    /// # Errors
    /// [`Error::Input`] for a folder or a ground truth that cannot be read.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        let (training, validation) = (carla_drives(&path.join("Train"))?, carla_drives(&path.join("Val"))?);
        if !training.is_empty() && !validation.is_empty() {
            return Ok(Some(Self { benchmark: Benchmark::CarlaSc, training, validation }));
        }
        let training = carla_drives(path)?;
        if !training.is_empty() {
            return Ok(Some(Self { benchmark: Benchmark::CarlaSc, training, validation: Vec::new() }));
        }
        let pairs = beside(path)?;
        let Some(first) = pairs.first() else { return Ok(None) };
        let benchmark = GroundTruth::open(&first.truth)?.map(|truth| truth.benchmark());
        Ok(benchmark.map(|benchmark| Self { benchmark, training: vec![pairs], validation: Vec::new() }))
    }
}

/// Pairs of each scene at or below `path`; none where nothing looks like CarlaSC.
fn carla_drives(path: &Path) -> Result<Vec<Vec<Pair>>> {
    let is_scene = |folder: &Path| folder.join("evaluation/params.json").is_file() && folder.join("velodyne").is_dir();
    let mut scenes = Vec::new();
    for folder in [vec![path.to_path_buf()], folders(path)?].concat() {
        scenes.extend([folder.clone(), folder.join("cartesian")].into_iter().filter(|folder| is_scene(folder)));
    }
    scenes.sort();
    scenes.dedup();
    let mut drives = Vec::new();
    for scene in scenes {
        // `Town01_Heavy/cartesian` is called by its town.
        let town = if scene.ends_with("cartesian") { scene.parent().unwrap_or(&scene) } else { &scene };
        let name = town.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut pairs = Vec::new();
        for scan in files_ending(&scene.join("velodyne"), "bin")? {
            let stem = scan.file_stem().unwrap_or_default();
            let truth = scene.join("evaluation").join(stem).with_extension("label");
            if truth.is_file() {
                pairs.push(Pair { id: format!("{name}/{}", stem.to_string_lossy()), scan, truth });
            }
        }
        if !pairs.is_empty() {
            drives.push(pairs);
        }
    }
    Ok(drives)
}

/// Folders in a folder, in order of their names; none where there is no folder.
fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = list(path)?;
    folders.retain(|folder| folder.is_dir());
    Ok(folders)
}

/// Scans of a folder that have a ground truth of the same name beside them.
fn beside(path: &Path) -> Result<Vec<Pair>> {
    let mut scans = files_ending(path, "bin")?;
    scans.extend(files_ending(path, "ply")?);
    scans.sort();
    let pair = |scan: PathBuf| {
        // `NAME.pcd.bin` belongs to `NAME.npz`.
        let name = scan.file_name()?.to_str()?.split('.').next()?.to_owned();
        let endings = [".npz", ".npy", "_occ.npy"];
        let truth = endings.map(|ending| path.join(format!("{name}{ending}"))).into_iter().find(|t| t.is_file())?;
        Some(Pair { id: name, scan, truth })
    };
    Ok(scans.into_iter().filter_map(pair).collect())
}

/// What the training and the validation part share.
#[derive(Debug)]
struct Set {
    path: PathBuf,
    benchmark: Benchmark,
    spec: GridSpec,
    labels: LabelMap,
}

/// Pairs to train or to validate on.
#[derive(Debug, Clone)]
pub struct PairedScans {
    set: Arc<Set>,
    pairs: Vec<Pair>,
}

impl PairedScans {
    /// Training and validation part. Without a split of the set's own, the last `validation_share` of each drive
    /// validates: frames on both sides of that split see some of the same street.
    ///
    /// # Errors
    /// [`Error::Input`] for a ground truth that cannot be read, [`Error::Usage`] for a grid that is not the set's: a
    /// published ground truth is compared voxel by voxel, never resampled.
    pub fn open(path: &Path, found: Pairs, config: &DataConfig, spec: &GridSpec) -> Result<(Self, Self)> {
        let benchmark = found.benchmark;
        if let Some(first) = found.training.first().and_then(|drive| drive.first()) {
            check_grid(GroundTruth::open_as(&first.truth, benchmark)?.spec(), spec, benchmark)?;
        }
        let (mut training, mut validation) = (Vec::new(), found.validation.concat());
        if validation.is_empty() {
            for mut drive in found.training {
                let first = super::first_validation(drive.len(), config.validation_share);
                validation.extend(drive.split_off(first));
                training.extend(drive);
            }
        } else {
            training = found.training.concat();
        }
        let labels = benchmark
            .labels()
            .ok_or_else(|| Error::Failed(format!("the classes of {benchmark} cannot be read in this build")))?;
        let set = Arc::new(Set { path: path.to_path_buf(), benchmark, spec: *spec, labels });
        Ok((Self { set: Arc::clone(&set), pairs: training }, Self { set, pairs: validation }))
    }
}

/// The grid of the run is that of the ground truth.
fn check_grid(truth: &GridSpec, spec: &GridSpec, benchmark: Benchmark) -> Result<()> {
    let near = |a: [f32; 3], b: [f32; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
    let same = near(truth.origin_m, spec.origin_m)
        && near(truth.voxel_size_m, spec.voxel_size_m)
        && (truth.counts, truth.empty_id, truth.ignore_id) == (spec.counts, spec.empty_id, spec.ignore_id);
    if same {
        return Ok(());
    }
    let keys = |s: &GridSpec| {
        format!(
            "grid.origin_m = {:?}, grid.voxel_size_m = {:?}, grid.counts = {:?}, grid.empty_id = {}, grid.ignore_id = {}",
            s.origin_m, s.voxel_size_m, s.counts, s.empty_id, s.ignore_id
        )
    };
    let preset =
        if benchmark == Benchmark::CarlaSc { ". --preset carla-sc sets the grid of the published set" } else { "" };
    Err(Error::Usage(format!(
        "{}, expected that of the ground truth of {benchmark}: {}{preset}",
        keys(spec),
        keys(truth)
    )))
}

impl Dataset for PairedScans {
    fn name(&self) -> String {
        self.set.path.display().to_string()
    }

    fn len(&self) -> usize {
        self.pairs.len()
    }

    fn spec(&self) -> &GridSpec {
        &self.set.spec
    }

    fn labels(&self) -> &LabelMap {
        &self.set.labels
    }

    fn sample(&self, index: usize) -> Result<Sample> {
        let Some(pair) = self.pairs.get(index) else {
            return Err(Error::Failed(format!("sample {index} of {}", self.pairs.len())));
        };
        let benchmark = self.set.benchmark;
        // The simulator's scans have four columns, the last of them zero, which no guess could tell.
        let bin_stride = (benchmark == Benchmark::CarlaSc).then_some(4);
        let cloud = read_cloud(&pair.scan, &ReadOptions { bin_stride, ..ReadOptions::default() })?.cloud;
        let mut target = GroundTruth::open_as(&pair.truth, benchmark)?.normalise()?.grid;
        if target.spec.counts != self.set.spec.counts {
            let found = format!("a grid of {:?}", target.spec.counts);
            let expected = format!("{:?}, as the first ground truth has", self.set.spec.counts);
            return Err(occam_scene::Error::new(&pair.truth, Place::File, found, expected).into());
        }
        if target.spec.axis_order != self.set.spec.axis_order {
            target = target.reordered(self.set.spec.axis_order);
        }
        target.spec = self.set.spec;
        Ok(Sample { id: pair.id.clone(), cloud, target })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::Layout;

    const PARAMS: &str =
        r#"{"grid_size": [4.0, 4.0, 2.0], "min_bound": [-2.0, -2.0, -1.0], "max_bound": [2.0, 2.0, 1.0]}"#;

    fn spec() -> GridSpec {
        GridSpec::new([-2.0, -2.0, -1.0], [1.0; 3], [4, 4, 2])
    }

    /// A scene whose frame `i` has a vehicle (tag 10) in voxel `i` and nothing measured in the last.
    fn write_scene(folder: &Path, frames: usize) {
        for name in ["velodyne", "evaluation"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("evaluation/params.json"), PARAMS).unwrap();
        for frame in 0..frames {
            let scan: Vec<u8> = [0.5_f32, -1.5, 0.5, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
            fs::write(folder.join(format!("velodyne/{frame:06}.bin")), scan).unwrap();
            let tag = |voxel: usize| if voxel == frame { 10_u32 } else { 0 };
            let labels: Vec<u8> = (0..32).flat_map(|voxel| tag(voxel).to_le_bytes()).collect();
            fs::write(folder.join(format!("evaluation/{frame:06}.label")), labels).unwrap();
            let counts: Vec<u8> = (0..32).flat_map(|voxel| f32::from(u8::from(voxel < 31)).to_le_bytes()).collect();
            fs::write(folder.join(format!("evaluation/{frame:06}.bin")), counts).unwrap();
        }
    }

    fn config() -> DataConfig {
        DataConfig { validation_share: 0.25, ..crate::train::TrainConfig::from_layers("tiny", None, &[]).unwrap().data }
    }

    fn open(path: &Path) -> Result<(PairedScans, PairedScans)> {
        PairedScans::open(path, Pairs::find(path)?.unwrap(), &config(), &spec())
    }

    #[test]
    fn a_carla_scene_is_found_wherever_one_stands_and_its_end_validates() {
        let folder = tempfile::tempdir().unwrap();
        let scene = folder.path().join("Town01_Heavy/cartesian");
        write_scene(&scene, 4);
        // A scan without ground truth is no example.
        fs::copy(scene.join("velodyne/000000.bin"), scene.join("velodyne/000009.bin")).unwrap();
        for path in [folder.path(), &folder.path().join("Town01_Heavy"), &scene] {
            let (training, validation) = open(path).unwrap();
            assert_eq!((training.len(), validation.len()), (3, 1), "{}", path.display());
            let sample = training.sample(2).unwrap();
            assert_eq!(sample.id, "Town01_Heavy/000002");
            assert_eq!((sample.cloud.len(), sample.target.spec), (1, spec()));
            assert_eq!(sample.target.labels.iter().position(|l| *l == 10), Some(2));
            assert_eq!((sample.target.occupied(), sample.target.labels[31]), (1, 255));
            assert_eq!(validation.sample(0).unwrap().id, "Town01_Heavy/000003");
            assert_eq!(validation.labels().classes[10].name, "vehicle");
        }
    }

    #[test]
    fn a_scene_that_is_reached_in_two_ways_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        write_scene(&folder.path().join("another"), 2);
        write_scene(&folder.path().join("cartesian"), 3);
        assert_eq!(Pairs::find(folder.path()).unwrap().unwrap().counts(), (2, 5));
    }

    #[test]
    fn the_published_split_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        write_scene(&folder.path().join("Train/Town01_Light/cartesian"), 2);
        write_scene(&folder.path().join("Train/Town02_Light/cartesian"), 3);
        write_scene(&folder.path().join("Val/Town10_Light/cartesian"), 2);
        let (training, validation) = open(folder.path()).unwrap();
        assert_eq!((training.len(), validation.len()), (5, 2));
        assert_eq!(validation.sample(1).unwrap().id, "Town10_Light/000001");
        assert_eq!(training.sample(2).unwrap().id, "Town02_Light/000000");
    }

    #[test]
    fn scans_beside_their_ground_truth_are_pairs() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Pairs::find(folder.path()).unwrap(), None);
        let points: Vec<u8> =
            (0..60_u8).flat_map(|i| [f32::from(i), 1.0, 0.5, 0.25]).flat_map(f32::to_le_bytes).collect();
        for name in ["a.pcd.bin", "b.bin", "alone.bin"] {
            fs::write(folder.path().join(name), &points).unwrap();
        }
        let grid = occam_scene::VoxelGrid::empty(Benchmark::OpenOcc.spec());
        for name in ["a.npz", "b.npz"] {
            occam_scene::formats::write_npz_semantics(&folder.path().join(name), &grid).unwrap();
        }
        let found = Pairs::find(folder.path()).unwrap().unwrap();
        assert_eq!(
            (found.counts(), crate::data::layout(folder.path()).unwrap()),
            ((1, 2), Layout::Pairs(found.clone()))
        );
        let ids: Vec<_> = found.training[0].iter().map(|pair| pair.id.as_str()).collect();
        assert_eq!((found.benchmark, ids), (Benchmark::OpenOcc, vec!["a", "b"]));
        let text = PairedScans::open(folder.path(), found.clone(), &config(), &spec()).unwrap_err().to_string();
        assert!(text.contains("grid.counts = [200, 200, 16], grid.empty_id = 16"), "{text}");
        let (training, validation) =
            PairedScans::open(folder.path(), found, &config(), &Benchmark::OpenOcc.spec()).unwrap();
        assert_eq!((training.len(), validation.len()), (1, 1));
        assert_eq!(training.sample(0).unwrap().cloud.len(), 60);
    }

    #[test]
    fn a_grid_of_another_size_in_between_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        write_scene(&folder.path().join("a"), 2);
        write_scene(&folder.path().join("b"), 2);
        fs::write(folder.path().join("b/evaluation/params.json"), PARAMS.replace("[4.0, 4.0, 2.0]", "[4.0, 2.0, 4.0]"))
            .unwrap();
        let (training, _) = open(folder.path()).unwrap();
        training.sample(0).unwrap();
        let text = training.sample(1).unwrap_err().to_string();
        assert!(text.contains("[4, 2, 4]") && text.contains("000000.label"), "{text}");
    }
}
