//! Opening an adopted file system: nothing is believed that does not fit together.

use std::rc::Rc;

use manylogs_ext4::{Copies, LogFile, Pointer, Stage};
use manylogs_plant::{Bug, is};

use super::take_over::pointer_to;
use super::{AdoptError, LogEngine, Logs, Site};

/// An adopted file system whose marks are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its logs.
    pub logs: Logs,
}

/// Finds the logs of an adopted file system and completes the bits that a crash left missing,
/// durably: after this records may be written.
///
/// # Errors
/// [`AdoptError::NotAdopted`] and [`AdoptError::Interrupted`] for what is no MLFS,
/// [`AdoptError::LogsMoved`] and [`AdoptError::BitTakenAway`] if other programs were at it.
pub async fn open(site: &Site, engine: &impl LogEngine) -> Result<Opened, AdoptError> {
    let copies = Copies::read(Rc::clone(&site.device)).await?;
    complete(site, engine, copies).await
}

pub(super) async fn complete(
    site: &Site,
    engine: &impl LogEngine,
    mut copies: Copies,
) -> Result<Opened, AdoptError> {
    let marks = copies.marks();
    let pointer = match marks.pointer {
        None if marks.primary => return Err(AdoptError::BitWithoutPointer),
        None => return Err(AdoptError::NotAdopted),
        Some(pointer) => match pointer.stage {
            Stage::Adopted => pointer,
            Stage::TakingOver => return Err(AdoptError::Interrupted("fs adopt", "fs release")),
            Stage::GivingBack => return Err(AdoptError::Interrupted("fs release", "fs adopt")),
        },
    };
    let file = find(site, &pointer).await.map_err(|error| match error {
        AdoptError::LogsMoved(_) if !marks.primary => AdoptError::UsedSince,
        other => other,
    })?;
    let logs = Logs::of(copies.uuid(), &file);
    if !marks.primary && !engine.is_drained(site, &logs).await? {
        return Err(AdoptError::BitTakenAway);
    }
    if is(Bug::MlfsBitsNotCompleted) {
        return Ok(Opened { logs });
    }
    if marks.torn || !marks.primary {
        copies.mark_primary(Some(pointer), true).await?;
    }
    if !is(Bug::MlfsBackupsLate) {
        copies.mark_backups(true).await?;
    }
    Ok(Opened { logs })
}

/// The log file that a pointer leads to.
pub(super) async fn find(site: &Site, pointer: &Pointer) -> Result<LogFile, AdoptError> {
    let moved = AdoptError::LogsMoved;
    let ino = pointer.ino.ok_or_else(|| moved("it names no inode"))?;
    let read = LogFile::read(&site.device, &site.runtime, ino).await;
    let file = read.map_err(|error| match error {
        manylogs_ext4::Error::Exists | manylogs_ext4::Error::Corrupt(_) => {
            moved("its inode is no log file")
        }
        other => other.into(),
    })?;
    if pointer_to(&file) == *pointer { Ok(file) } else { Err(moved("its blocks are others")) }
}
