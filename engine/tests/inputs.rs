//! What a network sees: features of voxels, channel by channel.

use std::collections::BTreeMap;
use std::path::Path;

use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::data::{AugmentConfig, Batch, InputConfig, Sample, augment};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::models::Network;
use occam_engine::scene::{AxisOrder, GridSpec, PointCloud, VoxelGrid};
use occam_engine::session::{Event, Session, Summary};
use occam_engine::train::{self, TrainConfig, checkpoint, load_model};
use occam_engine::{Error, Result};

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn tensors(path: &Path) -> BTreeMap<String, TensorData> {
    let mut store = SafetensorsStore::from_file(path);
    let all = store.get_all_tensors().unwrap();
    all.iter().map(|(name, tensor)| (name.clone(), bridge::to_data(tensor).unwrap())).collect()
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_data().unwrap().try_to_vec().unwrap()
}

/// The format's definition: length of the header (u64), header (JSON), values.
fn write_safetensors(path: &Path, tensors: &BTreeMap<String, TensorData>) {
    let mut header = serde_json::Map::new();
    let mut body = Vec::new();
    for (name, data) in tensors {
        let begin = body.len();
        body.extend(data.try_to_vec::<f32>().unwrap().iter().flat_map(|v| v.to_le_bytes()));
        let shape = data.shape().to_vec();
        let entry = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, body.len()] });
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    std::fs::write(path, [(header.len() as u64).to_le_bytes().as_slice(), &header, &body].concat()).unwrap();
}

/// A network of two channels whose second one weighs nothing is the network of one channel: so the weights of channel 0
/// come first, all heights of it, and nothing but the first convolution knows how many channels there are.
#[test]
fn channels_follow_one_another_whole_in_the_first_convolution() {
    let (x, y, z) = (8, 16, 8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut two = Network::new("lmscnet", [x, y, z], 2, 3, 1, &cpu()).unwrap();
    let mut one = Network::new("lmscnet", [x, y, z], 1, 3, 2, &cpu()).unwrap();
    one.save_weights(&path).unwrap();
    let mut wide = tensors(&path);
    let first = "Encoder_block1.0.weight";
    let narrow = wide[first].try_to_vec::<f32>().unwrap();
    // Nine weights an input channel; each output channel now has another z of them that are zero.
    let kernels = narrow.chunks(z * 9).flat_map(|kernel| kernel.iter().copied().chain(vec![0.0; z * 9])).collect();
    wide.insert(first.into(), TensorData::new::<f32, _>(kernels, [z, 2 * z, 3, 3]));
    write_safetensors(&path, &wide);
    two.load_weights(&path).unwrap();
    assert!(one.load_weights(&path).unwrap_err().to_string().contains("[8, 16, 3, 3], expected shape [8, 8, 3, 3]"));

    let wave = |scale: f64| -> Vec<f32> { (0..x * y * z).map(|i| (scale * i as f64).sin() as f32).collect() };
    let shape = [1, 1, z, x, y];
    let channel = |values: Vec<f32>| Tensor::<5>::from_data(TensorData::new(values, shape), &cpu());
    let both = Tensor::cat(vec![channel(wave(1.3)), channel(wave(0.7))], 1);
    for (two, one) in two.forward(both).unwrap().into_iter().zip(one.forward(channel(wave(1.3))).unwrap()) {
        let (two, one) = (values(two), values(one));
        assert!(two.iter().zip(&one).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs())));
    }
    assert!(Network::new("lmscnet", [x, y, z], 0, 3, 1, &cpu()).is_err());
}

/// Until it is trained, a network sees occupancy only: what else there is begins with the weight zero, and a seed draws
/// the same weights for the rest.
#[test]
fn further_channels_begin_unheard() {
    let (x, y, z) = (8, 8, 16);
    let network = |channels| Network::new("lmscnet-ss", [x, y, z], channels, 3, 7, &cpu()).unwrap();
    let wave: Vec<f32> = (0..4 * x * y * z).map(|i| (1.3 * i as f32).sin()).collect();
    let all = Tensor::<5>::from_data(TensorData::new(wave, [1, 4, z, x, y]), &cpu());
    let occupancy = all.clone().slice_dim(1, 0..=0);
    let [wide, narrow] =
        [(4, all), (1, occupancy)].map(|(channels, x)| values(network(channels).forward(x).unwrap().remove(0)));
    assert!(wide.iter().zip(&narrow).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs())));
}

// ---------------------------------------------------------------------------------------------- features

const ALL: InputConfig = InputConfig { visibility: true, intensity: true, height: true };

/// Voxels of a metre; the sensor stands in the middle of voxel 0, 1, 0, on the grid's lower end along x.
fn spec() -> GridSpec {
    GridSpec::new([0.0, -1.5, -0.5], [1.0; 3], [4, 3, 2])
}

