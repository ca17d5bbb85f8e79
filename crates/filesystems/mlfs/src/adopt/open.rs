//! Opening an adopted file system: marks, pointer and logs must fit together.

use std::rc::Rc;

use manylogs_ext4::{Copies, LogFile, Marks, Pointer, Refusal, Stage};
use manylogs_plant::{Bug, is};

use super::take_over::pointer_to;
use super::{AdoptError, LogEngine, Logs, Site};

/// An adopted file system whose marks are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its logs.
    pub logs: Logs,
}

/// An adopted file system whose logs were found. Nothing was written yet.
#[derive(Debug)]
pub struct Located {
    pub(super) copies: Copies,
    pub(super) marks: Marks,
    pub(super) pointer: Pointer,
    /// Its logs.
    pub logs: Logs,
}

/// Finds the logs of an adopted file system and completes the bits that a crash left missing,
/// durably: after this records may be written.
///
/// # Errors
/// Those of [`locate`] and [`Located::check`]: then nothing was written.
pub async fn open(site: &Site, engine: &impl LogEngine) -> Result<Opened, AdoptError> {
    let located = locate(site, engine).await?;
    located.check(site, engine).await?;
    located.complete().await
}

/// Finds the logs of an adopted file system. Nothing is written.
///
/// # Errors
/// [`AdoptError::NotAdopted`] and [`AdoptError::Interrupted`] if it is no MLFS,
/// [`AdoptError::LogsMoved`], [`AdoptError::UsedSince`] and [`AdoptError::BitTakenAway`] if other
/// programs changed it.
pub async fn locate(site: &Site, engine: &impl LogEngine) -> Result<Located, AdoptError> {
    locate_by(site, engine, Copies::read(Rc::clone(&site.device)).await?).await
}

pub(super) async fn locate_by(
    site: &Site,
    engine: &impl LogEngine,
    copies: Copies,
) -> Result<Located, AdoptError> {
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
    Ok(Located { copies, marks, pointer, logs })
}

impl Located {
    /// Whether records may be written once the marks are complete. Nothing is written.
    ///
    /// # Errors
    /// [`Refusal::NeedsReplay`] and [`AdoptError::UsedUncleanly`] if others used it as ext4 and
    /// left a journal to replay; those of [`LogEngine::check`].
    pub async fn check(&self, site: &Site, engine: &impl LogEngine) -> Result<(), AdoptError> {
        if self.copies.needs_recovery() {
            return Err(match self.marks.primary {
                true => Refusal::NeedsReplay.into(),
                false => AdoptError::UsedUncleanly,
            });
        }
        engine.check(site, &self.logs).await
    }

    /// Completes the bits that a crash left missing, durably: after this records may be written.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn complete(self) -> Result<Opened, AdoptError> {
        let Self { mut copies, marks, pointer, logs } = self;
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
