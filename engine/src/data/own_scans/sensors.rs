//! Virtual sensors on the ground of a dense cloud, and the scans they would take.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use glam::{DMat4, DVec2, DVec3};
use occam_scene::demo::Lidar;
use occam_scene::error::Place;
use occam_scene::formats::{ReadOptions, read_cloud};
use occam_scene::{GridSpec, PointCloud};

use super::super::rng::Rng;
use super::super::{DataConfig, first_validation};
use super::dense::DenseCloud;
use super::look;
use super::target::Target;
use crate::Result;

/// Edge of the cells that stop rays at most, metres, and half a voxel of a finer grid: close points look like a surface,
/// and thin things keep their place.
const CELL_M: f64 = 0.2;
/// Edge of the columns that the ground is looked for in, metres.
const COLUMN_M: f64 = 1.0;
/// Nothing but the ground within this distance of the foot of a sensor, metres.
const CLEAR_M: f64 = 0.8;
/// What lies this close to the ground does not stand in the way, metres.
const KERB_M: f64 = 0.4;
/// Highest that ground lies above the lowest column within [`AROUND`] columns: roofs are no ground; metres.
const ROOF_M: f64 = 1.5;
const AROUND: i64 = 6;
/// What a cloud lacks that is a single scan.
const ONE_SCAN: &str = "This is a single scan: behind what it saw, nobody knows anything. Bring several, merged into one \
                        cloud, or as a folder with poses";
/// Few clouds are as wide as this, metres.
const WIDE_M: f64 = 1000.0;
/// Places tried for each that is wanted.
const TRIES: usize = 200;

/// A sensor in the cloud, upright; the cloud is relative to its lowest corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensor {
    pub place: DVec3,
    /// Direction of its x axis, radians from the cloud's.
    pub yaw: f64,
}

impl Sensor {
    fn cloud_from_sensor(self) -> DMat4 {
        DMat4::from_translation(self.place) * DMat4::from_rotation_z(self.yaw)
    }
}

/// Numbers of sensors.
#[derive(Debug, Default)]
pub struct Split {
    pub training: Vec<usize>,
    pub validation: Vec<usize>,
}

/// A dense cloud with sensors in it; their scans are made when they are asked for.
#[derive(Debug)]
pub struct VirtualScans {
    cloud: DenseCloud,
    spec: GridSpec,
    sensors: Vec<Sensor>,
    scans: Vec<OnceLock<Arc<PointCloud>>>,
    /// Sensors before this one train, the others validate.
    border: usize,
}

impl VirtualScans {
    /// Reads a cloud and puts up `virtual_scans` sensors: those that validate, a share of them, at one end of its longer
    /// side, with grids that do not reach into those of the others.
    ///
    /// # Errors
    /// [`crate::Error::Input`] for a cloud without a place for a sensor.
    pub fn open(path: &Path, config: &DataConfig, spec: &GridSpec, seed: u64) -> Result<(Self, Split, Vec<String>)> {
        let read = read_cloud(path, &ReadOptions::default())?;
        let mut notes = read.notes;
        notes.extend(look::cloud(&read.cloud, config));
        // A file that knows where its sensor stood is a scan.
        let one_scan = read.cloud.sensor.is_some();
        let finest = spec.voxel_size_m.iter().copied().fold(f32::INFINITY, f32::min);
        let cloud = DenseCloud::new(path, read.cloud, CELL_M.min(f64::from(finest) / 2.0))?;
        let ground = GroundMap::new(&cloud);
        let (sensors, border) = place(path, &cloud, &ground, config, spec, seed, &mut notes).map_err(|mut error| {
            if one_scan {
                error.hint = format!("{ONE_SCAN}. {}", error.hint);
            }
            error
        })?;
        if one_scan {
            notes.push(ONE_SCAN.into());
        }
        let split = Split { training: (0..border).collect(), validation: (border..sensors.len()).collect() };
        let scans = sensors.iter().map(|_| OnceLock::new()).collect();
        Ok((Self { cloud, spec: *spec, sensors, scans, border }, split, notes))
    }

    pub fn cloud_from_sensor(&self, sensor: usize) -> DMat4 {
        self.sensors[sensor].cloud_from_sensor()
    }

