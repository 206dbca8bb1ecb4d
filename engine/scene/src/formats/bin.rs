//! KITTI, nuScenes, Lyft, Waymo and ScanNet `.bin`: rows of 32-bit little-endian floats, and no header to say how many
//! make a point.

use std::ops::RangeInclusive;
use std::path::Path;

use super::bytes::{self, count};
use super::{ReadCloud, ReadOptions};
use crate::cloud::PointCloud;
use crate::error::{Error, Place, Result};

/// Floats a point that occur in practice, the likeliest first.
const KNOWN_STRIDES: [usize; 4] = [4, 5, 6, 3];
const STRIDES: RangeInclusive<usize> = 3..=64;
/// Rows looked at to guess the stride.
const SAMPLED_ROWS: usize = 4096;
/// No LiDAR sees farther; larger values come from bytes that are no coordinates.
const FARTHEST_M: f32 = 100_000.0;
/// Far below what rounding leaves of a coordinate or an intensity.
const SMALLEST: f32 = 1e-20;
/// 256 x 256 x 32 bits.
const VOXEL_FILE_BYTES: usize = 262_144;

/// What the columns behind x, y, z hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extra {
    None,
    Intensity,
    IntensityRing,
    /// Red, green, blue in 0..255 or 0..1.
    Colour,
}

/// The floats of a file as rows of `stride`; the division was checked.
#[derive(Clone, Copy)]
struct Rows<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl Rows<'_> {
    fn len(self) -> usize {
        self.bytes.len() / (4 * self.stride)
    }

    fn value(self, row: usize, column: usize) -> f32 {
        let at = 4 * (row * self.stride + column);
        let four = self.bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or_default();
        f32::from_le_bytes(four)
    }

    /// Evenly picked row numbers.
    fn sampled(self) -> impl Iterator<Item = usize> {
        (0..self.len()).step_by(self.len().div_ceil(SAMPLED_ROWS).max(1))
    }

    /// NaN proves nothing: it marks a missing return.
    fn column_is(self, column: usize, accept: impl Fn(f32) -> bool) -> bool {
        self.sampled().map(|row| self.value(row, column)).all(|value| value.is_nan() || accept(value))
    }
}

pub(super) fn read(path: &Path, file: &[u8], options: &ReadOptions) -> Result<ReadCloud> {
    refuse_other_bins(path, file)?;
    let mut notes = Vec::new();
    let rows = match options.bin_stride {
        Some(stride) => given(path, file, stride)?,
        None => guess(path, file, &mut notes)?,
    };
    bytes::check_room(path, rows.len())?;
    let extra = extra_columns(rows);
    let column = |index: usize| (0..rows.len()).map(move |row| rows.value(row, index));
    let mut cloud = PointCloud {
        positions: (0..rows.len()).map(|row| std::array::from_fn(|axis| rows.value(row, axis))).collect(),
        // A scan lies in the frame of its sensor; coloured clouds are put together from many views.
        sensor: (extra != Extra::Colour).then_some([0.0; 3]),
        ..PointCloud::default()
    };
    let used = match extra {
        Extra::None => 3,
        Extra::Intensity => {
            cloud.intensity = Some(column(3).collect());
            4
        }
        Extra::IntensityRing => {
            cloud.intensity = Some(column(3).collect());
            cloud.ring = Some(column(4).map(|ring| ring as u16).collect());
            5
        }
        Extra::Colour => {
            let scale = if (3..6).all(|c| rows.column_is(c, |v| v <= 1.0)) { 255.0 } else { 1.0 };
            let channel = |row, c| (rows.value(row, 3 + c) * scale).round() as u8;
            cloud.colour = Some((0..rows.len()).map(|row| std::array::from_fn(|c| channel(row, c))).collect());
            6
        }
    };
    if used < rows.stride {
        notes.push(format!("columns {} to {} of the .bin are not used", used + 1, rows.stride));
    }
    let columns = match extra {
        Extra::None => "x y z",
        Extra::Intensity => "x y z intensity",
        Extra::IntensityRing => "x y z intensity ring",
        Extra::Colour => "x y z red green blue",
    };
    let family = if extra == Extra::IntensityRing { "nuScenes" } else { "KITTI" };
    let format = format!("{family} .bin, {} floats a point ({columns})", rows.stride);
    Ok(ReadCloud { cloud, format, notes })
}

