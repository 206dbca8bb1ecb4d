//! A ground truth as it stands in its files, and the grid it stands for.

use std::path::{Path, PathBuf};

use super::detect::{self, Content};
use super::{Benchmark, carla_sc, dense, occnet, rows, semantic_kitti};
use crate::error::{Error, Place, Result};
use crate::formats::bytes::count;
use crate::grid::{GridSpec, VoxelGrid};
use crate::labels::LabelMap;

/// Which voxels the ids of a file belong to.
#[derive(Debug, Default)]
pub(super) enum Places {
    /// Every voxel, x slowest, z fastest.
    #[default]
    All,
    /// x, y, z of one voxel an id; free space is not listed. They may lie outside the grid.
    Listed(Vec<[i64; 3]>),
}

/// Class by id of the file; a table, for there are millions to look up.
pub(super) struct Classes(Vec<Option<u8>>);

impl Classes {
    pub fn of(&self, id: i64) -> Option<u8> {
        *self.0.get(usize::try_from(id).ok()?)?
    }
}

/// What the files of one frame say.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub places: Places,
    /// Ids as in the file, one a place.
    pub ids: Vec<i64>,
    /// Velocity along x and y, m/s, one a place.
    pub flow: Option<Vec<[f32; 2]>>,
    pub mask_lidar: Option<Vec<bool>>,
    pub mask_camera: Option<Vec<bool>>,
    /// Positions in memory of voxels that do not count; `None` where the set has no such list.
    pub ignored: Option<Vec<usize>>,
    pub notes: Vec<String>,
}

/// A ground truth in the terms of Occam.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadGrid {
    pub benchmark: Benchmark,
    /// Class ids of [`Benchmark::labels`], z fastest, with flow where the set has it.
    pub grid: VoxelGrid,
    /// Voxels that some LiDAR sweep of the scene observed (Occ3D).
    pub mask_lidar: Option<Vec<bool>>,
    /// Voxels that some camera of the frame observed; Occ3D's evaluation counts these.
    pub mask_camera: Option<Vec<bool>>,
    /// To be printed once: what was left out or assumed.
    pub notes: Vec<String>,
}

/// A file whose shapes and sizes are those of its benchmark, its ids and places not judged yet.
#[derive(Debug)]
pub struct GroundTruth {
    pub(super) path: PathBuf,
    pub(super) benchmark: Benchmark,
    pub(super) spec: GridSpec,
    pub(super) labels: LabelMap,
    pub(super) truth: Truth,
}

