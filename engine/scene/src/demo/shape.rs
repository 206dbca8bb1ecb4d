//! Solids of the demo world: upright boxes, cylinders and ellipsoids, met by rays from the sensor and by voxels.
//!
//! Solids live in the level frame: the axes of the sensor, but z measured from the plane of the road through the
//! sensor's foot (see [`super::Ground`]). A straight line there is a straight line of the sensor's frame with the same
//! parameter, so ranges need no conversion.

use glam::{DVec2, DVec3};

/// Outline of a solid; its height is in [`Solid`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Half lengths along and across `axis`, a unit vector.
    Box {
        half: DVec2,
        axis: DVec2,
    },
    Cylinder {
        radius: f64,
    },
    /// Round seen from above; spans the height of the solid.
    Ellipsoid {
        radius: f64,
    },
}

/// One solid piece of an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Solid {
    pub shape: Shape,
    pub centre: DVec2,
    /// Lowest and highest z, metres.
    pub z: [f64; 2],
    pub class: u8,
    pub instance: u32,
    /// Velocity over ground along x and y, m/s.
    pub velocity: DVec2,
}

/// Where a ray from the sensor enters and leaves a solid, in lengths of its direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    pub enter: f64,
    pub leave: f64,
    /// Cosine between the ray and the surface normal where it enters.
    pub incidence: f64,
}

impl Solid {
    /// Radius of the circle around `centre` that holds the outline.
    pub fn reach(&self) -> f64 {
        match self.shape {
            Shape::Box { half, .. } => half.length(),
            Shape::Cylinder { radius } | Shape::Ellipsoid { radius } => radius,
        }
    }

    /// The ray from (0, 0, 0) along `direction`. A sensor inside the solid does not see it.
    pub fn hit(&self, direction: DVec3) -> Option<Hit> {
        let flat = direction.truncate();
        let hit = match self.shape {
            Shape::Box { half, axis } => {
                let to_box = |v: DVec2| DVec2::new(axis.dot(v), axis.perp_dot(v));
                let (from, along) = (to_box(-self.centre), to_box(flat));
                let x = slab(from.x, along.x, [-half.x, half.x])?;
                let y = slab(from.y, along.y, [-half.y, half.y])?;
                let z = slab(0.0, direction.z, self.z)?;
                let enter = x[0].max(y[0]).max(z[0]);
                let normal = if enter == z[0] {
                    direction.z
                } else if enter == x[0] {
                    along.x
                } else {
                    along.y
                };
                Hit { enter, leave: x[1].min(y[1]).min(z[1]), incidence: normal.abs() / direction.length() }
            }
            Shape::Cylinder { radius } => {
                let [side, leave] = roots(
                    flat.length_squared(),
                    -flat.dot(self.centre),
                    self.centre.length_squared() - radius * radius,
                )?;
                let z = slab(0.0, direction.z, self.z)?;
                let enter = side.max(z[0]);
                let normal = if z[0] > side { direction.z } else { (flat * enter - self.centre).dot(flat) / radius };
                Hit { enter, leave: leave.min(z[1]), incidence: normal.abs() / direction.length() }
            }
            Shape::Ellipsoid { radius } => {
                let scale = DVec3::new(radius, radius, (self.z[1] - self.z[0]) / 2.0).recip();
                let (along, from) = (direction * scale, self.middle() * scale);
                let [enter, leave] = roots(along.length_squared(), -along.dot(from), from.length_squared() - 1.0)?;
                let normal = ((along * enter - from) * scale).normalize();
                Hit { enter, leave, incidence: normal.dot(direction).abs() / direction.length() }
            }
        };
        (hit.enter > 0.0 && hit.enter < hit.leave).then_some(hit)
    }

    fn middle(&self) -> DVec3 {
        self.centre.extend(f64::midpoint(self.z[0], self.z[1]))
    }

    /// Whether the upright square column `centre` +- `half` meets the outline.
    pub fn meets_column(&self, centre: DVec2, half: DVec2) -> bool {
        let offset = centre - self.centre;
        match self.shape {
            Shape::Box { half: own, axis } => {
                // Separating axes of two rectangles.
                let turned = axis.abs();
                let along = DVec2::new(axis.dot(offset), axis.perp_dot(offset)).abs();
                let other = DVec2::new(turned.dot(half), turned.yx().dot(half));
                let mine = DVec2::new(turned.dot(own), turned.yx().dot(own));
                along.cmple(own + other).all() && offset.abs().cmple(half + mine).all()
            }
            Shape::Cylinder { radius } | Shape::Ellipsoid { radius } => {
                (offset.abs() - half).max(DVec2::ZERO).length_squared() <= radius * radius
            }
        }
    }

    /// Whether the upright square column lies inside a box's outline; `false` for the round shapes.
    pub fn holds_column(&self, centre: DVec2, half: DVec2) -> bool {
        let Shape::Box { half: own, axis } = self.shape else { return false };
        let offset = centre - self.centre;
        let turned = axis.abs();
        let along = DVec2::new(axis.dot(offset), axis.perp_dot(offset)).abs();
        (along + DVec2::new(turned.dot(half), turned.yx().dot(half))).cmplt(own).all()
    }

    /// Lowest and highest z of the solid within a column that meets it, metres.
    pub fn span_in_column(&self, centre: DVec2, half: DVec2) -> [f64; 2] {
        match self.shape {
            Shape::Ellipsoid { radius } => {
                let nearest = (centre - self.centre).abs() - half;
                let flat = nearest.max(DVec2::ZERO).length_squared() / (radius * radius);
                let reach = (self.z[1] - self.z[0]) / 2.0 * (1.0 - flat).max(0.0).sqrt();
                let middle = f64::midpoint(self.z[0], self.z[1]);
                [middle - reach, middle + reach]
            }
            _ => self.z,
        }
    }
}

