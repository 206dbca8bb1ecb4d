//! What stands and moves along a street.
//!
//! Things of one kind stand in slots of equal length along the street. Each slot draws its own random numbers, so the
//! street has no end and a thing is the same in every frame that sees it. A kind that moves shifts all its slots.

use glam::DVec2;

use super::rng::{Rng, sin_cos};
use super::shape::{Shape, Solid};
use super::street::{Ground, Pose, Street};
use super::{FRAME_S, class};

/// Things farther than this along the street from the sensor are left out, metres.
const VIEW_M: f64 = 75.0;

/// Kinds of things, each with random numbers of its own. The number is part of the instance id.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Street = 1,
    Ego,
    Density,
    Building,
    Tree,
    YardTree,
    Hedge,
    Lamp,
    Sign,
    Parked,
    Moving,
    Walker,
    Crosser,
}

/// How close things of a kind follow each other, and how many of the slots are taken.
#[derive(Debug, Clone, Copy)]
struct Density {
    spacing_m: f64,
    taken: f64,
}

/// How densely one side of the street is filled.
#[derive(Debug, Clone, Copy)]
struct SidePlan {
    building: Density,
    /// Lowest and highest building, metres.
    height_m: [f64; 2],
    tree: Density,
    yard_tree: Density,
    hedge: Density,
    lamp: Density,
    sign: Density,
    parked: Density,
    moving: Density,
    walker: Density,
    /// Speed along the street of this side's lane, m/s.
    traffic_ms: f64,
}

/// One seed's street with all that is on it, at any time.
#[derive(Debug, Clone)]
pub struct World {
    seed: u64,
    street: Street,
    sides: [SidePlan; 2],
    crosser: Density,
    ego: Ego,
}

#[derive(Debug, Clone, Copy)]
struct Ego {
    /// Street coordinates at frame 0.
    u: f64,
    t: f64,
    /// Speed along the street, m/s.
    speed_ms: f64,
    /// Angle between the street and the view of the sensor, radians.
    heading: f64,
}

/// A world at one time, seen from the sensor.
#[derive(Debug, Clone)]
pub struct Moment {
    pub seed: u64,
    pub frame: u32,
    pub ground: Ground,
    pub solids: Vec<Solid>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let street = Street::new(&mut Rng::of(&[seed, Kind::Street as u64]));
        let mut rng = Rng::of(&[seed, Kind::Density as u64]);
        let sides = [0, 1].map(|_| SidePlan::new(&mut rng));
        let crosser = Density { spacing_m: rng.range(18.0, 45.0), taken: 0.6 };
        let mut rng = Rng::of(&[seed, Kind::Ego as u64]);
        let speed_ms = sides[Self::lane_side(&street, 1.0)].traffic_ms;
        // Now and then the car is about to turn or to pull out.
        let swing = if rng.chance(0.25) { 0.5 } else { 0.12 };
        let ego = Ego {
            u: rng.range(0.0, 1000.0),
            t: -street.traffic * street.lane_m * rng.range(0.3, 0.7),
            speed_ms,
            heading: rng.range(-swing, swing),
        };
        Self { seed, street, sides, crosser, ego }
    }

    /// Index of the side whose lane goes along the street (`direction` 1) or against it (-1).
    fn lane_side(street: &Street, direction: f64) -> usize {
        usize::from(street.traffic * direction > 0.0)
    }

    /// The world at frame `frame`, [`FRAME_S`] seconds after the one before.
    pub fn at(&self, frame: u32) -> Moment {
        let time_s = f64::from(frame) * FRAME_S;
        let u = self.ego.u + self.ego.speed_ms * time_s;
        let (sin, cos) = sin_cos(self.ego.heading);
        let pose = Pose {
            position: self.street.position(u, self.ego.t),
            forward: DVec2::new(cos, sin).rotate(self.street.tangent(u)),
        };
        let ground = Ground::new(self.street.clone(), pose);
        let mut placer = Placer { world: self, ground: &ground, u, time_s, solids: Vec::new(), cars: Vec::new() };
        for side in 0..2 {
            placer.buildings(side);
            placer.greens(side);
            placer.furniture(side);
            placer.parked(side);
            placer.moving(side);
        }
        for side in 0..2 {
            placer.walkers(side);
        }
        placer.crossers();
        let solids = placer.solids;
        Moment { seed: self.seed, frame, ground, solids }
    }
}

