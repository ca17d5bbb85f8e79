//! The `manylogs` command.

mod args;
mod commands;
mod failure;
mod output;
mod progress;
mod units;

use std::process::ExitCode;

use clap::FromArgMatches;

use args::{Cli, Command};
use commands::volume;
use manylogs_operate::log::{Level, line};

fn main() -> ExitCode {
    manylogs_storage::tell_waits(|device, why| line(Level::Info, Some(device), why, &[]));
    // clap ends the process itself for --help (0) and for a wrong command line (2).
    let asked = args::groups::command().get_matches();
    let asked = Cli::from_arg_matches(&asked).unwrap_or_else(|error| error.exit());
    let result = match asked.command {
        Command::Record(args) => commands::record::run(&args),
        Command::Trace(args) => commands::trace::run(&args),
        Command::Drive(args) => commands::drive::run(&args),
        Command::Advise(args) => commands::advise::run(&args),
        Command::Replay(args) => commands::replay::run(&args),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Fleet(args) => commands::fleet::run(&args),
        Command::Interfere(args) => commands::interfere::run(&args),
        Command::Chain(args) => commands::chain::run(&args),
        Command::Episodes(args) => commands::episodes::run(&args),
        Command::Reproduce(args) => commands::reproduce::run(&args),
        Command::List(args) => commands::list::run(&args),
        Command::Format(args) => volume::format::run(&args),
        Command::Check(args) => volume::check::run(&args),
        Command::Dump(args) => volume::dump::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Lend(args) => commands::lend::run(&args),
        Command::Member(args) => commands::gecko::members::run(&args),
        Command::Stores(args) => commands::lend::stores(&args),
        Command::Stop(args) => commands::stop::run(&args),
        Command::Top(args) => commands::top::run(&args.device, &args.updates),
        Command::Metrics(args) => commands::live::metrics(&args),
        Command::Status(args) => volume::status::run(&args),
        Command::Set(args) => volume::set::run(&args),
        Command::Checkpoint(args) => volume::maintain::checkpoint(&args),
        Command::Drain(args) => volume::maintain::drain(&args),
        Command::Table(args) => volume::status::table(&args),
        Command::Scrub(args) => volume::maintain::scrub(&args),
        Command::Grow(args) => volume::maintain::grow(&args),
        Command::Probe(args) => volume::probe::run(&args),
        Command::Fs(args) => commands::fs::run(&args),
        Command::Torture(args) => commands::torture::run(&args),
        Command::Man(args) => commands::manual::man(&args),
        Command::Completions(args) => commands::manual::completions(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
