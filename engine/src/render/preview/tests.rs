use super::*;
use occam_scene::{AxisOrder, GridSpec};
use std::collections::BTreeMap;

fn labels() -> LabelMap {
    LabelMap::built_in("demo").unwrap()
}

fn grid_of(counts: [usize; 3], voxels: &[([usize; 3], u8)]) -> VoxelGrid {
    let mut grid = VoxelGrid::empty(GridSpec::new([0.0; 3], [1.0; 3], counts));
    for (voxel, class) in voxels {
        let at = grid.spec.index(*voxel);
        grid.labels[at] = *class;
    }
    grid
}

/// The voxels alone, before the canvas shrinks.
fn drawn(grid: &VoxelGrid) -> Canvas {
    let (low, high) = scene_box(Some(grid), None);
    let mut canvas = Canvas::new(400, 400, TOP, BOTTOM);
    let view = View::fit(low, high, 215.0, 38.0, [400, 400], 20);
    draw_voxels(&mut canvas, &view, grid, &labels());
    canvas
}

/// How many pixels carry each colour, background aside.
fn colours(canvas: &Canvas) -> BTreeMap<[u8; 3], usize> {
    let mut counts = BTreeMap::new();
    for y in 0..canvas.height {
        for x in (0..canvas.width).filter(|x| canvas.is_drawn(*x, y)) {
            *counts.entry(canvas.colour(x, y).map(|c| c as u8)).or_insert(0) += 1;
        }
    }
    counts
}

/// Whether a shade of the demo map's `sign` (red) is anywhere.
fn shows_red(canvas: &Canvas) -> bool {
    colours(canvas).keys().any(|c| c[0] > 80 && c[1] < c[0] / 3 && c[2] < c[0] / 3)
}

#[test]
fn a_single_voxel_shows_three_faces_in_three_colours() {
    let counts = colours(&drawn(&grid_of([1, 1, 1], &[([0, 0, 0], 8)])));
    let total: usize = counts.values().sum();
    let faces: Vec<[u8; 3]> = counts.iter().filter(|(_, n)| **n * 20 > total).map(|(colour, _)| *colour).collect();
    // Sign is 225, 45, 45: on the right wall, on the left wall, on top.
    let expected = [0.64, 0.84, 1.0].map(|light| [225.0 * light, 45.0 * light, 45.0 * light].map(|c| c as u8));
    assert_eq!(faces, expected);
    // Each of them has a darker line around it, and there is nothing else.
    assert_eq!(counts.len(), 6);
}

#[test]
fn the_faces_have_the_area_of_their_projection() {
    let canvas = drawn(&grid_of([1, 1, 1], &[([0, 0, 0], 8)]));
    let total: usize = colours(&canvas).values().sum();
    let (low, high) = (DVec3::ZERO, DVec3::ONE);
    let view = View::fit(low, high, 215.0, 38.0, [400, 400], 20);
    // The projected area of a unit cube is the sum of the normal's components towards the eye.
    let (azimuth, elevation) = (215f64.to_radians(), 38f64.to_radians());
    let expected = (azimuth.cos().abs() + azimuth.sin().abs()) * elevation.cos() + elevation.sin();
    let found = total as f64 / view.px_per_m.powi(2);
    assert!((found - expected).abs() < 0.01, "{found} m2, the formula gives {expected}");
}

#[test]
fn what_stands_behind_is_hidden_whatever_is_drawn_first() {
    // The eye is on the side of low x and low y. A wall of buildings, and a sign behind or in front of it.
    let wall: Vec<([usize; 3], u8)> = (0..12).flat_map(|y| (0..8).map(move |z| ([4, y, z], 4))).collect();
    let with_sign = |voxel| grid_of([9, 12, 8], &[wall.as_slice(), &[(voxel, 8)]].concat());
    for axis_order in [AxisOrder::Xyz, AxisOrder::Zyx] {
        assert!(!shows_red(&drawn(&with_sign([5, 7, 1]).reordered(axis_order))), "behind, {axis_order:?}");
        assert!(shows_red(&drawn(&with_sign([3, 7, 1]).reordered(axis_order))), "in front, {axis_order:?}");
    }
}

#[test]
fn ignored_voxels_and_free_space_are_not_drawn() {
    let mut grid = grid_of([2, 2, 2], &[([0, 0, 0], 255), ([1, 1, 1], 255)]);
    assert!(colours(&drawn(&grid)).is_empty());
    grid.spec.empty_id = 17;
    grid.labels.fill(17);
    assert!(colours(&drawn(&grid)).is_empty());
}

