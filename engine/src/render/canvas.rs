//! A picture with depth: the nearest surface wins. Larger than the picture it becomes, which smooths the edges.

use glam::Vec3;

use super::image::Image;

pub struct Canvas {
    pub width: usize,
    pub height: usize,
    colour: Vec<[f32; 3]>,
    /// Nearness of what is drawn; minus infinity where only the background is.
    near: Vec<f32>,
}

impl Canvas {
    /// A background that runs from one colour at the top to another at the bottom.
    pub fn new(width: usize, height: usize, top: [f32; 3], bottom: [f32; 3]) -> Self {
        let mut colour = Vec::with_capacity(width * height);
        for y in 0..height {
            let t = y as f32 / height as f32;
            let row = std::array::from_fn(|c| top[c] + (bottom[c] - top[c]) * t);
            colour.extend(std::iter::repeat_n(row, width));
        }
        Self { width, height, colour, near: vec![f32::NEG_INFINITY; width * height] }
    }

    /// The pixels from `low` to `high` that exist, as half-open ranges.
    fn clip(&self, low: [f32; 2], high: [f32; 2]) -> [std::ops::Range<usize>; 2] {
        // Float to integer casts saturate, so that places far outside are safe.
        let range = |low: f32, high: f32, size: usize| (low.floor() as usize)..((high.ceil() as usize).min(size));
        [range(low[0], high[0], self.width), range(low[1], high[1], self.height)]
    }

    /// Draws the parallelogram of corners `corner`, `corner + u`, `corner + v`. `shade` gives the colour at shares
    /// 0..=1 of `u` and `v`.
    pub fn parallelogram(&mut self, corner: Vec3, u: Vec3, v: Vec3, shade: impl Fn(f32, f32) -> [f32; 3]) {
        let determinant = u.x * v.y - u.y * v.x;
        // A face seen edge on has no determinant; its shares are then infinite or NaN, inside nothing.
        let corners = [corner, corner + u, corner + v, corner + u + v];
        let low = corners.iter().fold(corner, |a, b| a.min(*b));
        let high = corners.iter().fold(corner, |a, b| a.max(*b));
        let [columns, rows] = self.clip([low.x, low.y], [high.x + 1.0, high.y + 1.0]);
        // A hair wider than it is, or rounding would leave gaps between neighbours.
        let inside = -1e-3..=1.001;
        for y in rows {
            for x in columns.clone() {
                let (dx, dy) = (x as f32 + 0.5 - corner.x, y as f32 + 0.5 - corner.y);
                let s = (dx * v.y - dy * v.x) / determinant;
                let t = (u.x * dy - u.y * dx) / determinant;
                if !(inside.contains(&s) && inside.contains(&t)) {
                    continue;
                }
                let near = corner.z + s * u.z + t * v.z;
                let pixel = y * self.width + x;
                if near > self.near[pixel] {
                    self.near[pixel] = near;
                    self.colour[pixel] = shade(s.clamp(0.0, 1.0), t.clamp(0.0, 1.0));
                }
            }
        }
    }

    /// Draws a ball as a disc that bulges towards the eye.
    pub fn ball(&mut self, centre: Vec3, radius: f32, colour: [f32; 3]) {
        let [columns, rows] =
            self.clip([centre.x - radius, centre.y - radius], [centre.x + radius + 1.0, centre.y + radius + 1.0]);
        for y in rows {
            for x in columns.clone() {
                let (dx, dy) = (x as f32 + 0.5 - centre.x, y as f32 + 0.5 - centre.y);
                let bulge = radius * radius - dx * dx - dy * dy;
                let pixel = y * self.width + x;
                if bulge >= 0.0 && centre.z + bulge.sqrt() > self.near[pixel] {
                    self.near[pixel] = centre.z + bulge.sqrt();
                    self.colour[pixel] = colour;
                }
            }
        }
    }

    /// Darkens what lies behind a near neighbour, so that outlines and depth can be read where colours are equal
    /// (Boucheny, "Interactive scientific visualization of large datasets: towards a perceptive-based approach", 2009).
    pub fn deepen(&mut self, reach_px: usize, strength: f32) {
        let (reach, width, height) = (reach_px as isize, self.width as isize, self.height as isize);
        for y in 0..height {
            for x in 0..width {
                let pixel = (y * width + x) as usize;
                let here = self.near[pixel];
                if here == f32::NEG_INFINITY {
                    continue;
                }
                let mut step = 0.0;
                for (dx, dy) in [(reach, 0), (-reach, 0), (0, reach), (0, -reach)] {
                    let (nx, ny) = (x + dx, y + dy);
                    if (0..width).contains(&nx) && (0..height).contains(&ny) {
                        // A surface that slopes away is no edge.
                        let ahead = self.near[(ny * width + nx) as usize] - here - 3.0 * reach as f32;
                        step += ahead.clamp(0.0, 40.0);
                    }
                }
                let shade = (-strength * step / 40.0).exp();
                self.colour[pixel] = self.colour[pixel].map(|c| c * shade);
            }
        }
    }