impl SidePlan {
    fn new(rng: &mut Rng) -> Self {
        let mut density = |spacing: [f64; 2], taken: [f64; 2]| Density {
            spacing_m: rng.range(spacing[0], spacing[1]),
            taken: rng.range(taken[0], taken[1]),
        };
        let building = density([8.0, 22.0], [0.55, 1.0]);
        let tree = density([6.0, 14.0], [0.1, 0.9]);
        let yard_tree = density([6.0, 14.0], [0.0, 0.8]);
        let hedge = density([5.0, 12.0], [0.0, 0.7]);
        let lamp = density([12.0, 26.0], [0.7, 1.0]);
        let sign = density([9.0, 20.0], [0.4, 0.9]);
        let parked = density([5.6, 7.0], [0.25, 0.95]);
        let moving = density([13.0, 26.0], [0.4, 0.9]);
        let walker = density([4.0, 12.0], [0.3, 0.8]);
        let low = rng.range(2.6, 8.0);
        Self {
            building,
            height_m: [low, low + rng.range(0.5, 6.0)],
            tree,
            yard_tree,
            hedge,
            lamp,
            sign,
            parked,
            moving,
            walker,
            traffic_ms: rng.range(4.0, 12.0),
        }
    }
}

/// A taken slot: its random numbers, its place along the street, and an id.
struct Slot {
    rng: Rng,
    u: f64,
    id: u32,
}

struct Placer<'a> {
    world: &'a World,
    ground: &'a Ground,
    /// The sensor's place along the street.
    u: f64,
    time_s: f64,
    solids: Vec<Solid>,
    /// Where moving cars are, in the frame of the sensor: nobody walks into them.
    cars: Vec<DVec2>,
}

/// Place of an object: street coordinates, and what follows from them in the level frame.
#[derive(Clone, Copy)]
struct Spot {
    u: f64,
    t: f64,
    at: DVec2,
    /// Unit vector along the street.
    along: DVec2,
    /// Unit vector to the left of the street.
    left: DVec2,
    /// Level z of the ground.
    foot: f64,
    class: u8,
}

