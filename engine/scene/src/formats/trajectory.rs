//! Poses of scans as mapping programs write them: rows of a 3 x 4 or 4 x 4 matrix, or time, place and quaternion.

use std::path::Path;

use glam::{DMat4, DQuat, DVec3};

use super::atomic_write;
use super::bytes::{count, quote};
use super::poses::{ROUNDING, check_rigid, lines};
use crate::error::{Error, Place, Result};

/// How a file writes its poses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoseFormat {
    /// Twelve numbers a line, the upper 3 x 4 part of the matrix row by row (KITTI).
    Rows3x4,
    /// Sixteen numbers a line, or four lines of four: the 4 x 4 matrix row by row.
    Matrix4x4,
    /// Eight numbers a line: time, x, y, z, and the quaternion qx, qy, qz, qw (TUM).
    Tum,
}

impl PoseFormat {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows3x4 => "3 x 4 matrices, as KITTI",
            Self::Matrix4x4 => "4 x 4 matrices",
            Self::Tum => "time, place and quaternion, as TUM",
        }
    }
}

/// What a line may hold, for errors.
const EXPECTED: &str = "12 numbers (3 x 4 matrix, as KITTI), 16 (4 x 4 matrix) or 8 (time x y z qx qy qz qw, as TUM)";

/// Reads poses in the order of the file, metres, each taking points of the scan to the world. Blank lines and lines that
/// begin with `#` are skipped; commas count as blanks.
///
/// # Errors
/// When the file cannot be read or holds no pose, for a line of another length than the first, and for numbers that are
/// no rigid motion.
pub fn read_trajectory(path: &Path) -> Result<(Vec<DMat4>, PoseFormat)> {
    let rows = rows(path)?;
    let Some((first_line, first)) = rows.first() else {
        return Err(Error::new(path, Place::File, "no poses", "one a scan").hint(format!("A line holds {EXPECTED}")));
    };
    let length = first.len();
    if let Some((line, row)) = rows.iter().find(|(_, row)| row.len() != length) {
        let expected = format!("{length}, as in line {first_line}");
        return Err(Error::new(path, Place::Line(*line), count(row.len() as u64, "number"), expected));
    }
    let (format, together) = match (length, rows.len()) {
        (12, _) => (PoseFormat::Rows3x4, 1),
        (16, _) => (PoseFormat::Matrix4x4, 1),
        (8, _) => (PoseFormat::Tum, 1),
        (4, 3) => (PoseFormat::Rows3x4, 3),
        (4, all) if all % 4 == 0 => (PoseFormat::Matrix4x4, 4),
        _ => {
            return Err(Error::new(path, Place::Line(*first_line), count(length as u64, "number"), EXPECTED));
        }
    };
    if format == PoseFormat::Tum
        && let Some(two) = rows.windows(2).find(|two| two[1].1[0] < two[0].1[0])
    {
        let found = format!("a time of {} after {}", two[1].1[0], two[0].1[0]);
        return Err(Error::new(path, Place::Line(two[1].0), found, "times that ascend, as the scans do"));
    }
    let poses = rows.chunks(together).map(|lines| {
        let numbers: Vec<f64> = lines.iter().flat_map(|(_, row)| row.iter().copied()).collect();
        let line = lines.first().map_or(0, |(line, _)| *line);
        pose(&numbers, format).map_err(|found| {
            Error::new(path, Place::Line(line), found, "a rotation and a place (world from sensor, metres)")
        })
    });
    Ok((poses.collect::<Result<_>>()?, format))
}

/// Writes poses as [`read_trajectory`] reads them, twelve numbers a line.
///
/// # Errors
/// When the file cannot be written.
pub fn write_trajectory(path: &Path, poses: &[DMat4]) -> Result<()> {
    atomic_write(path, |out| {
        poses.iter().try_for_each(|pose| {
            let rows = pose.transpose().to_cols_array();
            let words: Vec<String> = rows[..12].iter().map(|number| format!("{number:.9}")).collect();
            writeln!(out, "{}", words.join(" "))
        })
    })
}

fn rows(path: &Path) -> Result<Vec<(u64, Vec<f64>)>> {
    let mut rows = Vec::new();
    for (number, line) in lines(path)? {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
        let row = words.map(|word| {
            let value = word.parse().ok().filter(|v: &f64| v.is_finite());
            value.ok_or_else(|| Error::new(path, Place::Line(number), quote(word.as_bytes()), "a finite number"))
        });
        rows.push((number, row.collect::<Result<_>>()?));
    }
    Ok(rows)
}

