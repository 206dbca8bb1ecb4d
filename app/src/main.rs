//! The program `occam`: what a person starts. It parses, prints and passes on; the work is the engine's.

mod cli;
mod commands;
mod fail;
mod parse;
mod print;
mod signals;

use std::process::ExitCode;

use clap::Parser;

/// Counts bytes so that a run on the CPU knows its memory.
#[global_allocator]
static ALLOCATOR: occam_engine::gpu::CountingAllocator = occam_engine::gpu::CountingAllocator;

fn main() -> ExitCode {
    stay_off_the_display();
    fail::install_panic_hook();
    start_log();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way as well, with exit code 0. A reader that left early is no failure.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    signals::survive_file_size_limit();
    let out = cli.output();
    let outcome = std::panic::catch_unwind(|| cli::run(cli, out));
    ExitCode::from(match outcome {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => fail::report(&error, out),
        Err(_) => fail::report(&fail::bug(), out),
    })
}

/// Mesa puts a layer between programs and Vulkan that asks the desktop which GPU draws it. Occam chooses by itself, and
/// has to run where no desktop is.
fn stay_off_the_display() {
    if std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: this is the first thing the program does; no other thread exists that could read the environment.
        #[allow(unsafe_code)]
        unsafe {
            std::env::set_var("NODEVICE_SELECT", "1");
        }
    }
}

/// The engine's warnings go to stderr. Libraries below it talk of their own affairs and are left out.
fn start_log() {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::prelude::*;

    let ours = Targets::new()
        .with_default(LevelFilter::OFF)
        .with_target("occam", LevelFilter::WARN)
        .with_target("occam_engine", LevelFilter::WARN)
        .with_target("occam_scene", LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).without_time();
    tracing_subscriber::registry().with(lines.with_filter(ours)).init();
}
