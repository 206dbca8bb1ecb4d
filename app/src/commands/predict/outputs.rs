//! Which files a prediction becomes, and under which names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::fail::usage;

/// A kind of file that a prediction can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Kind {
    /// Voxel cubes or points with colours and classes
    Ply,
    /// Raw class ids, two bytes a voxel, as SemanticKITTI's tools read them
    Label,
    /// Numpy archive with the array `semantics`, as Occ3D has it
    Npz,
    /// Picture of the voxels with the scan
    Png,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Ply, Self::Label, Self::Npz, Self::Png];

    pub fn ending(self) -> &'static str {
        match self {
            Self::Ply => "ply",
            Self::Label => "label",
            Self::Npz => "npz",
            Self::Png => "png",
        }
    }

    fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| kind.ending() == ending)
    }
}

/// Where predictions go.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    File(PathBuf, Kind),
    Folder(PathBuf, Vec<Kind>),
}

impl Target {
    /// From `-o`, `--format` and the number of scans: an ending that is known means one file, anything else a folder.
    ///
    /// # Errors
    /// Many scans or many kinds for one file, and an ending that no kind has.
    pub fn choose(output: &Path, formats: &[Kind], scans: usize) -> anyhow::Result<Self> {
        let shown = output.display();
        let folder_like = output.is_dir() || output.as_os_str().to_string_lossy().ends_with(['/', '\\']);
        if folder_like || scans > 1 {
            if !folder_like && let Some(kind) = Kind::of(output) {
                return Err(usage(format!(
                    "-o {shown}: {scans} scans cannot become one .{} file; give a folder, such as -o {}/",
                    kind.ending(),
                    output.with_extension("").display()
                )));
            }
            return Ok(Self::Folder(output.to_path_buf(), folder_kinds(formats)));
        }
        match (Kind::of(output), formats) {
            (Some(kind), []) => Ok(Self::File(output.to_path_buf(), kind)),
            (Some(kind), [other]) if kind != *other => Err(usage(format!(
                "-o {shown}: the ending says {}, --format says {}; leave --format out, or give -o {}",
                kind.ending(),
                other.ending(),
                output.with_extension(other.ending()).display()
            ))),
            (_, [kind]) if output.extension().is_some() => Ok(Self::File(output.to_path_buf(), *kind)),
            (None, _) if output.extension().is_none() => Ok(Self::Folder(output.to_path_buf(), folder_kinds(formats))),
            (Some(_), many) => Err(usage(format!(
                "-o {shown}: {} kinds of files cannot become one file; give a folder, such as -o {}/",
                many.len(),
                output.with_extension("").display()
            ))),
            (None, _) => Err(usage(format!(
                "-o {shown}: unknown ending; expected .ply, .label, .npz, .png or a folder (end its name with /)"
            ))),
        }
    }

    /// From `-o` and `--format` for the scans of a folder: always a folder, of label files unless told otherwise.
    ///
    /// # Errors
    /// The name of one file.
    pub fn layout(output: &Path, formats: &[Kind]) -> anyhow::Result<Self> {
        if !output.is_dir() && Kind::of(output).is_some() {
            return Err(usage(format!(
                "-o {}: the scans of a folder become sequences/NN/predictions/NNNNNN.label and the like; give a folder",
                output.display()
            )));
        }
        let chosen = if formats.is_empty() { &[Kind::Label][..] } else { formats };
        let kinds: BTreeSet<Kind> = chosen.iter().copied().collect();
        Ok(Self::Folder(output.to_path_buf(), kinds.into_iter().collect()))
    }

    /// The files of one prediction, in order of writing.
    pub fn files(&self, stem: &str) -> Vec<(PathBuf, Kind)> {
        match self {
            Self::File(path, kind) => vec![(path.clone(), *kind)],
            Self::Folder(folder, kinds) => {
                kinds.iter().map(|kind| (folder.join(format!("{stem}.{}", kind.ending())), *kind)).collect()
            }
        }
    }
}

/// Refuses a prediction that would be written over a scan, or over the labels beside it.
///
/// # Errors
/// Names the file that would be lost.
pub fn spare_inputs(target: &Target, scans: &[PathBuf], stems: &[String]) -> anyhow::Result<()> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let inputs: BTreeSet<PathBuf> = scans
        .iter()
        .flat_map(|scan| [scan.clone(), scan.with_extension("label")])
        .filter_map(|path| real(&path))
        .collect();
    let outputs = stems.iter().flat_map(|stem| target.files(stem));
    match outputs.into_iter().find(|(path, _)| real(path).is_some_and(|path| inputs.contains(&path))) {
        None => Ok(()),
        Some((path, _)) => Err(usage(format!(
            "-o: the prediction would be written over {}, which belongs to the input; give another name or folder",
            path.display()
        ))),
    }
}