impl Placer<'_> {
    /// Taken slots around the sensor of things that move at `speed_ms` along the street.
    fn slots(&self, kind: Kind, side: usize, density: Density, speed_ms: f64) -> Vec<Slot> {
        let shift = speed_ms * self.time_s;
        let slot_at = |u: f64| ((u - shift) / density.spacing_m).floor() as i64;
        (slot_at(self.u - VIEW_M)..=slot_at(self.u + VIEW_M))
            .filter_map(|slot| {
                let lane = kind as u64 * 8 + side as u64;
                let mut rng = Rng::of(&[self.world.seed, lane, slot as u64]);
                let u = (slot as f64 + rng.range(0.3, 0.7)) * density.spacing_m + shift;
                let id = (lane as u32) << 24 | (slot as u32 & 0x00ff_ffff);
                rng.chance(density.taken).then_some(Slot { rng, u, id })
            })
            .collect()
    }

    fn spot(&self, u: f64, t: f64) -> Spot {
        let (street, pose) = (&self.ground.street, &self.ground.pose);
        let at = pose.sensor_from_world(street.position(u, t));
        let along = pose.turn(street.tangent(u));
        let (class, foot) = self.ground.at(at);
        Spot { u, t, at, along, left: along.perp(), foot, class }
    }

    fn clear_of_crossing(&self, spot: &Spot, radius_m: f64) -> bool {
        self.ground.street.clear_of_crossing(self.ground.pose.world_from_sensor(spot.at), radius_m)
    }

    fn push(&mut self, shape: Shape, centre: DVec2, z: [f64; 2], class: u8, instance: u32) {
        self.solids.push(Solid { shape, centre, z, class, instance, velocity: DVec2::ZERO });
    }

    fn buildings(&mut self, side: usize) {
        let (sign, plan) = (sign_of(side), self.world.sides[side]);
        let section = self.world.street.sides[side];
        let front_m = section.walk_end_m() + section.setback_m;
        for mut slot in self.slots(Kind::Building, side, plan.building, 0.0) {
            let half = DVec2::new(plan.building.spacing_m * slot.rng.range(0.36, 0.52), slot.rng.range(3.5, 7.0));
            let back = if slot.rng.chance(0.3) { slot.rng.range(0.5, 3.0) } else { 0.3 };
            let height = slot.rng.range(plan.height_m[0], plan.height_m[1]);
            let spot = self.spot(slot.u, sign * (front_m + back + half.y));
            if !self.clear_of_crossing(&spot, half.x + 0.5) {
                continue;
            }
            let corners = [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
                .map(|[a, b]| spot.at + spot.along * (a * half.x) + spot.left * (b * half.y));
            let foot = corners.iter().fold(spot.foot, |low, corner| low.min(self.ground.at(*corner).1));
            let z = [foot - 0.2, spot.foot + height];
            self.push(Shape::Box { half, axis: spot.along }, spot.at, z, class::BUILDING, slot.id);
        }
    }

    /// Trees between street and sidewalk, trees and bushes in the yards, hedges around them.
    fn greens(&mut self, side: usize) {
        let (sign, plan) = (sign_of(side), self.world.sides[side]);
        let section = self.world.street.sides[side];
        let row_m = section.kerb_m + if section.verge_m > 0.0 { section.verge_m / 2.0 } else { 0.5 };
        for slot in self.slots(Kind::Tree, side, plan.tree, 0.0) {
            let spot = self.spot(slot.u, sign * row_m);
            if self.clear_of_crossing(&spot, 1.0) {
                self.tree(&spot, slot);
            }
        }
        if section.yard == class::TERRAIN && section.setback_m > 1.5 {
            for mut slot in self.slots(Kind::YardTree, side, plan.yard_tree, 0.0) {
                let into = slot.rng.range(0.8, section.setback_m - 0.4);
                let spot = self.spot(slot.u, sign * (section.walk_end_m() + into));
                if !self.clear_of_crossing(&spot, 1.0) {
                    continue;
                }
                if slot.rng.chance(0.5) {
                    let radius = slot.rng.range(0.4, 1.1);
                    let z = [spot.foot - 0.3 * radius, spot.foot + 1.4 * radius];
                    self.push(Shape::Ellipsoid { radius }, spot.at, z, class::VEGETATION, slot.id);
                } else {
                    self.tree(&spot, slot);
                }
            }
            for mut slot in self.slots(Kind::Hedge, side, plan.hedge, 0.0) {
                let half = DVec2::new(plan.hedge.spacing_m * slot.rng.range(0.35, 0.5), slot.rng.range(0.25, 0.5));
                let height = slot.rng.range(0.7, 1.9);
                let spot = self.spot(slot.u, sign * (section.walk_end_m() + 0.6));
                if self.clear_of_crossing(&spot, half.x) {
                    let z = [spot.foot - 0.1, spot.foot + height];
                    self.push(Shape::Box { half, axis: spot.along }, spot.at, z, class::VEGETATION, slot.id);
                }
            }
        }
    }

    fn tree(&mut self, spot: &Spot, Slot { mut rng, id, .. }: Slot) {
        let radius = rng.range(0.11, 0.3);
        let clear_m = rng.range(1.7, 3.2);
        let crown = rng.range(1.1, 2.3);
        let half_height = crown * rng.range(0.8, 1.4);
        let crown_z = spot.foot + clear_m + half_height;
        self.push(Shape::Cylinder { radius }, spot.at, [spot.foot - 0.1, spot.foot + clear_m + 0.3], class::TRUNK, id);
        let z = [crown_z - half_height, crown_z + half_height];
        self.push(Shape::Ellipsoid { radius: crown }, spot.at, z, class::VEGETATION, id);
        for _ in 0..2 {
            let at = spot.at + DVec2::new(rng.range(-0.6, 0.6), rng.range(-0.6, 0.6)) * crown;
            let lift = half_height * rng.range(-0.3, 0.5);
            let z = [crown_z + lift - 0.6 * half_height, crown_z + lift + 0.6 * half_height];
            self.push(Shape::Ellipsoid { radius: 0.65 * crown }, at, z, class::VEGETATION, id);
        }
    }

    /// Street lamps and traffic signs.
    fn furniture(&mut self, side: usize) {
        let (sign, plan) = (sign_of(side), self.world.sides[side]);
        let section = self.world.street.sides[side];
        for mut slot in self.slots(Kind::Lamp, side, plan.lamp, 0.0) {
            let spot = self.spot(slot.u, sign * (section.kerb_m + 0.35));
            if spot.class == class::ROAD {
                continue;
            }
            let (radius, height) = (slot.rng.range(0.06, 0.1), slot.rng.range(4.0, 8.0));
            let top = spot.foot + height;
            self.push(Shape::Cylinder { radius }, spot.at, [spot.foot - 0.1, top], class::POLE, slot.id);
            let half = DVec2::new(0.06, 0.8);
            let arm = spot.at - spot.left * (sign * half.y);
            self.push(Shape::Box { half, axis: spot.along }, arm, [top - 0.15, top], class::POLE, slot.id);
        }
        for mut slot in self.slots(Kind::Sign, side, plan.sign, 0.0) {
            let spot = self.spot(slot.u, sign * (section.kerb_m + 0.6));
            if spot.class == class::ROAD {
                continue;
            }
            let (wide, tall) = (slot.rng.range(0.3, 0.6), slot.rng.range(0.3, 0.6));
            let bottom = spot.foot + slot.rng.range(1.7, 2.3);
            let z = [spot.foot - 0.1, bottom + 2.0 * tall];
            self.push(Shape::Cylinder { radius: 0.04 }, spot.at, z, class::POLE, slot.id);
            let half = DVec2::new(0.05, wide);
            let z = [bottom, bottom + 2.0 * tall];
            self.push(Shape::Box { half, axis: spot.along }, spot.at, z, class::SIGN, slot.id);
        }
    }

    fn parked(&mut self, side: usize) {
        let (sign, plan) = (sign_of(side), self.world.sides[side]);
        let section = self.world.street.sides[side];
        if section.parking_m == 0.0 {
            return;
        }
        for mut slot in self.slots(Kind::Parked, side, plan.parked, 0.0) {
            let t = sign * (section.kerb_m - 1.0 - slot.rng.range(0.05, 0.25));
            let spot = self.spot(slot.u, t);
            if self.clear_of_crossing(&spot, 4.0) {
                self.car(&spot, &mut slot, class::PARKED_CAR, DVec2::ZERO);
            }
        }
    }

    fn moving(&mut self, side: usize) {
        let plan = self.world.sides[side];
        let direction = if side == World::lane_side(&self.world.street, 1.0) { 1.0 } else { -1.0 };
        let speed = direction * plan.traffic_ms;
        for mut slot in self.slots(Kind::Moving, side, plan.moving, speed) {
            let t = sign_of(side) * self.world.street.lane_m / 2.0 + slot.rng.range(-0.25, 0.25);
            let spot = self.spot(slot.u, t);
            // The car of the sensor takes a slot itself.
            if (slot.u - self.u).abs() < 7.5 && (t - self.world.ego.t).abs() < 2.6 {
                continue;
            }
            let velocity = self.velocity(&spot, speed, 0.0);
            self.car(&spot, &mut slot, class::MOVING_CAR, velocity);
            self.cars.push(spot.at);
        }
    }

    fn velocity(&self, spot: &Spot, du: f64, dt: f64) -> DVec2 {
        self.ground.pose.turn(self.ground.street.velocity(spot.u, spot.t, du, dt))
    }

    fn car(&mut self, spot: &Spot, slot: &mut Slot, class: u8, velocity: DVec2) {
        let half = DVec2::new(slot.rng.range(1.85, 2.35), slot.rng.range(0.83, 0.97));
        let height = slot.rng.range(1.42, 1.75);
        let front = slot.rng.sign();
        let mut piece = |half: DVec2, centre: DVec2, low: f64, high: f64| {
            let shape = Shape::Box { half, axis: spot.along };
            let z = [spot.foot + low, spot.foot + high];
            self.solids.push(Solid { shape, centre, z, class, instance: slot.id, velocity });
        };
        if slot.rng.chance(0.15) {
            piece(half + DVec2::new(0.25, 0.05), spot.at, 0.25, height + 0.5);
        } else {
            let waist = height * slot.rng.range(0.52, 0.6);
            piece(half, spot.at, 0.2, waist);
            let cabin = DVec2::new(half.x * slot.rng.range(0.5, 0.65), half.y * 0.9);
            piece(cabin, spot.at - spot.along * (front * half.x * 0.12), waist, height);
        }
    }

    fn walkers(&mut self, side: usize) {
        let (sign, plan) = (sign_of(side), self.world.sides[side]);
        let section = self.world.street.sides[side];
        for (index, speed) in [1.3, -1.1, 0.0].into_iter().enumerate() {
            for mut slot in self.slots(Kind::Walker, side + 2 * index, plan.walker, speed) {
                if slot.rng.chance(0.4) {
                    continue;
                }
                let across = section.walk_end_m() - section.sidewalk_m * slot.rng.range(0.15, 0.85);
                self.person(slot, sign * across, speed, 0.0);
            }
        }
    }

    /// Persons who walk from one sidewalk to the other and back.
    fn crossers(&mut self) {
        let [left, right] = self.world.street.sides.map(|s| s.walk_end_m() - s.sidewalk_m / 2.0);
        for mut slot in self.slots(Kind::Crosser, 0, self.world.crosser, 0.0) {
            let speed = slot.rng.range(0.9, 1.6);
            let width = left + right;
            let walked = slot.rng.range(0.0, 2.0 * width) + speed * self.time_s;
            let cycle = walked - 2.0 * width * (walked / (2.0 * width)).floor();
            let (t, dt) = if cycle < width { (cycle - right, speed) } else { (right + 2.0 * left - cycle, -speed) };
            self.person(slot, t, 0.0, dt);
        }
    }

    fn person(&mut self, mut slot: Slot, t: f64, du: f64, dt: f64) {
        let spot = self.spot(slot.u, t);
        if spot.at.length() < 2.5 || self.cars.iter().any(|car| car.distance(spot.at) < 3.2) {
            return;
        }
        let velocity = self.velocity(&spot, du, dt);
        let height = slot.rng.range(1.5, 1.9);
        let radius = slot.rng.range(0.2, 0.3);
        let neck = spot.foot + height - 0.28;
        let pieces = [
            (Shape::Cylinder { radius }, [spot.foot, neck]),
            (Shape::Ellipsoid { radius: 0.13 }, [neck, spot.foot + height]),
        ];
        for (shape, z) in pieces {
            self.solids.push(Solid { shape, centre: spot.at, z, class: class::PERSON, instance: slot.id, velocity });
        }
    }
}

/// The sign of `t` on a side of the street.
fn sign_of(side: usize) -> f64 {
    if side == 0 { 1.0 } else { -1.0 }
}