    /// The picture, each pixel the mean of `factor` x `factor` of the canvas.
    pub fn shrink(&self, factor: usize) -> Image {
        let (width, height) = (self.width / factor, self.height / factor);
        let mut image = Image::new(width, height, [0; 3]);
        for (i, pixel) in image.pixels.iter_mut().enumerate() {
            let (left, top) = (i % width * factor, i / width * factor);
            let mut sum = [0.0; 3];
            for y in top..top + factor {
                for colour in &self.colour[y * self.width + left..y * self.width + left + factor] {
                    (0..3).for_each(|c| sum[c] += colour[c]);
                }
            }
            *pixel = sum.map(|s| (s / (factor * factor) as f32).round().clamp(0.0, 255.0) as u8);
        }
        image
    }

    #[cfg(test)]
    pub fn colour(&self, x: usize, y: usize) -> [f32; 3] {
        self.colour[y * self.width + x]
    }

    /// Whether anything but the background is there.
    #[cfg(test)]
    pub fn is_drawn(&self, x: usize, y: usize) -> bool {
        self.near[y * self.width + x] > f32::NEG_INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: [f32; 3] = [10.0, 20.0, 30.0];

    fn blank() -> Canvas {
        Canvas::new(8, 6, [255.0; 3], [255.0; 3])
    }

    #[test]
    fn the_nearest_surface_wins_in_any_order() {
        let square = |canvas: &mut Canvas, near: f32, colour: [f32; 3]| {
            canvas.parallelogram(Vec3::new(2.0, 1.0, near), Vec3::X * 3.0, Vec3::Y * 4.0, |_, _| colour);
        };
        for first_near in [true, false] {
            let mut canvas = blank();
            let mut both = [(1.0, INK), (0.0, [90.0; 3])];
            if !first_near {
                both.reverse();
            }
            for (near, colour) in both {
                square(&mut canvas, near, colour);
            }
            assert_eq!(canvas.colour(3, 3), INK);
            let drawn = (0..48).filter(|i| canvas.is_drawn(i % 8, i / 8)).count();
            assert_eq!(drawn, 12, "3 x 4 pixels");
        }
    }

    #[test]
    fn a_ball_bulges_out_of_a_near_wall_and_hides_behind_a_nearer_one() {
        // The ball reaches from nearness 0 to 2.
        for (wall, shown) in [(-1.0, true), (1.5, true), (2.5, false)] {
            for ball_first in [true, false] {
                let mut canvas = blank();
                let ball = |canvas: &mut Canvas| canvas.ball(Vec3::new(3.5, 3.5, 0.0), 2.0, INK);
                if ball_first {
                    ball(&mut canvas);
                }
                canvas.parallelogram(Vec3::new(0.0, 0.0, wall), Vec3::X * 8.0, Vec3::Y * 6.0, |_, _| [90.0; 3]);
                if !ball_first {
                    ball(&mut canvas);
                }
                assert_eq!(canvas.colour(3, 3) == INK, shown, "wall at {wall}, ball first: {ball_first}");
            }
        }
    }

    #[test]
    fn what_lies_outside_is_cut_off() {
        let mut canvas = blank();
        canvas.parallelogram(Vec3::new(-5.0, -5.0, 0.0), Vec3::X * 100.0, Vec3::Y * 100.0, |_, _| INK);
        canvas.ball(Vec3::new(1e30, -1e30, 0.0), 5.0, [0.0; 3]);
        canvas.ball(Vec3::new(f32::NAN, 0.0, 0.0), 5.0, [0.0; 3]);
        canvas.parallelogram(Vec3::ZERO, Vec3::X, Vec3::X * 2.0, |_, _| [0.0; 3]);
        assert!((0..48).all(|i| canvas.colour(i % 8, i / 8) == INK));
    }

    #[test]
    fn shrinking_takes_the_mean() {
        let mut canvas = blank();
        canvas.parallelogram(Vec3::ZERO, Vec3::X, Vec3::Y * 2.0, |_, _| [55.0, 0.0, 155.0]);
        let image = canvas.shrink(2);
        assert_eq!((image.width, image.height), (4, 3));
        assert_eq!(image.pixel(0, 0), [155, 128, 205]);
        assert_eq!(image.pixel(1, 0), [255; 3]);
    }

    #[test]
    fn deepening_darkens_only_what_has_a_nearer_neighbour() {
        let mut canvas = blank();
        canvas.parallelogram(Vec3::ZERO, Vec3::X * 8.0, Vec3::Y * 6.0, |_, _| [100.0; 3]);
        canvas.parallelogram(Vec3::new(4.0, 0.0, 50.0), Vec3::X * 4.0, Vec3::Y * 6.0, |_, _| [100.0; 3]);
        canvas.deepen(1, 0.5);
        // One neighbour that is at least 40 px nearer: exp(-0.5).
        assert!((canvas.colour(3, 3)[0] - 100.0 * (-0.5f32).exp()).abs() < 1e-3);
        assert_eq!((canvas.colour(2, 3), canvas.colour(4, 3)), ([100.0; 3], [100.0; 3]));
    }
}
