//! Scores against numpy code of the published definitions (tests/generators/metrics.py), and baselines by hand count.

use occam_scene::metrics::{AbsentPolicy, Confusion, Scores, baseline};
use occam_scene::{AxisOrder, GridSpec};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    classes: usize,
    empty_id: u8,
    pred: Vec<u8>,
    gt: Vec<u8>,
    expected: Expected,
}

/// `None` is NaN in numpy: a quotient without denominator, which we define as 0.
#[derive(Deserialize)]
struct Expected {
    iou: Option<f64>,
    precision: f64,
    recall: f64,
    miou_zero: f64,
    miou_skip: Option<f64>,
    per_class: Vec<Option<f64>>,
    absent: Vec<usize>,
    counted: u64,
    ignored: u64,
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_str(include_str!("golden/metrics.json")).unwrap();
    assert_eq!(cases.len(), 15);
    cases
}

fn confusion(case: &Case) -> Confusion {
    let mut confusion = Confusion::new(case.classes);
    confusion.add(&case.pred, &case.gt, 255).unwrap();
    confusion
}

fn assert_near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-12, "{what}: {found}, numpy says {expected}");
}

#[test]
fn scores_equal_the_published_definitions() {
    for case in cases() {
        let confusion = confusion(&case);
        let expected = &case.expected;
        for (policy, miou) in [(AbsentPolicy::Zero, Some(expected.miou_zero)), (AbsentPolicy::Skip, expected.miou_skip)]
        {
            let scores = confusion.scores(case.empty_id, policy).unwrap();
            let name = |score: &str| format!("{}, {policy}, {score}", case.name);
            assert_near(scores.iou, expected.iou.unwrap_or(0.0), &name("iou"));
            assert_near(scores.precision, expected.precision, &name("precision"));
            assert_near(scores.recall, expected.recall, &name("recall"));
            assert_near(scores.miou, miou.unwrap_or(0.0), &name("miou"));
            assert_eq!(scores.per_class.len(), case.classes, "{}", case.name);
            for (class, (found, expected)) in scores.per_class.iter().zip(&expected.per_class).enumerate() {
                assert_eq!(found.is_some(), expected.is_some(), "{}", name(&format!("class {class}")));
                assert_near(found.unwrap_or(0.0), expected.unwrap_or(0.0), &name(&format!("class {class}")));
            }
            assert_eq!((scores.counted, scores.ignored), (expected.counted, expected.ignored), "{}", case.name);
            assert_eq!(scores.policy, policy);
        }
    }
}

#[test]
fn the_error_policy_names_every_absent_class() {
    for case in cases() {
        let scores = confusion(&case).scores(case.empty_id, AbsentPolicy::Error);
        if case.expected.absent.is_empty() {
            assert_near(scores.unwrap().miou, case.expected.miou_zero, &case.name);
        } else {
            let absent: Vec<String> = case.expected.absent.iter().map(ToString::to_string).collect();
            let message = scores.unwrap_err();
            assert!(message.starts_with(&format!("classes {} occur", absent.join(", "))), "{}: {message}", case.name);
        }
    }
}

#[test]
fn parts_of_a_split_merge_to_the_whole() {
    let case = &cases()[1];
    let (mut first, mut second) = (Confusion::new(case.classes), Confusion::new(case.classes));
    first.add(&case.pred[..100], &case.gt[..100], 255).unwrap();
    second.add(&case.pred[100..], &case.gt[100..], 255).unwrap();
    first.merge(&second).unwrap();
    assert_eq!(first, confusion(case));
    assert!(first.merge(&Confusion::new(3)).is_err());
}

#[test]
fn ids_outside_the_map_are_refused_and_nothing_is_counted() {
    let mut confusion = Confusion::new(3);
    let message = confusion.add(&[0, 1, 3], &[0, 1, 2], 255).unwrap_err();
    assert!(message.contains("voxel 2 of the prediction has class id 3"), "{message}");
    let message = confusion.add(&[0, 1, 2], &[0, 9, 2], 255).unwrap_err();
    assert!(message.contains("voxel 1 of the target has class id 9"), "{message}");
    let message = confusion.add(&[0, 1], &[0, 1, 2], 255).unwrap_err();
    assert!(message.contains("2 predicted voxels for 3"), "{message}");
    assert_eq!(confusion, Confusion::new(3));
    // What is predicted where the truth is ignored does not matter, not even the ignored id itself.
    confusion.add(&[255, 1], &[255, 1], 255).unwrap();
    assert_eq!((confusion.counted(), confusion.ignored()), (1, 1));
    assert!(confusion.scores(3, AbsentPolicy::Zero).is_err(), "free space outside the map");
    assert!(Confusion::new(0).add(&[0], &[0], 255).is_err());
}

