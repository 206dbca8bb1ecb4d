//! The demo world: procedural streets and a spinning LiDAR that is ray-cast through them.
//!
//! A world is a function of its seed and has no end: a winding or straight two-way street, sometimes with junctions,
//! between sidewalks, strips of terrain, buildings, trees, hedges, poles, signs, parked and moving cars and persons.
//! Frames are 0.1 s apart; cars, persons and the car that carries the sensor move between them. The world stands still
//! during one revolution of the sensor.
//!
//! Everything is f64 arithmetic and square roots, which IEEE 754 fixes to the last bit, and one integer generator: the
//! same seed, frame and grid give the same bytes on every machine, whatever the number of threads.

mod drive;
mod lidar;
pub(crate) mod rng;
mod shape;
mod street;
mod target;
mod visibility;
mod world;

pub use drive::Drive;
pub use lidar::{Lidar, Ray, Scan};
pub use shape::{Hit, Shape, Solid};
pub use street::{Ground, Pose, Street};
pub use target::rasterize;
pub use visibility::visibility;
pub use world::{Moment, World};

use crate::{GridSpec, PointCloud, VoxelGrid};

/// Class ids of the demo world, as in `assets/labels/demo.toml`.
pub mod class {
    pub const EMPTY: u8 = 0;
    pub const ROAD: u8 = 1;
    pub const SIDEWALK: u8 = 2;
    pub const TERRAIN: u8 = 3;
    pub const BUILDING: u8 = 4;
    pub const VEGETATION: u8 = 5;
    pub const TRUNK: u8 = 6;
    pub const POLE: u8 = 7;
    pub const SIGN: u8 = 8;
    pub const PARKED_CAR: u8 = 9;
    pub const MOVING_CAR: u8 = 10;
    pub const PERSON: u8 = 11;
    /// Number of classes, free space included.
    pub const COUNT: usize = 12;
}

/// Time between two frames, and for one revolution of the sensor, seconds.
pub const FRAME_S: f64 = 0.1;

/// Height of the sensor above the road, metres: with [`default_spec`] the border between two layers lies 0.1 m above a
/// level road and below its sidewalks, so that a kerb shows in the occupancy.
pub const SENSOR_HEIGHT_M: f64 = 1.7;

/// One scan and what the world looks like where it was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoScene {
    /// Points in the frame of the sensor (x forward, y left, z up, metres), with intensity (0 to 1), label (class ids
    /// of [`class`]), instance, ring and time.
    pub cloud: PointCloud,
    /// Dense labels, with flow (velocity over ground along the axes of the sensor, m/s) and visibility.
    pub target: VoxelGrid,
}

/// The grid of the demo: 64 x 64 x 16 voxels of 0.4 m, ahead of the car.
pub fn default_spec() -> GridSpec {
    GridSpec::new([0.0, -12.8, -2.4], [0.4; 3], [64, 64, 16])
}

/// One revolution of the sensor in frame `frame` of world `seed`, and the dense truth on `spec`.
///
/// The class of free space is `spec.empty_id`; the others are those of [`class`]. The spec must have passed
/// [`GridSpec::check`].
pub fn scene(seed: u64, frame: u32, spec: &GridSpec) -> DemoScene {
    let moment = World::new(seed).at(frame);
    let scan = Lidar::default().scan(&moment);
    let mut target = rasterize(&moment, spec);
    target.visibility = Some(visibility(&scan, spec));
    DemoScene { cloud: scan.cloud, target }
}

#[cfg(test)]
mod tests;
