//! The `manylogs` command.

mod args;
mod commands;
mod failure;
mod output;
mod progress;
mod units;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    // clap ends the process itself for --help (0) and for a wrong command line (2).
    let result = match Cli::parse().command {
        Command::Record(args) => commands::record::run(&args),
        Command::Trace(args) => commands::trace::run(&args),
        Command::Drive(args) => commands::drive::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
