//! `occam resume`: a run goes on from its last checkpoint as if it had never stopped.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use occam_engine::session::Session;
use occam_engine::train::checkpoint;

use super::train;
use crate::print::{Output, TrainPrinter, human};
use crate::signals::Signals;

#[derive(Args)]
pub struct ResumeArgs {
    /// Folder of the run; its last checkpoint says everything else
    run: PathBuf,

    /// Most memory the run may take, as for train [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    vram: Option<u64>,
}

pub fn run(args: &ResumeArgs, out: Output) -> anyhow::Result<u8> {
    let signals = Signals::install().context("cannot listen for Ctrl-C")?;
    let state = checkpoint::read_state(&checkpoint::find(&args.run, false)?)?;
    let printer = TrainPrinter::new(out, state.config.data.path.as_deref());
    train::watch(&Session::resume(&args.run)?, printer, &signals, args.vram, out)
}
