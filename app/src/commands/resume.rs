//! `occam resume`: a run goes on from its last checkpoint as if it had never stopped.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use occam_engine::session::Session;
use occam_engine::train::{self as engine, checkpoint};
use serde_json::json;

use super::train;
use crate::fail::usage;
use crate::parse;
use crate::print::{Output, TrainPrinter, human, program, shell_word};
use crate::signals::Signals;

#[derive(Args)]
pub struct ResumeArgs {
    /// Folder of the run; its last checkpoint says everything else
    run: PathBuf,

    /// Most memory the run may take from here on, as for train [default: as the run was started with]
    #[arg(long, value_name = "SIZE", value_parser = parse::budget)]
    vram: Option<String>,
}

pub fn run(args: &ResumeArgs, out: Output) -> anyhow::Result<u8> {
    let signals = Signals::install().context("cannot listen for Ctrl-C")?;
    if !args.run.exists() {
        return Err(usage(format!(
            "{}: found no such folder, expected that of a run. A run that was stopped before its first step saved nothing \
             and leaves none: start it again with train",
            args.run.display()
        )));
    }
    let state = checkpoint::read_state(&checkpoint::find(&args.run, false)?)?;
    if engine::is_complete(&args.run, &state)? {
        out.json(&json!({ "event": "complete", "run": args.run.to_string_lossy(), "steps": state.step }))?;
        let (program, run) = (program(), shell_word(&args.run.to_string_lossy()));
        out.result(format!("{run} is complete: all of its {} are done\n", human::counted(state.step, "step")))?;
        out.line(format!(
            "To go on from its weights, start a new run: {program} train DATA --weights {run} --steps N, with DATA and \
             preset as before"
        ))?;
        return Ok(0);
    }
    let printer = TrainPrinter::new(out, &state.config);
    train::watch(&Session::resume_within(&args.run, args.vram.as_deref())?, printer, &signals, out)
}