    /// What the sensor sees, in its frame.
    pub fn scan(&self, sensor: usize) -> Arc<PointCloud> {
        Arc::clone(self.scans[sensor].get_or_init(|| Arc::new(scan(&self.cloud, self.sensors[sensor]))))
    }

    /// The sensor itself and up to `count` others of its part, those nearest to the middle of its grid.
    pub fn around(&self, sensor: usize, count: usize) -> Vec<usize> {
        let middle = self.cloud_from_sensor(sensor).transform_point3(middle_of(&self.spec));
        let part = if sensor < self.border { 0..self.border } else { self.border..self.sensors.len() };
        let far = |other: &usize| self.sensors[*other].place.distance_squared(middle);
        let mut others: Vec<usize> = part.filter(|other| *other != sensor).collect();
        others.sort_by(|a, b| far(a).total_cmp(&far(b)));
        others.truncate(count);
        others.push(sensor);
        others
    }

    /// Label of every point, where the cloud has some.
    pub fn labels(&self) -> Option<&[u16]> {
        self.cloud.labels()
    }

    /// Adds the points of the cloud that lie in the grid of a sensor.
    ///
    /// # Errors
    /// As [`Target::add_points`].
    pub fn add_points(&self, sensor_from_cloud: &DMat4, target: &mut Target<'_>) -> Result<(), String> {
        let cloud_from_sensor = sensor_from_cloud.inverse();
        let corners = corners(&self.spec).map(|corner| cloud_from_sensor.transform_point3(corner));
        let low = corners.into_iter().reduce(DVec3::min).unwrap_or_default();
        let high = corners.into_iter().reduce(DVec3::max).unwrap_or_default();
        let points = self.cloud.points_near(low, high).map(|(index, p)| {
            let p = sensor_from_cloud.transform_point3(DVec3::from_array(p.map(f64::from)));
            (index, p.as_vec3().to_array())
        });
        target.add_points(points, self.cloud.labels())
    }
}

fn middle_of(spec: &GridSpec) -> DVec3 {
    let [low, high] = [spec.origin_m, spec.end_m()].map(|p| DVec3::from_array(p.map(f64::from)));
    low.midpoint(high)
}

fn corners(spec: &GridSpec) -> [DVec3; 8] {
    let [low, high] = [spec.origin_m, spec.end_m()].map(|p| DVec3::from_array(p.map(f64::from)));
    std::array::from_fn(|corner| {
        let pick = |axis: usize| if corner >> axis & 1 == 1 { high[axis] } else { low[axis] };
        DVec3::new(pick(0), pick(1), pick(2))
    })
}

/// One revolution of the demo world's sensor, without noise.
fn scan(cloud: &DenseCloud, sensor: Sensor) -> PointCloud {
    let lidar = Lidar::default();
    let [lowest, highest] = lidar.elevation_deg;
    let mut scan = PointCloud { sensor: Some([0.0; 3]), ..PointCloud::default() };
    let (mut labels, mut intensity) = (Vec::new(), Vec::new());
    let sensor_from_cloud = sensor.cloud_from_sensor().inverse();
    for turn in 0..lidar.azimuths {
        let azimuth = DVec2::from_angle(turn as f64 / lidar.azimuths as f64 * std::f64::consts::TAU);
        for beam in 0..lidar.beams {
            let share = beam as f64 / (lidar.beams.max(2) - 1) as f64;
            let elevation = DVec2::from_angle((lowest + share * (highest - lowest)).to_radians());
            let direction = (azimuth * elevation.x).extend(elevation.y);
            if let Some((index, p)) = cloud.cast(sensor.place, direction, lidar.farthest_m) {
                let p = sensor_from_cloud.transform_point3(DVec3::from_array(p.map(f64::from)));
                scan.positions.push(p.as_vec3().to_array());
                labels.extend(cloud.labels().and_then(|column| column.get(index)));
                intensity.extend(cloud.intensity().and_then(|column| column.get(index)));
            }
        }
    }
    scan.label = cloud.labels().is_some().then_some(labels);
    scan.intensity = cloud.intensity().is_some().then_some(intensity);
    scan
}

/// Height of the ground by column.
struct GroundMap(BTreeMap<(i64, i64), f64>);