fn cloud(points: &[([f32; 3], f32)]) -> PointCloud {
    PointCloud {
        positions: points.iter().map(|(position, _)| *position).collect(),
        intensity: Some(points.iter().map(|(_, intensity)| *intensity).collect()),
        ..PointCloud::default()
    }
}

/// What is not 0 in a channel.
type Values = Vec<([usize; 3], f32)>;

/// Three clouds and what is in each channel of each: voxel and value; everything else is 0.
fn hand_counted() -> ([PointCloud; 3], [[Values; 4]; 3]) {
    let clouds = [
        cloud(&[
            // Through 0 1 0, 1 1 0 and 2 1 0 into 3 1 0.
            ([3.5, 0.0, 0.0], 0.2),
            ([3.25, 0.0, 0.25], 0.6),
            // In the way of both: the voxel is hit, not free.
            ([1.5, 0.0, 0.0], 1.0),
            // Leaves 1 1 0 at y 0.5 (x 1.25) to 1 2 0, that at z 0.5 (x 1.39) to 1 2 1, and ends in 2 2 1.
            ([2.5, 1.0, 0.9], 0.5),
            // Outside: reaches z 0.5 at x 2.5, so that it passes 2 1 0, 2 1 1 and 3 1 1.
            ([8.0, 0.0, 1.6], 0.3),
            // Behind the grid: leaves it in the sensor's voxel.
            ([-3.0, 0.2, 0.1], 0.4),
            ([f32::NAN, 0.0, 0.0], 0.9),
        ]),
        // On a scale to 255. Reaches y -0.5 at x 1.25: 0 1 0, 1 1 0, 1 0 0, and ends in 2 0 0.
        cloud(&[([2.5, -1.0, -0.25], 51.0)]),
        PointCloud { intensity: Some(Vec::new()), ..PointCloud::default() },
    ];
    let with = |value: f32, voxels: &[[usize; 3]]| voxels.iter().map(|voxel| (*voxel, value)).collect::<Vec<_>>();
    let expected = [
        [
            with(1.0, &[[3, 1, 0], [1, 1, 0], [2, 2, 1]]),
            with(1.0, &[[0, 1, 0], [2, 1, 0], [1, 2, 0], [1, 2, 1], [2, 1, 1], [3, 1, 1]]),
            vec![([3, 1, 0], 0.4), ([1, 1, 0], 1.0), ([2, 2, 1], 0.5)],
            // The lower layer has its centre at height 0, the upper one at 1.
            vec![([3, 1, 0], 0.125), ([2, 2, 1], -0.1)],
        ],
        [
            with(1.0, &[[2, 0, 0]]),
            with(1.0, &[[0, 1, 0], [1, 1, 0], [1, 0, 0]]),
            vec![([2, 0, 0], 0.2)],
            vec![([2, 0, 0], -0.25)],
        ],
        Default::default(),
    ];
    (clouds, expected)
}

fn batch_of(clouds: &[PointCloud]) -> Batch {
    let mut batch = Batch::new();
    for (number, cloud) in clouds.iter().enumerate() {
        batch.push_cloud(&format!("cloud {number}"), cloud);
    }
    batch
}

#[test]
fn channels_are_as_counted_by_hand_on_every_device() {
    let (clouds, expected) = hand_counted();
    let batch = batch_of(&clouds);
    for axis_order in [AxisOrder::Xyz, AxisOrder::Zyx] {
        let spec = GridSpec { axis_order, ..spec() };
        let [nx, ny, nz] = spec.counts;
        for device in [cpu(), vulkan()] {
            let found = train::input(&batch, &spec, &ALL, &device).unwrap();
            assert_eq!(found.dims(), [3, 4, nz, nx, ny]);
            let found = values(found);
            let mut dense = vec![0.0f32; found.len()];
            for (member, channels) in expected.iter().enumerate() {
                for (channel, voxels) in channels.iter().enumerate() {
                    for ([x, y, z], value) in voxels {
                        dense[(((member * 4 + channel) * nz + z) * nx + x) * ny + y] = *value;
                    }
                }
            }
            for (i, (found, expected)) in found.iter().zip(&dense).enumerate() {
                assert!((found - expected).abs() < 1e-6, "{device:?} {i}: {found}, expected {expected}");
            }
        }
    }
}

#[test]
fn without_points_every_channel_is_zero() {
    let nothing = PointCloud { intensity: Some(Vec::new()), ..PointCloud::default() };
    for device in [cpu(), vulkan()] {
        let found = values(train::input(&batch_of(std::slice::from_ref(&nothing)), &spec(), &ALL, &device).unwrap());
        assert_eq!(found, vec![0.0; 4 * 24], "{device:?}");
    }
}

