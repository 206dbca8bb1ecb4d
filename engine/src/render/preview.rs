//! The preview: a scan, its predicted voxels and the target side by side.

use glam::DVec3;
use occam_scene::{LabelMap, PointCloud, VoxelGrid};

use super::canvas::Canvas;
use super::faces::{Side, Solid, others};
use super::image::Image;
use super::text;
use super::view::View;

/// What gives the points of the scan their colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PointColour {
    /// From blue (low) to red (high).
    #[default]
    Height,
    /// The colour of the class, grey where it is unknown; height where the cloud has no labels.
    Class,
}

/// How a preview looks.
#[derive(Debug, Clone, Copy)]
pub struct PreviewOptions<'a> {
    /// Adds a panel with the true voxels.
    pub target: Option<&'a VoxelGrid>,
    /// What stands over the panel of the grid.
    pub grid_title: &'a str,
    /// Width and height of one panel, pixels; kept within 64 and 4096.
    pub panel_px: [usize; 2],
    /// Where the eye stands, degrees counter-clockwise from +x as seen from above: 0 in front of the scene, 180 behind.
    pub azimuth_deg: f64,
    /// How high the eye stands, degrees; kept within 10 and 80.
    pub elevation_deg: f64,
    pub point_colour: PointColour,
    /// Names and colours of the classes that occur, below the panels.
    pub legend: bool,
}

impl Default for PreviewOptions<'_> {
    /// Two panels that fill the width of a web page, seen from behind on the right, so that forward is up and to the right.
    fn default() -> Self {
        Self {
            target: None,
            grid_title: "prediction",
            panel_px: [800, 600],
            azimuth_deg: 215.0,
            elevation_deg: 38.0,
            point_colour: PointColour::Height,
            legend: true,
        }
    }
}

/// Canvas pixels along an edge of a picture pixel.
const FINE: usize = 2;
/// Free room around a scene, picture pixels.
const MARGIN: usize = 22;
const TEXT_SCALE: usize = 2;
const PAD: usize = 14;
const TOP: [f32; 3] = [250.0, 250.0, 252.0];
const BOTTOM: [f32; 3] = [228.0, 232.0, 239.0];
const INK: [u8; 3] = [38, 44, 56];
const FAINT_INK: [u8; 3] = [112, 120, 134];

/// Draws a scan, a grid and the target of the options, as far as they are there, each in a panel of its own. All panels
/// show the same box from the same place: the grid's, or what holds nearly all points where there is no grid.
/// The picture is `panels x panel_px[0]` wide; above and below the panels there is room for titles and legend.
pub fn preview(
    grid: Option<&VoxelGrid>,
    cloud: Option<&PointCloud>,
    labels: &LabelMap,
    options: &PreviewOptions<'_>,
) -> Image {
    let size = options.panel_px.map(|px| px.clamp(64, 4096));
    let (low, high) = scene_box(grid.or(options.target), cloud);
    let finite_or = |angle: f64, other: f64| if angle.is_finite() { angle } else { other };
    let view = View::fit(
        low,
        high,
        finite_or(options.azimuth_deg, 215.0),
        finite_or(options.elevation_deg, 38.0).clamp(10.0, 80.0),
        size.map(|px| px * FINE),
        MARGIN * FINE,
    );
    let stage = || {
        let mut canvas = Canvas::new(size[0] * FINE, size[1] * FINE, TOP, BOTTOM);
        draw_plate(&mut canvas, &view, low, high);
        canvas
    };

    let mut panels: Vec<(String, String, Image)> = Vec::new();
    // Class ids that the panels show.
    let mut seen = [false; 256];
    if let Some(cloud) = cloud {
        let mut canvas = stage();
        let shown = draw_points(&mut canvas, &view, cloud, labels, options.point_colour, (low, high), &mut seen);
        canvas.deepen(FINE, 0.5);
        panels.push(("scan".into(), counted(shown, "point"), canvas.shrink(FINE)));
    }
    for (title, grid) in [(options.grid_title, grid), ("target", options.target)] {
        if let Some(grid) = grid {
            let mut canvas = stage();
            draw_voxels(&mut canvas, &view, grid, labels);
            for label in grid.labels.iter().filter(|l| **l != grid.spec.empty_id && **l != grid.spec.ignore_id) {
                seen[usize::from(*label)] = true;
            }
            canvas.deepen(FINE, 0.35);
            panels.push((title.into(), counted(grid.occupied(), "voxel"), canvas.shrink(FINE)));
        }
    }
    if panels.is_empty() {
        panels.push(("nothing to show".into(), String::new(), stage().shrink(FINE)));
    }
    let legend: Vec<u8> = (0..=255).filter(|class| options.legend && seen[usize::from(*class)]).collect();
    compose(&panels, size, &legend, labels)
}

