//! A spinning multi-beam LiDAR, ray-cast through a world.

use glam::{DVec2, DVec3};

use super::rng::{Rng, sin_cos};
use super::shape::Solid;
use super::world::Moment;
use super::{FRAME_S, class};
use crate::PointCloud;

/// Beams, directions and faults of the sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Lidar {
    pub beams: usize,
    /// Directions of one revolution.
    pub azimuths: usize,
    /// Elevation of the lowest and the highest beam, degrees; the others lie evenly between.
    pub elevation_deg: [f64; 2],
    pub nearest_m: f64,
    pub farthest_m: f64,
    /// Deviation of a measured range, metres.
    pub range_noise_m: f64,
    /// Chance that a return is lost, before grazing angles and distance add to it.
    pub loss: f64,
}

impl Default for Lidar {
    fn default() -> Self {
        Self {
            beams: 48,
            azimuths: 640,
            elevation_deg: [-25.0, 10.25],
            nearest_m: 1.0,
            farthest_m: 70.0,
            range_noise_m: 0.02,
            loss: 0.02,
        }
    }
}

/// What became of one laser pulse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ray {
    /// Distance to what it met, metres; infinite for the sky.
    pub range_m: f32,
    /// Index of its point in the cloud; `None` when nothing came back.
    pub point: Option<u32>,
}

/// One revolution.
#[derive(Debug, Clone)]
pub struct Scan {
    pub cloud: PointCloud,
    /// One a pulse: beams of the first azimuth from the lowest up, then the next azimuth.
    pub rays: Vec<Ray>,
    /// Cosine and sine of each azimuth, from straight behind counter-clockwise.
    pub azimuths: Vec<DVec2>,
    /// Cosine and sine of each beam's elevation, lowest first.
    pub elevations: Vec<DVec2>,
    /// Largest range that the sensor measures, metres.
    pub farthest_m: f64,
}

/// What a pulse met.
struct Echo {
    range: f64,
    class: u8,
    instance: u32,
    incidence: f64,
}

impl Lidar {
    /// A sensor without noise that loses nothing.
    pub fn exact() -> Self {
        Self { range_noise_m: 0.0, loss: 0.0, ..Self::default() }
    }

    /// One revolution with the world standing still.
    pub fn scan(&self, moment: &Moment) -> Scan {
        let angle = |radians: f64| {
            let (sin, cos) = sin_cos(radians);
            DVec2::new(cos, sin)
        };
        let elevations: Vec<DVec2> = (0..self.beams)
            .map(|beam| {
                let share = beam as f64 / (self.beams.max(2) - 1) as f64;
                angle((self.elevation_deg[0] + share * (self.elevation_deg[1] - self.elevation_deg[0])).to_radians())
            })
            .collect();
        let azimuths: Vec<DVec2> = (0..self.azimuths)
            .map(|turn| angle((turn as f64 / self.azimuths as f64 * 2.0 - 1.0) * std::f64::consts::PI))
            .collect();

        let mut cloud = Columns::default();
        let mut rays = Vec::with_capacity(self.beams * self.azimuths);
        for (turn, azimuth) in azimuths.iter().enumerate() {
            let ahead: Vec<&Solid> = moment.solids.iter().filter(|solid| in_sight(solid, *azimuth)).collect();
            for (beam, elevation) in elevations.iter().enumerate() {
                let pulse = (turn * self.beams + beam) as u64;
                let mut rng = Rng::of(&[moment.seed, 0, u64::from(moment.frame), pulse]);
                let direction = (*azimuth * elevation.x).extend(elevation.y);
                let echo = self.echo(moment, &ahead, direction, &mut rng);
                let range_m = echo.as_ref().map_or(f64::INFINITY, |e| e.range);
                let point = echo.filter(|e| e.range >= self.nearest_m && !self.lost(e, &mut rng)).map(|echo| {
                    let measured = echo.range + self.range_noise_m * rng.normal();
                    let time = turn as f64 / self.azimuths as f64 * FRAME_S;
                    cloud.push(direction * measured, &echo, beam as u16, time, &mut rng)
                });
                rays.push(Ray { range_m: range_m as f32, point });
            }
        }
        Scan { cloud: cloud.into_cloud(), rays, azimuths, elevations, farthest_m: self.farthest_m }
    }

    /// The first thing on the way of a pulse.
    fn echo(&self, moment: &Moment, ahead: &[&Solid], direction: DVec3, rng: &mut Rng) -> Option<Echo> {
        /// Foliage that half of the pulses pass, metres.
        const FOLIAGE_M: f64 = 0.3;
        let level = moment.ground.level(direction);
        let mut range = self.farthest_m;
        let mut met: Option<(&Solid, f64)> = None;
        for solid in ahead {
            let Some(hit) = solid.hit(level) else { continue };
            let mut at = hit.enter;
            if solid.class == class::VEGETATION {
                let u = rng.unit();
                at += FOLIAGE_M * u / (1.0 - u);
            }
            if at < range && at < hit.leave {
                range = at;
                met = Some((solid, hit.incidence));
            }
        }
        if let Some((range, class, incidence)) = moment.ground.hit(level, range) {
            return Some(Echo { range, class, instance: 0, incidence });
        }
        met.map(|(solid, incidence)| Echo { range, class: solid.class, instance: solid.instance, incidence })
    }

    /// Whether an echo is too weak to be measured: more often far away and at grazing angles.
    fn lost(&self, echo: &Echo, rng: &mut Rng) -> bool {
        if self.loss == 0.0 {
            return false;
        }
        let far = echo.range / self.farthest_m;
        let grazing = (1.0 - echo.incidence / 0.1).max(0.0);
        rng.chance(self.loss + 0.2 * far * far + 0.35 * grazing)
    }
}

/// Whether a ray of this azimuth may meet the solid.
fn in_sight(solid: &Solid, azimuth: DVec2) -> bool {
    let reach = solid.reach();
    azimuth.perp_dot(solid.centre).abs() <= reach && azimuth.dot(solid.centre) > -reach
}

/// Share of the light that a material sends back.
fn reflectance(class: u8) -> f64 {
    match class {
        class::ROAD => 0.15,
        class::TERRAIN => 0.4,
        class::BUILDING => 0.35,
        class::VEGETATION => 0.45,
        class::TRUNK => 0.25,
        class::POLE => 0.5,
        class::SIGN => 0.9,
        class::SIDEWALK | class::PERSON => 0.3,
        _ => 0.55,
    }
}

#[derive(Default)]
struct Columns {
    positions: Vec<[f32; 3]>,
    intensity: Vec<f32>,
    label: Vec<u16>,
    instance: Vec<u32>,
    ring: Vec<u16>,
    time: Vec<f64>,
}

impl Columns {
    fn push(&mut self, at: DVec3, echo: &Echo, ring: u16, time: f64, rng: &mut Rng) -> u32 {
        let light = reflectance(echo.class) * (0.6 + 0.4 * echo.incidence) + 0.03 * rng.normal();
        self.positions.push(at.as_vec3().to_array());
        self.intensity.push(light.clamp(0.0, 1.0) as f32);
        self.label.push(u16::from(echo.class));
        self.instance.push(echo.instance);
        self.ring.push(ring);
        self.time.push(time);
        self.positions.len() as u32 - 1
    }

    fn into_cloud(self) -> PointCloud {
        PointCloud {
            positions: self.positions,
            intensity: Some(self.intensity),
            label: Some(self.label),
            instance: Some(self.instance),
            ring: Some(self.ring),
            time: Some(self.time),
            sensor: Some([0.0; 3]),
            ..PointCloud::default()
        }
    }
}