impl GroundTruth {
    /// Opens a file whose format its name or its arrays tell; `None` where they do not.
    ///
    /// # Errors
    ///
    /// As [`super::read_benchmark`], except for ids and places.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let content = Content::load(path)?;
        content.detect(path).map(|benchmark| Self::of(path, &content, benchmark)).transpose()
    }

    /// Opens a file as what it is said to be.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_as(path: &Path, benchmark: Benchmark) -> Result<Self> {
        Self::of(path, &Content::load(path)?, benchmark)
    }

    fn of(path: &Path, content: &Content, benchmark: Benchmark) -> Result<Self> {
        let labels = benchmark.labels().ok_or_else(|| {
            Error::new(path, Place::File, format!("no classes for {benchmark} in this build"), "its label map")
        })?;
        let mut spec = benchmark.spec();
        let other = |expected: &str| {
            let found = "a file of another kind";
            Error::new(path, Place::File, found, format!("{expected}, as {benchmark} has them"))
        };
        let truth = match benchmark {
            Benchmark::Occ3dNuscenes | Benchmark::OpenOcc => match content {
                Content::Npz(arrays) => dense::read(path, arrays, &spec)?,
                _ => return Err(other(".npz archives")),
            },
            Benchmark::OccNet | Benchmark::SurroundOcc | Benchmark::OpenOccupancy => match (content, benchmark) {
                (Content::Npy(array), Benchmark::OccNet) => occnet::read(path, array, &spec)?,
                (Content::Npy(array), Benchmark::SurroundOcc) => rows::surroundocc(path, array)?,
                (Content::Npy(array), _) => rows::openoccupancy(path, array)?,
                _ => return Err(other(".npy arrays")),
            },
            Benchmark::SemanticKitti | Benchmark::CarlaSc => match (content, benchmark) {
                (Content::Other, Benchmark::SemanticKitti) => semantic_kitti::read(path, &spec)?,
                (Content::Other, _) => {
                    let truth;
                    (truth, spec) = carla_sc::read(path, &spec)?;
                    truth
                }
                _ => return Err(other(".label files")),
            },
        };
        Ok(Self { path: path.to_path_buf(), benchmark, spec, labels, truth })
    }

    /// Whether a file can be a ground truth of the benchmark, going by its name; for picking files in a folder.
    pub fn name_fits(path: &Path, benchmark: Benchmark) -> bool {
        detect::name_fits(path, benchmark)
    }

    pub fn benchmark(&self) -> Benchmark {
        self.benchmark
    }

    /// Classes that its ids are brought to.
    pub fn labels(&self) -> &LabelMap {
        &self.labels
    }

    /// The grid it has or will have.
    pub fn spec(&self) -> &GridSpec {
        &self.spec
    }

    pub fn notes(&self) -> &[String] {
        &self.truth.notes
    }

    /// Class of each id that files may hold.
    pub(super) fn classes(&self) -> Classes {
        let lookup = self.labels.lookup();
        let mut classes = vec![None; lookup.keys().max().map_or(0, |id| usize::from(*id) + 1)];
        for (id, class) in lookup {
            classes[usize::from(id)] = Some(class);
        }
        Classes(classes)
    }

    /// Position in memory of the voxel that an id belongs to; `None` outside the grid.
    pub(super) fn index(&self, number: usize) -> Option<usize> {
        let place = match &self.truth.places {
            Places::All => return Some(number),
            Places::Listed(places) => places.get(number)?,
        };
        let mut voxel = [0; 3];
        for axis in 0..3 {
            voxel[axis] = usize::try_from(place[axis]).ok().filter(|v| *v < self.spec.counts[axis])?;
        }
        Some(self.spec.index(voxel))
    }

    /// Brings ids and order to those of the label map and the grid.
    ///
    /// # Errors
    ///
    /// For an id that is none of the benchmark's and for a voxel outside its grid.
    pub fn normalise(self) -> Result<ReadGrid> {
        let classes = self.classes();
        let mut grid = VoxelGrid::empty(self.spec);
        let mut flow = self.truth.flow.is_some().then(|| vec![[0.0; 2]; grid.labels.len()]);
        let mut listed = matches!(self.truth.places, Places::Listed(_)).then(|| vec![false; grid.labels.len()]);
        let (mut repeated, mut unknown_flow) = (0, 0);
        for (number, id) in self.truth.ids.iter().enumerate() {
            let index = self.index(number).ok_or_else(|| self.outside(number))?;
            grid.labels[index] = classes.of(*id).ok_or_else(|| self.no_class(number, *id))?;
            if let (Some(flow), Some(own)) = (&mut flow, &self.truth.flow) {
                let known = own[number].iter().all(|v| v.is_finite());
                unknown_flow += usize::from(!known);
                flow[index] = if known { own[number] } else { [0.0; 2] };
            }
            if let Some(listed) = &mut listed {
                repeated += usize::from(std::mem::replace(&mut listed[index], true));
            }
        }
        for index in self.truth.ignored.iter().flatten() {
            grid.labels[*index] = self.spec.ignore_id;
        }
        grid.flow = flow;
        let mut notes = self.truth.notes;
        if repeated > 0 {
            notes.push(format!("{} of a voxel already listed: the last one counts", count(repeated as u64, "row")));
        }
        if unknown_flow > 0 {
            notes.push(format!("{} of flow that is NaN or infinite taken as 0", count(unknown_flow as u64, "voxel")));
        }
        Ok(ReadGrid {
            benchmark: self.benchmark,
            grid,
            mask_lidar: self.truth.mask_lidar,
            mask_camera: self.truth.mask_camera,
            notes,
        })
    }

    /// Where an id stands, for messages.
    fn place(&self, number: usize) -> String {
        match &self.truth.places {
            Places::All => {
                let [x, y, z] = self.spec.voxel_at(number);
                format!("voxel {x}, {y}, {z}")
            }
            Places::Listed(places) => {
                let [x, y, z] = places.get(number).copied().unwrap_or_default();
                format!("voxel {x}, {y}, {z} in row {number}")
            }
        }
    }

    fn outside(&self, number: usize) -> Error {
        let [x, y, z] = self.spec.counts;
        let expected = format!("x, y, z below {x}, {y}, {z}, the grid of {}", self.benchmark);
        Error::new(&self.path, Place::File, self.place(number), expected)
            .hint("`occam data check` looks for the reason")
    }

    fn no_class(&self, number: usize, id: i64) -> Error {
        let found = format!("class id {id} at {}", self.place(number));
        Error::new(&self.path, Place::File, found, format!("an id of the label map \"{}\"", self.labels.name))
            .hint("`occam data check` looks for the reason")
    }
}