impl GroundMap {
    fn new(cloud: &DenseCloud) -> Self {
        let mut heights: BTreeMap<(i64, i64), Vec<f32>> = BTreeMap::new();
        for [x, y, z] in cloud.lowest_points() {
            heights.entry(column(DVec2::new(x.into(), y.into()))).or_default().push(z);
        }
        let low = heights.into_iter().map(|(column, mut heights)| {
            // Some points lie below the ground where there was a mirror image of it.
            let rank = heights.len() / 10;
            (column, f64::from(*heights.select_nth_unstable_by(rank, f32::total_cmp).1))
        });
        Self(low.collect())
    }

    fn at(&self, place: DVec2) -> Option<f64> {
        self.0.get(&column(place)).copied()
    }

    /// Whether a column lies among others, about as low as the lowest of them.
    fn is_ground(&self, (x, y): (i64, i64), height: f64) -> bool {
        let around = (-AROUND..=AROUND).flat_map(|dx| (-AROUND..=AROUND).map(move |dy| (x + dx, y + dy)));
        let heights: Vec<f64> = around.filter_map(|column| self.0.get(&column).copied()).collect();
        let most = (2 * AROUND + 1).pow(2) as usize;
        heights.len() * 5 >= most && heights.iter().all(|other| height - other < ROOF_M)
    }

    /// Share of the columns under the grid of a sensor that hold points.
    fn under(&self, sensor: Sensor, spec: &GridSpec) -> f64 {
        const ALONG: usize = 8;
        let motion = sensor.cloud_from_sensor();
        let [low, high] = [spec.origin_m, spec.end_m()].map(|p| p.map(f64::from));
        let at = |axis: usize, step: usize| low[axis] + (step as f64 + 0.5) / ALONG as f64 * (high[axis] - low[axis]);
        let places = (0..ALONG * ALONG).map(|i| DVec3::new(at(0, i / ALONG), at(1, i % ALONG), 0.0));
        let held = places.filter(|p| self.at(motion.transform_point3(*p).truncate()).is_some()).count();
        held as f64 / (ALONG * ALONG) as f64
    }
}

fn column(place: DVec2) -> (i64, i64) {
    let column = (place / COLUMN_M).floor().as_i64vec2();
    (column.x, column.y)
}

/// Which part of the cloud a grid lies in.
#[derive(Debug, Clone, Copy)]
struct Border {
    /// 0: x, 1: y.
    axis: usize,
    at_m: f64,
}

impl Border {
    /// Behind the border lie `share` of the cloud, and room for a grid, but at most half.
    fn new(ground: &GroundMap, share: f64, spec: &GridSpec) -> Self {
        let mut along: [Vec<i64>; 2] =
            [ground.0.keys().map(|column| column.0).collect(), ground.0.keys().map(|column| column.1).collect()];
        // A few points far from the others do not make a side long.
        let ends = along.each_mut().map(|places| {
            places.sort_unstable();
            let stray = places.len() / 100;
            let pick = |place: usize| places.get(place).copied().unwrap_or_default() as f64 * COLUMN_M;
            [pick(stray), pick(places.len().saturating_sub(1 + stray)) + COLUMN_M]
        });
        let axis = usize::from(ends[1][1] - ends[1][0] > ends[0][1] - ends[0][0]);
        let [low, high] = ends[axis];
        let room = 1.2 * reach(spec);
        Self { axis, at_m: high - (share * (high - low)).max(room).min((high - low) / 2.0) }
    }

    /// `Some(true)`: the whole grid lies behind the border, `Some(false)`: before it.
    fn side(self, sensor: Sensor, spec: &GridSpec) -> Option<bool> {
        let motion = sensor.cloud_from_sensor();
        let sides = corners(spec).map(|corner| motion.transform_point3(corner)[self.axis] >= self.at_m);
        let own = sensor.place[self.axis] >= self.at_m;
        sides.iter().all(|side| *side == own).then_some(own)
    }

    /// As [`Self::side`], of the middle of the grid alone.
    fn side_of_middle(self, sensor: Sensor, spec: &GridSpec) -> bool {
        sensor.cloud_from_sensor().transform_point3(middle_of(spec))[self.axis] >= self.at_m
    }
}

