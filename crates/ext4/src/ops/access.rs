//! Opening, and the times of access.

use super::Ext4;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::ondisk::inode::{RawInode, TimeField, flags};
use crate::units::{Ino, Timestamp};

/// Seconds after which a relative time of access is too old whatever happened since.
const DAY: i64 = 24 * 60 * 60;

/// When reading changes a time of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never.
    Off,
    /// If the time is not later than the last change, or a day old.
    #[default]
    Relative,
    /// Always.
    Strict,
}

/// What a file is opened for, besides reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFor {
    /// Writing.
    pub write: bool,
    /// Writing at the end only.
    pub append: bool,
    /// Losing its content.
    pub truncate: bool,
}

impl AccessTimes {
    fn wants(self, raw: &RawInode, now: Timestamp) -> bool {
        let last = raw.time(TimeField::Access);
        let changed = raw.time(TimeField::Modify).max(raw.time(TimeField::Change));
        match self {
            _ if raw.has_flag(flags::NO_ACCESS_TIME | flags::IMMUTABLE) => false,
            Self::Off => false,
            Self::Relative => last <= changed || now.seconds - last.seconds >= DAY,
            Self::Strict => last < now,
        }
    }
}

impl Ext4 {
    /// Whether a file may be opened for this, whoever asks: immutable ones are read only, and
    /// append-only ones are written at their end.
    ///
    /// # Errors
    /// [`Error::NotPermitted`], [`Error::ReadOnly`].
    pub async fn check_open(&self, ino: Ino, what: OpenFor) -> Result<()> {
        if !what.write && !what.truncate {
            return Ok(());
        }
        self.core.check_writable()?;
        let _tree = self.core.journal.tree.read().await;
        let raw = self.core.inode(ino).await?;
        if what.truncate || !what.append {
            Core::check_losable(&raw)
        } else {
            Core::check_mutable(&raw)
        }
    }

    /// An inode was read: its time of access may change. Nothing happens where nothing can be
    /// written.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn note_access(&self, ino: Ino, times: AccessTimes) -> Result<()> {
        let core = &self.core;
        if times == AccessTimes::Off || core.read_only || !core.journal.is_sound() {
            return Ok(());
        }
        let wants = {
            let _tree = core.journal.tree.read().await;
            times.wants(&core.inode(ino).await?, core.now())
        };
        if !wants {
            return Ok(());
        }
        let mut handle = match core.begin(1).await {
            Err(Error::Aborted(_)) => return Ok(()),
            handle => handle?,
        };
        let mut raw = core.inode(ino).await?;
        if raw.links() == 0 {
            // It may have ended since it was read.
            return Ok(());
        }
        raw.set_time(TimeField::Access, core.now());
        core.put_inode(&mut handle, ino, &mut raw).await?;
        // Nobody who syncs the file waits for it.
        handle.finish();
        Ok(())
    }
}
