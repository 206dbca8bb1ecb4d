//! `occam eval`: how good a model is, beside predictions that need no network.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::scene::metrics::{AbsentPolicy, Scores};
use occam_engine::train::{evaluate, load_model};
use occam_engine::{Error, Progress, data};
use serde_json::json;

use crate::print::{Output, human, scores};
use crate::signals::Signals;

#[derive(Args)]
pub struct EvalArgs {
    /// Run folder, checkpoint folder or weights file
    model: PathBuf,
    /// Folder in SemanticKITTI's layout [default: the validation data of the model's run]
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
    let mut config = model.config.data.clone();
    if let Some(folder) = &args.data {
        config.path = Some(folder.clone());
    }
    let dataset = data::open(&config, &model.spec, model.config.seed)?.validation;
    out.line(format!("device  {}", device.label))?;
    out.line(format!("model   {}, step {}", args.model.display(), human::count(model.step)))?;
    out.line(format!("data    {}: {} to validate on", dataset.name(), human::counted(dataset.len(), "scene")))?;

    let bar = out.wants_bar().then(|| {
        let style = ProgressStyle::with_template("[{bar:24}] {pos}/{len}  {msg}  ETA {eta}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
        ProgressBar::new(dataset.len() as u64).with_style(style)
    });
    let mut progress = |progress: Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(progress.what.to_owned());
        }
        if signals.stop_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = evaluate(&model, dataset.as_ref(), args.absent, &mut progress);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let found = match found {
        Err(Error::Interrupted) => return Ok(signals.exit_code()),
        found => found?,
    };

    let classes: Vec<String> = model.labels.classes.iter().map(|class| class.name.clone()).collect();
    out.json(&json!({
        "event": "evaluated",
        "model": args.model,
        "step": model.step,
        "data": dataset.name(),
        "samples": found.samples,
        "scores": scores::json(&found.scores, &classes),
        "baselines": scores::json_named(&found.baselines, &classes),
    }))?;
    let named = found.baselines.iter().map(|(name, scores)| (name.as_str(), scores));
    let columns: Vec<(&str, &Scores)> = std::iter::once(("model", &found.scores)).chain(named).collect();
    out.line("")?;
    out.result(scores::table(&columns, &classes))?;
    let absent = match args.absent {
        AbsentPolicy::Zero => "classes that occur nowhere count as 0 in the mIoU (--absent zero)",
        AbsentPolicy::Skip => "classes that occur nowhere are left out of the mIoU (--absent skip)",
        AbsentPolicy::Error => "every class occurs (--absent error)",
    };
    out.line(format!(
        "\n{} voxels counted, {} ignored; {absent}",
        human::count(found.scores.counted as usize),
        human::count(found.scores.ignored as usize)
    ))?;
    Ok(0)
}
