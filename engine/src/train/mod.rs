//! The step, its optimizer and schedule, and the files of a run.

mod baselines;
mod budget;
pub mod checkpoint;
mod config;
mod evaluate;
pub mod fits;
mod gradients;
mod import;
mod input;
mod layers;
pub mod loss_scale;
mod model;
mod optimizer;
mod planning;
pub mod precision;
mod record;
mod run_folder;
mod schedule;
mod step;
mod study;
mod tensorboard;

pub use baselines::baselines;
pub use budget::{Budget, parse_size};
pub use config::{
    AugmentConfig, ClassWeights, DataConfig, InputConfig, LossConfig, MemoryConfig, ModelConfig, OptimConfig,
    PrecisionConfig, StepsConfig, TrainConfig,
};
pub use evaluate::{COUNTED_TARGETS, Evaluation, TargetStatistics, evaluate, score, target_statistics};
pub use import::{guess_setup, import, setup, setups};
pub use input::input;
pub use layers::presets;
pub use model::{Model, load_model};
pub use optimizer::Optimizer;
pub(crate) use optimizer::{clip, parameter_bytes, squared_norm};
pub use planning::{PlanReport, PlannedSegment, Planning, StepMemory};
pub use record::StepRecord;
pub use run_folder::{RunFolder, is_complete};
pub use schedule::Schedule;
pub use step::{Learner, StepOutcome, StepPeak};
pub use study::{Study, StudyMoment, StudyRow, study};
