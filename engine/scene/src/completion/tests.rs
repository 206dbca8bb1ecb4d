use super::*;
use crate::rays;

/// The sensor stands in voxel (0, 2, 0).
fn spec() -> GridSpec {
    GridSpec::new([0.0, -2.5, -0.5], [1.0; 3], [6, 5, 1])
}

fn scan(points: &[([f32; 3], u16)]) -> LabelledScan {
    LabelledScan { positions: points.iter().map(|p| p.0).collect(), ids: points.iter().map(|p| p.1).collect() }
}

/// The target of an anchor and other scans, each taken so many metres further ahead.
fn target(anchor: &[([f32; 3], u16)], others: &[(f64, &LabelledScan)], static_only: bool) -> CompletionTarget {
    let mut builder = TargetBuilder::new(&spec(), &scan(anchor), static_only);
    for (ahead, other) in others {
        builder.add(other, &DMat4::from_translation(DVec3::new(*ahead, 0.0, 0.0)));
    }
    builder.finish(|spec, occupied, sensors| Ok::<_, ()>(rays::occlusion(spec, occupied, sensors))).unwrap()
}

#[test]
fn a_voxel_is_what_most_of_its_points_are_and_the_lowest_id_of_equals() {
    let [a, b, c] = [[1.5, 0.0, 0.0], [2.5, 0.0, 0.0], [3.5, 0.0, 0.0]];
    // Moving cars (252) and cars (10) are two ids until the votes are counted.
    let anchor = [(a, 50), (a, 40), (a, 50), (b, 70), (b, 40), (c, 10), (c, 252), (c, 40), (c, 40), (c, 252), (c, 10)];
    // A metre further ahead the same places are a metre nearer.
    let other = scan(&[([1.5, 0.0, 0.0], 70), ([3.5, 0.0, 0.0], 44), ([9.0, 0.0, 0.0], 40), ([-1.5, 0.0, 0.0], 40)]);
    let found = target(&anchor, &[(1.0, &other)], false);
    let at = |x: usize| spec().index([x, 2, 0]);
    // a: 50, 50, 40. b: 40, 70 and another 70. c: two each of 10, 40 and 252. d: one 44.
    assert_eq!([1, 2, 3, 4].map(|x| found.ids[at(x)]), [50, 70, 10, 44]);
    assert_eq!(found.ids.iter().filter(|id| **id != 0).count(), 4, "points outside the grid have no vote");
    assert_eq!(
        [1, 2, 3, 4].map(|x| found.input[at(x)]),
        [true, true, true, false],
        "the input is the anchor's own scan"
    );
}

#[test]
fn where_nobody_knows_what_is_there_the_voxel_is_neither_free_nor_a_class() {
    let [a, b] = [[1.5, 0.0, 0.0], [1.5, 1.0, 0.0]];
    // Unlabelled points and outliers vote as one, with the lowest of all ids.
    let found = target(&[(a, 0), (a, 1), (a, 10), (a, 10), (b, 10), (b, 1), (b, 10)], &[], false);
    let [a, b] = [spec().index([1, 2, 0]), spec().index([1, 3, 0])];
    assert_eq!((found.ids[a], found.ids[b]), (1, 10));
    assert!(found.input[a]);
    let grid = found.classes(&LabelMap::built_in("semantic-kitti").unwrap()).unwrap();
    assert_eq!((grid.labels[a], grid.labels[b]), (255, 1));
    let demo = LabelMap::built_in("demo").unwrap();
    assert!(target(&[([1.5, 0.0, 0.0], 259)], &[], false).classes(&demo).unwrap_err().contains("259"));
}

#[test]
fn what_no_scan_could_see_is_ignored() {
    // A wall across the whole grid; the second scan was taken behind it.
    let wall: Vec<([f32; 3], u16)> = (0..5).map(|y| ([2.5, y as f32 - 2.0, 0.0], 50)).collect();
    let map = LabelMap::built_in("semantic-kitti").unwrap();
    let behind = spec().index([4, 2, 0]);
    let alone = target(&wall, &[], false);
    assert!(alone.occluded[behind] && alone.invalid[behind] && !alone.occluded[spec().index([1, 2, 0])]);
    assert_eq!(alone.classes(&map).unwrap().labels[behind], 255);
    assert_eq!(alone.classes(&map).unwrap().labels[spec().index([1, 2, 0])], 0);
    let both = target(&wall, &[(4.0, &LabelledScan::default())], false);
    assert!(both.occluded[behind] && !both.invalid[behind], "occluded from the anchor, seen from elsewhere");
    assert_eq!(both.classes(&map).unwrap().labels[behind], 0);
}

#[test]
fn moving_things_leave_no_trace_when_asked() {
    let moving =
        scan(&[([2.5, 0.0, 0.0], 252), ([2.5, 1.0, 0.0], 259), ([2.5, -1.0, 0.0], 251), ([2.5, 2.0, 0.0], 260)]);
    let ids = |static_only| {
        let found = target(&[([1.5, 0.0, 0.0], 252)], &[(1.0, &moving)], static_only);
        [[1, 2], [3, 2], [3, 3], [3, 1], [3, 4]].map(|[x, y]| found.ids[spec().index([x, y, 0])])
    };
    assert_eq!(ids(false), [252, 252, 259, 251, 260]);
    assert_eq!(ids(true), [252, 0, 0, 251, 260], "its own scan keeps what moves");
}

#[test]
fn the_window_ends_with_the_sequence() {
    let rules = TargetRules { prior_scans: 2, future_scans: 3, ..TargetRules::default() };
    assert_eq!([0, 1, 5, 8, 9].map(|anchor| rules.window(anchor, 10)), [0..4, 0..5, 3..9, 6..10, 7..10]);
    assert_eq!(TargetRules { future_scans: usize::MAX, ..rules }.window(9, 10), 7..10);
}

#[test]
fn both_ends_of_the_range_count() {
    let rules = TargetRules { min_range_m: 2.5, max_range_m: 70.0, ..TargetRules::default() };
    let mut cloud = PointCloud {
        positions: vec![[2.5, 0.0, 0.0], [0.0, -2.49, 0.0], [0.0, 0.0, 70.0], [42.0, 56.0, 0.01], [-42.0, -56.0, 0.0]],
        label: Some(vec![0, 1, 2, 3, 4]),
        ..PointCloud::default()
    };
    rules.keep_in_range(&mut cloud);
    assert_eq!(cloud.label, Some(vec![0, 2, 4]));
}

#[test]
fn the_first_release_is_told_by_its_height() {
    let spec = GridSpec::new([0.0; 3], [1.0; 3], [4, 4, 6]);
    let mut scan = vec![false; spec.len()];
    for (x, y, z) in (0..4).flat_map(|x| (0..4).map(move |y| (x, y, 1 + x / 2))) {
        scan[spec.index([x, y, z])] = true;
    }
    let moved = |offset: i64| -> Vec<bool> {
        (0..spec.len())
            .map(|index| {
                let [x, y, z] = spec.voxel_at(index);
                let from = z as i64 - offset;
                (0..6).contains(&from) && scan[spec.index([x, y, from as usize])]
            })
            .collect()
    };
    for offset in [-1, 0, 1] {
        assert_eq!(height_offset(&moved(offset), &scan, &spec), offset);
    }
    assert_eq!(height_offset(&vec![false; spec.len()], &scan, &spec), 0);
}
