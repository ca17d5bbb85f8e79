//! The disk's link and its write cache: messages about them, and the cache's setting while the disk
//! is served.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use manylogs_block::on_off;
use manylogs_operate::log::{Level, line};
use manylogs_operate::status::{DiskStatus, VolumeStatus};
use manylogs_storage::{CacheError, HeldCache, HoldError, Released};

use crate::args::serve::CacheArg;
use crate::failure::Failure;

/// A setting of the write cache that is restored at the end, also after an early error.
pub(crate) struct Held {
    device: PathBuf,
    cache: Option<HeldCache>,
}

/// Sets the write cache of the disk at `device` for as long as the result lives, or restores the
/// setting that a killed server has changed. With an emulated drive the disk's cache is not set:
/// the option is the model's.
///
/// # Errors
/// If the cache cannot be set; it is unchanged then.
pub(crate) fn hold(device: &Path, wish: CacheArg, emulates: bool) -> Result<Held, Failure> {
    let mut held = Held { device: device.to_owned(), cache: None };
    let Some(on) = wish.wish().filter(|_| !emulates) else {
        settle(device);
        return Ok(held);
    };
    let cache = HeldCache::take(device, on).map_err(|error| failure(device, &error))?;
    let (disk, set, former) = (cache.disk(), on_off(on), on_off(cache.former()));
    let message = if cache.former() == on {
        format!("the write cache of {disk} is {set}, as it was")
    } else {
        format!("the write cache of {disk} is {set}, and will be {former} again at the end")
    };
    line(Level::Info, Some(device), &message, &[("write_cache", set.into())]);
    held.cache = Some(cache);
    Ok(held)
}

impl Held {
    /// Restores the setting, and logs the result.
    pub(crate) fn release(self) {
        if let Some(cache) = self.cache {
            tell(&self.device, cache.release().map(Some));
        }
    }
}

/// Restores the write cache of the disk at `device` after a killed server, and logs the result.
/// Returns whether a setting was restored.
pub(crate) fn settle(device: &Path) -> bool {
    let settled = manylogs_storage::settle(device);
    let is_back = matches!(settled, Ok(Some(Released::PutBack { .. })));
    tell(device, settled);
    is_back
}

fn tell(device: &Path, released: Result<Option<Released>, CacheError>) {
    let (level, message) = match released {
        Ok(None | Some(Released::AsBefore)) => return,
        Ok(Some(Released::PutBack { on })) => {
            (Level::Info, format!("the write cache of its disk is {} again", on_off(on)))
        }
        Ok(Some(Released::Shared)) => (
            Level::Info,
            "the write cache of its disk stays as another server needs it, which puts it back"
                .to_owned(),
        ),
        Ok(Some(Released::Changed)) => (
            Level::Warning,
            "the write cache of its disk was changed by somebody else meanwhile, and stays so"
                .to_owned(),
        ),
        Err(error) => (Level::Warning, format!("its write cache was not put back: {error}")),
    };
    line(level, Some(device), &message, &[]);
}

fn failure(device: &Path, error: &HoldError) -> Failure {
    let message = format!("{}: {error}", device.display());
    match error {
        HoldError::Other { .. } => Failure::Busy(message),
        HoldError::Cache(CacheError::Refused { source, .. } | CacheError::Flush { source, .. })
        | HoldError::Note { source, .. } => Failure::of_io(source, message),
        HoldError::Cache(_) => Failure::Failed(message),
        _ => Failure::Input(message + "; with --write-cache keep it stays as it is"),
    }
}

/// Logs notes about the disk below a starting server.
pub(crate) fn say(device: &Path, disk: Option<&DiskStatus>) {
    let Some(disk) = disk else { return };
    line(Level::Info, Some(device), &disk.summary(), &[("link", disk.link.as_str().into())]);
    if let Some(drive) = &disk.drive {
        line(Level::Info, Some(device), drive, &[]);
    }
    // A change by this process itself was logged already.
    let own = format!("process {} ", std::process::id());
    for note in disk.notes.iter().filter(|note| !note.starts_with(&own)) {
        line(Level::Warning, Some(device), note, &[]);
    }
}

/// The rows of a status about the disk, with the time of records if a server writes some.
pub(crate) fn rows(disk: &DiskStatus, volume: Option<&VolumeStatus>) -> String {
    let mut out = format!("disk            {}\n", disk.summary());
    for note in disk.drive.iter().chain(&disk.notes) {
        let _ = writeln!(out, "                {note}");
    }
    let records = volume.filter(|volume| disk.drains_queue && volume.records > 0);
    if let Some(volume) = records {
        let each = volume
            .record_mean_us
            .map_or_else(String::new, |mean| format!(", and took {:.1} ms each", mean / 1e3));
        let count = volume.records;
        let _ =
            writeln!(out, "                {count} records did so since the server began{each}");
    }
    out
}

/// The text of a list about a disk; empty if there is nothing to do.
pub(crate) fn told(disk: &DiskStatus) -> String {
    if disk.notes.is_empty() {
        return String::new();
    }
    format!("{}: {}\n", disk.summary(), disk.notes.join("; "))
}
