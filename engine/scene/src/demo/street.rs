//! The street: its centre line, its cross section, its junctions, and the ground as the sensor sees it.
//!
//! World frame: x runs along the street for ever, y to the left, z up from the road. Street coordinates are `u`, the
//! world's x, and `t`, the offset to the left of the centre line.

use glam::{DMat4, DVec2, DVec3};

use super::rng::Rng;
use super::{SENSOR_HEIGHT_M, class};

/// Cross section of one side of the street, from the kerb outwards; metres.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// Offset of the kerb from the centre line.
    pub kerb_m: f64,
    /// Width of the parking lane, inside the kerb; 0 where there is none.
    pub parking_m: f64,
    /// Width of the green strip between kerb and sidewalk; 0 where there is none.
    pub verge_m: f64,
    pub sidewalk_m: f64,
    /// From the sidewalk to the fronts of the buildings.
    pub setback_m: f64,
    /// Class of the ground beyond the sidewalk.
    pub yard: u8,
    /// Slope of the terrain beyond the sidewalk.
    pub bank: f64,
}

impl Side {
    /// Offset of the outer edge of the sidewalk from the centre line.
    pub fn walk_end_m(&self) -> f64 {
        self.kerb_m + self.verge_m + self.sidewalk_m
    }
}

/// Straight cross streets at equal distances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crossing {
    period_m: f64,
    phase_m: f64,
    /// World x gained for each metre of world y.
    skew: f64,
    half_road_m: f64,
    sidewalk_m: f64,
}

/// Shape of a street, the same everywhere along it.
#[derive(Debug, Clone)]
pub struct Street {
    /// Lane width, metres.
    pub(super) lane_m: f64,
    /// 1 where traffic keeps to the right, -1 where it keeps to the left.
    pub(super) traffic: f64,
    /// Left (`t > 0`), right.
    pub(super) sides: [Side; 2],
    crossing: Option<Crossing>,
    kerb_height_m: f64,
    /// Largest slope of the centre line, and the length of the parabola between two inflections; metres.
    slope: f64,
    bend_m: f64,
    phase_m: f64,
    /// Slope of the whole world along its x and y.
    tilt: DVec2,
}

/// Highest and lowest that a bank of terrain goes beyond the kerb's height, metres.
const BANK_M: [f64; 2] = [-0.3, 0.9];

