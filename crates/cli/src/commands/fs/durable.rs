//! `manylogs fs status FILE`: whether writes to a file stay in the logs.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use manylogs_mlfs::{DURABLE_XATTR, JournalMode};
use serde_json::json;

use super::known::Known;
use super::mounted;
use crate::args::fs::FsStatusArgs;
use crate::failure::Failure;
use crate::output::print;

/// The attribute's value for "yes".
const YES: &[u8] = b"1";

/// Our mount that contains a file or directory; `None` for a mount point itself, and for a file
/// outside of our mounts, such as an image.
pub(super) fn mount_around(place: &Path) -> Result<Option<PathBuf>, Failure> {
    // A missing file, or a mount without a server, is reported elsewhere.
    let Ok(found) = fs::metadata(place) else { return Ok(None) };
    if !found.is_file() && !found.is_dir() {
        return Ok(None);
    }
    let Ok(path) = fs::canonicalize(place) else { return Ok(None) };
    let is_around = |on: &PathBuf| {
        path != *on
            && path.starts_with(on)
            && fs::metadata(on).is_ok_and(|mount| mount.dev() == found.dev())
    };
    Ok(mounted::all()?.into_iter().map(|mounted| mounted.on).rfind(is_around))
}

/// Shows the property of a file or directory in the mount on `target`.
pub(super) fn run(args: &FsStatusArgs, target: &Path) -> Result<(), Failure> {
    let place = &args.place;
    let named = |error: rustix::io::Errno| Failure::at(place, &io::Error::from(error));
    let mut value = [0; 8];
    let durable = match rustix::fs::getxattr(place, DURABLE_XATTR, &mut value[..]) {
        Ok(len) => value.get(..len) == Some(YES),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::RANGE) => false,
        Err(error) => return Err(named(error)),
    };
    let is_dir = place.is_dir();
    let known = Known::of(target)?;
    let served = known.server.as_ref().and_then(|status| status.file_system.as_ref());
    let mode = served.map_or("ro", |served| served.mode.as_str());
    let has_logs = JournalMode::named(mode).is_some_and(JournalMode::is_near);
    let effect = match (durable, has_logs, is_dir) {
        (false, ..) => "none",
        (true, false, _) => "none in this mode: its journal keeps no files",
        (true, true, false) => "what is written stays in the logs",
        (true, true, true) => "what is created in it has it, too",
    };
    if args.json {
        let value = json!({
            "format": 1,
            "path": place,
            "mounted_on": target,
            "mode": mode,
            "directory": is_dir,
            "durable": durable,
            "in_effect": durable && has_logs,
        });
        return print(&format!("{value:#}\n"));
    }
    let word = if durable { "yes" } else { "no" };
    print(&format!(
        "{:<12} {}\n{:<12} {}\n{:<12} {mode}\n{:<12} {word}\n{:<12} {effect}\n",
        "path",
        place.display(),
        "mounted on",
        target.display(),
        "mode",
        "durable",
        "effect",
    ))
}