/// What is asked for comes in the order of the keys, and alone it is what it is among others.
#[test]
fn each_channel_is_the_same_whatever_stands_beside_it() {
    let (clouds, _) = hand_counted();
    let batch = batch_of(&clouds);
    for device in [cpu(), vulkan()] {
        let features = |config: &InputConfig| train::input(&batch, &spec(), config, &device).unwrap();
        let all = features(&ALL);
        let channel = |number: usize| values(all.clone().slice_dim(1, number..=number));
        assert_eq!(values(features(&InputConfig::default())), channel(0));
        for bits in 0..8u8 {
            let [visibility, intensity, height] = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
            let config = InputConfig { visibility, intensity, height };
            let some = features(&config);
            let wanted = [true, visibility, intensity, height];
            assert_eq!(config.names().len(), config.channels());
            assert_eq!(config.channels(), wanted.iter().filter(|wanted| **wanted).count());
            for (place, number) in (0..4).filter(|number| wanted[*number]).enumerate() {
                assert_eq!(values(some.clone().slice_dim(1, place..=place)), channel(number), "{config:?} {number}");
            }
        }
    }
}

#[test]
fn a_batch_in_which_one_cloud_lacks_intensity_has_none() {
    let (clouds, _) = hand_counted();
    let bare = PointCloud { intensity: None, ..clouds[1].clone() };
    let batch = batch_of(&[clouds[0].clone(), bare, clouds[2].clone()]);
    assert_eq!(batch.intensity, None);
    let Err(Error::Usage(why)) = train::input(&batch, &spec(), &ALL, &cpu()) else { panic!("there is no intensity") };
    assert!(why.contains("cloud 1") && why.contains("input.intensity"), "{why}");
    let others = InputConfig { intensity: false, ..ALL };
    assert_eq!(train::input(&batch, &spec(), &others, &cpu()).unwrap().dims(), [3, 3, 2, 4, 3]);
}

// ---------------------------------------------------------------------------------------------- augmentation

const OFF: AugmentConfig =
    AugmentConfig { flip_x: false, flip_y: false, rotate_deg: 0.0, scale: 0.0, jitter_m: 0.0, drop: 0.0 };

/// A cloud of many points around the sensor; an intensity tells which point it belongs to.
fn scattered() -> (GridSpec, Sample) {
    // The sensor stands in the middle of a voxel along y.
    let spec = GridSpec::new([0.0, -4.25, -2.0], [0.5; 3], [16, 17, 8]);
    let wave = |i: usize, by: f32| ((i * i) as f32 * by).sin();
    let positions: Vec<[f32; 3]> =
        (0..300).map(|i| [4.0 + 5.0 * wave(i, 0.37), 5.0 * wave(i, 0.71), 2.0 * wave(i, 0.53)]).collect();
    let intensity = Some((0..300).map(|i| i as f32 / 300.0).collect());
    let cloud = PointCloud { positions, intensity, ..PointCloud::default() };
    (spec, Sample { id: "scattered".into(), cloud, target: VoxelGrid::empty(spec) })
}

#[test]
fn a_mirrored_sample_has_mirrored_channels() {
    let (spec, sample) = scattered();
    let config = AugmentConfig { flip_y: true, ..OFF };
    let flipped = (0..20).map(|index| augment(sample.clone(), &config, 1, 0, index));
    let flipped = flipped.into_iter().find(|s| s.cloud.positions[1] != sample.cloud.positions[1]).unwrap();
    let features =
        |sample: &Sample| train::input(&batch_of(std::slice::from_ref(&sample.cloud)), &spec, &ALL, &cpu()).unwrap();
    let (before, after) = (features(&sample).flip([4]), features(&flipped));
    for channel in 0..4 {
        let [before, after] =
            [&before, &after].map(|features| values(features.clone().slice_dim(1, channel..=channel)));
        let apart = before.iter().zip(&after).filter(|(a, b)| (*a - *b).abs() > 1e-5).count();
        assert!(before.iter().filter(|value| **value != 0.0).count() > 50);
        // Rays count in 1/128 of a voxel, which one that grazes a corner may feel.
        let allowed = if channel == 1 { before.len() / 100 } else { 0 };
        assert!(apart <= allowed, "channel {channel}: {apart} of {} voxels", before.len());
    }
}