/// Puts titles over the panels and the legend under them.
fn compose(panels: &[(String, String, Image)], size: [usize; 2], legend: &[u8], labels: &LabelMap) -> Image {
    let width = size[0] * panels.len();
    let line = text::LINE * TEXT_SCALE;
    let title_height = line + 2 * PAD;
    let rows = legend_rows(legend, labels, width);
    let legend_height = if rows.is_empty() { 0 } else { rows.len() * (line + PAD) + PAD };
    let mut image = Image::new(width, title_height + size[1] + legend_height, TOP.map(|c| c as u8));
    for (i, (title, count, panel)) in panels.iter().enumerate() {
        let left = i * size[0];
        image.paste(panel, [left, title_height]);
        text::draw(&mut image, [left + MARGIN, PAD], title, TEXT_SCALE, INK);
        let after = left + MARGIN + text::width(title, TEXT_SCALE) + PAD;
        text::draw(&mut image, [after, PAD], count, TEXT_SCALE, FAINT_INK);
    }
    image.fill([0, title_height + size[1]], [width, legend_height], BOTTOM.map(|c| c as u8));
    for (row, entries) in rows.iter().enumerate() {
        let y = title_height + size[1] + PAD / 2 + row * (line + PAD);
        for (x, class, name) in entries {
            let colour = labels.colour(*class);
            let swatch = 7 * TEXT_SCALE;
            image.fill([*x, y], [swatch; 2], colour.map(|c| (f32::from(c) * 0.7) as u8));
            image.fill([x + 1, y + 1], [swatch - 2; 2], colour);
            text::draw(&mut image, [x + swatch + PAD / 2, y], name, TEXT_SCALE, INK);
        }
    }
    image
}

/// Left edge, class and name of every entry of the legend, broken into rows.
fn legend_rows(classes: &[u8], labels: &LabelMap, width: usize) -> Vec<Vec<(usize, u8, String)>> {
    let mut rows: Vec<Vec<(usize, u8, String)>> = Vec::new();
    let mut x = width;
    for class in classes {
        let known = labels.classes.get(usize::from(*class));
        let name = known.map_or_else(|| format!("class {class}"), |c| c.name.clone());
        let entry = 7 * TEXT_SCALE + PAD / 2 + text::width(&name, TEXT_SCALE);
        if x + entry + MARGIN > width {
            rows.push(Vec::new());
            x = MARGIN;
        }
        if let Some(row) = rows.last_mut() {
            row.push((x, *class, name));
        }
        x += entry + 2 * PAD;
    }
    rows
}

/// The box to show, metres, at least a metre along each axis.
fn scene_box(grid: Option<&VoxelGrid>, cloud: Option<&PointCloud>) -> (DVec3, DVec3) {
    let (low, high) = match (grid, cloud) {
        (Some(grid), _) => {
            let [origin, size] = [grid.spec.origin_m, grid.spec.voxel_size_m].map(|v| DVec3::from(v.map(f64::from)));
            (origin, origin + size * DVec3::from(grid.spec.counts.map(|n| n as f64)))
        }
        (None, Some(cloud)) => cloud_box(cloud),
        (None, None) => (DVec3::ZERO, DVec3::ZERO),
    };
    let missing = (DVec3::ONE - (high - low)).max(DVec3::ZERO) / 2.0;
    (low - missing, high + missing)
}