#[test]
fn a_voxel_throws_its_shadow_away_from_the_sun_on_the_left() {
    // Sidewalk is 190, 175, 160. The sun stands at azimuth 215 - 65 = 150 degrees, 1.1 high for 1 along: from the top of
    // (4, 0, 0), the ray is at (2.77, 1.5, 3.2) after two of these steps.
    let in_shade = [190.0 * 0.66, 175.0 * 0.70, 160.0 * 0.78].map(|c: f32| c as u8);
    let floor = ([4, 0, 0], 2);
    let shaded = |blocker| colours(&drawn(&grid_of([5, 3, 4], &[floor, (blocker, 4)]))).contains_key(&in_shade);
    assert!(shaded([2, 1, 3]));
    assert!(!shaded([2, 1, 1]));
    assert!(!shaded([2, 2, 3]));
}

#[test]
fn a_wall_darkens_the_floor_beside_it() {
    // The wall is behind the floor and away from the sun: it neither hides nor shades it.
    let lit = |voxels: &[([usize; 3], u8)]| {
        colours(&drawn(&grid_of([3, 1, 2], voxels))).get(&[190, 175, 160]).copied().unwrap_or(0)
    };
    let (open, beside) = (lit(&[([1, 0, 0], 2)]), lit(&[([1, 0, 0], 2), ([2, 0, 1], 4)]));
    assert!(open > 1000 && beside * 5 < open, "{open} fully lit pixels, {beside} beside the wall");
}

#[test]
fn panels_stand_side_by_side_at_their_size() {
    let grid = grid_of([4, 4, 4], &[([1, 1, 1], 1)]);
    let cloud = PointCloud { positions: vec![[1.0; 3], [2.0; 3]], ..PointCloud::default() };
    let plain = PreviewOptions { panel_px: [200, 100], legend: false, ..PreviewOptions::default() };
    let title = 9 * 2 + 2 * PAD;
    let both = preview(Some(&grid), Some(&cloud), &labels(), &plain);
    assert_eq!((both.width, both.height), (400, 100 + title));
    let three = preview(Some(&grid), Some(&cloud), &labels(), &PreviewOptions { target: Some(&grid), ..plain });
    assert_eq!((three.width, three.height), (600, 100 + title));
    let panel = |i: usize| -> Vec<[u8; 3]> {
        (title..three.height).flat_map(|y| three.pixels[y * 600 + i * 200..y * 600 + (i + 1) * 200].to_vec()).collect()
    };
    assert_eq!(panel(1), panel(2), "prediction and target are the same grid");
    assert_ne!(panel(0), panel(1));
    let legend = preview(Some(&grid), Some(&cloud), &labels(), &PreviewOptions { legend: true, ..plain });
    assert_eq!(legend.height, 100 + title + 9 * 2 + 2 * PAD);
    assert!(legend.pixels.contains(&[110, 105, 120]), "the colour of road in the legend");
}

#[test]
fn axis_order_does_not_change_the_picture() {
    let mut grid = grid_of([7, 6, 5], &[]);
    grid.labels.iter_mut().enumerate().for_each(|(i, label)| *label = if i % 3 == 0 { (i % 12) as u8 } else { 0 });
    let options = PreviewOptions { panel_px: [200, 160], ..PreviewOptions::default() };
    let turned = preview(Some(&grid.reordered(AxisOrder::Zyx)), None, &labels(), &options);
    assert_eq!(preview(Some(&grid), None, &labels(), &options), turned);
}

#[test]
fn nothing_one_point_and_absurd_input_give_a_picture() {
    let options = PreviewOptions { panel_px: [120, 90], ..PreviewOptions::default() };
    let cloud = |positions: &[[f32; 3]]| PointCloud { positions: positions.to_vec(), ..PointCloud::default() };
    let empty = grid_of([4, 4, 4], &[]);
    let absurd = cloud(&[[f32::NAN; 3], [f32::INFINITY; 3], [f32::MAX; 3], [f32::MIN; 3], [0.0; 3]]);
    let huge = VoxelGrid::empty(GridSpec::new([-f32::MAX; 3], [f32::MAX; 3], [2, 2, 2]));
    let strange = PreviewOptions { panel_px: [0, 0], azimuth_deg: f64::NAN, elevation_deg: 900.0, ..options };
    for options in [options, strange] {
        let width = options.panel_px[0].max(64);
        for cloud in [cloud(&[]), cloud(&[[3.0, 4.0, 5.0]]), cloud(&[[f32::NAN; 3]]), absurd.clone()] {
            assert_eq!(preview(None, Some(&cloud), &labels(), &options).width, width);
            assert_eq!(preview(Some(&empty), Some(&cloud), &labels(), &options).width, 2 * width);
            assert_eq!(preview(Some(&huge), Some(&cloud), &labels(), &options).width, 2 * width);
        }
        assert_eq!(preview(None, None, &labels(), &options).width, width);
    }
}

