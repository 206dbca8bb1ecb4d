//! SemanticKITTI `.label` of a scan: one little-endian u32 a point, class in the low 16 bits, instance in the high 16.
//! Files of voxels have the same ending and one u16 a voxel.

use std::path::Path;

use super::{atomic_write, bytes};
use crate::error::{Error, Place, Result};

/// 256 x 256 x 32 u16.
const VOXEL_LABEL_BYTES: usize = 4_194_304;

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
    Ok(split(&bytes))
}

/// Ids in a `.label` without the scan or grid it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelFile {
    /// One entry a point in each.
    Points { classes: Vec<u16>, instances: Vec<u32> },
    /// One a voxel of 256 x 256 x 32, z fastest.
    Voxels(Vec<u16>),
}

/// Reads a `.label` by itself. One of 4,194,304 bytes holds voxels unless it lies in a folder `labels`; one in a folder
/// `voxels` always does.
///
/// # Errors
///
/// When the file cannot be read, or its length is not four bytes a point, or not that of a grid.
pub fn read_label_file(path: &Path) -> Result<LabelFile> {
    let bytes = bytes::load(path)?;
    bytes::refuse_foreign(path, &bytes)?;
    let in_voxels = bytes::is_in_folder(path, "voxels");
    if in_voxels && bytes.len() != VOXEL_LABEL_BYTES {
        let expected = format!("{VOXEL_LABEL_BYTES}: two bytes a voxel of a 256x256x32 grid");
        return Err(Error::new(path, Place::File, bytes::count(bytes.len() as u64, "byte"), expected)
            .hint("The file was cut off, or it is of another grid"));
    }
    if in_voxels || (bytes.len() == VOXEL_LABEL_BYTES && !bytes::is_in_folder(path, "labels")) {
        let (words, _) = bytes.as_chunks::<2>();
        return Ok(LabelFile::Voxels(words.iter().map(|word| u16::from_le_bytes(*word)).collect()));
    }
    if !bytes.len().is_multiple_of(4) {
        let found = bytes::count(bytes.len() as u64, "byte");
        return Err(Error::new(path, Place::File, found, "a multiple of 4: one u32 a point")
            .hint("The file was cut off, or its labels are of another width"));
    }
    let (classes, instances) = split(&bytes);
    Ok(LabelFile::Points { classes, instances })
}

fn split(bytes: &[u8]) -> (Vec<u16>, Vec<u32>) {
    let (words, _) = bytes.as_chunks::<4>();
    let words = || words.iter().map(|word| u32::from_le_bytes(*word));
    (words().map(|w| w as u16).collect(), words().map(|w| w >> 16).collect())
}

fn mismatch(path: &Path, length: usize, cloud_path: &Path, points: usize) -> Error {
    let expected = format!(
        "{} for {} of {}",
        bytes::count(points as u64, "label"),
        bytes::count(points as u64, "point"),
        cloud_path.display()
    );
    // Labels of another width: so many bytes a point exactly.
    if let Some((width, kind)) = [(1, "u8"), (2, "u16"), (8, "u64")].into_iter().find(|(w, _)| length == w * points) {
        let found = format!("{} ({kind}: {width} a point)", bytes::count(length as u64, "byte"));
        return Error::new(path, Place::File, found, format!("{expected}, 4 bytes each"))
            .hint("Convert the labels to u32: class in the low 16 bits, instance in the high 16");
    }
    if !length.is_multiple_of(4) {
        return Error::new(path, Place::File, format!("{length} bytes"), format!("{expected}, 4 bytes each"))
            .hint("The file was cut off or holds something else");
    }
    let labels = length / 4;
    Error::new(path, Place::File, bytes::count(labels as u64, "label"), expected).hint(
        other_stride(labels, cloud_path, points)
            .unwrap_or_else(|| "The two files belong to different scans, or one was cut off or filtered".into()),
    )
}

