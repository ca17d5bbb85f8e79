//! Finds the plugin for nbdkit.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{NbdkitError, spawn_error};

/// File names of the plugin: as cargo builds it, and as nbdkit names plugins.
const BUILT: &str = "libmanylogs_nbdkit.so";
const INSTALLED: &str = "nbdkit-manylogs-plugin.so";

/// The file of the plugin: `given`, or the first one found beside the program, in
/// `../lib/nbdkit/plugins` from there, or among the plugins of nbdkit.
///
/// # Errors
/// If no plugin is found.
pub fn find_plugin(given: Option<&Path>) -> Result<PathBuf, NbdkitError> {
    if let Some(given) = given {
        let found = given.is_file().then(|| std::path::absolute(given).ok()).flatten();
        return found.ok_or_else(|| NbdkitError::NoPluginAt { path: given.to_owned() });
    }
    let program = std::env::current_exe().map_err(NbdkitError::Run)?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let mut places = vec![beside.join(BUILT), beside.join("../lib/nbdkit/plugins").join(INSTALLED)];
    places.extend(plugin_dir()?.map(|dir| dir.join(INSTALLED)));
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.ok_or(NbdkitError::NoPlugin { places })
}

/// The directory in which nbdkit looks for plugins.
fn plugin_dir() -> Result<Option<PathBuf>, NbdkitError> {
    let said = Command::new("nbdkit").arg("--dump-config").output().map_err(spawn_error)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(said.lines().find_map(|line| line.strip_prefix("plugindir=")).map(PathBuf::from))
}
