//! Findings on streets with one thing wrong, and files that are wrong in every way a file can be.

use std::fs;
use std::path::{Path, PathBuf};

use npyz::WriterBuilder;
use npyz::npz::NpzWriter;

use super::*;
use crate::error::Result;
use crate::formats::npz::deflated;

/// A street in the order x, y, z: ground in the lowest layers, walls on both sides, a car, everything else free.
struct Street {
    counts: [usize; 3],
    free: u8,
    ground: u8,
    wall: u8,
    car: u8,
}

impl Street {
    fn of(benchmark: Benchmark) -> Self {
        let labels = benchmark.labels().unwrap();
        let id = |names: [&str; 2]| labels.classes.iter().position(|c| names.contains(&c.name.as_str())).unwrap() as u8;
        let spec = benchmark.spec();
        Self {
            counts: spec.counts,
            free: labels.empty_id,
            ground: id(["driveable_surface", "road"]),
            wall: id(["manmade", "building"]),
            car: id(["car", "vehicle"]),
        }
    }

    fn label(&self, [x, y, z]: [usize; 3]) -> u8 {
        let [nx, ny, nz] = self.counts;
        match (x, y, z) {
            (x, y, 1) if x > 3 && y > 3 => self.ground,
            (_, y, z) if (y == ny / 4 || y == ny - 9) && z > 1 && z < nz - 1 => self.wall,
            (x, y, 2..4) if x.abs_diff(nx / 2) < 6 && y.abs_diff(ny / 2) < 4 => self.car,
            _ => self.free,
        }
    }

    fn voxels(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        let [nx, ny, nz] = self.counts;
        (0..nx).flat_map(move |x| (0..ny).flat_map(move |y| (0..nz).map(move |z| [x, y, z])))
    }

    fn dense(&self) -> Vec<u8> {
        self.voxels().map(|voxel| self.label(voxel)).collect()
    }

    /// Rows x, y, z, label of what is not free.
    fn rows(&self) -> Vec<[i64; 4]> {
        self.voxels()
            .map(|v| [v[0] as i64, v[1] as i64, v[2] as i64, i64::from(self.label(v))])
            .filter(|row| row[3] != i64::from(self.free))
            .collect()
    }
}

fn write_npz(path: &Path, arrays: &[(&str, &[u64], &[u8])], flow: Option<&[f32]>) {
    let mut archive = NpzWriter::new(fs::File::create(path).unwrap());
    for (name, shape, values) in arrays {
        let mut array = archive.array::<u8>(name, deflated()).unwrap().default_dtype().shape(shape).begin_nd().unwrap();
        array.extend(values.iter().copied()).unwrap();
        array.finish().unwrap();
    }
    if let Some(flow) = flow {
        let shape = [200, 200, 16, 2];
        let mut array =
            archive.array::<f32>("flow", deflated()).unwrap().default_dtype().shape(&shape).begin_nd().unwrap();
        array.extend(flow.iter().copied()).unwrap();
        array.finish().unwrap();
    }
    archive.zip_writer().finish().unwrap();
}

fn npy(descr: &str, shape: &str, body: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").bytes());
    bytes.extend(body);
    bytes
}

fn integers<const N: usize>(rows: &[[i64; N]]) -> Vec<u8> {
    let body: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    npy("<i8", &format!("({}, {N})", rows.len()), &body)
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn kinds(path: &Path, benchmark: Benchmark) -> Vec<&'static str> {
    GroundTruth::open_as(path, benchmark).unwrap().findings().into_iter().map(|f| f.kind).collect()
}

fn only(path: &Path, benchmark: Benchmark) -> String {
    let findings = GroundTruth::open_as(path, benchmark).unwrap().findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0].to_string()
}

fn refused(path: &Path, benchmark: Benchmark) -> String {
    read_benchmark(path, benchmark).unwrap_err().to_string()
}

const SHAPE: &[u64] = &[200, 200, 16];

/// Dense semantics alone.
fn semantics(folder: &Folder, values: &[u8]) -> PathBuf {
    let path = folder.0.path().join("labels.npz");
    write_npz(&path, &[("semantics", SHAPE, values)], None);
    path
}