/// What holds nearly all points: a few strays far away would make the rest a dot.
fn cloud_box(cloud: &PointCloud) -> (DVec3, DVec3) {
    let mut low = DVec3::ZERO;
    let mut high = DVec3::ZERO;
    for axis in 0..3 {
        let mut values: Vec<f32> = cloud.positions.iter().map(|p| p[axis]).filter(|v| v.is_finite()).collect();
        if values.is_empty() {
            continue;
        }
        let last = values.len() - 1;
        let mut rank = |share: f64| {
            let at = (last as f64 * share).round() as usize;
            f64::from(*values.select_nth_unstable_by(at, f32::total_cmp).1)
        };
        let (near_low, near_high) = (rank(0.01), rank(0.99));
        let slack = 0.1 * (near_high - near_low);
        low[axis] = rank(0.0).max(near_low - slack);
        high[axis] = rank(1.0).min(near_high + slack);
    }
    (low, high)
}

/// The floor of the scene with lines at a round distance, which gives the picture its scale.
fn draw_plate(canvas: &mut Canvas, view: &View, low: DVec3, high: DVec3) {
    let size = high - low;
    let spacing = line_spacing_m(size.x.max(size.y));
    let half_line = (0.5 * FINE as f64 / view.px_per_m) as f32;
    let lengths = [size.x as f32, size.y as f32];
    let corner = view.place(low) - glam::Vec3::new(0.0, 0.0, 1.0);
    let shade = |s: f32, t: f32| {
        let on_line = [s, t].into_iter().zip(lengths).any(|(share, length)| {
            let along = share * length;
            let beside = (along / spacing - (along / spacing).round()).abs() * spacing;
            beside < half_line || along < 2.0 * half_line || length - along < 2.0 * half_line
        });
        if on_line { [198.0, 204.0, 214.0] } else { [236.0, 238.0, 243.0] }
    };
    canvas.parallelogram(corner, view.span(DVec3::X * size.x), view.span(DVec3::Y * size.y), shade);
}

/// 1, 2 or 5 times a power of ten, so that 4 to 10 lines fit.
fn line_spacing_m(length_m: f64) -> f32 {
    let power = 10f64.powf((length_m / 10.0).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| length_m / (f * power) <= 10.0).unwrap_or(10.0);
    (factor * power) as f32
}

/// Draws the points inside the box, tells how many, and notes the classes whose colour they have.
fn draw_points(
    canvas: &mut Canvas,
    view: &View,
    cloud: &PointCloud,
    labels: &LabelMap,
    colour: PointColour,
    (low, high): (DVec3, DVec3),
    seen: &mut [bool; 256],
) -> usize {
    let shown: Vec<(usize, DVec3)> = cloud
        .positions
        .iter()
        .map(|p| DVec3::from(p.map(f64::from)))
        .enumerate()
        .filter(|(_, p)| p.is_finite() && p.cmpge(low).all() && p.cmple(high).all())
        .collect();
    let heights = cloud_heights(&shown);
    let lookup = labels.lookup();
    let classes = cloud.label.as_ref().filter(|_| colour == PointColour::Class);
    // Many points small, few points large, so that both fill the picture.
    let area = (canvas.width * canvas.height) as f64;
    let radius = (0.06 * area / (shown.len().max(1) as f64)).sqrt().clamp(1.0 * FINE as f64, 4.0 * FINE as f64);
    for (i, position) in &shown {
        let class = classes.and_then(|c| c.get(*i)).map(|id| lookup.get(id).copied().unwrap_or(labels.ignore_id));
        let colour = match class {
            // A point is never free space: that id means that nobody labelled it.
            Some(class) if class == labels.empty_id || class == labels.ignore_id => [128.0; 3],
            Some(class) => {
                seen[usize::from(class)] = true;
                labels.colour(class).map(f32::from)
            }
            None => ramp((position.z - heights.0) / (heights.1 - heights.0)),
        };
        canvas.ball(view.place(*position), radius as f32, colour);
    }
    shown.len()
}

