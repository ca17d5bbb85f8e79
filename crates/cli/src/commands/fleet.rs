//! `manylogs fleet`: starts the Python package's `manylogs-fleet`, which does the work.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::args::fleet::{Effort, FleetArgs};
use crate::failure::Failure;

/// The package's program.
const PROGRAM: &str = "manylogs-fleet";

/// Replaces this process by the package's program. Returns only if that fails.
pub(crate) fn run(args: &FleetArgs) -> Result<(), Failure> {
    let error = Command::new(program()).args(words(args)).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => Failure::input(format!(
            "{PROGRAM} is not installed: fleets are part of the Python package. In a checkout: \
             python3 -m venv venv && venv/bin/pip install '.[fleet]', then PATH=venv/bin:$PATH \
             (docs/fleet.md)"
        )),
        _ => Failure::of_io(&error, format!("cannot start {PROGRAM}: {error}")),
    })
}

/// The arguments in the form of the package's program.
fn words(args: &FleetArgs) -> Vec<OsString> {
    let effort = match args.effort {
        Effort::Screen => "screen",
        Effort::Advise => "advise",
    };
    let mut words: Vec<OsString> = vec![args.inventory.clone().into()];
    let mut option = |name: &str, value: Option<OsString>| {
        words.extend(value.map(|value| [OsString::from(name), value]).into_iter().flatten());
    };
    option("--out", Some(args.out.clone().into()));
    option("--drives", args.drives.clone().map(Into::into));
    option("--policies", Some(args.policies.clone().into()));
    option("--effort", Some(effort.into()));
    option("--seeds", Some(args.seeds.to_string().into()));
    option("--rate", Some(args.rate.clone().into()));
    option("--limit", args.limit.map(|limit| limit.to_string().into()));
    option("--scheduler", args.scheduler.clone().map(Into::into));
    option("--workers", args.workers.map(|workers| workers.to_string().into()));
    option("--worker-memory", Some(args.worker_memory.clone().into()));
    let flags = [("--fit", args.fit), ("--plan", args.plan), ("--insecure", args.insecure)];
    words.extend(flags.into_iter().filter(|(_, given)| *given).map(|(name, _)| name.into()));
    words
}

/// The package's program: beside this one if it is there, or else on the PATH.
fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    beside.filter(|path| path.exists()).unwrap_or_else(|| PROGRAM.into())
}
