//! A server that goes on after the command has returned.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};

use clap::ValueEnum;
use manylogs_mlfs::JournalMode;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::mounted;
use crate::args::fs::FsMountArgs;
use crate::failure::Failure;
use crate::output::print;

/// Starts the server as a process of its own and returns when the file system is mounted.
pub(super) fn mount(args: &FsMountArgs) -> Result<(), Failure> {
    // Errors in the arguments are reported by this process.
    super::options(args)?;
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let mut server = Command::new(program);
    server.args(["fs", "mount"]).args([absolute(&args.source)?, mounted::resolved(&args.target)?]);
    server.args(args.options.iter().map(|list| format!("-o{list}")));
    let mode = args.mode.map(|mode| JournalMode::from(mode).name());
    server.args(mode.iter().flat_map(|mode| ["--mode", mode]));
    server.args(args.durable.iter().map(|list| format!("--durable={list}")));
    server.args(args.durable_dsync.then_some("--durable-dsync"));
    server.args(args.memory.iter().flat_map(|size| ["--memory", size]));
    server.args(args.emulate.iter().flat_map(|drive| ["--emulate", drive]));
    server.args(args.no_fit.then_some("--no-fit"));
    let cache = args.write_cache.and_then(|cache| cache.to_possible_value());
    server.args(cache.iter().flat_map(|cache| ["--write-cache", cache.get_name()]));
    server.args(args.link.again());
    // The server keeps nothing of the caller: no directory, no terminal, and no pipe with a reader.
    server.current_dir("/").process_group(0).stdin(Stdio::null());
    let mut server =
        server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(Failure::failed)?;
    let (Some(out), Some(err)) = (server.stdout.take(), server.stderr.take()) else {
        unreachable!("both are pipes");
    };
    let said = relay(out, err).map_err(Failure::failed)?;
    if !said.is_empty() {
        return print(&said);
    }
    let code = server.wait().map_err(Failure::failed)?.code();
    Err(match code.and_then(|code| u8::try_from(code).ok()) {
        // The server has printed why.
        Some(code) if code != 0 => Failure::Told(code),
        _ => Failure::failed(format!("{}: its server ended", args.target.display())),
    })
}

/// Passes the server's log lines on, until it reports the mount or ends. Returns the report, or
/// nothing.
fn relay(mut out: ChildStdout, mut err: ChildStderr) -> io::Result<String> {
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    let mut is_open = true;
    loop {
        let ready = {
            let mut both = [PollFd::new(&out, PollFlags::IN), PollFd::new(&err, PollFlags::IN)];
            let polled = if is_open { &mut both[..] } else { &mut both[..1] };
            match poll(polled, None) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            both.map(|one| !one.revents().is_empty())
        };
        // Log lines from before the mount come first.
        if is_open && ready[1] {
            let read = err.read(&mut buffer)?;
            is_open = read > 0;
            // A terminal that is gone does not matter to a file system.
            let _ = io::stderr().write_all(&buffer[..read]);
        } else if ready[0] {
            let read = out.read(&mut buffer)?;
            said.extend_from_slice(&buffer[..read]);
            if read == 0 || said.contains(&b'\n') {
                break;
            }
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(|error| Failure::at(path, &error))
}