#[test]
fn a_street_is_nothing_to_talk_about() {
    let folder = Folder::new();
    for benchmark in [Benchmark::Occ3dNuscenes, Benchmark::OpenOcc] {
        let path = semantics(&folder, &Street::of(benchmark).dense());
        assert_eq!(GroundTruth::open(&path).unwrap().unwrap().benchmark(), benchmark);
        assert_eq!(kinds(&path, benchmark), [""; 0], "{benchmark}");
    }
    let rows = Street::of(Benchmark::SurroundOcc).rows();
    assert_eq!(kinds(&folder.put("a.npy", &integers(&rows)), Benchmark::SurroundOcc), [""; 0]);
    let turned: Vec<_> =
        Street::of(Benchmark::OpenOccupancy).rows().into_iter().map(|[x, y, z, l]| [z, y, x, l]).collect();
    assert_eq!(kinds(&folder.put("b.npy", &integers(&turned)), Benchmark::OpenOccupancy), [""; 0]);
    let flat: Vec<_> =
        Street::of(Benchmark::OccNet).rows().into_iter().map(|[x, y, z, l]| [(z * 200 + y) * 200 + x, l]).collect();
    assert_eq!(kinds(&folder.put("000_occ.npy", &integers(&flat)), Benchmark::OccNet), [""; 0]);
}

/// At its real size: 128 x 128 x 8, four bytes each, with the tags of the simulator.
#[test]
fn a_carla_street_at_its_real_size() {
    let folder = Folder::new();
    let street = Street::of(Benchmark::CarlaSc);
    let map = Benchmark::CarlaSc.labels().unwrap();
    let labels: Vec<u8> = street.dense();
    let tags: Vec<u8> = labels.iter().flat_map(|l| u32::from(map.file_id(*l)).to_le_bytes()).collect();
    let path = folder.put("evaluation/000000.label", &tags);
    let counts: Vec<u8> = (0..labels.len()).flat_map(|i| ((i % 5) as f32).to_le_bytes()).collect();
    folder.put("evaluation/000000.bin", &counts);
    let params =
        r#"{"grid_size": [128.0, 128.0, 8.0], "min_bound": [-25.6, -25.6, -2.0], "max_bound": [25.6, 25.6, 1.0]}"#;
    folder.put("evaluation/params.json", params.as_bytes());
    let read = read_benchmark(&path, Benchmark::CarlaSc).unwrap();
    assert_eq!(read.grid.spec, Benchmark::CarlaSc.spec());
    for (index, label) in read.grid.labels.iter().enumerate() {
        assert_eq!(*label, if index % 5 == 0 { 255 } else { labels[index] }, "{index}");
    }
    assert_eq!((kinds(&path, Benchmark::CarlaSc), read.notes), (vec![], vec![]));
    fs::remove_file(folder.0.path().join("evaluation/params.json")).unwrap();
    fs::remove_file(folder.0.path().join("evaluation/000000.bin")).unwrap();
    let read = read_benchmark(&path, Benchmark::CarlaSc).unwrap();
    assert_eq!((read.grid.labels, read.notes.len()), (labels, 2));
}

/// At its real size: 256 x 256 x 32, two bytes each, with ids of the data set; a bit a voxel says what nobody saw.
#[test]
fn a_semantic_kitti_street_at_its_real_size() {
    let folder = Folder::new();
    let labels = Street::of(Benchmark::SemanticKitti).dense();
    let map = Benchmark::SemanticKitti.labels().unwrap();
    let ids: Vec<u8> = labels.iter().flat_map(|l| map.file_id(*l).to_le_bytes()).collect();
    let path = folder.put("voxels/000000.label", &ids);
    assert_eq!(
        read_benchmark(&path, Benchmark::SemanticKitti).unwrap().notes.len(),
        1,
        "nothing is known to be invalid"
    );
    // Every second voxel, the first of each pair.
    folder.put("voxels/000000.invalid", &vec![0b1010_1010; labels.len() / 8]);
    let truth = GroundTruth::open(&path).unwrap().unwrap();
    assert_eq!((truth.benchmark(), truth.findings()), (Benchmark::SemanticKitti, vec![]));
    let read = truth.normalise().unwrap();
    for (index, label) in read.grid.labels.iter().enumerate() {
        assert_eq!(*label, if index % 2 == 0 { 255 } else { labels[index] }, "{index}");
    }
    folder.put("voxels/000000.label", &ids[2..]);
    assert!(refused(&path, Benchmark::SemanticKitti).contains("two bytes a voxel"));
}