impl Street {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let lane_m = rng.range(2.7, 3.9);
        let urban = rng.chance(0.5);
        let mut side = || {
            let parking_m = if rng.chance(0.75) { rng.range(2.1, 2.6) } else { 0.0 };
            let verge_m = if rng.chance(0.4) { rng.range(1.0, 3.0) } else { 0.0 };
            let paved = rng.chance(if urban { 0.5 } else { 0.1 });
            Side {
                kerb_m: lane_m + parking_m,
                parking_m,
                verge_m,
                sidewalk_m: rng.range(1.3, 3.6),
                setback_m: if urban { rng.range(0.0, 4.0) } else { rng.range(2.0, 9.0) },
                yard: if paved { class::SIDEWALK } else { class::TERRAIN },
                bank: match paved {
                    true => 0.0,
                    false if rng.chance(0.8) => rng.range(0.03, 0.16),
                    false => rng.range(-0.06, 0.0),
                },
            }
        };
        let sides = [side(), side()];
        let crossing = rng.chance(0.6).then(|| {
            let period_m = rng.range(60.0, 130.0);
            Crossing {
                period_m,
                phase_m: rng.range(0.0, period_m),
                skew: rng.range(-0.25, 0.25),
                half_road_m: rng.range(2.8, 5.5),
                sidewalk_m: rng.range(1.3, 3.0),
            }
        });
        let winding = rng.chance(0.65);
        let slope = if winding { rng.sign() * rng.range(0.1, 0.45) } else { 0.0 };
        let radius_m = rng.range(55.0, 200.0);
        let bend_m = if winding { 2.0 * slope.abs() * radius_m } else { 100.0 };
        let level = rng.chance(0.6);
        Self {
            lane_m,
            traffic: if rng.chance(0.8) { 1.0 } else { -1.0 },
            sides,
            crossing,
            kerb_height_m: rng.range(0.13, 0.2),
            slope,
            bend_m,
            phase_m: rng.range(0.0, 2.0 * bend_m),
            tilt: if level { DVec2::ZERO } else { DVec2::new(rng.range(-0.015, 0.015), rng.range(-0.01, 0.01)) },
        }
    }

    /// Offset of the centre line and its first two derivatives: parabolas of alternating sign, joined without a kink.
    fn centre(&self, u: f64) -> [f64; 3] {
        let along = (u + self.phase_m) / self.bend_m;
        let piece = along.floor();
        let f = along - piece;
        let slope = if piece.rem_euclid(2.0) == 0.0 { self.slope } else { -self.slope };
        [slope * self.bend_m * (f * f - f), slope * (2.0 * f - 1.0), 2.0 * slope / self.bend_m]
    }

    /// World position of street coordinates.
    pub fn position(&self, u: f64, t: f64) -> DVec2 {
        let [centre, slope, _] = self.centre(u);
        DVec2::new(u, centre + t * (1.0 + slope * slope).sqrt())
    }

    /// Unit vector along the street at `u`.
    pub fn tangent(&self, u: f64) -> DVec2 {
        DVec2::new(1.0, self.centre(u)[1]).normalize()
    }

    /// Velocity in the world of what moves with `du` and `dt` in street coordinates: the exact derivative of
    /// [`Street::position`].
    pub fn velocity(&self, u: f64, t: f64, du: f64, dt: f64) -> DVec2 {
        let [_, slope, bend] = self.centre(u);
        let stretch = (1.0 + slope * slope).sqrt();
        DVec2::new(du, du * (slope + t * slope * bend / stretch) + dt * stretch)
    }

    /// Class of the ground at a world position, and its height above the road before the tilt of the world; metres.
    pub fn ground(&self, at: DVec2) -> (u8, f64) {
        let [centre, slope, _] = self.centre(at.x);
        let t = (at.y - centre) / (1.0 + slope * slope).sqrt();
        let side = &self.sides[usize::from(t < 0.0)];
        let beyond_kerb = t.abs() - side.kerb_m;
        if beyond_kerb < 0.0 {
            return (class::ROAD, 0.0);
        }
        let beyond_walk = t.abs() - side.walk_end_m();
        let across = self.across(at, centre);
        if across < 0.0 {
            return (class::ROAD, 0.0);
        }
        let walk_of_crossing = self.crossing.is_some_and(|c| across < c.sidewalk_m);
        if walk_of_crossing || (beyond_kerb >= side.verge_m && beyond_walk < 0.0) {
            return (class::SIDEWALK, self.kerb_height_m);
        }
        if beyond_walk < 0.0 {
            return (class::TERRAIN, self.kerb_height_m);
        }
        // The bank rises from whichever sidewalk is nearer.
        let from_crossing = self.crossing.map_or(beyond_walk, |c| across - c.sidewalk_m);
        let rise = (side.bank * beyond_walk.min(from_crossing)).clamp(BANK_M[0], BANK_M[1]);
        (side.yard, self.kerb_height_m + rise)
    }

    /// Distance of a world position from the kerb of the nearest cross street, negative on its road.
    fn across(&self, at: DVec2, centre: f64) -> f64 {
        let Some(c) = self.crossing else { return f64::INFINITY };
        let along = at.x - c.skew * (at.y - centre) - c.phase_m;
        let nearest = along - c.period_m * (along / c.period_m + 0.5).floor();
        nearest.abs() / (1.0 + c.skew * c.skew).sqrt() - c.half_road_m
    }

    /// Whether a thing of this radius is clear of the cross streets and their sidewalks.
    pub(super) fn clear_of_crossing(&self, at: DVec2, radius_m: f64) -> bool {
        let walk = self.crossing.map_or(0.0, |c| c.sidewalk_m);
        self.across(at, self.centre(at.x)[0]) > walk + radius_m
    }
}

