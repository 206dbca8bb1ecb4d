//! Files that numpy wrote (tests/generators/grids.py) give the grids that numpy says they stand for, read alone and read
//! again after being written by Occam.

use std::path::{Path, PathBuf};

use occam_scene::formats::benchmarks::{Benchmark, GroundTruth, ReadGrid, read_benchmark};
use occam_scene::formats::{
    Array, read_npz, read_voxel_bits, read_voxel_labels, write_npz_semantics, write_voxel_labels,
};
use occam_scene::{AxisOrder, GridSpec, LabelMap, VoxelGrid};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/grids").join(name)
}

/// What numpy says about a set.
struct Expected(Vec<(String, Array)>);

impl Expected {
    fn of(set: &str) -> Self {
        Self(read_npz(&golden(set).join("expected.npz")).unwrap())
    }

    fn values(&self, name: &str) -> Option<Vec<f64>> {
        let (_, array) = self.0.iter().find(|(known, _)| known == name)?;
        Some((0..array.values.len()).map(|i| array.values.at(i)).collect())
    }

    fn indices(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.values(name)?.into_iter().map(|v| v as usize).collect())
    }

    fn labels(&self, spec: &GridSpec) -> Vec<u8> {
        assert_eq!(self.indices("counts").unwrap(), spec.counts);
        let mut labels = vec![spec.empty_id; spec.len()];
        for (index, label) in self.indices("index").unwrap().into_iter().zip(self.values("label").unwrap()) {
            labels[index] = label as u8;
        }
        labels
    }

    fn flow(&self, spec: &GridSpec) -> Option<Vec<[f32; 2]>> {
        let values = self.values("flow")?;
        let mut flow = vec![[0.0; 2]; spec.len()];
        for (row, index) in self.indices("flow_index")?.into_iter().enumerate() {
            flow[index] = [values[2 * row] as f32, values[2 * row + 1] as f32];
        }
        Some(flow)
    }

    fn mask(&self, name: &str, spec: &GridSpec) -> Option<Vec<bool>> {
        let mut mask = vec![false; spec.len()];
        self.indices(name)?.into_iter().for_each(|index| mask[index] = true);
        Some(mask)
    }
}

/// Labels are compared by voxel: two grids of millions print too much.
fn assert_same(found: &VoxelGrid, labels: &[u8], what: &str) {
    assert_eq!(found.labels.len(), labels.len(), "{what}");
    if let Some(at) = (0..labels.len()).find(|i| found.labels[*i] != labels[*i]) {
        let voxel = found.spec.voxel_at(at);
        panic!("{what}: {} at {voxel:?}, numpy says {}", found.labels[at], labels[at]);
    }
}

/// Reads a file of a set, told and untold, and compares everything numpy says about it.
fn read_as_numpy_says(set: &str, file: &str, benchmark: Benchmark) -> ReadGrid {
    let path = golden(set).join(file);
    let found = read_benchmark(&path, benchmark).unwrap();
    let expected = Expected::of(set);
    let spec = found.grid.spec;
    assert_eq!(spec.axis_order, AxisOrder::Xyz);
    let labels = benchmark.labels().unwrap();
    assert_eq!((spec.empty_id, spec.ignore_id), (labels.empty_id, labels.ignore_id));
    assert_same(&found.grid, &expected.labels(&spec), set);
    assert!(found.grid.flow == expected.flow(&spec), "{set}: flow differs");
    assert_eq!(found.mask_lidar, expected.mask("mask_lidar", &spec), "{set}");
    assert_eq!(found.mask_camera, expected.mask("mask_camera", &spec), "{set}");
    found
}

/// What Occam writes as `semantics` is read again as the same grid.
fn comes_back(found: &ReadGrid, benchmark: Benchmark) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("labels.npz");
    write_npz_semantics(&path, &found.grid).unwrap();
    let again = read_benchmark(&path, benchmark).unwrap();
    assert_eq!(again.grid.spec, found.grid.spec);
    assert_same(&again.grid, &found.grid.labels, "written and read");
}

#[test]
fn occ3d_nuscenes() {
    let found = read_as_numpy_says("occ3d-nuscenes", "labels.npz", Benchmark::Occ3dNuscenes);
    assert!(found.mask_camera.is_some() && found.mask_lidar.is_some() && found.notes.is_empty());
    assert_eq!(found.grid.spec.centre_m([0, 0, 0]), [-39.8, -39.8, -0.8]);
    comes_back(&found, Benchmark::Occ3dNuscenes);
}

#[test]
fn openocc_with_flow() {
    let found = read_as_numpy_says("openocc", "labels.npz", Benchmark::OpenOcc);
    assert!(found.grid.flow.is_some());
    comes_back(&found, Benchmark::OpenOcc);
}