/// What to say when the counts agree with another number of floats a point in a `.bin`.
fn other_stride(labels: usize, cloud_path: &Path, points: usize) -> Option<String> {
    if !bytes::has_extension(cloud_path, &["bin"]) {
        return None;
    }
    let floats = usize::try_from(std::fs::metadata(cloud_path).ok()?.len()).ok()? / 4;
    let stride = |points: usize| floats.checked_div(points).filter(|stride| stride * points == floats);
    let (read, fits) = (stride(points)?, stride(labels).filter(|stride| (3..=16).contains(stride))?);
    Some(format!(
        "The labels fit {labels} points: the scan was read with {read} floats a point, with {fits} it has {labels}. Give \
         it as the stride"
    ))
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
    fn a_label_file_by_itself_holds_points_or_voxels() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            read_label_file(&path)
        };
        let points = LabelFile::Points { classes: vec![252, 10], instances: vec![7, 65_535] };
        assert_eq!(write("0.label", &[0xfc, 0, 7, 0, 10, 0, 0xff, 0xff]).unwrap(), points);
        let mut voxels = vec![0; 4_194_304];
        voxels[2..4].copy_from_slice(&252_u16.to_le_bytes());
        for name in ["0.label", "voxels/0.label", "predictions/0.label"] {
            let LabelFile::Voxels(ids) = write(name, &voxels).unwrap() else { panic!("{name}") };
            assert_eq!((ids.len(), ids[1]), (2_097_152, 252));
        }
        let LabelFile::Points { classes, .. } = write("labels/0.label", &voxels).unwrap() else { panic!() };
        assert_eq!(classes.len(), 1_048_576);
        let error = write("0.label", &[0; 7]).unwrap_err().to_string();
        assert!(error.contains("found 7 bytes, expected a multiple of 4"), "{error}");
        let error = write("voxels/0.label", &[0; 8]).unwrap_err().to_string();
        assert!(error.contains("found 8 bytes, expected 4194304: two bytes a voxel of a 256x256x32 grid"), "{error}");
    }

    /// What is said of `labels` bytes beside a scan of `floats` floats, read as `points` points.
    fn refused(scan: &str, floats: usize, points: usize, labels: usize) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (scan, path) = (folder.path().join(scan), folder.path().join("7.label"));
        fs::write(&scan, vec![0; 4 * floats]).unwrap();
        fs::write(&path, vec![0; labels]).unwrap();
        read_labels(&path, &scan, points).unwrap_err().to_string()
    }

    #[test]
    fn another_count_names_both_files_and_the_stride_that_would_agree() {
        // 40 points of 5 floats, read as 50 of 4; and the other way round.
        let error = refused("7.bin", 200, 50, 4 * 40);
        assert!(error.contains("7.label: found 40 labels, expected 50 labels for 50 points of"), "{error}");
        assert!(
            error
                .contains("7.bin. The labels fit 40 points: the scan was read with 4 floats a point, with 5 it has 40"),
            "{error}"
        );
        let error = refused("7.bin", 200, 40, 4 * 50);
        assert!(
            error.contains("The labels fit 50 points: the scan was read with 5 floats a point, with 4 it has 50"),
            "{error}"
        );
    }

    #[test]
    fn labels_of_another_width_are_told_by_the_bytes_a_point() {
        for (width, kind) in [(1, "u8"), (2, "u16"), (8, "u64")] {
            let error = refused("7.bin", 400, 100, width * 100);
            let found = format!("found {} bytes ({kind}: {width} a point), expected 100 labels", 100 * width);
            assert!(error.contains(&found) && error.contains("Convert the labels to u32"), "{error}");
        }
    }

    #[test]
    fn counts_that_no_stride_explains_are_two_scans_or_a_cut() {
        for (scan, floats, points, labels) in
            [("7.bin", 200, 50, 4 * 49), ("7.ply", 200, 50, 4 * 40), ("7.bin", 200, 50, 0)]
        {
            if labels == 0 {
                assert!(refused(scan, floats, points, labels).contains("found an empty file"));
                continue;
            }
            let error = refused(scan, floats, points, labels);
            assert!(error.contains("different scans, or one was cut off"), "{error}");
        }
        assert!(refused("7.bin", 200, 50, 199).contains("found 199 bytes, expected 50 labels for 50 points of"));
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
