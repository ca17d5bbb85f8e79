//! The disk's link and its write cache: what is said of them, and the cache set while it is served.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use manylogs_block::on_off;
use manylogs_operate::log::{Level, line};
use manylogs_operate::status::{DiskStatus, VolumeStatus};
use manylogs_storage::{CacheError, HeldCache, HoldError, Released};

use crate::args::serve::CacheArg;
use crate::failure::Failure;

/// A setting that is put back at the end, also if that comes early.
pub(crate) struct Held {
    device: PathBuf,
    cache: Option<HeldCache>,
}

/// Sets the write cache of the disk at `device` for as long as the result lives, or puts back what
/// a killed server has left of it. The cache of a drive that is emulated is the model's.
///
/// # Errors
/// If it is to be set and cannot be: nothing is changed then.
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
    /// Puts the setting back, and says what became of it.
    pub(crate) fn release(self) {
        if let Some(cache) = self.cache {
            tell(&self.device, cache.release().map(Some));
        }
    }
}

/// Puts back what a killed server has left of the write cache of the disk at `device`, and says
/// what became of it. Whether something was put back.
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

/// Says what is to be known of the disk below a server that begins.
pub(crate) fn say(device: &Path, disk: Option<&DiskStatus>) {
    let Some(disk) = disk else { return };
    line(Level::Info, Some(device), &disk.summary(), &[("link", disk.link.as_str().into())]);
    if let Some(drive) = &disk.drive {
        line(Level::Info, Some(device), drive, &[]);
    }
    // What this process has set itself is said already.
    let own = format!("process {} ", std::process::id());
    for note in disk.notes.iter().filter(|note| !note.starts_with(&own)) {
        line(Level::Warning, Some(device), note, &[]);
    }
}

/// The rows of a status, with what records took, if a server writes some.
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

/// What a list says of a disk: nothing, if there is nothing to do.
pub(crate) fn told(disk: &DiskStatus) -> String {
    if disk.notes.is_empty() {
        return String::new();
    }
    format!("{}: {}\n", disk.summary(), disk.notes.join("; "))
}