#[test]
fn occnet_with_a_flow_for_every_voxel_listed() {
    let found = read_as_numpy_says("occnet", "000_occ.npy", Benchmark::OccNet);
    // (0, 0, 0) is the first voxel of the grid, (199, 199, 15) its last.
    assert_eq!((found.grid.label([0, 0, 0]), found.grid.label([199, 199, 15])), (0, 15));
}

#[test]
fn occnet_with_a_flow_for_things_only() {
    let found = read_as_numpy_says("occnet-things", "000_occ.npy", Benchmark::OccNet);
    let flow = found.grid.flow.unwrap();
    assert!(flow.iter().any(|f| *f != [0.0; 2]));
}

#[test]
fn surroundocc_whatever_its_number_type() {
    for file in ["voxels.npy", "voxels_f32_fortran.npy"] {
        let found = read_as_numpy_says("surroundocc", file, Benchmark::SurroundOcc);
        assert_eq!(found.notes, ["1 row of a voxel already listed: the last one counts"], "{file}");
        assert!(found.grid.labels.contains(&255), "noise is ignored");
    }
}

#[test]
fn openoccupancy_with_and_without_velocity() {
    let found = read_as_numpy_says("openoccupancy", "occupancy/token.npy", Benchmark::OpenOccupancy);
    assert_eq!(found.grid.flow, None);
    let found = read_as_numpy_says("openoccupancy-flow", "occupancy/token.npy", Benchmark::OpenOccupancy);
    assert!(found.grid.flow.is_some() && found.notes.is_empty());
}

#[test]
fn carla_sc_with_the_grid_of_its_parameters() {
    let found = read_as_numpy_says("carla-sc", "evaluation/000000.label", Benchmark::CarlaSc);
    let spec = found.grid.spec;
    assert_eq!((spec.origin_m, spec.counts), ([-3.0, -2.5, -2.0], [12, 10, 8]));
    assert_eq!(spec.voxel_size_m, [0.5, 0.5, 0.375]);
}

#[test]
fn semantic_kitti_voxels() {
    let map = LabelMap::built_in("semantic-kitti").unwrap();
    let spec = GridSpec::new([0.0; 3], [0.2; 3], [9, 7, 5]);
    let expected = Expected::of("semantic-kitti");
    let path = golden("semantic-kitti").join("000000.label");
    let grid = read_voxel_labels(&path, &spec, &map).unwrap();
    assert_same(&grid, &expected.labels(&spec), "voxel labels");
    for ending in ["bin", "invalid", "occluded"] {
        let bits = read_voxel_bits(&path.with_extension(ending), &spec).unwrap();
        assert_eq!(Some(bits), expected.mask(ending, &spec), "{ending}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut known = grid.clone();
    // No id means "ignored" alone: predictions never hold it.
    known.labels.iter_mut().filter(|label| **label == 255).for_each(|label| *label = 0);
    write_voxel_labels(&folder.path().join("000000.label"), &known, &map).unwrap();
    assert_eq!(read_voxel_labels(&folder.path().join("000000.label"), &spec, &map).unwrap(), known);
}

#[test]
fn the_format_is_told_by_name_or_arrays() {
    for (file, benchmark) in [
        ("occ3d-nuscenes/labels.npz", Benchmark::Occ3dNuscenes),
        ("openocc/labels.npz", Benchmark::OpenOcc),
        ("occnet/000_occ.npy", Benchmark::OccNet),
        ("surroundocc/voxels.npy", Benchmark::SurroundOcc),
        ("openoccupancy/occupancy/token.npy", Benchmark::OpenOccupancy),
        ("openoccupancy-flow/occupancy/token.npy", Benchmark::OpenOccupancy),
        ("carla-sc/evaluation/000000.label", Benchmark::CarlaSc),
    ] {
        let found = GroundTruth::open(&golden(file)).unwrap().unwrap_or_else(|| panic!("{file} is not told"));
        assert_eq!(found.benchmark(), benchmark, "{file}");
        assert_eq!(benchmark.name().parse(), Ok(benchmark));
        assert!(GroundTruth::name_fits(&golden(file), benchmark), "{file}");
    }
    for file in ["occnet/000_flow.npy", "occnet/000_occ_invalid.npy", "semantic-kitti/000000.label"] {
        assert!(GroundTruth::open(&golden(file)).unwrap().is_none(), "{file}");
    }
    assert!("occ4d".parse::<Benchmark>().unwrap_err().contains("openoccupancy"));
}

/// Free space of a set is an id of its label map, and its grid follows the map.
#[test]
fn every_benchmark_has_classes_that_fit_its_grid() {
    for benchmark in Benchmark::ALL {
        let (spec, labels) = (benchmark.spec(), benchmark.labels().unwrap());
        assert_eq!((spec.empty_id, spec.ignore_id), (labels.empty_id, labels.ignore_id), "{benchmark}");
        let free = &labels.classes[usize::from(spec.empty_id)].name;
        assert!(free == "free" || free == "empty", "{benchmark}: {free}");
        spec.check().unwrap();
    }
}
