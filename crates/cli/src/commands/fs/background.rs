//! A server that goes on when the command has returned.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manylogs_mlfs::JournalMode;

use crate::args::fs::FsMountArgs;
use crate::args::serve::OnOff;
use crate::failure::Failure;
use crate::output::print;

/// Starts the server as a process of its own and returns when the file system is mounted.
pub(super) fn mount(args: &FsMountArgs) -> Result<(), Failure> {
    // What is wrong with the arguments is told by this process.
    super::options(args)?;
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let mut server = Command::new(program);
    server.args(["fs", "mount"]).args([absolute(&args.source)?, absolute(&args.target)?]);
    server.args(args.options.iter().map(|list| format!("-o{list}")));
    let mode = args.mode.map(|mode| JournalMode::from(mode).name());
    server.args(mode.iter().flat_map(|mode| ["--mode", mode]));
    server.args(args.emulate.iter().flat_map(|drive| ["--emulate", drive]));
    server.args(args.no_fit.then_some("--no-fit"));
    match args.write_cache {
        Some(OnOff::On) => drop(server.args(["--write-cache", "on"])),
        Some(OnOff::Off) => drop(server.args(["--write-cache", "off"])),
        None => {}
    }
    server.args(args.link.again());
    // Nothing of the caller's is kept: no directory, no terminal, no pipe that somebody reads.
    server.current_dir("/").process_group(0).stdin(Stdio::null());
    let mut server =
        server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(Failure::failed)?;
    let mut said = String::new();
    if let Some(out) = server.stdout.take() {
        BufReader::new(out).read_line(&mut said).map_err(Failure::failed)?;
    }
    if !said.is_empty() {
        return print(&said);
    }
    let mut why = String::new();
    if let Some(mut err) = server.stderr.take() {
        err.read_to_string(&mut why).map_err(Failure::failed)?;
    }
    let _ = io::stderr().write_all(why.as_bytes());
    let code = server.wait().map_err(Failure::failed)?;
    Err(Failure::failed(format!("{}: not mounted ({code})", args.target.display())))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let named = |error: io::Error| Failure::input(format!("{}: {error}", path.display()));
    fs::canonicalize(path).map_err(named)
}