#[test]
fn degenerate_splits_score_zero_never_nan() {
    for (classes, pred, gt) in [(1, vec![0u8; 4], vec![0u8; 4]), (20, vec![], vec![]), (20, vec![3; 4], vec![255; 4])] {
        let mut confusion = Confusion::new(classes);
        confusion.add(&pred, &gt, 255).unwrap();
        for policy in [AbsentPolicy::Zero, AbsentPolicy::Skip] {
            let Scores { iou, precision, recall, miou, .. } = confusion.scores(0, policy).unwrap();
            assert_eq!([iou, precision, recall, miou], [0.0; 4]);
        }
    }
}

#[test]
fn policies_and_scores_survive_text() {
    for policy in [AbsentPolicy::Zero, AbsentPolicy::Skip, AbsentPolicy::Error] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert!("nan".parse::<AbsentPolicy>().unwrap_err().contains("zero, skip or error"));
    let scores = confusion(&cases()[7]).scores(0, AbsentPolicy::Skip).unwrap();
    let text = serde_json::to_string(&scores).unwrap();
    assert_eq!(serde_json::from_str::<Scores>(&text).unwrap(), scores);
}

#[test]
fn dilation_reaches_26_neighbours_and_stops_at_the_border() {
    for axis_order in [AxisOrder::Xyz, AxisOrder::Zyx] {
        let spec = GridSpec { axis_order, ..GridSpec::new([0.0; 3], [1.0; 3], [5, 4, 3]) };
        // Inside 3x3x3, on a face 2x3x3, on an edge 2x2x3, in a corner 2x2x2.
        for (voxel, expected) in [([2, 2, 1], 27), ([0, 2, 1], 18), ([4, 3, 1], 12), ([4, 0, 2], 8)] {
            let mut occupied = vec![false; spec.len()];
            occupied[spec.index(voxel)] = true;
            let grown = baseline::dilate(&occupied, &spec);
            assert_eq!(grown.iter().filter(|o| **o).count(), expected, "{voxel:?} {axis_order:?}");
            for (i, grown) in grown.iter().enumerate() {
                let reached = spec.voxel_at(i).iter().zip(voxel).all(|(a, b)| a.abs_diff(b) <= 1);
                assert_eq!(*grown, reached, "{:?} from {voxel:?}", spec.voxel_at(i));
            }
        }
    }
}

#[test]
fn the_input_baseline_fills_one_class() {
    assert_eq!(baseline::input(&[true, false, true], 4, 17), [4, 17, 4]);
}

#[test]
fn the_majority_map_takes_the_lowest_id_of_a_tie_and_ignores_the_ignored() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [6, 1, 1]);
    let mut map = baseline::MajorityMap::new(&spec, 4).unwrap();
    map.add(&[0, 3, 2, 255, 3, 0], 255).unwrap();
    map.add(&[1, 2, 2, 255, 255, 0], 255).unwrap();
    map.add(&[1, 1, 0, 255, 255, 0], 255).unwrap();
    assert_eq!(map.predict(), [1, 1, 2, 0, 3, 0]);
    // Free space: 5 voxels, class 1: 3, class 2: 3, class 3: 2.
    assert_eq!(map.most_frequent(), 1);
    assert!(map.add(&[0; 4], 255).unwrap_err().contains("4 voxels"));
    assert!(map.add(&[0, 0, 4, 0, 0, 0], 255).unwrap_err().contains("voxel 2 of the target has class id 4"));
    assert_eq!(map.predict(), [1, 1, 2, 0, 3, 0], "a refused target counts nothing");
}

#[test]
fn a_majority_map_without_targets_is_free_space() {
    let spec = GridSpec { empty_id: 2, ..GridSpec::new([0.0; 3], [1.0; 3], [2, 1, 1]) };
    let map = baseline::MajorityMap::new(&spec, 3).unwrap();
    assert_eq!((map.predict(), map.most_frequent()), (vec![2, 2], 0));
    let zero = GridSpec { empty_id: 0, ..spec };
    assert_eq!(baseline::MajorityMap::new(&zero, 3).unwrap().most_frequent(), 1);
    assert_eq!(baseline::MajorityMap::new(&zero, 1).unwrap().most_frequent(), 0);
    assert!(baseline::MajorityMap::new(&spec, 2).is_err(), "free space outside the map");
}
