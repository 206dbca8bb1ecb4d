//! Lines over two axes, for pictures of what was measured.

use super::image::Image;
use super::text;

/// One line, or single marks.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub name: String,
    pub colour: [u8; 3],
    /// x and y.
    pub points: Vec<[f64; 2]>,
    pub style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Line,
    /// A value holds until the next one.
    Steps,
    Marks,
}

/// A picture of some series. Both axes begin at zero unless something lies below, or they shall not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub series: Vec<Series>,
    /// Whether the x axis begins where the points do.
    pub x_from_points: bool,
    /// Whether the y axis begins at a round number below the points.
    pub y_from_points: bool,
    /// A level to draw across, and its name.
    pub level: Option<(f64, String)>,
}

const WHITE: [u8; 3] = [255; 3];
const INK: [u8; 3] = [40, 40, 48];
const GRID: [u8; 3] = [225, 225, 230];
const LEVEL: [u8; 3] = [200, 40, 40];
const SCALE: usize = 2;

impl Chart {
    /// Draws the chart; values that are not finite are left out.
    pub fn draw(&self, [width, height]: [usize; 2]) -> Image {
        let mut image = Image::new(width, height, WHITE);
        let line = text::LINE * SCALE;
        let points =
            || self.series.iter().flat_map(|series| &series.points).filter(|p| p.iter().all(|v| v.is_finite()));
        let level = self.level.as_ref().map(|(level, _)| *level);
        let (x_low, x_high) = bounds(points().map(|point| point[0]), !self.x_from_points);
        let (y_low, y_high) = bounds(points().map(|point| point[1]).chain(level), !self.y_from_points);
        let y_low = if self.y_from_points { round_below(y_low, y_high) } else { y_low };
        let (x_ticks, y_ticks) = (ticks(x_low, x_high), ticks(y_low, y_high));
        let label_width = y_ticks.iter().map(|tick| text::width(&label(*tick), SCALE)).max().unwrap_or(0);
        let (left, top) = (label_width + 24, 3 * line + 16);
        let (right, bottom) = (width.saturating_sub(24), height.saturating_sub(2 * line + 20));
        if right <= left + 40 || bottom <= top + 40 {
            return image;
        }
        let place = |[x, y]: [f64; 2]| -> [f64; 2] {
            let share = |value: f64, low: f64, high: f64| (value - low) / (high - low).max(f64::MIN_POSITIVE);
            [
                left as f64 + share(x, x_low, x_high) * (right - left) as f64,
                bottom as f64 - share(y, y_low, y_high) * (bottom - top) as f64,
            ]
        };
        text::draw(&mut image, [left, 8], &self.title, SCALE, INK);
        text::draw(&mut image, [left, top - line - 4], &self.y_label, SCALE, INK);
        for tick in &y_ticks {
            let y = place([x_low, *tick])[1] as usize;
            image.fill([left, y], [right - left, 1], GRID);
            let name = label(*tick);
            let x = left.saturating_sub(text::width(&name, SCALE) + 8);
            text::draw(&mut image, [x, y.saturating_sub(line / 2 - 2)], &name, SCALE, INK);
        }
        for tick in &x_ticks {
            let x = place([*tick, y_low])[0] as usize;
            image.fill([x, top], [1, bottom - top], GRID);
            let name = label(*tick);
            text::draw(&mut image, [x.saturating_sub(text::width(&name, SCALE) / 2), bottom + 6], &name, SCALE, INK);
        }
        let x = right.saturating_sub(text::width(&self.x_label, SCALE));
        text::draw(&mut image, [x, bottom + line + 8], &self.x_label, SCALE, INK);
        image.fill([left, top], [2, bottom - top], INK);
        image.fill([left, bottom], [right - left, 2], INK);
        if let Some((level, name)) = &self.level {
            let y = place([x_low, *level])[1];
            stroke(&mut image, [left as f64, y], [right as f64, y], LEVEL);
            let x = right.saturating_sub(text::width(name, SCALE));
            text::draw(&mut image, [x, (y as usize).saturating_sub(line)], name, SCALE, LEVEL);
        }
        let mut legend = left;
        for series in &self.series {
            image.fill([legend, 8 + line + 8], [14, 6], series.colour);
            text::draw(&mut image, [legend + 20, 8 + line + 2], &series.name, SCALE, INK);
            legend += 20 + text::width(&series.name, SCALE) + 28;
            let finite = series.points.iter().filter(|point| point.iter().all(|value| value.is_finite()));
            let places: Vec<[f64; 2]> = finite.map(|point| place(*point)).collect();
            if series.style == Style::Marks {
                for [x, y] in &places {
                    image.fill(
                        [(*x as usize).saturating_sub(4), (*y as usize).saturating_sub(4)],
                        [9, 9],
                        series.colour,
                    );
                }
                continue;
            }
            for pair in places.windows(2) {
                let [from, to] = [pair[0], pair[1]];
                if series.style == Style::Steps {
                    stroke(&mut image, from, [to[0], from[1]], series.colour);
                    stroke(&mut image, [to[0], from[1]], to, series.colour);
                } else {
                    stroke(&mut image, from, to, series.colour);
                }
            }
        }
        image
    }
}

