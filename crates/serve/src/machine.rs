//! The servers of this machine, and the loop devices that killed servers left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::control::Control;
use crate::loop_device::{Orphan, orphans_of};
use crate::runtime_dir::{EXPORT, SOCKET, is_dead, runtime_dir};

/// Connects to each server of this user. Servers that end meanwhile are left out.
///
/// # Errors
/// If the user has no runtime directory, or it cannot be read.
pub fn servers() -> io::Result<Vec<Control>> {
    let sockets = with_extension(&runtime_dir()?, SOCKET)?;
    Ok(sockets.iter().filter_map(|socket| Control::at(socket, socket).ok()).collect())
}

/// Finds the loop devices that killed servers of this user left.
///
/// # Errors
/// If the user has no runtime directory, or it cannot be read.
pub fn orphans() -> io::Result<Vec<Orphan>> {
    let exports = with_extension(&runtime_dir()?, EXPORT)?;
    let dead = exports.iter().filter(|export| is_dead(export));
    Ok(dead.flat_map(|export| orphans_of(export)).collect())
}

fn with_extension(directory: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    Ok(found)
}
