//! Ground truth of published occupancy benchmarks, read into one kind of grid.
//!
//! The sets differ in axis order, in the id of free space (0, 16 or 17), in how they mark what nobody knows, and in
//! frame. [`read_benchmark`] gives class ids of the benchmark's [`LabelMap`] in a grid whose z varies fastest, free space
//! as `empty_id`, unknown voxels as `ignore_id`. The frame stays that of the file, so that its scans fit into the grid
//! unturned: see [`Frame`].
//!
//! [`GroundTruth`] is a file before its ids and places are judged; [`GroundTruth::findings`] says where they contradict
//! the format that the file is said to have.

mod carla_sc;
mod dense;
mod detect;
mod findings;
mod occnet;
mod rows;
mod semantic_kitti;
mod truth;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::voxel_grid;
use crate::error::Result;
use crate::grid::{AxisOrder, GridSpec};
use crate::labels::LabelMap;

pub use findings::Finding;
pub use truth::{GroundTruth, ReadGrid};

/// A published set of occupancy ground truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Benchmark {
    /// `voxels/NNNNNN.label` with `NNNNNN.invalid` (Behley et al., ICCV 2019).
    SemanticKitti,
    /// `gts/SCENE/TOKEN/labels.npz`: `semantics`, `mask_lidar`, `mask_camera` (Tian et al., NeurIPS 2023).
    Occ3dNuscenes,
    /// `openocc_v2/SCENE/TOKEN/labels.npz`: `semantics`, `flow` (OccNet challenge, CVPR 2024).
    OpenOcc,
    /// `SCENE/NNN_occ.npy` with `NNN_flow.npy` and `NNN_occ_invalid.npy` (Tong et al., "Scene as Occupancy", ICCV 2023).
    OccNet,
    /// `*.npy` of rows x, y, z, label (Wei et al., ICCV 2023).
    SurroundOcc,
    /// `scene_TOKEN/occupancy/TOKEN.npy` of rows z, y, x, (vx, vy, vz,) label (Wang et al., ICCV 2023).
    OpenOccupancy,
    /// `evaluation/NNNNNN.label` with `NNNNNN.bin` and `params.json` (Wilson et al., "MotionSC", RA-L 2022).
    CarlaSc,
}

/// Whose axes a grid follows. Grids of different frames cannot be compared voxel by voxel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// The scan's: x forward, y left, z up; the origin is the sensor.
    Lidar,
    /// The car's: x forward, y left, z up; the origin lies on the ground under the rear axle. The LiDAR of nuScenes stands
    /// at (0.9858, 0, 1.8402) m in it.
    Ego,
    /// The LiDAR's of nuScenes: x right, y forward, z up; the origin is the sensor.
    NuscenesLidar,
    /// The simulated LiDAR's; the origin is the sensor.
    CarlaSensor,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lidar => "LiDAR (x forward, y left, z up)",
            Self::Ego => "car (x forward, y left, z up)",
            Self::NuscenesLidar => "nuScenes LiDAR (x right, y forward, z up)",
            Self::CarlaSensor => "simulated LiDAR",
        })
    }
}

impl Benchmark {
    pub const ALL: [Self; 7] = [
        Self::SemanticKitti,
        Self::Occ3dNuscenes,
        Self::OpenOcc,
        Self::OccNet,
        Self::SurroundOcc,
        Self::OpenOccupancy,
        Self::CarlaSc,
    ];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::SemanticKitti => "semantic-kitti",
            Self::Occ3dNuscenes => "occ3d-nuscenes",
            Self::OpenOcc => "openocc",
            Self::OccNet => "occnet",
            Self::SurroundOcc => "surroundocc",
            Self::OpenOccupancy => "openoccupancy",
            Self::CarlaSc => "carla-sc",
        }
    }

    /// As its authors write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::SemanticKitti => "SemanticKITTI voxels",
            Self::Occ3dNuscenes => "Occ3D-nuScenes",
            Self::OpenOcc => "OpenOcc v2.1",
            Self::OccNet => "OccNet v1.0",
            Self::SurroundOcc => "SurroundOcc",
            Self::OpenOccupancy => "OpenOccupancy",
            Self::CarlaSc => "CarlaSC",
        }
    }

    fn labels_name(self) -> &'static str {
        match self {
            Self::SemanticKitti => "semantic-kitti",
            Self::Occ3dNuscenes => "occ3d-nuscenes",
            Self::OpenOcc | Self::OccNet => "openocc",
            Self::SurroundOcc | Self::OpenOccupancy => "nuscenes",
            Self::CarlaSc => "carla-sc",
        }
    }

    /// Classes of the grids that [`read_benchmark`] gives. `None` only if this build's own map were broken.
    pub fn labels(self) -> Option<LabelMap> {
        LabelMap::built_in(self.labels_name())
    }

    pub fn frame(self) -> Frame {
        match self {
            Self::SemanticKitti => Frame::Lidar,
            Self::Occ3dNuscenes | Self::OpenOcc => Frame::Ego,
            Self::OccNet | Self::SurroundOcc | Self::OpenOccupancy => Frame::NuscenesLidar,
            Self::CarlaSc => Frame::CarlaSensor,
        }
    }

    /// The grid of the set; that of a CarlaSC folder is what its `params.json` says.
    pub fn spec(self) -> GridSpec {
        let (origin_m, voxel_size_m, counts, empty_id) = match self {
            Self::SemanticKitti => return voxel_grid(),
            Self::Occ3dNuscenes => ([-40.0, -40.0, -1.0], [0.4; 3], [200, 200, 16], 17),
            Self::OpenOcc => ([-40.0, -40.0, -1.0], [0.4; 3], [200, 200, 16], 16),
            Self::OccNet => ([-50.0, -50.0, -5.0], [0.5; 3], [200, 200, 16], 16),
            Self::SurroundOcc => ([-50.0, -50.0, -5.0], [0.5; 3], [200, 200, 16], 0),
            Self::OpenOccupancy => ([-51.2, -51.2, -5.0], [0.2; 3], [512, 512, 40], 0),
            Self::CarlaSc => ([-25.6, -25.6, -2.0], [0.4, 0.4, 0.375], [128, 128, 8], 0),
        };
        GridSpec { origin_m, voxel_size_m, counts, axis_order: AxisOrder::Xyz, empty_id, ignore_id: 255 }
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

impl FromStr for Benchmark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|b| b.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("found {text:?}, expected one of {known}")
        })
    }
}

/// Reads a ground truth and what belongs to it (masks; flow; SemanticKITTI's and OccNet's invalid voxels; CarlaSC's
/// counts).
///
/// Arrays may be of any number type that holds whole numbers. A voxel that stands in several rows of a list takes the
/// last of them, as numpy's assignment does; a note says so.
///
/// # Errors
///
/// For a file that cannot be read, arrays of another shape, ids that are none of the benchmark's, and voxels outside its
/// grid.
pub fn read_benchmark(path: &Path, benchmark: Benchmark) -> Result<ReadGrid> {
    GroundTruth::open_as(path, benchmark)?.normalise()
}
