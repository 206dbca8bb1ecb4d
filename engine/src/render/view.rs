//! Orthographic view of a box from a direction.

use glam::{DVec3, Vec3};

/// Maps metres to canvas pixels: x to the right, y down, and nearness (larger is nearer to the eye) in pixels as well.
#[derive(Debug, Clone, Copy)]
pub struct View {
    right: DVec3,
    up: DVec3,
    towards: DVec3,
    centre: DVec3,
    middle_px: [f64; 2],
    pub px_per_m: f64,
}

impl View {
    /// The box `low..high` (metres) centred and as large as `margin_px` allows on a canvas of `size_px`, seen by an eye
    /// at `azimuth_deg` (counter-clockwise from +x, as seen from above) and `elevation_deg`.
    pub fn fit(
        low: DVec3,
        high: DVec3,
        azimuth_deg: f64,
        elevation_deg: f64,
        size_px: [usize; 2],
        margin_px: usize,
    ) -> Self {
        let (sin_a, cos_a) = azimuth_deg.to_radians().sin_cos();
        let (sin_e, cos_e) = elevation_deg.to_radians().sin_cos();
        let right = DVec3::new(-sin_a, cos_a, 0.0);
        let up = DVec3::new(-cos_a * sin_e, -sin_a * sin_e, cos_e);
        let towards = DVec3::new(cos_a * cos_e, sin_a * cos_e, sin_e);
        let half = (high - low) / 2.0;
        // Half the extent of a box along a direction.
        let reach = |axis: DVec3| half.dot(axis.abs());
        let room = size_px.map(|px| (px as f64 / 2.0 - margin_px as f64).max(1.0));
        let px_per_m = (room[0] / reach(right)).min(room[1] / reach(up));
        let middle_px = size_px.map(|px| px as f64 / 2.0);
        Self { right, up, towards, centre: (low + high) / 2.0, middle_px, px_per_m }
    }

    /// Canvas place of a position in metres.
    pub fn place(&self, position: DVec3) -> Vec3 {
        let middle = Vec3::new(self.middle_px[0] as f32, self.middle_px[1] as f32, 0.0);
        middle + self.span(position - self.centre)
    }

    /// Canvas vector of a vector in metres.
    pub fn span(&self, vector: DVec3) -> Vec3 {
        let px = DVec3::new(self.right.dot(vector), -self.up.dot(vector), self.towards.dot(vector)) * self.px_per_m;
        px.as_vec3()
    }

    /// Whether a face with this outward normal can be seen.
    pub fn faces_eye(&self, normal: DVec3) -> bool {
        self.towards.dot(normal) > 1e-6
    }

    /// Whether a side wall with this outward normal looks to the left of the picture.
    pub fn looks_left(&self, normal: DVec3) -> bool {
        self.right.dot(normal) < 0.0
    }

    /// A horizontal direction turned counter-clockwise, as seen from above, from the eye's.
    pub fn beside_eye(&self, turn_deg: f64) -> DVec3 {
        let flat = DVec3::new(self.towards.x, self.towards.y, 0.0).normalize();
        let (sin, cos) = turn_deg.to_radians().sin_cos();
        DVec3::new(flat.x * cos - flat.y * sin, flat.x * sin + flat.y * cos, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cube(azimuth_deg: f64) -> View {
        View::fit(DVec3::ZERO, DVec3::splat(10.0), azimuth_deg, 38.0, [200, 100], 10)
    }

    #[test]
    fn from_behind_forward_is_up_and_left_is_left() {
        let view = cube(180.0);
        let middle = view.place(DVec3::splat(5.0));
        assert_eq!((middle.x, middle.y, middle.z), (100.0, 50.0, 0.0));
        let (forward, left, above) = (view.span(DVec3::X), view.span(DVec3::Y), view.span(DVec3::Z));
        assert!(forward.x.abs() < 1e-3 && forward.y < 0.0 && forward.z < 0.0, "{forward}");
        assert!(left.x < 0.0 && left.y.abs() < 1e-3, "{left}");
        assert!(above.x.abs() < 1e-3 && above.y < 0.0 && above.z > 0.0, "{above}");
    }

    #[test]
    fn the_box_touches_the_margin_and_does_not_cross_it() {
        for azimuth in [0.0, 45.0, 130.0, 215.0, 359.0] {
            let view = cube(azimuth);
            let corners =
                (0..8).map(|i| view.place(DVec3::new((i & 1) as f64, (i >> 1 & 1) as f64, (i >> 2) as f64) * 10.0));
            let low = corners.clone().reduce(Vec3::min).unwrap();
            let high = corners.reduce(Vec3::max).unwrap();
            assert!(low.x > 9.99 && low.y > 9.99 && high.x < 190.01 && high.y < 90.01, "{azimuth}: {low} {high}");
            assert!((low.y - 10.0).abs() < 1e-3 || (low.x - 10.0).abs() < 1e-3, "{azimuth}: {low}");
        }
    }

    #[test]
    fn lengths_across_the_line_of_sight_are_kept() {
        let view = cube(215.0);
        let vector = DVec3::new(1.0, -2.0, 3.0);
        assert!((f64::from(view.span(vector).length()) - vector.length() * view.px_per_m).abs() < 1e-4);
    }
}
