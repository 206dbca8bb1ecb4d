//! KITTI odometry `calib.txt` and `poses.txt`: rows of twelve numbers, the upper 3 x 4 part of a rigid transform.

use std::collections::BTreeMap;
use std::path::Path;

use glam::{DMat4, DVec4};

use super::bytes::{self, quote};
use crate::error::{Error, Place, Result};

/// Reads the 3 x 4 matrices of a `calib.txt` by name (`P0`, `Tr`). Lines of other lengths (dates, 3 x 3 rotations) are
/// skipped.
///
/// # Errors
///
/// When the file cannot be read, or a matrix holds something that is no number.
pub fn read_calibration(path: &Path) -> Result<BTreeMap<String, DMat4>> {
    Ok(calibration(path)?.into_iter().map(|(name, (_, matrix))| (name, matrix)).collect())
}

/// Each matrix with its line.
fn calibration(path: &Path) -> Result<BTreeMap<String, (u64, DMat4)>> {
    let mut matrices = BTreeMap::new();
    for (number, line) in lines(path)? {
        if let Some((name, values)) = line.split_once(':')
            && values.split_whitespace().count() == 12
        {
            matrices.insert(name.trim().to_owned(), (number, matrix(path, number, values)?));
        }
    }
    Ok(matrices)
}

/// The camera's frame from the LiDAR's, `Tr` of a `calib.txt`.
///
/// # Errors
///
/// As [`read_calibration`], and for a file without `Tr` or with one that is no rigid motion.
pub fn read_camera_from_lidar(path: &Path) -> Result<DMat4> {
    let Some((line, camera_from_lidar)) = calibration(path)?.remove("Tr") else {
        return Err(Error::new(path, Place::File, "no line Tr:", "the LiDAR's pose as Tr: and 12 numbers").hint(
            "Take calib.txt of the odometry benchmark; if the poses are the LiDAR's own, write the identity: \
             Tr: 1 0 0 0 0 1 0 0 0 0 1 0",
        ));
    };
    check_rigid(&camera_from_lidar).map_err(|found| {
        Error::new(path, Place::Line(line), format!("as Tr {found}"), "a rotation and a shift, metres")
    })?;
    Ok(camera_from_lidar)
}

/// Reads one camera pose a line (world from camera); blank lines are skipped.
///
/// # Errors
///
/// When the file cannot be read, or a line is not twelve numbers or no rigid motion.
pub fn read_poses(path: &Path) -> Result<Vec<DMat4>> {
    lines(path)?
        .into_iter()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let pose = matrix(path, number, &line)?;
            check_rigid(&pose).map_err(|found| {
                Error::new(path, Place::Line(number), found, "a rotation and a place (world from camera, metres)")
            })?;
            Ok(pose)
        })
        .collect()
}

/// How far the lengths of axes and quaternions may be from 1, and axes from right angles: files are rounded.
pub(super) const ROUNDING: f64 = 0.01;
/// No place is as far from the origin as this, metres: ten times the way from the middle of the Earth to its surface.
const FARTHEST_M: f64 = 64e6;

/// `Err` says what was found instead of a rotation and a place.
pub(super) fn check_rigid(pose: &DMat4) -> std::result::Result<(), String> {
    let [x, y, z] = [pose.x_axis, pose.y_axis, pose.z_axis].map(DVec4::truncate);
    let longest = [x, y, z].map(|axis| (axis.length() - 1.0).abs()).into_iter().fold(0.0, f64::max);
    let skew = [x.dot(y), y.dot(z), z.dot(x)].map(f64::abs).into_iter().fold(0.0, f64::max);
    if longest > ROUNDING || skew > ROUNDING {
        return Err("a matrix that is no rotation (its axes are not of length 1 and at right angles)".into());
    }
    if x.cross(y).dot(z) < 0.0 {
        return Err("a matrix that mirrors".into());
    }
    let distance = pose.w_axis.truncate().length();
    if distance > FARTHEST_M {
        return Err(format!("a place {distance:e} m away"));
    }
    Ok(())
}

/// LiDAR poses from camera poses: `Tr^-1 * P * Tr` with `Tr` = camera from LiDAR, so that the world has the LiDAR's axes.
pub fn lidar_poses(camera_poses: &[DMat4], camera_from_lidar: &DMat4) -> Vec<DMat4> {
    let lidar_from_camera = camera_from_lidar.inverse();
    camera_poses.iter().map(|pose| lidar_from_camera * *pose * *camera_from_lidar).collect()
}

