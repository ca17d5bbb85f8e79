//! From MLFS to ext4.

use std::rc::Rc;

use manylogs_ext4::{Copies, Error, Marks, Pointer, Refusal, Stage};
use manylogs_plant::{Bug, is};

use super::open::{find, locate_by};
use super::{AdoptError, LogEngine, Site};

/// Gives the file system back to ext4, or goes on with that, or undoes a take-over that was
/// interrupted. When this returns it is plain ext4 without a log file, durably. After a crash
/// before the first superblock has lost its pointer it is MLFS with drained logs, and behind that
/// plain ext4, perhaps with a log file that the next call removes, or `chattr -i` and `rm`.
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
    // Nothing is changed in a file system with errors before e2fsck has looked.
    if Copies::read(Rc::clone(&site.device)).await?.check_errors().is_err() {
        return Err(AdoptError::HasErrors);
    }
    remove_file(site).await?;
    let mut copies = Copies::read(Rc::clone(&site.device)).await?;
    copies.mark_primary(None, false).await?;
    Ok(())
}

/// Brings home what the logs hold. Where the first superblock has no bit, and the logs are not
/// where they were, others have used the file system as ext4: what the logs held must not go home
/// then.
async fn drain(site: &Site, engine: &impl LogEngine, copies: Copies) -> Result<(), AdoptError> {
    let marks = copies.marks();
    if let Some(pointer) = marks.pointer.filter(|_| !marks.primary)
        && matches!(find(site, &pointer).await, Err(AdoptError::LogsMoved(_)))
    {
        return Ok(());
    }
    let located = locate_by(site, engine, copies).await?;
    if !located.marks.primary {
        // Nothing is in the logs, and others may use it as ext4 already.
        return Ok(());
    }
    if is(Bug::MlfsBitClearedEarly) {
        clear_marks(site).await?;
    }
    engine.drain(site, &located.logs).await
}

/// Plain ext4 may have a log file, or copies of the superblock with the bit: of a release that was
/// interrupted before e2fsck restored the superblock, for one.
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

/// From the moment that the first superblock has lost the pointer it is ext4.
async fn clear_marks(site: &Site) -> Result<(), AdoptError> {
    // A drain may have brought a superblock home.
    let mut copies = Copies::read(Rc::clone(&site.device)).await?;
    let pointer = Some(Pointer::empty(Stage::GivingBack));
    if is(Bug::MlfsBackupsClearedLast) {
        copies.mark_primary(pointer, false).await?;
    }
    copies.mark_backups(false).await?;
    Ok(copies.mark_primary(pointer, false).await?)
}

/// Removes the log file by transactions of ext4's own journal; nothing that others made.
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
