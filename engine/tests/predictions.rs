//! Predictions take class scores a few planes at a time; they are those of whole class scores.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use occam_engine::Result;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::models::{LOGIT_PLANES, LmscNet, Network, ScpNet, SscNet};
use occam_engine::tape::{Head, Tape, Var};

const CLASSES: usize = 5;
const BATCH: usize = 2;

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

/// `[2, 1, Z, X, Y]`: few voxels occupied, in the second sample most.
fn occupancy([x, y, z]: [usize; 3], device: &Device) -> Tensor<5> {
    let count = x * y * z;
    let above = |i: usize| if i < count { 0.6 } else { -0.9 };
    let voxels: Vec<f32> =
        (0..BATCH * count).map(|i| if (1.3 * i as f64).sin() > above(i) { 1.0 } else { 0.0 }).collect();
    Tensor::from_data(TensorData::new(voxels, [BATCH, 1, z, x, y]), device)
}

fn values(logits: Tensor<5>) -> Vec<f32> {
    logits.try_into_data().unwrap().try_to_vec().unwrap()
}

/// The lowest of the most likely classes, voxel by voxel, for `[2, classes, Z, X, Y]`.
fn most_likely(logits: &[f32], voxels: usize) -> Vec<Vec<u8>> {
    let class_of = |sample: usize, voxel: usize| {
        let score = |class: usize| logits[(sample * CLASSES + class) * voxels + voxel];
        (1..CLASSES).fold(0, |best, class| if score(class) > score(best) { class } else { best }) as u8
    };
    (0..BATCH).map(|sample| (0..voxels).map(|voxel| class_of(sample, voxel)).collect()).collect()
}

type Heads<M> = fn(&mut Tape<'_, M>, Var) -> Result<Vec<Head<M>>>;

/// Logits of full scale put together from planes, and how many pieces there were.
fn joined(network: &Network, features: Tensor<5>) -> (Tensor<5>, usize) {
    fn pieces<M: Module>(network: &M, run: Heads<M>, features: Tensor<5>) -> Vec<Tensor<5>> {
        let mut tape = Tape::plain(network);
        let features = tape.input(features);
        let head = run(&mut tape, features).unwrap().swap_remove(0);
        let planes = (LOGIT_PLANES / head.classifier.scale).max(1);
        let mut pieces = Vec::new();
        let mut take = |logits| {
            pieces.push(logits);
            Ok(())
        };
        head.by_planes(network, planes, &mut take).unwrap();
        pieces
    }
    let pieces = match network {
        Network::LmscNet(network) => pieces(network, LmscNet::run, features),
        Network::SscNet(network) => pieces(network, SscNet::run, features),
        Network::ScpNet(network) => pieces(network, ScpNet::run, features),
    };
    let count = pieces.len();
    (Tensor::cat(pieces, 2), count)
}

/// Takes all weights and biases away.
struct Zero;

impl ModuleMapper for Zero {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        parameter.map(|value| value.zeros_like())
    }
}

fn assert_equal_by_planes(counts: [usize; 3], device: &Device) {
    let voxels = counts.iter().product();
    for name in Network::NAMES {
        let network = Network::new(name, counts, 1, CLASSES, 7, device).unwrap();
        let whole = values(network.forward(occupancy(counts, device)).unwrap().swap_remove(0));
        let (planes, pieces) = joined(&network, occupancy(counts, device));
        assert_eq!(pieces, counts[2].div_ceil(LOGIT_PLANES), "{name}");
        let apart = values(planes).iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(apart, 0, "{name}: class scores of {} differ", whole.len());

        let labels = network.labels(occupancy(counts, device)).unwrap();
        assert!(labels == most_likely(&whole, voxels), "{name}");
        // SSCNet before training goes by its biases on so few voxels.
        assert!(name == "sscnet" || labels[0] != labels[1], "{name}");
        let mut seen: Vec<u8> = labels.concat();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 1, "{name}: {seen:?}");

        // Without weights only the shares speak, and 1, 3 and 4 have equal ones: the lowest counts.
        let mut equal = network.map(&mut Zero);
        equal.set_class_shares(&[1.0, 2.0, 1.0, 2.0, 2.0]);
        assert!(equal.labels(occupancy(counts, device)).unwrap() == vec![vec![1; voxels]; BATCH], "{name}");
    }
}

/// Bit for bit: every output of a convolution is summed in the same order, whatever lies beside it.
#[test]
fn class_scores_by_planes_are_the_whole_ones_on_the_cpu() {
    assert_equal_by_planes([16, 8, 16], &cpu());
}

#[test]
fn class_scores_by_planes_are_the_whole_ones_on_vulkan() {
    let device = gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device;
    assert_equal_by_planes([8, 8, 8], &device);
    device.sync().unwrap();
}

/// A height that 4 does not divide, and one below 4.
#[test]
fn the_last_planes_need_not_be_full() {
    for (height, pieces) in [(6, 2), (3, 1), (1, 1)] {
        let counts = [5, 3, height];
        let network = Network::new("scpnet-dense", counts, 1, CLASSES, 7, &cpu()).unwrap();
        let whole = values(network.forward(occupancy(counts, &cpu())).unwrap().swap_remove(0));
        let (planes, found) = joined(&network, occupancy(counts, &cpu()));
        assert!(values(planes) == whole && found == pieces, "{height}: {found} pieces");
        let labels = network.labels(occupancy(counts, &cpu())).unwrap();
        assert!(labels == most_likely(&whole, counts.iter().product()), "{height}");
    }
}