#[test]
fn free_space_with_the_id_of_another_set_is_found() {
    let folder = Folder::new();
    let with_free = |benchmark, free| Street { free, ..Street::of(benchmark) }.dense();
    let path = semantics(&folder, &with_free(Benchmark::Occ3dNuscenes, 16));
    let text = only(&path, Benchmark::Occ3dNuscenes);
    assert!(text.contains("id 16 (vegetation) in 9") && text.contains("--format openocc"), "{text}");
    let path = semantics(&folder, &with_free(Benchmark::OpenOcc, 17));
    assert_eq!(kinds(&path, Benchmark::OpenOcc), ["free-id", "class-ids"]);
    for waymo in [15, 23] {
        let path = semantics(&folder, &with_free(Benchmark::Occ3dNuscenes, waymo));
        let findings = GroundTruth::open_as(&path, Benchmark::Occ3dNuscenes).unwrap().findings();
        assert!(findings[0].advice.contains("Waymo"), "{findings:?}");
    }
    // 23 is no class at all: it can be checked, not read.
    assert!(refused(&path, Benchmark::Occ3dNuscenes).contains("class id 23 at voxel 0, 0, 0"));
    let path = semantics(&folder, &with_free(Benchmark::Occ3dNuscenes, 0));
    let text = only(&path, Benchmark::Occ3dNuscenes);
    // SemanticKITTI and CarlaSC have 0 too, but read no .npz.
    assert!(text.contains("id 0 (others)") && text.contains("Renumber") && !text.contains("--format"), "{text}");
    let filled: Vec<u8> = (0..640_000).map(|i| (i % 16) as u8).collect();
    assert!(kinds(&semantics(&folder, &filled), Benchmark::OpenOcc).contains(&"free-id"));
    // A list that holds free space as noise.
    let street = Street { free: 99, ..Street::of(Benchmark::SurroundOcc) };
    let rows: Vec<_> =
        street.voxels().map(|v| [v[0] as i64, v[1] as i64, v[2] as i64, i64::from(street.label(v) % 99)]).collect();
    assert_eq!(kinds(&folder.put("a.npy", &integers(&rows)), Benchmark::SurroundOcc), ["free-id"]);
}

#[test]
fn a_missing_ground_truth_is_found() {
    let folder = Folder::new();
    let text = only(&semantics(&folder, &vec![0; 640_000]), Benchmark::OpenOcc);
    assert!(text.contains("class 0 (car) in all 640000 voxels") && text.contains("filled with zeros"), "{text}");
    let text = only(&semantics(&folder, &vec![16; 640_000]), Benchmark::OpenOcc);
    assert!(text.contains("16 (free)") && text.contains("leave the frame out"), "{text}");
    let nothing = folder.put("a.npy", &npy("<i8", "(0, 4)", &[]));
    assert_eq!(kinds(&nothing, Benchmark::SurroundOcc), ["empty"]);
    assert_eq!(read_benchmark(&nothing, Benchmark::SurroundOcc).unwrap().grid.occupied(), 0);
}

#[test]
fn mixed_up_axes_are_found() {
    let folder = Folder::new();
    let street = Street::of(Benchmark::Occ3dNuscenes);
    // Written z, y, x and read as if it had been x, y, z.
    let mut scrambled = Vec::new();
    for z in 0..16 {
        for y in 0..200 {
            scrambled.extend((0..200).map(|x| street.label([x, y, z])));
        }
    }
    let text = only(&semantics(&folder, &scrambled), Benchmark::Occ3dNuscenes);
    assert!(text.contains("axes") || text.contains("axis order"), "{text}");
    let upside_down: Vec<u8> = street.voxels().map(|[x, y, z]| street.label([x, y, 15 - z])).collect();
    assert!(only(&semantics(&folder, &upside_down), Benchmark::Occ3dNuscenes).contains("point down"));
    let rows = Street::of(Benchmark::SurroundOcc).rows();
    let reversed: Vec<_> = rows.iter().map(|[x, y, z, label]| [*z, *y, *x, *label]).collect();
    let path = folder.put("a.npy", &integers(&reversed));
    let text = only(&path, Benchmark::SurroundOcc);
    assert!(text.contains("columns seem to be z, y, x"), "{text}");
    assert!(refused(&path, Benchmark::SurroundOcc).contains("x, y, z below 200, 200, 16"));
    // A list of another set: inside the larger grid, all of it in one corner.
    let text = only(&path, Benchmark::OpenOccupancy);
    assert!(text.contains("no voxel beyond 199, 199, 14"), "{text}");
    let path = folder.put("b.npy", &integers(&[[0, 0, 0, 1], [700, 0, 0, 1]]));
    assert_eq!(kinds(&path, Benchmark::OpenOccupancy), ["outside-grid"]);
    // Inside the grid, with its height along x.
    let tall: Vec<_> = (0..4000).map(|i| [i / 200 % 40, i % 200, 0, 11 + 2 * (i % 2)]).collect();
    assert!(kinds(&folder.put("c.npy", &integers(&tall)), Benchmark::OpenOccupancy).contains(&"axis-order"));
}