/// Heights for the two ends of the ramp: those of nearly all points, at least a metre apart.
fn cloud_heights(points: &[(usize, DVec3)]) -> (f64, f64) {
    let mut heights: Vec<f64> = points.iter().map(|(_, p)| p.z).collect();
    if heights.is_empty() {
        return (0.0, 1.0);
    }
    let last = heights.len() - 1;
    let mut rank = |share: f64| *heights.select_nth_unstable_by((last as f64 * share) as usize, f64::total_cmp).1;
    let (low, high) = (rank(0.02), rank(0.98));
    (low, high.max(low + 1.0))
}

/// Blue, teal, green, amber, red over 0..=1, dark enough for a light ground.
fn ramp(share: f64) -> [f32; 3] {
    const STOPS: [[f32; 3]; 5] =
        [[52.0, 84.0, 170.0], [30.0, 136.0, 172.0], [70.0, 172.0, 105.0], [238.0, 168.0, 50.0], [208.0, 58.0, 56.0]];
    let place = share.clamp(0.0, 1.0) as f32 * (STOPS.len() - 1) as f32;
    let stop = (place as usize).min(STOPS.len() - 2);
    let t = place - stop as f32;
    std::array::from_fn(|c| STOPS[stop][c] + (STOPS[stop + 1][c] - STOPS[stop][c]) * t)
}

/// Light on the top, on the wall that looks left, on the wall that looks right.
const LIGHT: [f32; 3] = [1.0, 0.84, 0.64];
/// What is left of a colour where the sun does not come; bluish, as the sky lights it.
const SHADOW: [f32; 3] = [0.66, 0.70, 0.78];
/// What is left of it in a corner that 0 to 3 voxels shut in.
const SHUT_IN: [f32; 4] = [1.0, 0.86, 0.76, 0.66];

/// Draws the faces of voxels that can be seen, sunlit from the left.
fn draw_voxels(canvas: &mut Canvas, view: &View, grid: &VoxelGrid, labels: &LabelMap) {
    let spec = &grid.spec;
    let solid = Solid::of(grid);
    let [origin, size] = [spec.origin_m, spec.voxel_size_m].map(|v| DVec3::from(v.map(f64::from)));
    let sun = (view.beside_eye(-65.0) + DVec3::Z * 1.1) / size;
    let sides: Vec<Side> = Side::ALL.into_iter().filter(|side| view.faces_eye(side.normal())).collect();
    let step = [DVec3::X, DVec3::Y, DVec3::Z].map(|axis| axis * size);
    solid.for_exposed(grid, &sides, |face| {
        let Side { axis, positive } = face.side;
        let normal = face.side.normal();
        let [b, c] = others(axis);
        let low = origin + DVec3::from(face.voxel.map(|v| v as f64)) * size;
        let corner = view.place(if positive { low + step[axis] } else { low });
        let (u, v) = (view.span(step[b]), view.span(step[c]));
        let light = LIGHT[if axis == 2 {
            0
        } else if view.looks_left(normal) {
            1
        } else {
            2
        }];
        let sunlit = normal.dot(sun) > 0.0;
        let shadow = if sunlit && solid.in_shadow(face, sun) { SHADOW } else { [1.0; 3] };
        let class = labels.colour(grid.label(face.voxel));
        let colour: [f32; 3] = std::array::from_fn(|i| f32::from(class[i]) * light * shadow[i]);
        let open = solid.corners_shut_in(face).map(|n| SHUT_IN[usize::from(n)]);
        // Lines between voxels, where voxels are large enough to have some.
        let (length_u, length_v) = (u.truncate().length(), v.truncate().length());
        let line = 0.4 * FINE as f32;
        let lines = u.length().min(v.length()) > 5.0 * FINE as f32;
        canvas.parallelogram(corner, u, v, |s, t| {
            let near_edge = (s.min(1.0 - s) * length_u).min(t.min(1.0 - t) * length_v) < line;
            let edge = if lines && near_edge { 0.86 } else { 1.0 };
            let across = |from: f32, to: f32| from + (to - from) * s;
            let (first, second) = (across(open[0], open[1]), across(open[2], open[3]));
            let shade = edge * (first + (second - first) * t);
            colour.map(|c| c * shade)
        });
    });
}

/// "1 voxel", "1,234,567 voxels".
fn counted(number: usize, thing: &str) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{text} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
