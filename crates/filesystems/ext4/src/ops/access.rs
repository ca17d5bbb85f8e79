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

/// The times of an inode that change with its use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
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
    /// Whether an inode that was last read and changed then is to get a new time.
    fn wants(
        self,
        raw: &RawInode,
        (last, changed): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> bool {
        match self {
            _ if raw.has_flag(flags::NO_ACCESS_TIME) => false,
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

    /// An inode was read: its time of access may change, and is shown from now on. Nothing happens
    /// where nothing can be written. Whether [`Ext4::keep_access`] has something to do.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn note_access(&self, ino: Ino, times: AccessTimes) -> Result<bool> {
        let core = &self.core;
        if times == AccessTimes::Off || core.read_only || !core.journal.is_sound() {
            return Ok(false);
        }
        let _tree = core.journal.tree.read().await;
        let (raw, now) = (core.inode(ino).await?, core.now());
        let known = core.times_of(ino, &raw);
        let wants = times.wants(&raw, (known.accessed, known.modified.max(known.changed)), now);
        if wants {
            core.node(ino).accessed_at.set(Some(now));
        }
        Ok(wants)
    }

    /// Brings a time of access that was noted into a transaction. That may take a while, and nobody
    /// waits for it.
    ///
    /// # Errors
    /// Those of the device.
    pub async fn keep_access(&self, ino: Ino) -> Result<()> {
        let core = &self.core;
        let mut handle = match core.begin(1).await {
            Err(Error::Aborted(_)) => return Ok(()),
            handle => handle?,
        };
        let mut raw = core.inode(ino).await?;
        let noted = core.node(ino).accessed_at.take();
        // It may have ended since it was read, or got another time.
        let Some(at) = noted.filter(|_| raw.links() > 0) else { return Ok(()) };
        raw.set_time(TimeField::Access, at);
        core.put_inode(&mut handle, ino, &mut raw).await?;
        // Nobody who syncs the file waits for it.
        handle.finish();
        Ok(())
    }
}

impl Core {
    /// The times of an inode, with what it does not say yet.
    pub(super) fn times_of(&self, ino: Ino, raw: &RawInode) -> Times {
        let nodes = self.nodes.borrow();
        let node = nodes.get(&ino);
        let written_at = node.and_then(|node| node.written_at.get());
        let accessed_at = node.and_then(|node| node.accessed_at.get());
        let changed = raw.time(TimeField::Change);
        Times {
            accessed: accessed_at.unwrap_or_else(|| raw.time(TimeField::Access)),
            modified: written_at.unwrap_or_else(|| raw.time(TimeField::Modify)),
            changed: written_at.map_or(changed, |at| at.max(changed)),
        }
    }
}