#[test]
fn masks_without_effect_are_found() {
    let folder = Folder::new();
    let labels = Street::of(Benchmark::Occ3dNuscenes).dense();
    let path = folder.0.path().join("labels.npz");
    let some: Vec<u8> = (0..640_000).map(|i| u8::from(i % 3 > 0)).collect();
    let masks = |lidar: &[u8], camera: &[u8]| {
        let arrays = [("semantics", SHAPE, &labels[..]), ("mask_lidar", SHAPE, lidar), ("mask_camera", SHAPE, camera)];
        write_npz(&path, &arrays, None);
        GroundTruth::open(&path).unwrap().unwrap().findings().into_iter().map(|f| f.found).collect::<Vec<_>>()
    };
    assert_eq!(masks(&some, &some), [""; 0]);
    let (ones, zeros) = (vec![1; 640_000], vec![0; 640_000]);
    assert_eq!(masks(&ones, &zeros), ["mask_lidar 1 everywhere", "mask_camera 0 everywhere"]);
    let occupied: Vec<u8> = labels.iter().map(|l| u8::from(*l != 17)).collect();
    let found = masks(&occupied, &occupied);
    assert!(found.len() == 1 && found[0].starts_with("mask_camera over each of "), "{found:?}");
    let rows: Vec<_> =
        Street::of(Benchmark::OccNet).rows().into_iter().map(|[x, y, z, l]| [(z * 200 + y) * 200 + x, l]).collect();
    let path = folder.put("000_occ.npy", &integers(&rows));
    folder.put("000_occ_invalid.npy", &npy("<i4", "(2,)", &[0; 8]));
    assert!(only(&path, Benchmark::OccNet).contains("2 invalid voxels, none of them occupied"));
}

#[test]
fn flow_where_none_can_be_and_absurd_speeds_are_found() {
    let folder = Folder::new();
    let street = Street::of(Benchmark::OpenOcc);
    let labels = street.dense();
    let path = folder.0.path().join("labels.npz");
    let with_flow = |flow: &dyn Fn(u8) -> f32| {
        let flow: Vec<f32> = labels.iter().flat_map(|l| [flow(*l), 0.0]).collect();
        write_npz(&path, &[("semantics", SHAPE, &labels)], Some(&flow));
        GroundTruth::open(&path).unwrap().unwrap().findings().into_iter().map(|f| f.found).collect::<Vec<_>>()
    };
    assert_eq!(with_flow(&|l| if l == street.car { 12.5 } else { 0.0 }), [""; 0]);
    let found = with_flow(&|l| if l == street.wall { 1.0 } else { 0.0 });
    assert!(found.len() == 1 && found[0].ends_with("of background or free space with flow"), "{found:?}");
    let found = with_flow(&|l| if l == street.car { 90.0 } else { 0.0 });
    assert!(found.len() == 1 && found[0].ends_with("faster than 55 m/s, up to 90.0 m/s"), "{found:?}");
    let found = with_flow(&|l| if l == street.car { f32::NAN } else { 0.0 });
    assert!(found.len() == 1 && found[0].contains("NaN"), "{found:?}");
    let read = read_benchmark(&path, Benchmark::OpenOcc).unwrap();
    assert!(read.notes[0].contains("taken as 0") && read.grid.flow.unwrap().iter().all(|f| *f == [0.0; 2]));
}

