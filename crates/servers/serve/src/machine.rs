//! The user's servers on this machine, and the loop devices that killed servers left.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::loop_device::{Orphan, orphans_of};
use manylogs_operate::control::Control;
use manylogs_operate::runtime_dir::{EXPORT, NOTE, SOCKET, at, is_dead, noted_device};

/// Connects to each server of this user. Servers that end meanwhile are left out; a user without a
/// runtime directory has none.
///
/// # Errors
/// If the runtime directory cannot be read.
pub fn servers() -> io::Result<Vec<Control>> {
    let sockets = with_extension(SOCKET)?;
    Ok(sockets.iter().filter_map(|socket| Control::at(socket, socket).ok()).collect())
}

/// The devices whose servers were killed; a server that ends in order leaves no note.
///
/// # Errors
/// As [`servers`].
pub fn unserved() -> io::Result<Vec<PathBuf>> {
    Ok(with_extension(NOTE)?.iter().filter_map(|note| noted_device(note)).collect())
}

/// Finds the loop devices that killed servers of this user left.
///
/// # Errors
/// As [`servers`].
pub fn orphans() -> io::Result<Vec<Orphan>> {
    let exports = with_extension(EXPORT)?;
    let dead = exports.iter().filter(|export| is_dead(export));
    Ok(dead.flat_map(|export| orphans_of(export)).collect())
}

/// Files with this extension in the user's runtime directory.
fn with_extension(extension: &str) -> io::Result<Vec<PathBuf>> {
    let Ok(directory) = manylogs_storage::runtime_dir() else { return Ok(Vec::new()) };
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(&directory, &error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    Ok(found)
}