/// The kinds that were asked for, each once; every kind where none was.
fn folder_kinds(formats: &[Kind]) -> Vec<Kind> {
    let chosen = if formats.is_empty() { &Kind::ALL[..] } else { formats };
    chosen.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

/// File names without ending, one a scan and all different: scans of different folders often have the same name.
pub fn stems(scans: &[PathBuf]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut unique = |stem: String| {
        let mut name = stem.clone();
        let mut number = 2;
        while !taken.insert(name.clone()) {
            name = format!("{stem}-{number}");
            number += 1;
        }
        name
    };
    scans
        .iter()
        .map(|scan| unique(scan.file_stem().unwrap_or(scan.as_os_str()).to_string_lossy().into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(output: &str, formats: &[Kind], scans: usize) -> Result<Target, String> {
        Target::choose(Path::new(output), formats, scans).map_err(|e| e.to_string())
    }

    #[test]
    fn the_ending_decides_unless_a_format_is_given() {
        assert_eq!(choose("a.PLY", &[], 1), Ok(Target::File("a.PLY".into(), Kind::Ply)));
        assert_eq!(choose("a.dat", &[Kind::Npz], 1), Ok(Target::File("a.dat".into(), Kind::Npz)));
        assert_eq!(choose("a.ply", &[Kind::Ply], 1), Ok(Target::File("a.ply".into(), Kind::Ply)));
        assert!(choose("a.png", &[Kind::Ply], 1).unwrap_err().contains("-o a.ply"));
        assert!(choose("a.las", &[], 1).unwrap_err().contains("unknown ending"));
        assert!(choose("a.ply", &[Kind::Ply, Kind::Npz], 1).unwrap_err().contains("-o a/"));
        assert!(choose("a.ply", &[], 3).unwrap_err().contains("3 scans"));
    }

    #[test]
    fn a_folder_gets_every_kind_or_just_the_chosen_ones() {
        let all = Kind::ALL.to_vec();
        assert_eq!(choose("out", &[], 1), Ok(Target::Folder("out".into(), all.clone())));
        assert_eq!(choose("out.d/", &[], 1), Ok(Target::Folder("out.d/".into(), all)));
        assert_eq!(choose("out", &[Kind::Label], 2), Ok(Target::Folder("out".into(), vec![Kind::Label])));
        let chosen = vec![Kind::Label, Kind::Png];
        assert_eq!(choose("out", &[Kind::Png, Kind::Label], 1), Ok(Target::Folder("out".into(), chosen.clone())));
        assert_eq!(
            Target::Folder("out".into(), chosen).files("7"),
            [("out/7.label".into(), Kind::Label), ("out/7.png".into(), Kind::Png)]
        );
    }

    #[test]
    fn the_scans_of_a_folder_become_what_is_asked_for_and_nothing_else() {
        let layout =
            |output: &str, formats: &[Kind]| Target::layout(Path::new(output), formats).map_err(|e| e.to_string());
        let stem = "sequences/08/predictions/000005";
        let label = layout("out", &[]).unwrap().files(stem);
        assert_eq!(label, [("out/sequences/08/predictions/000005.label".into(), Kind::Label)]);
        let both = layout("out/", &[Kind::Png, Kind::Ply, Kind::Png]).unwrap();
        assert_eq!(both, Target::Folder("out/".into(), vec![Kind::Ply, Kind::Png]));
        assert!(layout("a.label", &[]).unwrap_err().contains("sequences/NN/predictions"));
    }

    #[test]
    fn inputs_and_the_labels_beside_them_are_spared() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["a.ply", "b.bin", "b.label"] {
            std::fs::write(file(name), "x").unwrap();
        }
        let spare = |target: Target, scan: &str| {
            let scans = [file(scan)];
            spare_inputs(&target, &scans, &stems(&scans)).map_err(|e| e.to_string())
        };
        assert!(spare(Target::File(file("a.ply"), Kind::Ply), "a.ply").unwrap_err().contains("a.ply"));
        let here = || Target::Folder(file("."), Kind::ALL.to_vec());
        assert!(spare(here(), "b.bin").unwrap_err().contains("b.label"));
        assert_eq!(spare(Target::File(file("b.ply"), Kind::Ply), "b.bin"), Ok(()));
        assert_eq!(spare(Target::File(file("out.label"), Kind::Label), "b.bin"), Ok(()));
    }

    #[test]
    fn scans_of_one_name_do_not_overwrite_each_other() {
        let scans = ["00/000001.bin", "01/000001.bin", "01/000002.ply"].map(PathBuf::from);
        assert_eq!(stems(&scans), ["000001", "000001-2", "000002"]);
    }
}
