//! What is made of the command line itself: man pages, and completions for shells.

use std::fs;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output::print;

/// One page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let written = fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dir));
    written.map_err(|error| {
        Failure::input(format!("cannot write man pages to {}: {error}", args.dir.display()))
    })
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "manylogs", &mut script);
    print(&String::from_utf8_lossy(&script))
}
