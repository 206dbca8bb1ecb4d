//! Small networks whose gradients are known by formula.

use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Tensor};
use occam_engine::Result;
use occam_engine::tape::{Classifier, Head, Input, Learn, Mode, Planes, Tape, Value, Var};

use super::{assert_same, cpu, gradients, patterns, values, vulkan, wave, whole};

/// What comes out is what went in.
fn head<M>(features: Var) -> Head<M> {
    let run: fn(&M, Value, Planes) -> Result<Value> = |_, x, _| Ok(x);
    Head { features, classifier: Classifier { run, halo: 0, scale: 1 } }
}

/// `dropout(w dropout(w x))`, half of it dropped each time.
#[derive(Module, Debug)]
struct Dropping {
    weight: Param<Tensor<5>>,
    dropout: Dropout,
}

const WEIGHT: f32 = 1.5;

impl Dropping {
    fn new(device: &Device) -> Self {
        let weight = Tensor::full([1; 5], WEIGHT, &device.clone().autodiff()).require_grad();
        Self { weight: Param::from_tensor(weight), dropout: DropoutConfig::new(0.5).init() }
    }

    /// What came out, and the gradient of its sum by the weight.
    fn run(&self, modes: &[Mode], seed: u64, device: &Device) -> (Vec<f32>, f32) {
        let how = Learn { modes, seed, ..Learn::default() };
        let mut tape = Tape::learning(self, device, &how);
        let mut x = tape.input(Tensor::ones([1, 4, 8, 8, 8], device));
        for name in ["first", "second"] {
            let dropped = |net: &Self, _: &mut _, [x]: [Value; 1]| Ok([net.dropout.forward(x * net.weight.val())]);
            [x] = tape.segment(name, [x.into()], dropped).unwrap();
        }
        let mut out = Vec::new();
        let mut loss = |logits: Value, _| {
            out = values(logits.clone());
            Ok(logits.sum())
        };
        tape.loss(head(x), usize::MAX, 1.0, &mut loss).unwrap();
        let gathered = tape.backward().unwrap();
        (out, gradients(self, &gathered.gradients)["weight"][0])
    }
}

#[test]
fn both_runs_of_a_segment_draw_the_same() {
    for device in [cpu(), vulkan()] {
        let network = Dropping::new(&device);
        let (expected, gradient) = network.run(&[], 1, &device);
        // w^2 times 2 for each dropout that let it through.
        let through = WEIGHT * WEIGHT * 4.0;
        assert!(expected.iter().all(|value| *value == 0.0 || *value == through));
        let share = expected.iter().filter(|value| **value > 0.0).count() as f32 / expected.len() as f32;
        assert!((share - 0.25).abs() < 0.05, "{share}: one mask for both would let a half through");
        // The sum is c w^2, with c that of the masks; they have to be those of the forward pass.
        let by_formula = 2.0 * expected.iter().sum::<f32>() / WEIGHT;
        assert!((gradient - by_formula).abs() <= 1e-6 * by_formula, "{gradient}, {by_formula}");
        for modes in patterns() {
            let (found, of_weight) = network.run(&modes, 1, &device);
            assert!(found == expected && of_weight.to_bits() == gradient.to_bits(), "{}", whole(&modes));
        }
        assert!(network.run(&[], 2, &device).0 != expected, "another step draws others");
        device.sync().unwrap();
    }
}

/// Values that go to several segments, as values and as addends, outputs that nobody takes, and a segment without a way to
/// the loss.
#[derive(Module, Debug)]
struct Branching {
    weight: Param<Tensor<5>>,
}

