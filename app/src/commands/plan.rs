//! `occam train --plan`: what every way to take a step would need, and no run.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Context;
use occam_engine::render::write_png;
use occam_engine::train::{TrainConfig, study};
use occam_engine::{Error, Progress};

use crate::print::{Output, plan as print};
use crate::signals::Signals;

pub fn run(config: &TrainConfig, from: Option<[usize; 3]>, picture: Option<&Path>, out: Output) -> anyhow::Result<u8> {
    let signals = Signals::install().context("cannot listen for Ctrl-C")?;
    let mut bar = None;
    let mut last = String::new();
    let found = study(config, from, &mut |Progress { what, done, total }| {
        if last != what {
            what.clone_into(&mut last);
            bar = out.bar(total, what);
            if bar.is_none() {
                out.note(what);
            }
        }
        if let Some(bar) = &bar {
            bar.set_position(done as u64);
        }
        if signals.stop_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let found = match found {
        Err(Error::Interrupted) => return Ok(signals.exit_code()),
        other => other?,
    };
    print::study(&found, out)?;
    if let Some(path) = picture {
        write_png(path, &print::picture(&found))?;
        out.line(format!("picture     {}", path.display()))?;
    }
    // The table says what would fit; the program ends as the run would.
    found.refused.map_or(Ok(0), |why| Err(Error::TooLarge(why).into()))
}