/// Where the sensor stands in the world and which way it looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pose {
    pub position: DVec2,
    /// Unit vector of the sensor's x axis.
    pub forward: DVec2,
}

impl Pose {
    pub fn world_from_sensor(&self, p: DVec2) -> DVec2 {
        self.position + self.forward.rotate(p)
    }

    pub fn sensor_from_world(&self, p: DVec2) -> DVec2 {
        self.turn(p - self.position)
    }

    /// A direction of the world in the axes of the sensor.
    pub fn turn(&self, v: DVec2) -> DVec2 {
        DVec2::new(self.forward.dot(v), self.forward.perp_dot(v))
    }
}

/// The ground around a sensor.
///
/// In the level frame of the solids it has steps and banks but no tilt: `z_level = z - tilt . (x, y)`.
#[derive(Debug, Clone)]
pub struct Ground {
    pub street: Street,
    pub pose: Pose,
    /// Slope of the world along x and y of the sensor.
    pub tilt: DVec2,
}

impl Ground {
    pub(super) fn new(street: Street, pose: Pose) -> Self {
        let tilt = pose.turn(street.tilt);
        Self { street, pose, tilt }
    }

    /// Class and level z of the ground at a position of the sensor's frame.
    pub fn at(&self, p: DVec2) -> (u8, f64) {
        let (class, height) = self.street.ground(self.pose.world_from_sensor(p));
        (class, height - SENSOR_HEIGHT_M)
    }

    /// Takes points of the sensor's frame to the world's, which has its origin on the road where the street begins.
    pub fn world_from_sensor(&self) -> DMat4 {
        // The world is not level: the sensor, upright, climbs with it.
        let climb = self.pose.forward.rotate(self.tilt).dot(self.pose.position);
        let turn = DMat4::from_rotation_z(self.pose.forward.to_angle());
        DMat4::from_translation(self.pose.position.extend(climb + SENSOR_HEIGHT_M)) * turn
    }

    /// The direction of a ray of the sensor's frame in the level frame.
    pub fn level(&self, direction: DVec3) -> DVec3 {
        direction - DVec3::new(0.0, 0.0, self.tilt.dot(direction.truncate()))
    }

    /// Where a ray of the level frame meets the ground, in lengths of `direction`, at most `limit` away; with the
    /// class there and the cosine between ray and normal.
    pub(super) fn hit(&self, direction: DVec3, limit: f64) -> Option<(f64, u8, f64)> {
        /// Steps of the march, metres; narrower ground is only missed where it is lower than the march falls.
        const STEP_M: f64 = 0.3;
        if direction.z >= 0.0 {
            return None;
        }
        let rises = self.street.sides.iter().any(|s| s.bank > 0.0);
        let highest = self.street.kerb_height_m + if rises { BANK_M[1] } else { 0.0 };
        let lowest = BANK_M[0];
        let reach = |height: f64| (height - SENSOR_HEIGHT_M) / direction.z;
        let (mut above, end) = (reach(highest), reach(lowest).min(limit));
        let flat = direction.truncate();
        let below_ground = |t: f64| t * direction.z <= self.at(flat * t).1;
        let step = STEP_M / flat.length();
        let mut below = above;
        while !below_ground(below) {
            if below >= end {
                return None;
            }
            above = below;
            below = (below + step).min(end);
        }
        if below > limit {
            return None;
        }
        for _ in 0..16 {
            let middle = f64::midpoint(above, below);
            if below_ground(middle) {
                below = middle;
            } else {
                above = middle;
            }
        }
        let (class, _) = self.at(flat * below);
        Some((below, class, -direction.z / direction.length()))
    }
}