#[test]
fn what_is_no_ground_truth_is_one_error() {
    let folder = Folder::new();
    let openocc = folder.0.path().join("labels.npz");
    write_npz(&openocc, &[("flow", &[2], &[0, 0])], None);
    assert!(refused(&openocc, Benchmark::OpenOcc).contains("found the arrays flow"));
    write_npz(&openocc, &[("semantics", &[16, 200, 200], &vec![16; 640_000])], None);
    assert!(refused(&openocc, Benchmark::OpenOcc).contains("transpose"));
    let few: [u8; 6] = [0; 6];
    write_npz(&openocc, &[("semantics", &[1, 2, 3], &few)], None);
    assert!(refused(&openocc, Benchmark::OpenOcc).contains("semantics of shape [1, 2, 3]"));
    write_npz(&openocc, &[("semantics", SHAPE, &vec![16; 640_000]), ("mask_camera", &[2], &[0, 0])], None);
    assert!(refused(&openocc, Benchmark::OpenOcc).contains("mask_camera of shape [2]"));
    assert!(refused(&openocc, Benchmark::SurroundOcc).contains("SurroundOcc"));
    assert!(refused(&openocc, Benchmark::CarlaSc).contains("CarlaSC"));

    let list = |descr, shape, body: &[u8]| folder.put("000_occ.npy", &npy(descr, shape, body));
    let floats = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    for (value, word) in [(1.5, "1.5"), (f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-3.0, "0, 0, 1 in row 1")] {
        let path = list("<f4", "(2, 4)", &floats(&[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, value]));
        let text = refused(&path, Benchmark::SurroundOcc);
        assert!(text.contains(word) && text.contains("row 1"), "{text}");
    }
    let path = list("<f4", "(1, 4)", &floats(&[-1.0, 0.0, 0.0, 1.0]));
    assert!(refused(&path, Benchmark::SurroundOcc).contains("voxel -1, 0, 0 in row 0"));
    for (row, word) in [([-1, 3], "-1 in row 0"), ([640_000, 3], "0, 0, 16"), ([5, 17], "class id 17")] {
        let text = refused(&folder.put("000_occ.npy", &integers(&[row])), Benchmark::OccNet);
        assert!(text.contains(word), "{text}");
    }
    for (descr, shape) in [("|O", "(2, 4)"), ("<i8", "(99999999999, 4)"), ("<i8", "(4611686018427387904, 4)")] {
        let text = refused(&list(descr, shape, &[0; 64]), Benchmark::SurroundOcc);
        assert!(text.contains("expected"), "{text}");
    }
    for shape in ["(8,)", "(2, 2, 2)", "()", "(4, 2)", "(1, 8)"] {
        let text = refused(&list("<i8", shape, &[0; 64]), Benchmark::SurroundOcc);
        assert!(text.contains("one row a voxel: x, y, z, label"), "{shape}: {text}");
    }
}