/// Pictures one above the other.
pub fn stack(images: &[Image]) -> Image {
    let width = images.iter().map(|image| image.width).max().unwrap_or(0);
    let mut all = Image::new(width, images.iter().map(|image| image.height).sum(), WHITE);
    let mut top = 0;
    for image in images {
        all.paste(image, [0, top]);
        top += image.height;
    }
    all
}

/// The least and the largest value, with zero if wanted and never the same.
fn bounds(values: impl Iterator<Item = f64>, with_zero: bool) -> (f64, f64) {
    let (mut low, mut high) = if with_zero { (0.0, 0.0) } else { (f64::INFINITY, f64::NEG_INFINITY) };
    for value in values {
        (low, high) = (f64::min(low, value), f64::max(high, value));
    }
    match low.is_finite() && high.is_finite() {
        false => (0.0, 1.0),
        true if low == high => (low, low + 1.0),
        true => (low, high),
    }
}

/// Between round numbers, of which three to eight lie within the bounds.
fn round_step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

/// The largest round number that is not above `low`.
fn round_below(low: f64, high: f64) -> f64 {
    let step = round_step(low, high);
    (low / step).floor() * step
}

/// Round numbers within the bounds.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let step = round_step(low, high);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last.min(first + 20)).map(|tick| tick as f64 * step).collect()
}

fn label(value: f64) -> String {
    // A round number has few digits; what is left of a sum of binary fractions is cut.
    let text = format!("{value:.3}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// A line two pixels thick.
fn stroke(image: &mut Image, from: [f64; 2], to: [f64; 2], colour: [u8; 3]) {
    let length = (to[0] - from[0]).abs().max((to[1] - from[1]).abs()).ceil().max(1.0);
    for step in 0..=length as usize {
        let share = step as f64 / length;
        let at = [0, 1].map(|axis| (from[axis] + (to[axis] - from[axis]) * share).max(0.0) as usize);
        image.fill(at, [2, 2], colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_bounds() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.0, 3.0), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
        assert_eq!(ticks(195.0, 403.0), [200.0, 250.0, 300.0, 350.0, 400.0]);
        assert_eq!(
            [(195.0, 403.0), (200.0, 403.0), (1234.0, 1240.0)].map(|(low, high)| round_below(low, high)),
            [150.0, 200.0, 1234.0]
        );
        assert_eq!([0.5, 200.0, 1.25, -0.0].map(label), ["0.5", "200", "1.25", "0"]);
    }

    #[test]
    fn axes_hold_all_values_and_are_never_empty() {
        assert_eq!(bounds([3.0, 7.0].into_iter(), true), (0.0, 7.0));
        assert_eq!(bounds([3.0, 7.0].into_iter(), false), (3.0, 7.0));
        assert_eq!(bounds([3.0].into_iter(), false), (3.0, 4.0));
        assert_eq!(bounds(std::iter::empty(), false), (0.0, 1.0));
    }

    /// Steps from (0, 0) to (1, 1): along the bottom, then up at the right; a line crosses the middle instead.
    #[test]
    fn steps_hold_a_value_until_the_next() {
        let chart = |style| Chart {
            series: vec![Series {
                name: String::new(),
                colour: [1, 2, 3],
                points: vec![[0.0, 0.0], [1.0, 1.0]],
                style,
            }],
            ..Chart::default()
        };
        let drawn = |style| {
            let image = chart(style).draw([400, 300]);
            // Below the legend.
            let places = (0..400 * 300).filter(|i| i / 400 > 60 && image.pixels[*i] == [1, 2, 3]);
            places.map(|i| (i % 400, i / 400)).collect::<Vec<_>>()
        };
        let (left, right) = (drawn(Style::Line)[0].0.min(400), drawn(Style::Steps).iter().map(|p| p.0).max().unwrap());
        assert!(left > 200 && right > 360, "the line ends at the upper right: {left}, {right}");
        let steps = drawn(Style::Steps);
        let columns = |places: &[(usize, usize)]| places.iter().filter(|(x, _)| *x > 150 && *x < 250).count();
        let rows: std::collections::BTreeSet<usize> =
            steps.iter().filter(|(x, _)| *x > 150 && *x < 250).map(|(_, y)| *y).collect();
        assert!(columns(&steps) > 0 && rows.len() <= 2, "flat in the middle");
        let line = drawn(Style::Line);
        let rows: std::collections::BTreeSet<usize> =
            line.iter().filter(|(x, _)| *x > 150 && *x < 250).map(|(_, y)| *y).collect();
        assert!(rows.len() > 20, "a slope in the middle");
    }

    #[test]
    fn what_is_not_finite_or_has_no_room_is_left_out() {
        let points = vec![[0.0, f64::NAN], [f64::INFINITY, 1.0], [1.0, 2.0]];
        let series = vec![Series { name: "a".into(), colour: [9; 3], points, style: Style::Marks }];
        let chart = Chart { series, level: Some((3.0, "budget".into())), ..Chart::default() };
        let image = chart.draw([300, 200]);
        assert!(image.pixels.contains(&[9; 3]) && image.pixels.contains(&LEVEL));
        assert_eq!(chart.draw([30, 20]), Image::new(30, 20, WHITE));
        assert_eq!(stack(&[image.clone(), image]).height, 400);
    }
}
