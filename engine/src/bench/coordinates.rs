//! What coordinates lose in half precision: f16 has 11 significant bits and bf16 has 8, so that the error grows with the
//! distance from the origin, eight times as fast in bf16.

use half::{bf16, f16};
use occam_scene::PointCloud;
use serde::Serialize;

/// Upper ends of the distance bands, metres; the last one is open.
pub const BANDS_M: [f64; 4] = [10.0, 25.0, 50.0, 100.0];

/// Error of one coordinate, over all points of a band and their three axes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct CoordinateError {
    /// None without any value in range.
    pub mean_m: Option<f64>,
    pub max_m: Option<f64>,
    /// Values beyond the largest number of the format; they are in neither mean nor maximum.
    pub out_of_range: usize,
}

/// Points at some distance from the sensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Band {
    pub from_m: f64,
    /// None: open.
    pub to_m: Option<f64>,
    pub points: usize,
    /// Coordinates as the file has them.
    pub f16: CoordinateError,
    pub bf16: CoordinateError,
    /// Relative to the lowest corner of the block that a point lies in.
    pub f16_in_block: CoordinateError,
    pub bf16_in_block: CoordinateError,
}

/// The error of every band that holds points, nearest first, and of all points together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoordinateErrors {
    pub points: usize,
    /// Edge of the blocks.
    pub block_m: f64,
    pub bands: Vec<Band>,
    pub all: Band,
}

/// Rounds the coordinates of `cloud`, those of its file, to each format and measures what is lost; blocks have edges of
/// `block_m`. Distances are from the sensor, or from the origin of the file's coordinates where it does not tell.
pub fn coordinate_errors(cloud: &PointCloud, block_m: f64) -> CoordinateErrors {
    let sensor = cloud.sensor.map_or([0.0; 3], |sensor| absolute(sensor, cloud.origin));
    let mut bands = [Sums::default(); BANDS_M.len() + 1];
    let mut all = Sums::default();
    for position in &cloud.positions {
        let point = absolute(*position, cloud.origin);
        let distance = (0..3).map(|axis| (point[axis] - sensor[axis]).powi(2)).sum::<f64>().sqrt();
        let band = BANDS_M.iter().position(|end| distance < *end).unwrap_or(BANDS_M.len());
        for sums in [&mut bands[band], &mut all] {
            sums.add(point, block_m);
        }
    }
    let found = bands.iter().enumerate().filter(|(_, sums)| sums.points > 0).map(|(place, sums)| {
        let from_m = if place == 0 { 0.0 } else { BANDS_M[place - 1] };
        sums.band(from_m, BANDS_M.get(place).copied())
    });
    CoordinateErrors { points: cloud.len(), block_m, bands: found.collect(), all: all.band(0.0, None) }
}

fn absolute(position: [f32; 3], origin: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| f64::from(position[axis]) + origin[axis])
}

/// One format over one band.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    total: f64,
    largest: f64,
    values: usize,
    out_of_range: usize,
}

impl Sum {
    fn add(&mut self, value: f64, rounded: f64) {
        if rounded.is_finite() {
            let error = (value - rounded).abs();
            self.total += error;
            self.largest = self.largest.max(error);
            self.values += 1;
        } else {
            self.out_of_range += 1;
        }
    }