#[test]
fn one_point_is_seen_in_the_middle() {
    let cloud = PointCloud { positions: vec![[300.0, -40.0, 5.0]], ..PointCloud::default() };
    let options = PreviewOptions { panel_px: [101, 101], ..PreviewOptions::default() };
    let image = preview(None, Some(&cloud), &labels(), &options);
    let title = 9 * 2 + 2 * PAD;
    assert_eq!(image.pixel(50, title + 50), [52, 84, 170], "the colour of the lowest height");
}

#[test]
fn strays_do_not_shrink_the_scene() {
    let mut positions: Vec<[f32; 3]> = (0..1000).map(|i| [(i % 40) as f32, (i / 40) as f32, 0.0]).collect();
    positions.push([1e6, 0.0, 0.0]);
    let (low, high) = scene_box(None, Some(&PointCloud { positions, ..PointCloud::default() }));
    // 0.01 and 0.99 of 0..=39 are 0 and 39, and a tenth of that is slack.
    assert_eq!((low.x, high.x), (0.0, 39.0 + 3.9));
}

#[test]
fn points_take_the_colour_of_their_class_when_asked() {
    let cloud = PointCloud { positions: vec![[0.0; 3]], label: Some(vec![8]), ..PointCloud::default() };
    let options =
        PreviewOptions { panel_px: [101, 101], point_colour: PointColour::Class, ..PreviewOptions::default() };
    let middle = |cloud: &PointCloud| preview(None, Some(cloud), &labels(), &options).pixel(50, 46 + 50);
    assert_eq!(middle(&cloud), [225, 45, 45]);
    // Without labels height decides; a label that the map does not know is grey, and so is none (0).
    assert_eq!(middle(&PointCloud { label: Some(vec![0]), ..cloud.clone() }), [128; 3]);
    assert_eq!(middle(&PointCloud { label: None, ..cloud.clone() }), [52, 84, 170]);
    assert_eq!(middle(&PointCloud { label: Some(vec![999]), ..cloud }), [128; 3]);
}

#[test]
fn the_legend_names_what_the_panels_show_and_nothing_else() {
    let red_sign = [225, 45, 45];
    // In the legend, below the panel: of the points' classes only those that give a colour.
    let in_legend = |label: u16, point_colour: PointColour| {
        let cloud = PointCloud { positions: vec![[0.0; 3]], label: Some(vec![label]), ..PointCloud::default() };
        let options = PreviewOptions { panel_px: [200, 100], point_colour, ..PreviewOptions::default() };
        let image = preview(None, Some(&cloud), &labels(), &options);
        let panels_end = 9 * 2 + 2 * PAD + 100;
        (image.height > panels_end).then(|| image.pixels[panels_end * image.width..].contains(&red_sign))
    };
    assert_eq!(in_legend(8, PointColour::Class), Some(true));
    assert_eq!(in_legend(1, PointColour::Class), Some(false), "road");
    assert_eq!(in_legend(8, PointColour::Height), None, "no class, no legend");
    assert_eq!(in_legend(0, PointColour::Class), None, "not labelled");
}

#[test]
fn only_points_inside_the_grid_are_shown() {
    let grid = grid_of([4, 4, 4], &[]);
    let (low, high) = scene_box(Some(&grid), None);
    let view = View::fit(low, high, 215.0, 38.0, [100, 100], 5);
    let cloud = PointCloud { positions: vec![[1.0; 3], [4.5, 1.0, 1.0], [-0.1, 1.0, 1.0]], ..PointCloud::default() };
    let mut canvas = Canvas::new(100, 100, TOP, BOTTOM);
    assert_eq!(
        draw_points(&mut canvas, &view, &cloud, &labels(), PointColour::Height, (low, high), &mut [false; 256]),
        1
    );
}

#[test]
fn numbers_and_lines_are_round() {
    let texts = [0, 1, 999, 1000, 1_234_567].map(|n| counted(n, "voxel"));
    assert_eq!(texts, ["0 voxels", "1 voxel", "999 voxels", "1,000 voxels", "1,234,567 voxels"]);
    assert_eq!([1.0, 10.0, 25.6, 51.2, 80.0, 250.0].map(line_spacing_m), [0.1, 1.0, 5.0, 10.0, 10.0, 50.0]);
}

#[test]
fn a_long_legend_breaks_into_rows_that_fit() {
    let map = labels();
    let classes: Vec<u8> = (1..12).collect();
    let rows = legend_rows(&classes, &map, 400);
    assert!(rows.len() > 1);
    assert_eq!(rows.iter().map(Vec::len).sum::<usize>(), 11);
    for (x, _, name) in rows.iter().flatten() {
        assert!(x + 7 * TEXT_SCALE + PAD / 2 + text::width(name, TEXT_SCALE) + MARGIN <= 400, "{name} at {x}");
    }
}
