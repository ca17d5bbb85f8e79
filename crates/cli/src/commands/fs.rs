//! `manylogs fs`: file systems of our own.

use std::path::Path;

use manylogs_mlfs::MountError;
use manylogs_serve::log::{Level, line};

use crate::args::fs::{FsArgs, FsCommand, FsMountArgs, ModeArg};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &FsArgs) -> Result<(), Failure> {
    match &args.command {
        FsCommand::Mount(args) => mount(args),
    }
}

fn mount(args: &FsMountArgs) -> Result<(), Failure> {
    let ModeArg::Ordered = args.mode;
    if !args.target.is_dir() {
        return Err(Failure::input(format!("{}: not a directory", args.target.display())));
    }
    let target = args.target.clone();
    ctrlc::set_handler(move || unmount(&target)).map_err(Failure::failed)?;
    let (source, target) = (args.source.display(), args.target.display());
    let said = || {
        // A terminal that is gone does not matter to a file system.
        let _ = print(&format!("{source} is mounted on {target}\n"));
    };
    manylogs_mlfs::serve(&args.source, &args.target, said)
        .map_err(|error| failure(&args.source, &error))
}

/// Ends the mount, unless somebody uses it.
fn unmount(target: &Path) {
    if let Err(error) = rustix::mount::unmount(target, rustix::mount::UnmountFlags::empty()) {
        let message = format!("{}: still mounted: {error}", target.display());
        line(Level::Warning, None, &message, &[]);
    }
}

fn failure(source: &Path, error: &MountError) -> Failure {
    let message = format!("{}: {error}", source.display());
    match error {
        MountError::FileSystem(manylogs_ext4::Error::Refused(_)) => Failure::Input(message),
        MountError::FileSystem(manylogs_ext4::Error::Corrupt(_)) => Failure::Damage(message),
        _ => Failure::Failed(message),
    }
}