    fn error(&self) -> CoordinateError {
        let any = self.values > 0;
        CoordinateError {
            mean_m: any.then(|| self.total / self.values as f64),
            max_m: any.then_some(self.largest),
            out_of_range: self.out_of_range,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    points: usize,
    /// f16, bf16, f16 in blocks, bf16 in blocks.
    formats: [Sum; 4],
}

impl Sums {
    fn add(&mut self, point: [f64; 3], block_m: f64) {
        self.points += 1;
        for value in point {
            let in_block = value - (value / block_m).floor() * block_m;
            self.formats[0].add(value, f16::from_f64(value).to_f64());
            self.formats[1].add(value, bf16::from_f64(value).to_f64());
            self.formats[2].add(in_block, f16::from_f64(in_block).to_f64());
            self.formats[3].add(in_block, bf16::from_f64(in_block).to_f64());
        }
    }

    fn band(&self, from_m: f64, to_m: Option<f64>) -> Band {
        let [f16, bf16, f16_in_block, bf16_in_block] = self.formats.map(|sum| sum.error());
        Band { from_m, to_m, points: self.points, f16, bf16, f16_in_block, bf16_in_block }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(positions: Vec<[f32; 3]>) -> PointCloud {
        PointCloud { positions, ..PointCloud::default() }
    }

    /// Distance of neighbouring numbers with so many significant bits.
    fn spacing(value: f64, bits: i32) -> f64 {
        2f64.powf(value.abs().log2().floor()) * 2f64.powi(1 - bits)
    }

    /// Points evenly over the last spacing of a power of two: the mean of the rounding error is a quarter of the spacing, the
    /// largest half of it.
    #[test]
    fn errors_are_those_of_the_spacing_of_each_format() {
        for (x, band) in [(6.0, 0), (20.0, 1), (40.0, 2), (80.0, 3), (160.0, 4)] {
            for (bits, find) in [(11, 0), (8, 1)] {
                let step = spacing(x, bits);
                // 1024 points over 8 spacings from x on, at odd 256ths of one, so that no point is a tie.
                let points = (0..1024).map(|i| [(x + (2 * i + 1) as f64 * step / 256.0) as f32, 0.0, 0.0]).collect();
                let errors = coordinate_errors(&cloud(points), 10.0);
                assert_eq!((errors.bands.len(), errors.points), (1, 1024));
                let found = &errors.bands[0];
                assert_eq!(found.from_m, if band == 0 { 0.0 } else { BANDS_M[band - 1] });
                assert_eq!(found.to_m, BANDS_M.get(band).copied());
                let error = [found.f16, found.bf16][find];
                // Of three axes two are 0.
                let (mean, max) = (error.mean_m.unwrap() * 3.0, error.max_m.unwrap());
                assert!((mean / step - 0.25).abs() < 1e-3, "{x} m, {bits} bits: mean {mean}, spacing {step}");
                assert!((max / step - 127.0 / 256.0).abs() < 1e-6, "{x} m, {bits} bits: max {max}, spacing {step}");
            }
        }
    }

    #[test]
    fn in_a_block_the_error_does_not_grow_with_the_distance() {
        let near = coordinate_errors(&cloud(vec![[9.3, 0.0, 0.0]]), 10.0);
        let far = coordinate_errors(&cloud(vec![[-990.7, 0.0, 0.0]]), 10.0);
        let [near, far] = [near, far].map(|errors| errors.bands[0].f16_in_block.max_m.unwrap());
        // 9.3 lies 0.3 spacings of 2^-7 from a number; -990.7 is that in f32, 3e-5 m coarse.
        assert!((near - far).abs() < 1e-4 && near < spacing(9.3, 11) / 2.0, "{near}, {far}");
    }

    #[test]
    fn bands_are_by_the_distance_from_the_sensor_and_what_f16_cannot_hold_is_counted() {
        let mut cloud = cloud(vec![[5.0, 0.0, 0.0], [0.0, 30.0, 0.0], [0.0, 0.0, 300.0]]);
        cloud.origin = [450_000.0, 0.0, 0.0];
        cloud.sensor = Some([0.0, 0.0, 0.0]);
        let errors = coordinate_errors(&cloud, 10.0);
        let bands: Vec<(f64, usize)> = errors.bands.iter().map(|band| (band.from_m, band.points)).collect();
        assert_eq!(bands, [(0.0, 1), (25.0, 1), (100.0, 1)]);
        // The largest f16 is 65504.
        assert_eq!((errors.all.f16.out_of_range, errors.all.bf16.out_of_range, errors.all.points), (3, 0, 3));
        // 450,000 in bf16 has steps of 2,048 m: 220 of them is 450,560.
        assert_eq!(errors.bands[1].bf16.max_m, Some(560.0));
        assert_eq!(errors.all.f16_in_block.max_m, Some(0.0));
        let nothing = coordinate_errors(&PointCloud::default(), 10.0);
        assert!(nothing.bands.is_empty() && nothing.all.f16.mean_m.is_none());
    }
}