use glam::Vec2Swizzles as _;

/// Where `from + t * along` is between two bounds.
fn slab(from: f64, along: f64, bounds: [f64; 2]) -> Option<[f64; 2]> {
    if along == 0.0 {
        return (bounds[0] <= from && from <= bounds[1]).then_some([f64::NEG_INFINITY, f64::INFINITY]);
    }
    let (a, b) = ((bounds[0] - from) / along, (bounds[1] - from) / along);
    Some([a.min(b), a.max(b)])
}

/// Roots of `a t^2 + 2 b t + c`, smaller first.
fn roots(a: f64, b: f64, c: f64) -> Option<[f64; 2]> {
    let inner = b * b - a * c;
    if inner < 0.0 || a == 0.0 {
        return None;
    }
    let root = inner.sqrt();
    Some([(-b - root) / a, (-b + root) / a])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solid(shape: Shape, centre: [f64; 2], z: [f64; 2]) -> Solid {
        Solid { shape, centre: centre.into(), z, class: 1, instance: 1, velocity: DVec2::ZERO }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn a_ray_meets_a_box_at_its_face() {
        let car = solid(Shape::Box { half: DVec2::new(2.0, 1.0), axis: DVec2::X }, [10.0, 0.0], [-1.0, 1.0]);
        let hit = car.hit(DVec3::X).unwrap();
        assert_eq!((hit.enter, hit.leave, hit.incidence), (8.0, 12.0, 1.0));
        // Down the 3-4-5 triangle: the roof of a box that begins at x = 4, at z = -3, is met at range 5.
        let low = Solid { z: [-9.0, -3.0], ..car };
        let low = Solid { centre: DVec2::new(5.0, 0.0), ..low };
        let hit = low.hit(DVec3::new(0.8, 0.0, -0.6)).unwrap();
        assert!(close(hit.enter, 5.0) && close(hit.incidence, 0.6), "{hit:?}");
        assert_eq!(car.hit(DVec3::NEG_X), None);
        assert_eq!(car.hit(DVec3::new(0.8, 0.0, 0.6)), None);
    }

    #[test]
    fn a_turned_box_is_met_at_its_corner() {
        // A square of half side 1 turned by 45 degrees reaches sqrt(2) towards the sensor.
        let axis = DVec2::new(1.0, 1.0).normalize();
        let turned = solid(Shape::Box { half: DVec2::ONE, axis }, [10.0, 0.0], [-1.0, 1.0]);
        assert!(close(turned.hit(DVec3::X).unwrap().enter, 10.0 - 2.0_f64.sqrt()));
        assert!(turned.meets_column(DVec2::new(8.5, 0.0), DVec2::splat(0.1)));
        assert!(!turned.meets_column(DVec2::new(9.0, 0.9), DVec2::splat(0.1)));
        assert!(turned.holds_column(DVec2::new(9.5, 0.0), DVec2::splat(0.2)));
        // 1.05 / sqrt(2) along each side of the square, and 0.4 / sqrt(2) for the column itself: 1.03 of 1.
        assert!(!turned.holds_column(DVec2::new(8.95, 0.0), DVec2::splat(0.2)));
    }

    #[test]
    fn a_ray_meets_a_cylinder_where_the_formula_says() {
        // At offset y = 0.3 a circle of radius 0.5 begins 0.4 before its centre.
        let pole = solid(Shape::Cylinder { radius: 0.5 }, [4.0, 0.3], [-2.0, 2.0]);
        let hit = pole.hit(DVec3::X).unwrap();
        assert!(close(hit.enter, 3.6) && close(hit.leave, 4.4) && close(hit.incidence, 0.8), "{hit:?}");
        assert_eq!(Solid { z: [0.1, 2.0], ..pole }.hit(DVec3::X), None);
        // From below: the bottom disc at z = 3 of a cylinder around (4, 0), met at range 5.
        let disc = solid(Shape::Cylinder { radius: 0.5 }, [4.0, 0.0], [3.0, 9.0]);
        let hit = disc.hit(DVec3::new(0.8, 0.0, 0.6)).unwrap();
        assert!(close(hit.enter, 5.0) && close(hit.incidence, 0.6), "{hit:?}");
    }

    #[test]
    fn a_ray_meets_an_ellipsoid_where_the_formula_says() {
        let sphere = solid(Shape::Ellipsoid { radius: 0.5 }, [4.0, 0.3], [-0.5, 0.5]);
        let hit = sphere.hit(DVec3::X).unwrap();
        assert!(close(hit.enter, 3.6) && close(hit.leave, 4.4) && close(hit.incidence, 0.8), "{hit:?}");
        // x^2 / 4 + z^2 / 9 = 1 around (10, 0, 1.8): at z = 0 the half width is 2 sqrt(1 - 0.36) = 1.6.
        let crown = solid(Shape::Ellipsoid { radius: 2.0 }, [10.0, 0.0], [-1.2, 4.8]);
        assert!(close(crown.hit(DVec3::X).unwrap().enter, 8.4));
        // In the column 1.2 from the axis the half height is 3 sqrt(1 - 0.36) = 2.4.
        let [low, high] = crown.span_in_column(DVec2::new(11.4, 0.0), DVec2::splat(0.2));
        assert!(close(low, -0.6) && close(high, 4.2));
    }

    #[test]
    fn a_sensor_inside_a_solid_does_not_see_it() {
        let around = solid(Shape::Ellipsoid { radius: 2.0 }, [0.5, 0.0], [-1.0, 1.0]);
        assert_eq!(around.hit(DVec3::X), None);
    }
}
