//! SemanticKITTI `.label` of a scan: one little-endian u32 a point, class in the low 16 bits, instance in the high 16.

use std::path::Path;

use super::{atomic_write, bytes};
use crate::error::{Error, Place, Result};

/// Reads classes (ids of the file) and instances of the `points` points of the scan `cloud_path`.
///
/// # Errors
///
/// When the file cannot be read, or holds another number of labels than the scan has points: both files are named.
pub fn read_labels(path: &Path, cloud_path: &Path, points: usize) -> Result<(Vec<u16>, Vec<u32>)> {
    let bytes = bytes::load(path)?;
    bytes::refuse_foreign(path, &bytes)?;
    if bytes.len() != points.saturating_mul(4) {
        return Err(mismatch(path, bytes.len(), cloud_path, points));
    }
    let (words, _) = bytes.as_chunks::<4>();
    let words = || words.iter().map(|word| u32::from_le_bytes(*word));
    Ok((words().map(|w| w as u16).collect(), words().map(|w| w >> 16).collect()))
}

fn mismatch(path: &Path, length: usize, cloud_path: &Path, points: usize) -> Error {
    let expected = format!(
        "{} for {} of {}",
        bytes::count(points as u64, "label"),
        bytes::count(points as u64, "point"),
        cloud_path.display()
    );
    if !length.is_multiple_of(4) {
        return Error::new(path, Place::File, format!("{length} bytes"), format!("{expected}, 4 bytes each"))
            .hint("The file was cut off or holds something else");
    }
    let labels = length / 4;
    let hint = match std::fs::metadata(cloud_path).map(|m| m.len() as usize) {
        Ok(scan) if labels > 0 && scan % (4 * labels) == 0 && (3..=8).contains(&(scan / (4 * labels))) => {
            format!("The counts agree if the scan has {} floats a point", scan / (4 * labels))
        }
        _ => "The two files belong to different scans, or one was cut off or filtered".into(),
    };
    Error::new(path, Place::File, bytes::count(labels as u64, "label"), expected).hint(hint)
}

/// Writes one label a point; instances are 0 where absent.
///
/// # Errors
///
/// When the file cannot be written, or an instance does not fit in 16 bits, or the lengths differ.
pub fn write_labels(path: &Path, labels: &[u16], instances: Option<&[u32]>) -> Result<()> {
    if let Some(instances) = instances {
        if instances.len() != labels.len() {
            let found = format!("{} instances", instances.len());
            return Err(Error::new(path, Place::File, found, format!("as many as labels, {}", labels.len())));
        }
        if let Some(large) = instances.iter().find(|i| **i > 0xffff) {
            return Err(Error::new(path, Place::File, format!("instance {large}"), "at most 65535, as .label holds"));
        }
    }
    atomic_write(path, |out| {
        for (index, label) in labels.iter().enumerate() {
            let instance = instances.map_or(0, |all| all[index]);
            out.write_all(&(u32::from(*label) | instance << 16).to_le_bytes())?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{ReadOptions, read_labelled_cloud};
    use super::*;

    #[test]
    fn class_is_low_and_instance_high() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.label");
        fs::write(&path, [0xfc, 0x00, 0x07, 0x00, 0x0a, 0x00, 0xff, 0xff]).unwrap();
        let (labels, instances) = read_labels(&path, Path::new("0.bin"), 2).unwrap();
        assert_eq!(labels, [252, 10]);
        assert_eq!(instances, [7, 65_535]);
        let again = folder.path().join("1.label");
        write_labels(&again, &labels, Some(&instances)).unwrap();
        assert_eq!(fs::read(&again).unwrap(), fs::read(&path).unwrap());
    }

    #[test]
    fn another_count_names_both_files_and_the_stride_that_would_agree() {
        let folder = tempfile::tempdir().unwrap();
        let (scan, path) = (folder.path().join("7.bin"), folder.path().join("7.label"));
        // 4 points of 5 floats, read as 5 points of 4.
        fs::write(&scan, [0; 80]).unwrap();
        fs::write(&path, [0; 16]).unwrap();
        let error = read_labels(&path, &scan, 5).unwrap_err().to_string();
        assert!(error.contains("7.label: found 4 labels, expected 5 labels for 5 points of"), "{error}");
        assert!(error.contains("7.bin") && error.contains("5 floats a point"), "{error}");
    }

    #[test]
    fn labels_of_dropped_points_leave_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let (scan, path) = (folder.path().join("7.bin"), folder.path().join("7.label"));
        let floats = [1.0, 1.0, 1.0, 0.5, f32::NAN, 1.0, 1.0, 0.5, 2.0, 2.0, 2.0, 0.5];
        fs::write(&scan, floats.map(f32::to_le_bytes).concat()).unwrap();
        write_labels(&path, &[10, 11, 12], None).unwrap();
        let cloud = read_labelled_cloud(&scan, &path, &ReadOptions { bin_stride: Some(4), ..Default::default() })
            .unwrap()
            .cloud;
        assert_eq!(cloud.label, Some(vec![10, 12]));
        assert_eq!(cloud.instance, Some(vec![0, 0]));
    }

    #[test]
    fn an_instance_that_does_not_fit_is_refused_and_nothing_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.label");
        assert!(write_labels(&path, &[1], Some(&[65_536])).is_err());
        assert!(!path.exists());
    }
}