/// Lines with their numbers from 1 on.
pub(super) fn lines(path: &Path) -> Result<Vec<(u64, String)>> {
    let bytes = bytes::load(path)?;
    bytes::refuse_foreign(path, &bytes)?;
    let text = String::from_utf8_lossy(bytes::without_bom(&bytes));
    Ok(text.lines().enumerate().map(|(index, line)| (index as u64 + 1, line.to_owned())).collect())
}

fn matrix(path: &Path, line: u64, text: &str) -> Result<DMat4> {
    let mut rows = [0.0; 16];
    rows[15] = 1.0;
    let mut found = 0;
    for word in text.split_whitespace() {
        let value: f64 = word
            .parse()
            .ok()
            .filter(|v: &f64| v.is_finite())
            .ok_or_else(|| Error::new(path, Place::Line(line), quote(word.as_bytes()), "a finite number"))?;
        if let Some(slot) = rows.get_mut(found).filter(|_| found < 12) {
            *slot = value;
        }
        found += 1;
    }
    if found != 12 {
        return Err(Error::new(path, Place::Line(line), bytes::count(found as u64, "number"), "12, a 3 x 4 matrix"));
    }
    Ok(DMat4::from_cols_array(&rows).transpose())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use glam::DVec3;

    use super::*;

    #[test]
    fn rows_become_transforms_and_odd_lines_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calib.txt");
        fs::write(&path, "calib_time: 09-Jan-2012\nR0: 1 0 0 0 1 0 0 0 1\nTr: 0 -1 0 1 0 0 -1 2 1 0 0 3\n").unwrap();
        let calibration = read_calibration(&path).unwrap();
        assert_eq!(calibration.keys().collect::<Vec<_>>(), ["Tr"]);
        // (x, y, z) to (-y + 1, -z + 2, x + 3)
        assert_eq!(calibration["Tr"].transform_point3(DVec3::new(10.0, 20.0, 30.0)), DVec3::new(-19.0, -28.0, 13.0));
    }

    #[test]
    fn a_camera_that_moves_forward_moves_the_lidar_forward() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("poses.txt");
        // Camera axes: x right, y down, z forward; 5 m forward.
        fs::write(&path, "1 0 0 0 0 1 0 0 0 0 1 5\n\n").unwrap();
        let poses = read_poses(&path).unwrap();
        let camera_from_lidar =
            DMat4::from_cols_array(&[0.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        let lidar = lidar_poses(&poses, &camera_from_lidar);
        assert_eq!(lidar.len(), 1);
        assert_eq!(lidar[0].transform_point3(DVec3::ZERO), DVec3::new(5.0, 0.0, 0.0));
    }

    #[test]
    fn a_bad_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("poses.txt");
        fs::write(&path, "1 0 0 0 0 1 0 0 0 0 1 5\n1 2 3\n").unwrap();
        assert!(read_poses(&path).unwrap_err().to_string().contains("line 2: found 3 numbers, expected 12"));
        fs::write(&path, "1 0 0 0 0 1 0 0 0 0 1 x\n").unwrap();
        assert!(read_poses(&path).unwrap_err().to_string().contains("line 1: found \"x\""));
    }

    #[test]
    fn what_is_no_rigid_motion_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let [poses, calibration] = ["poses.txt", "calib.txt"].map(|name| folder.path().join(name));
        let cases = [
            ("0 0 0 0 0 0 0 0 0 0 0 0", "no rotation"),
            ("1e30 0 0 0 0 1 0 0 0 0 1 0", "no rotation"),
            ("1 0 0 0 0 1 0 0 0 0 -1 0", "mirrors"),
            ("1 0 0 1e20 0 1 0 0 0 0 1 0", "a place 1e20 m away"),
        ];
        for (matrix, expected) in cases {
            fs::write(&poses, format!("1 0 0 0 0 1 0 0 0 0 1 5\n{matrix}\n")).unwrap();
            let text = read_poses(&poses).unwrap_err().to_string();
            assert!(text.contains("poses.txt, line 2: found a") && text.contains(expected), "{text}");
            fs::write(&calibration, format!("P0: {matrix}\n\nTr: {matrix}\n")).unwrap();
            let text = read_camera_from_lidar(&calibration).unwrap_err().to_string();
            assert!(text.contains("calib.txt, line 3: found as Tr") && text.contains(expected), "{text}");
        }
    }
}