/// Length of the ground plan of a grid, along its longer side.
fn reach(spec: &GridSpec) -> f64 {
    (0..2).map(|axis| f64::from(spec.end_m()[axis] - spec.origin_m[axis])).fold(0.0, f64::max)
}

/// Sensors that train, then those that validate, and the number of the first.
fn place(
    path: &Path,
    cloud: &DenseCloud,
    ground: &GroundMap,
    config: &DataConfig,
    spec: &GridSpec,
    seed: u64,
    notes: &mut Vec<String>,
) -> occam_scene::Result<(Vec<Sensor>, usize)> {
    let border = Border::new(ground, config.validation_share, spec);
    let training = first_validation(config.virtual_scans, config.validation_share);
    let wanted = [training, config.virtual_scans - training];
    let columns: Vec<((i64, i64), f64)> = ground.0.iter().map(|(column, height)| (*column, *height)).collect();
    let mut found: [Vec<Sensor>; 2] = Default::default();
    let mut free = 0_usize;
    // Whole grids on their own side first; where the cloud is too small for that, their middles.
    for strict in [true, false] {
        let mut rng = Rng::of(&[seed, u64::from(strict)]);
        for _ in 0..TRIES * config.virtual_scans.min(2_000) {
            if columns.is_empty() || (0..2).all(|part| found[part].len() >= wanted[part]) {
                break;
            }
            let (column, height) = columns[(rng.next_u64() % columns.len() as u64) as usize];
            let at = (DVec2::new(column.0 as f64, column.1 as f64) + DVec2::new(rng.unit(), rng.unit())) * COLUMN_M;
            let sensor =
                Sensor { place: at.extend(height + config.sensor_height_m), yaw: rng.within(std::f64::consts::PI) };
            let side = if strict { border.side(sensor, spec) } else { Some(border.side_of_middle(sensor, spec)) };
            let Some(side) = side.map(usize::from).filter(|side| found[*side].len() < wanted[*side]) else { continue };
            if !ground.is_ground(column, height) || !is_clear(cloud, sensor, config.sensor_height_m) {
                continue;
            }
            free += 1;
            if ground.under(sensor, spec) >= 0.5 {
                found[side].push(sensor);
            }
        }
        if found.iter().all(|part| !part.is_empty()) {
            break;
        }
        if strict {
            notes.push(format!(
                "the cloud is too small for grids of {:.0} m on both sides of a border: what validates overlaps what \
                 trains, and the scores are too good",
                reach(spec)
            ));
        }
    }
    let [mut sensors, validation] = found;
    if sensors.is_empty() || validation.is_empty() {
        let size = cloud.end_m();
        let what = match (free, sensors.is_empty()) {
            (0, _) => "no free place on the ground for a sensor",
            (_, true) => "no sensor to train with that has enough around it",
            (_, false) => "no sensor to validate with that has enough around it",
        };
        let found = format!("{what} in a cloud of {:.1} x {:.1} x {:.1} m", size.x, size.y, size.z);
        let expected = format!(
            "ground with {} m of free space above it, and points under at least half of a grid of {:.1} m",
            config.sensor_height_m + KERB_M,
            reach(spec)
        );
        let units = if size.max_element() > WIDE_M {
            "Are the coordinates millimetres or centimetres? Occam takes them for metres. "
        } else {
            ""
        };
        let hint =
            format!("{units}Use a smaller --grid or --voxel or another data.sensor_height_m; heights are along z");
        return Err(occam_scene::Error::new(path, Place::File, found, expected).hint(hint));
    }
    let border = sensors.len();
    sensors.extend(validation);
    if sensors.len() < config.virtual_scans {
        notes.push(format!("found room for {} of {} virtual scans", sensors.len(), config.virtual_scans));
    }
    Ok((sensors, border))
}

/// Whether nothing stands where the sensor is put up.
fn is_clear(cloud: &DenseCloud, sensor: Sensor, height_m: f64) -> bool {
    let low = sensor.place + DVec3::new(-CLEAR_M, -CLEAR_M, KERB_M - height_m);
    let high = sensor.place + DVec3::new(CLEAR_M, CLEAR_M, KERB_M);
    !cloud.any_within(low, high)
}