impl Branching {
    fn run(&self, modes: &[Mode], device: &Device) -> f32 {
        let mut tape = Tape::learning(self, device, &Learn { modes, ..Learn::default() });
        let input = tape.input(Tensor::ones([1, 1, 2, 2, 2], device));
        let [a, _unused] = tape
            .segment("two outputs", [(&input).into()], |net, _, [x]| {
                let y = x * net.weight.val();
                Ok([y.clone(), y * 100.0])
            })
            .unwrap();
        // a + 3 a^2, of which the square is computed here and a is an addend.
        let inputs = [(&a).into(), Input::Addend(a.clone())];
        let [b] = tape.segment("sum", inputs, |_, _, [x, addend]| Ok([x.clone() * x * 3.0 + addend])).unwrap();
        let _nowhere = tape.segment("nowhere", [(&b).into()], |_, _, [x]| Ok([x * 1000.0])).unwrap();
        // b w + input
        let inputs = [b.into(), Input::Addend(input)];
        let [c] = tape.segment("last", inputs, |net, _, [x, addend]| Ok([x * net.weight.val() + addend])).unwrap();
        tape.loss(head(c), 1, 1.0, &mut |logits, _| Ok(logits.sum())).unwrap();
        gradients(self, &tape.backward().unwrap().gradients)["weight"][0]
    }
}

#[test]
fn shared_values_and_addends_have_their_gradients() {
    let device = cpu();
    let weight = Tensor::full([1; 5], 2.0, &device.clone().autodiff()).require_grad();
    let network = Branching { weight: Param::from_tensor(weight) };
    // A voxel gives w (w + 3 w^2) + 1, so 2 w + 9 w^2 = 40 at w = 2, in 8 voxels.
    for modes in patterns() {
        assert_eq!(network.run(&modes, &device), 320.0, "{}", whole(&modes));
    }
}

/// Planes with context on either side, in numbers that do not divide: a sum over each plane and its neighbours, zeros
/// beyond.
#[derive(Module, Debug)]
struct Neighbours {
    weight: Param<Tensor<5>>,
}

#[test]
fn planes_see_their_neighbours() {
    let device = cpu();
    let weight = Tensor::full([1; 5], 1.0, &device.clone().autodiff()).require_grad();
    let network = Neighbours { weight: Param::from_tensor(weight) };
    let run: fn(&Neighbours, Value, Planes) -> Result<Value> = |_, x, planes| {
        let [batch, channels, count, sx, sy] = x.dims();
        let (x, inside) = match planes {
            Planes::Some => (x, count - 2),
            Planes::All => {
                let zeros = Tensor::zeros([batch, channels, 1, sx, sy], &x.device());
                (Tensor::cat(vec![zeros.clone(), x, zeros], 2), count)
            }
        };
        let at = |start: usize| x.clone().slice_dim(2, start..start + inside);
        Ok(at(0) + at(1) + at(2))
    };
    let learn = |planes: usize| {
        let mut tape = Tape::learning(&network, &device, &Learn::default());
        let x = tape.input(wave([1, 2, 7, 3, 3], &device));
        let [x] = tape.segment("weight", [x.into()], |net, _, [x]| Ok([x * net.weight.val()])).unwrap();
        let head = Head { features: x, classifier: Classifier { run, halo: 1, scale: 1 } };
        let mut ranges = Vec::new();
        let mut loss = |logits: Value, range: std::ops::Range<usize>| {
            assert_eq!(logits.dims()[2], range.len());
            ranges.push(range.clone());
            // Each plane counts otherwise.
            let weights: Vec<f32> = range.map(|plane| (plane * plane + 1) as f32).collect();
            let weights = Tensor::<1>::from_data(weights.as_slice(), &logits.device()).reshape([1, 1, -1, 1, 1]);
            Ok((logits * weights).sum())
        };
        let loss = tape.loss(head, planes, 1.0, &mut loss).unwrap();
        let found = gradients(&network, &tape.backward().unwrap().gradients);
        (ranges, values(loss)[0], found)
    };
    let (ranges, expected_loss, expected) = learn(7);
    assert!(ranges.len() == 1 && ranges[0] == (0..7), "{ranges:?}");
    // At weight 1 the gradient of the sum is the sum.
    assert!((expected["weight"][0] - expected_loss).abs() < 1e-3 * expected_loss.abs());
    for (planes, expected_ranges) in [(3, vec![0..3, 3..6, 6..7]), (1, (0..7).map(|i| i..i + 1).collect())] {
        let (ranges, loss, found) = learn(planes);
        assert_eq!(ranges, expected_ranges);
        assert!((loss - expected_loss).abs() <= 1e-5 * expected_loss.abs(), "{loss}, {expected_loss}");
        super::assert_close(&found, &expected, 1e-5, "by planes");
    }
    assert_same(&learn(100).2, &expected, "more planes than there are");
}