#[test]
fn every_point_keeps_its_intensity_when_points_are_moved_and_dropped() {
    let (_, sample) = scattered();
    let config = AugmentConfig { flip_y: true, scale: 0.05, rotate_deg: 20.0, drop: 0.6, ..OFF };
    let heights: Vec<f32> = sample.cloud.positions.iter().map(|p| p[2]).collect();
    let mut fewest = heights.len();
    for index in 0..10 {
        let changed = augment(sample.clone(), &config, 1, 0, index).cloud;
        let intensity = changed.intensity.as_ref().unwrap();
        assert_eq!(intensity.len(), changed.len());
        fewest = fewest.min(changed.len());
        // Turns and mirrors leave heights, and a scale is one for all.
        let height = |i: usize| heights[(intensity[i] * 300.0).round() as usize];
        let highest = (0..changed.len()).max_by(|a, b| height(*a).total_cmp(&height(*b))).unwrap();
        let scale = changed.positions[highest][2] / height(highest);
        assert!((0.95..=1.05).contains(&scale));
        for (i, position) in changed.positions.iter().enumerate() {
            assert!((position[2] - scale * height(i)).abs() < 1e-4, "{index} {i}");
        }
    }
    assert!(fewest < 200, "{fewest}");
}

// ---------------------------------------------------------------------------------------------- runs

/// Demo streets on 16 x 16 x 8 voxels.
fn config(runs: &Path, sets: &[(&str, &str)]) -> TrainConfig {
    let fixed = [
        ("runs", runs.to_str().unwrap()),
        ("device", "cpu"),
        ("grid.counts", "[16, 16, 8]"),
        ("grid.voxel_size_m", "[1.6, 1.6, 0.8]"),
        ("data.demo_train", "4"),
        ("data.demo_validation", "2"),
        ("steps.steps", "4"),
        ("steps.checkpoint_every", "2"),
    ];
    let all = fixed.iter().chain(sets).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    TrainConfig::from_layers("tiny", None, &all.collect::<Vec<_>>()).unwrap()
}

fn outcome(session: &Session) -> Result<Summary> {
    for event in &session.events {
        match event {
            Event::Done(summary) => return Ok(summary),
            Event::Failed(error) => return Err(error),
            _ => {}
        }
    }
    panic!("the trainer ended without a last event");
}

const EVERYTHING: [(&str, &str); 3] =
    [("input.visibility", "true"), ("input.intensity", "true"), ("input.height", "true")];

#[test]
fn a_run_with_every_channel_trains_resumes_and_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let run = outcome(&Session::start(config(folder.path(), &EVERYTHING)).unwrap()).unwrap().run;
    let weights = |step: &str| std::fs::read(run.join("checkpoints").join(step).join(checkpoint::WEIGHTS)).unwrap();
    let shapes = tensors(&run.join("checkpoints/4").join(checkpoint::WEIGHTS));
    assert_eq!(shapes["Encoder_block1.0.weight"].shape().as_slice(), [8, 4 * 8, 3, 3]);

    let model = load_model(&run, &cpu()).unwrap();
    assert_eq!(model.config.input, ALL);
    let scene = occam_engine::scene::demo::scene(9, 0, &model.spec);
    let prediction = model.predict(&scene.cloud).unwrap();
    let mut batch = Batch::new();
    batch.push(&Sample { id: "demo".into(), cloud: scene.cloud.clone(), target: scene.target });
    assert_eq!(model.predict_batch(&batch).unwrap()[0].labels, prediction.labels);
    let bare = PointCloud { intensity: None, ..scene.cloud };
    let Err(Error::Usage(why)) = model.predict(&bare) else { panic!("there is no intensity") };
    assert!(why.contains("input.intensity"), "{why}");

    // Going on from the checkpoint of step 2 gives the bytes that were there.
    let through = weights("4");
    std::fs::remove_dir_all(run.join("checkpoints/4")).unwrap();
    outcome(&Session::resume(&run).unwrap()).unwrap();
    assert!(weights("4") == through, "equal bytes");
}

#[test]
fn what_runs_wrote_before_there_were_channels_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let run = outcome(&Session::start(config(folder.path(), &[])).unwrap()).unwrap().run;
    let device = cpu();
    let scene = occam_engine::scene::demo::scene(9, 0, &load_model(&run, &device).unwrap().spec);
    let before = load_model(&run, &device).unwrap().predict(&scene.cloud).unwrap();
    for step in ["2", "4"] {
        let path = run.join("checkpoints").join(step).join(checkpoint::STATE);
        let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let removed = state["config"].as_object_mut().unwrap().remove("input");
        assert!(removed.is_some(), "a run says what its network sees");
        std::fs::write(&path, state.to_string()).unwrap();
    }
    let model = load_model(&run, &device).unwrap();
    assert_eq!(model.config.input, InputConfig::default());
    assert_eq!(model.predict(&scene.cloud).unwrap().labels, before.labels);
    // Its config.toml begins a new run as well.
    let path = run.join("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let table = "[input]\nvisibility = false\nintensity = false\nheight = false\n";
    assert!(text.contains(table), "{text}");
    std::fs::write(&path, text.replace(table, "")).unwrap();
    assert_eq!(TrainConfig::from_layers("tiny", Some(&path), &[]).unwrap().input, InputConfig::default());
}
