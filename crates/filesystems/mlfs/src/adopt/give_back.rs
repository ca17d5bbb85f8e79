//! Gives a file system back from MLFS to ext4.

use std::rc::Rc;

use manylogs_ext4::{Copies, Error, Marks, Pointer, Refusal, Stage};
use manylogs_plant::{Bug, is};

use super::open::{find, locate_by};
use super::{AdoptError, LogEngine, Site};

/// Gives the file system back to ext4, continues an interrupted release, or undoes an interrupted
/// take-over. When this returns the file system is plain ext4 without a log file, durably. A crash
/// before the first superblock has lost its pointer to the logs leaves MLFS, perhaps with drained
/// logs. A later crash leaves plain ext4, perhaps with a log file. The next call removes that, or
/// `chattr -i` and `rm` do.
///
/// # Errors
/// [`AdoptError::NotAdopted`] if it is plain ext4 without a log file, and those of [`super::open`].
pub async fn release(site: &Site, engine: &impl LogEngine) -> Result<(), AdoptError> {
    let copies = Copies::read(Rc::clone(&site.device)).await?;
    let marks = copies.marks();
    match marks.pointer.map(|pointer| pointer.stage) {
        Some(Stage::Adopted) => drain(site, engine, copies).await?,
        Some(Stage::TakingOver | Stage::GivingBack) => {}
        None if marks.primary => return Err(AdoptError::BitWithoutPointer),
        None => check_leftover(site, &copies, &marks).await?,
    }
    clear_marks(site).await?;
    // A file system with errors is not changed further before e2fsck has looked.
    if Copies::read(Rc::clone(&site.device)).await?.check_errors().is_err() {
        return Err(AdoptError::HasErrors);
    }
    remove_file(site).await?;
    let mut copies = Copies::read(Rc::clone(&site.device)).await?;
    copies.mark_primary(None, false).await?;
    Ok(())
}

/// Brings home what the logs hold. If the first superblock has no bit and the logs are not where
/// they were, other programs have used the file system as ext4: then nothing must go home.
async fn drain(site: &Site, engine: &impl LogEngine, copies: Copies) -> Result<(), AdoptError> {
    let marks = copies.marks();
    if let Some(pointer) = marks.pointer.filter(|_| !marks.primary)
        && matches!(find(site, &pointer).await, Err(AdoptError::LogsMoved(_)))
    {
        return Ok(());
    }
    let located = locate_by(site, engine, copies).await?;
    if !located.marks.primary {
        // The logs are drained, and other programs may use it as ext4 already.
        return Ok(());
    }
    if is(Bug::MlfsBitClearedEarly) {
        clear_marks(site).await?;
    }
    engine.drain(site, &located.logs).await
}

/// Checks that there is something to clear: plain ext4 may still have a log file, or copies of the
/// superblock with the bit, e.g. if a release was interrupted and e2fsck then restored the
/// superblock.
async fn check_leftover(site: &Site, copies: &Copies, marks: &Marks) -> Result<(), AdoptError> {
    if copies.has_foreign_pointer() {
        return Err(AdoptError::BytesTaken);
    }
    if !marks.backups_with.is_empty() {
        return Ok(());
    }
    if copies.needs_recovery() {
        return Err(Refusal::NeedsCheck("it was not unmounted cleanly").into());
    }
    match site.mount(true).await?.log_file().await {
        Ok(Some(file)) if file.is_immutable => Ok(()),
        Ok(_) | Err(Error::Exists) => Err(AdoptError::NotAdopted),
        Err(other) => Err(other.into()),
    }
}

/// Clears the bit in the copies of the superblock, then bit and pointer in the first one. From the
/// last write on it is ext4.
async fn clear_marks(site: &Site) -> Result<(), AdoptError> {
    // The drain may have brought a newer superblock home, so the copies are read again.
    let mut copies = Copies::read(Rc::clone(&site.device)).await?;
    let pointer = Some(Pointer::empty(Stage::GivingBack));
    if is(Bug::MlfsBackupsClearedLast) {
        copies.mark_primary(pointer, false).await?;
    }
    copies.mark_backups(false).await?;
    Ok(copies.mark_primary(pointer, false).await?)
}

/// Removes the log file by transactions of ext4's own journal, but no file of that name that others
/// made.
async fn remove_file(site: &Site) -> Result<(), AdoptError> {
    let fs = site.mount(false).await?;
    let removed = match fs.log_file().await {
        Ok(Some(_)) => fs.remove_log_file().await,
        Ok(None) | Err(Error::Exists) => Ok(()),
        Err(other) => Err(other),
    };
    let unmounted = fs.unmount().await;
    Ok(removed.and(unmounted)?)
}