fn given<'a>(path: &Path, bytes: &'a [u8], stride: usize) -> Result<Rows<'a>> {
    if !STRIDES.contains(&stride) {
        let expected = format!("{} to {} (x, y, z first)", STRIDES.start(), STRIDES.end());
        return Err(Error::new(path, Place::File, format!("a stride of {stride} floats a point"), expected));
    }
    if bytes.len().is_multiple_of(4 * stride) {
        return Ok(Rows { bytes, stride });
    }
    let expected = format!("a multiple of {} ({stride} floats a point)", 4 * stride);
    Err(Error::new(path, Place::File, count(bytes.len() as u64, "byte"), expected).hint(fitting(bytes.len())))
}

/// Which strides a length would fit, for a hint.
fn fitting(length: usize) -> String {
    let fits: Vec<String> = KNOWN_STRIDES
        .iter()
        .filter(|s| length.is_multiple_of(4 * **s))
        .map(|s| format!("{s} ({})", count((length / (4 * s)) as u64, "point")))
        .collect();
    if fits.is_empty() {
        "No usual stride fits: the download or copy was probably cut off".into()
    } else {
        format!("A stride that would fit: {}. Otherwise the file was cut off", fits.join(", "))
    }
}

/// The stride whose columns make sense. Where several do, one with an unmistakable column, then that whose columns
/// change least from point to point.
fn guess<'a>(path: &Path, bytes: &'a [u8], notes: &mut Vec<String>) -> Result<Rows<'a>> {
    let fitting_rows: Vec<Rows> = KNOWN_STRIDES
        .iter()
        .filter(|s| bytes.len().is_multiple_of(4 * **s))
        .map(|s| Rows { bytes, stride: *s })
        .collect();
    if fitting_rows.is_empty() {
        let expected = "a multiple of 12, 16, 20 or 24 (3 to 6 floats a point)";
        return Err(Error::new(path, Place::File, count(bytes.len() as u64, "byte"), expected)
            .hint("The download or copy was probably cut off, or the file holds no points"));
    }
    let plausible: Vec<Rows> = fitting_rows.iter().copied().filter(|rows| is_plausible(*rows)).collect();
    let doubt = |rows: &Rows| (!is_unmistakable(*rows), roughness(*rows));
    let best = plausible.iter().copied().min_by(|a, b| {
        let (a, b) = (doubt(a), doubt(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let Some(rows) = best else {
        let strides: Vec<String> = fitting_rows.iter().map(|rows| rows.stride.to_string()).collect();
        let found = format!("values that make no sense as {} floats a point", strides.join(" or "));
        return Err(Error::new(path, Place::File, found, "coordinates in metres and what goes with them")
            .hint("If it is a point file, give its stride"));
    };
    let others: Vec<String> =
        fitting_rows.iter().filter(|r| r.stride != rows.stride).map(|r| r.stride.to_string()).collect();
    let also = if others.is_empty() { String::new() } else { format!("; {} would divide too", others.join(", ")) };
    notes.push(format!("guessed {} floats a point from the values{also}", rows.stride));
    Ok(rows)
}

fn is_plausible(rows: Rows) -> bool {
    (0..3).all(|c| rows.column_is(c, |v| v.abs() <= FARTHEST_M))
        && match rows.stride {
            3 => true,
            4 => rows.column_is(3, is_strength),
            5 => rows.column_is(3, is_strength) && rows.column_is(4, is_ring),
            _ => is_colour(rows) || rows.column_is(3, |v| v >= 0.0),
        }
}

/// Under a wrong stride every column cycles through all of them, so a column that differs from the coordinates in kind
/// settles it, even for few points.
fn is_unmistakable(rows: Rows) -> bool {
    match rows.stride {
        4 => rows.column_is(3, |v| (0.0..=1.0).contains(&v)) && !(0..3).all(|c| rows.column_is(c, |v| v.abs() <= 1.0)),
        5 => !(0..3).all(|c| rows.column_is(c, |v| v.fract() == 0.0)),
        _ => false,
    }
}

fn is_strength(v: f32) -> bool {
    (0.0..=65_535.0).contains(&v)
}

fn is_ring(v: f32) -> bool {
    (0.0..=255.0).contains(&v) && v.fract() == 0.0
}

fn is_colour(rows: Rows) -> bool {
    let all = |accept: fn(f32) -> bool| (3..6).all(|c| rows.column_is(c, accept));
    all(|v| (0.0..=1.0).contains(&v)) || all(|v| (0.0..=255.0).contains(&v) && v.fract() == 0.0)
}

fn extra_columns(rows: Rows) -> Extra {
    match rows.stride {
        3 => Extra::None,
        5 if rows.column_is(4, is_ring) => Extra::IntensityRing,
        6 if is_colour(rows) => Extra::Colour,
        _ => Extra::Intensity,
    }
}

/// Mean change of a column from one row to the next over that of all columns; small where rows are points.
fn roughness(rows: Rows) -> f64 {
    let (mut sum, mut terms) = (0.0, 0_u32);
    for row in rows.sampled().filter(|row| row + 1 < rows.len()) {
        for column in 0..rows.stride {
            let change = f64::from(rows.value(row, column)) - f64::from(rows.value(row + 1, column));
            if change.is_finite() {
                sum += change.abs();
                terms += 1;
            }
        }
    }
    if terms == 0 { f64::MAX } else { sum / f64::from(terms) }
}

/// `.bin` files of the same data sets that hold something else.
fn refuse_other_bins(path: &Path, bytes: &[u8]) -> Result<()> {
    // A scan of 16,384 points has the same length, so the length alone proves nothing.
    if bytes.len() == VOXEL_FILE_BYTES {
        let in_voxels = bytes::is_in_folder(path, "voxels");
        let voxel_label =
            std::fs::metadata(path.with_extension("label")).is_ok_and(|m| m.len() == 16 * bytes.len() as u64);
        let why = if in_voxels {
            "it lies in a folder voxels"
        } else if voxel_label {
            "the .label beside it is that of a grid"
        } else if are_bits(bytes) {
            "as floats its values make no sense"
        } else {
            return Ok(());
        };
        let found = format!("a SemanticKITTI voxel grid of one bit a voxel ({VOXEL_FILE_BYTES} bytes, and {why})");
        return Err(Error::new(path, Place::File, found, "a scan")
            .hint("The scan of the same number lies in the folder velodyne"));
    }
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if name.ends_with("_lidarseg.bin") {
        return Err(Error::new(path, Place::File, "nuScenes labels (one byte a point)", "a scan")
            .hint("Name the .pcd.bin that they belong to"));
    }
    Ok(())
}

/// Whether floats are bits of something else: no value but 0, or one in ten absurdly small, far or no number. Sparse
/// bits read as floats give 0 and values that no sensor measures.
fn are_bits(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<4>();
    let values = words.iter().map(|word| f32::from_le_bytes(*word)).filter(|value| *value != 0.0);
    let (mut all, mut absurd) = (0_usize, 0_usize);
    for value in values {
        all += 1;
        absurd += usize::from(!(SMALLEST..=FARTHEST_M).contains(&value.abs()));
    }
    absurd * 10 >= all
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::read_cloud;
    use super::*;

    /// A turning beam: `stride` columns as in the data set of that stride.
    fn scan(points: usize, stride: usize) -> Vec<u8> {
        let row = |i: usize| {
            let (azimuth, ring) = (i as f32 / 32.0 * 0.01, i % 32);
            let range = 8.0 + (azimuth * 7.0).sin() * 3.0;
            let mut values = vec![range * azimuth.cos(), range * azimuth.sin(), ring as f32 * 0.1 - 2.0];
            match stride {
                4 => values.push((i % 100) as f32 / 100.0),
                5 => values.extend([(i % 256) as f32, ring as f32]),
                6 => values.extend([(i % 256) as f32, (i % 7) as f32, 255.0]),
                _ => {}
            }
            values
        };
        (0..points).flat_map(row).flat_map(f32::to_le_bytes).collect()
    }

    fn read_as(name: &str, bytes: &[u8], options: ReadOptions) -> Result<ReadCloud> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        read_cloud(&path, &options)
    }

    #[test]
    fn the_stride_is_guessed_where_every_stride_divides() {
        for stride in [3, 4, 5, 6] {
            let read = read_as("scan.bin", &scan(7200, stride), ReadOptions::default()).unwrap();
            assert!(read.format.contains(&format!("{stride} floats a point")), "{}", read.format);
            assert_eq!(read.cloud.len(), 7200);
            assert!(read.notes[0].contains(&format!("guessed {stride} floats")), "{:?}", read.notes);
        }
    }

    #[test]
    fn fifteen_scattered_points_are_enough_to_guess() {
        let scattered = |i: usize| ((i * 7919) % 1009) as f32 * 0.137 - 70.0;
        for stride in [4, 5] {
            let row = |i: usize| {
                let mut row: Vec<f32> = (0..3).map(|axis| scattered(3 * i + axis)).collect();
                row.extend(if stride == 4 { vec![i as f32 / 15.0] } else { vec![17.0 * i as f32, (i % 4) as f32] });
                row
            };
            let bytes: Vec<u8> = (0..15).flat_map(row).flat_map(f32::to_le_bytes).collect();
            let read = read_as("scan.bin", &bytes, ReadOptions::default()).unwrap();
            assert!(read.format.contains(&format!("{stride} floats a point")), "{}", read.format);
        }
    }

    #[test]
    fn kitti_has_intensity_and_a_known_sensor() {
        let bytes: Vec<u8> =
            [1.0_f32, 2.0, 3.0, 0.5, 4.0, -5.0, 6.0, 0.25].into_iter().flat_map(f32::to_le_bytes).collect();
        let cloud = read_as("a.bin", &bytes, ReadOptions::default()).unwrap().cloud;
        assert_eq!(cloud.positions, [[1.0, 2.0, 3.0], [4.0, -5.0, 6.0]]);
        assert_eq!(cloud.intensity, Some(vec![0.5, 0.25]));
        assert_eq!(cloud.sensor, Some([0.0; 3]));
    }

    #[test]
    fn nuscenes_has_a_ring() {
        let cloud = read_as("a.pcd.bin", &scan(64, 5), ReadOptions::default()).unwrap().cloud;
        assert_eq!(cloud.ring.unwrap()[..3], [0, 1, 2]);
        assert_eq!(cloud.intensity.unwrap()[..3], [0.0, 1.0, 2.0]);
    }

    #[test]
    fn coloured_rows_have_no_sensor() {
        let cloud =
            read_as("a.bin", &scan(70, 6), ReadOptions { bin_stride: Some(6), ..Default::default() }).unwrap().cloud;
        assert_eq!(cloud.colour.unwrap()[1], [1, 1, 255]);
        assert_eq!(cloud.sensor, None);
    }

    #[test]
    fn a_given_stride_that_does_not_divide_names_those_that_do() {
        // 9,856 KITTI points: 39,424 floats, not divisible by 5.
        let options = ReadOptions { bin_stride: Some(5), ..ReadOptions::default() };
        let error = read_as("a.bin", &scan(9856, 4), options).unwrap_err().to_string();
        assert!(error.contains("157696 bytes") && error.contains("multiple of 20"), "{error}");
        assert!(error.contains("4 (9856 points)"), "{error}");
    }

    #[test]
    fn a_length_that_fits_no_stride_is_refused() {
        let error = read_as("a.bin", &scan(3, 4)[..46], ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("found 46 bytes") && error.contains("cut off"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_coordinates_are_refused() {
        let error = read_as("a.bin", &[0x7e; 240], ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("make no sense"), "{error}");
    }

    #[test]
    fn a_scan_of_the_length_of_a_voxel_file_is_a_scan_unless_the_folder_says_otherwise() {
        let bytes = scan(16_384, 4);
        assert_eq!(bytes.len(), 262_144);
        assert_eq!(read_as("velodyne/000000.bin", &bytes, ReadOptions::default()).unwrap().cloud.len(), 16_384);
        let error = read_as("voxels/000000.bin", &bytes, ReadOptions::default()).unwrap_err().to_string();
        assert!(
            error.contains("voxel grid of one bit a voxel (262144 bytes, and it lies in a folder voxels)"),
            "{error}"
        );
        assert!(error.contains("folder velodyne"), "{error}");
    }

    #[test]
    fn bits_of_voxels_outside_their_folder_are_told_by_their_values() {
        // Streets: a plane of voxels, walls, scattered ones, none, all.
        let plane = (0..262_144).map(|i| if i % 4 == 0 { 0b0001_0000 } else { 0 }).collect::<Vec<u8>>();
        let walls = (0..262_144).map(|i| if i / 4 % 97 < 9 { 0xff } else { 0 }).collect();
        let scattered =
            (0..262_144_u32).map(|i| if i.wrapping_mul(2_654_435_761) >> 25 == 0 { 1 << (i % 8) } else { 0 }).collect();
        for bits in [plane, walls, scattered, vec![0; 262_144], vec![0xff; 262_144]] {
            for stride in [None, Some(4)] {
                let options = ReadOptions { bin_stride: stride, ..ReadOptions::default() };
                let error = read_as("000000.bin", &bits, options).unwrap_err().to_string();
                assert!(error.contains("voxel grid") && error.contains("values make no sense"), "{error}");
            }
        }
    }

    #[test]
    fn nan_points_leave_with_their_columns() {
        let mut bytes = scan(100, 4);
        bytes[16..20].copy_from_slice(&f32::NAN.to_le_bytes());
        let read = read_as("a.bin", &bytes, ReadOptions { bin_stride: Some(4), ..Default::default() }).unwrap();
        assert_eq!((read.cloud.len(), read.cloud.dropped_non_finite), (99, 1));
        assert_eq!(read.cloud.intensity.unwrap()[1], 0.02);
        assert!(read.notes.iter().any(|n| n.contains("dropped 1 point ")), "{:?}", read.notes);
    }
}