/// `Err` says what was found instead of a pose.
fn pose(numbers: &[f64], format: PoseFormat) -> Result<DMat4, String> {
    if format == PoseFormat::Tum {
        let &[_, x, y, z, qx, qy, qz, qw] = numbers else { return Err(count(numbers.len() as u64, "number")) };
        let turn = DQuat::from_xyzw(qx, qy, qz, qw);
        if (turn.length() - 1.0).abs() > ROUNDING {
            return Err(format!("a quaternion of length {:.3}", turn.length()));
        }
        let pose = DMat4::from_rotation_translation(turn.normalize(), DVec3::new(x, y, z));
        check_rigid(&pose)?;
        return Ok(pose);
    }
    let mut rows = [0.0; 16];
    rows[15] = 1.0;
    rows.iter_mut().zip(numbers).for_each(|(slot, number)| *slot = *number);
    if rows[12..] != [0.0, 0.0, 0.0, 1.0] {
        let turned = [rows[3], rows[7], rows[11], rows[15]] == [0.0, 0.0, 0.0, 1.0];
        let why = if turned { " (the matrix seems to be written column by column)" } else { "" };
        return Err(format!("{:?} as the last row of a matrix{why}", &rows[12..]));
    }
    let pose = DMat4::from_cols_array(&rows).transpose();
    check_rigid(&pose)?;
    Ok(pose)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<DMat4>, PoseFormat), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("poses.txt");
        std::fs::write(&path, text).unwrap();
        read_trajectory(&path).map_err(|e| e.to_string())
    }

    /// A quarter turn to the left at (1, 2, 3): forward becomes left.
    fn is_the_quarter_turn(pose: DMat4) {
        let moved = pose.transform_point3(DVec3::new(10.0, 0.0, 0.5));
        assert!((moved - DVec3::new(1.0, 12.0, 3.5)).length() < 1e-6, "{moved}");
    }

    #[test]
    fn every_format_gives_the_same_pose() {
        let cases = [
            ("0 -1 0 1 1 0 0 2 0 0 1 3\n", PoseFormat::Rows3x4),
            ("0 -1 0 1\n1 0 0 2\n0 0 1 3\n", PoseFormat::Rows3x4),
            ("0 -1 0 1 1 0 0 2 0 0 1 3 0 0 0 1", PoseFormat::Matrix4x4),
            ("0 -1 0 1\n1 0 0 2\n\n0 0 1 3\n0 0 0 1\n", PoseFormat::Matrix4x4),
            ("# time x y z qx qy qz qw\n17.5 1 2 3 0 0 0.70710678 0.70710678\n", PoseFormat::Tum),
            ("17.5,1,2,3,0,0,0.7071,0.7071\r\n", PoseFormat::Tum),
        ];
        for (text, expected) in cases {
            let (poses, format) = read(text).unwrap();
            assert_eq!((poses.len(), format), (1, expected), "{text}");
            is_the_quarter_turn(poses[0]);
        }
        let two = read("0 -1 0 1 1 0 0 2 0 0 1 3\n1 0 0 0 0 1 0 0 0 0 1 0\n").unwrap().0;
        is_the_quarter_turn(two[0]);
        assert_eq!(two[1], DMat4::IDENTITY);
        assert_eq!(read(&"0 -1 0 1\n1 0 0 2\n0 0 1 3\n0 0 0 1\n".repeat(3)).unwrap().0.len(), 3);
    }

    #[test]
    fn poses_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("poses.txt");
        let turn = DQuat::from_euler(glam::EulerRot::ZYX, 0.4, -0.2, 0.1);
        let poses = [DMat4::IDENTITY, DMat4::from_rotation_translation(turn, DVec3::new(1234.5, -7.25, 3.0))];
        write_trajectory(&path, &poses).unwrap();
        let (read, format) = read_trajectory(&path).unwrap();
        assert_eq!(format, PoseFormat::Rows3x4);
        for (a, b) in read.iter().zip(poses) {
            assert!(a.abs_diff_eq(b, 1e-8), "{a} {b}");
        }
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn what_is_no_pose_names_its_line() {
        let identity = "1 0 0 0 0 1 0 0 0 0 1 0\n";
        let cases = [
            (format!("{identity}1 2 3\n"), "line 2: found 3 numbers, expected 12, as in line 1"),
            (format!("{identity}1 0 0 0 0 1 0 0 0 0 1 here\n"), "line 2: found \"here\", expected a finite number"),
            (format!("{identity}1 0 0 0 0 1 0 0 0 0 1 nan\n"), "line 2: found \"nan\""),
            ("1 2 3 4 5\n".into(), "found 5 numbers, expected 12 numbers (3 x 4 matrix"),
            ("1000 0 0 0 0 1000 0 0 0 0 1000 0\n".into(), "no rotation"),
            ("1 0 0 0 0 1 0 0 0 0 -1 0\n".into(), "mirrors"),
            ("0 1 2 3 0 0 0 0\n".into(), "quaternion of length 0.000"),
            ("2 1 2 3 0 0 0 1\n2 1 2 3 0 0 0 1\n1.5 1 2 3 0 0 0 1\n".into(), "line 3: found a time of 1.5 after 2"),
            ("0 1e20 2 3 0 0 0 1\n".into(), "a place 1e20 m away"),
            ("1 0 0 0 0 1 0 0 0 0 1 0 5 6 7 1\n".into(), "column by column"),
            ("# nothing\n".into(), "no poses"),
        ];
        for (text, expected) in cases {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
