//! `occam eval`: how good a model is, beside predictions that need no network.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use occam_engine::data::{self, Splits};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::scene::metrics::{AbsentPolicy, Scores};
use occam_engine::train::{self, Model, checkpoint, load_model};
use occam_engine::{Error, Progress, ProgressFn};
use serde_json::json;

use crate::fail::usage;
use crate::print::{Output, human, scores};
use crate::signals::Signals;

#[derive(Args)]
pub struct EvalArgs {
    /// Run folder, checkpoint folder or weights file
    model: PathBuf,
    /// Any data that `occam train` takes: scans with poses, one dense cloud, a folder of SemanticKITTI or CarlaSC, or pairs
    /// of a scan and its ground truth. The part that a run would validate on counts [default: the data of the model's run]
    data: Option<PathBuf>,

    /// How classes that occur neither in truth nor in the prediction enter the mIoU: zero (SemanticKITTI), skip (Occ3D)
    /// or error
    #[arg(long, default_value_t, value_name = "POLICY")]
    absent: AbsentPolicy,
    /// auto, cpu, or a GPU's name or index from `occam gpus`
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
}

pub fn run(args: &EvalArgs, out: Output) -> anyhow::Result<u8> {
    let signals = Signals::install()?;
    let device = gpu::open(&args.device)?;
    if let Some(notice) = &device.notice {
        out.note(notice);
    }
    let model = load_model(&args.model, &device.device)?;
    let imported = checkpoint::read_state(&checkpoint::find(&args.model, true)?)?.total_steps == 0;
    if imported && args.data.is_none() {
        return Err(usage("imported weights have no validation data; name DATA"));
    }
    let mut config = model.config.data.clone();
    if let Some(folder) = &args.data {
        config.path = Some(folder.clone());
    }
    let splits = data::open(&config, &model.spec, model.config.seed)?.for_input(model.config.input);
    for note in &splits.notes {
        out.note(format!("{}: {note}", splits.validation.name()));
    }
    let dataset = &splits.validation;
    out.line(format!("device  {}", device.label))?;
    out.line(format!("model   {}, step {}", args.model.display(), human::count(model.step)))?;
    out.line(format!("data    {}: {} to validate on", dataset.name(), human::counted(dataset.len(), "scene")))?;

    let bar = out.bar(dataset.len(), " {msg}");
    let mut progress = |progress: Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(progress.what.to_owned());
        }
        if signals.stop_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = evaluate(&model, &splits, config.path.is_none(), args.absent, &mut progress);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let (found, baselines) = match found {
        Err(Error::Interrupted) => return Ok(signals.exit_code()),
        found => found?,
    };

    let classes: Vec<String> = model.labels.classes.iter().map(|class| class.name.clone()).collect();
    out.json(&json!({
        "event": "evaluated",
        "model": args.model.to_string_lossy(),
        "step": model.step,
        "data": dataset.name(),
        "samples": dataset.len(),
        "scores": scores::json(&found, &classes),
        "baselines": scores::json_named(&baselines, &classes),
    }))?;
    let named = baselines.iter().map(|(name, scores)| (name.as_str(), scores));
    let columns: Vec<(&str, &Scores)> = std::iter::once(("model", &found)).chain(named).collect();
    out.line("")?;
    out.result(scores::table(&columns, &classes))?;
    let absent = match args.absent {
        _ if scores::one_class(classes.len()) => "free space and one class",
        AbsentPolicy::Zero => "classes that occur nowhere count as 0 in the mIoU (--absent zero)",
        AbsentPolicy::Skip => "classes that occur nowhere are left out of the mIoU (--absent skip)",
        AbsentPolicy::Error => "every class occurs (--absent error)",
    };
    out.line(format!(
        "\n{} voxels counted, {} ignored; {absent}",
        human::count(found.counted as usize),
        human::count(found.ignored as usize)
    ))?;
    Ok(0)
}

/// Scores of the model and of what needs no network. `majority`: also of the most frequent class of each voxel over the
/// training targets; to read those of a data set on disk takes longer than the rest.
fn evaluate(
    model: &Model,
    splits: &Splits,
    majority: bool,
    absent: AbsentPolicy,
    progress: ProgressFn<'_>,
) -> occam_engine::Result<(Scores, Vec<(String, Scores)>)> {
    let validation = splits.validation.as_ref();
    let scores = train::score(model, validation, absent, progress, &mut |_, _| Ok(()))?;
    let statistics = if majority { Some(train::target_statistics(splits.training.as_ref(), progress)?) } else { None };
    let training = statistics.as_ref().map(|statistics| (splits.training.as_ref(), statistics));
    Ok((scores, train::baselines(validation, training, absent, progress)?))
}