#[test]
fn companions_that_do_not_belong_are_one_error() {
    let folder = Folder::new();
    let path = folder.put("000_occ.npy", &integers(&[[0, 0], [1, 12], [2, 8]]));
    folder.put("000_flow.npy", &integers(&[[1, 1]; 2]));
    let flow = read_benchmark(&path, Benchmark::OccNet).unwrap().grid.flow.unwrap();
    assert_eq!([0, 1, 2].map(|x| flow[x * 200 * 16]), [[1.0; 2], [0.0; 2], [1.0; 2]], "two things of three");
    folder.put("000_flow.npy", &integers(&[[1, 1]; 7]));
    assert!(refused(&path, Benchmark::OccNet).contains("000_flow.npy: found 7 rows"));
    folder.put("000_flow.npy", &integers(&[[1, 1]; 3]));
    for (shape, body, word) in [("(1,)", -1_i64, "-1 in row 0"), ("(1,)", 640_000, "640000"), ("(1, 1, 1)", 0, "shape")]
    {
        folder.put("000_occ_invalid.npy", &npy("<i8", shape, &body.to_le_bytes()));
        let text = refused(&path, Benchmark::OccNet);
        assert!(text.contains("000_occ_invalid.npy") && text.contains(word), "{text}");
    }

    let label = folder.put("evaluation/000000.label", &[0; 4 * 8]);
    let params = |text: &str| {
        folder.put("evaluation/params.json", text.as_bytes());
        refused(&label, Benchmark::CarlaSc)
    };
    let grid = |size: &str, min: &str| {
        format!(r#"{{"grid_size": {size}, "min_bound": {min}, "max_bound": [1, 1, 1], "coordinates": "cartesian"}}"#)
    };
    assert!(params("{}").contains("params.json"));
    assert!(params("[").contains("params.json"));
    assert!(params(&grid("[2, 2, 2]", "[0, 0, 1]")).contains("voxel size"));
    assert!(params(&grid("[2, 2, 1.5]", "[0, 0, 0]")).contains("whole numbers"));
    assert!(params(&grid("[2, 2, -2]", "[0, 0, 0]")).contains("whole numbers"));
    assert!(params(&grid("[65536, 65536, 65536]", "[-9999, -9999, -9999]")).contains("at most 2^31"));
    assert!(params(&grid("[60000, 20000, 1]", "[-9999, -9999, 0]")).contains("found 32 bytes, expected 4800000000"));
    assert!(params(&grid("[2, 2, 2]", "[0, 0, 0]").replace("cartesian", "cylindrical")).contains("cylindrical"));
    assert!(params(&grid("[2, 2, 4]", "[0, 0, 0]")).contains("SemanticKITTI"));
    folder.put("evaluation/params.json", grid("[2, 2, 2]", "[0, 0, 0]").as_bytes());
    read_benchmark(&label, Benchmark::CarlaSc).unwrap();
    folder.put("evaluation/000000.bin", &f32::NAN.to_le_bytes().repeat(8));
    assert!(refused(&label, Benchmark::CarlaSc).contains("byte 0: found a count of NaN"));
    folder.put("evaluation/000000.bin", &[0; 31]);
    assert!(refused(&label, Benchmark::CarlaSc).contains("31 bytes"));
    folder.put("evaluation/000000.bin", &[0; 32]);
    assert!(only(&label, Benchmark::CarlaSc).contains("leaves out every voxel"));
    folder.put("evaluation/000000.label", &[0xff; 32]);
    assert!(refused(&label, Benchmark::CarlaSc).contains("class id 4294967295"));
}

/// Seeded edits of a good file: read or refused, never a panic; both happen.
#[test]
fn edited_lists_and_grids() {
    let folder = Folder::new();
    let rows: Vec<_> = (0..40).map(|i| [i % 16, i, i % 13, i % 17]).collect();
    let flat: Vec<_> = (0..40).map(|i| [i * 401, i % 16]).collect();
    let files = [
        (Benchmark::SurroundOcc, "a.npy", "a.npy", integers(&rows)),
        (Benchmark::OpenOccupancy, "b.npy", "b.npy", integers(&rows)),
        (Benchmark::OccNet, "c_occ.npy", "c_occ.npy", integers(&flat)),
        (Benchmark::CarlaSc, "evaluation/d.label", "evaluation/d.bin", 3.0_f32.to_le_bytes().repeat(8)),
    ];
    folder.put("evaluation/d.label", &[3, 0, 0, 0].repeat(8));
    let params = r#"{"grid_size": [2, 2, 2], "min_bound": [0, 0, 0], "max_bound": [1, 1, 1]}"#;
    folder.put("evaluation/params.json", params.as_bytes());
    let mut state = 0x0cca_3000_u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % end.max(1)
    };
    for (benchmark, name, edited, good) in files {
        let (mut read_well, mut refusals) = (0, 0);
        for _ in 0..400 {
            let mut bytes = good.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at..].iter_mut().take(8).for_each(|b| *b = 0xff),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes[at] = b"0123456789(),'<>fiuO"[random(20)],
                }
            }
            folder.put(edited, &bytes);
            let path = folder.0.path().join(name);
            let checked: Result<_> = GroundTruth::open_as(&path, benchmark).map(|truth| truth.findings());
            match read_benchmark(&path, benchmark) {
                Ok(read) => {
                    read_well += 1;
                    assert_eq!(read.grid.labels.len(), read.grid.spec.len());
                    assert!(checked.is_ok());
                }
                Err(error) => {
                    refusals += 1;
                    assert!(error.to_string().len() < 2000, "{error}");
                }
            }
        }
        assert!(read_well > 0 && refusals > 0, "{benchmark}: {read_well} read, {refusals} refused");
    }
}
