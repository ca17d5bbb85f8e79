//! Opening, and the times of access.

use super::Ext4;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::ondisk::inode::{RawInode, TimeField, flags};
use crate::units::{Ino, Timestamp};

/// Seconds after which a relative time of access is updated in any case.
const DAY: i64 = 24 * 60 * 60;

/// When a read updates the time of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never.
    Off,
    /// If the time is not later than the last change, or is at least a day old.
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

/// Purposes of opening a file, besides reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFor {
    /// Writing.
    pub write: bool,
    /// Writing only at the end.
    pub append: bool,
    /// Cutting its content.
    pub truncate: bool,
}

impl AccessTimes {
    /// Whether an inode needs a new time of access, given the times of its last access and change.
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
    /// Checks that a file may be opened for `what`, by any user: an immutable file is only read,
    /// and an append-only one is written only at its end.
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
            Metadata::check_losable(&raw)
        } else {
            Metadata::check_mutable(&raw)
        }
    }

    /// Notes a read of an inode: its time of access may change in memory. On a read-only mount or
    /// after an abort nothing changes. Returns whether [`Ext4::keep_access`] has something to do.
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

    /// Puts a noted time of access into a transaction. This may take a while, and no request should
    /// wait for it.
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
        // The file may have been deleted since the read, or got another time.
        let Some(at) = noted.filter(|_| raw.links() > 0) else { return Ok(()) };
        raw.set_time(TimeField::Access, at);
        core.put_inode(&mut handle, ino, &mut raw).await?;
        // The change is not noted in the node, so that syncs of the file do not wait for it.
        handle.finish();
        Ok(())
    }
}

impl Core {
    /// The times of an inode, including those that are not in the inode yet.
    pub(super) fn times_of(&self, ino: Ino, raw: &RawInode) -> Times {
        let node = self.nodes.get(ino);
        let written_at = node.as_ref().and_then(|node| node.written_at.get());
        let accessed_at = node.and_then(|node| node.accessed_at.get());
        let changed = raw.time(TimeField::Change);
        Times {
            accessed: accessed_at.unwrap_or_else(|| raw.time(TimeField::Access)),
            modified: written_at.unwrap_or_else(|| raw.time(TimeField::Modify)),
            changed: written_at.map_or(changed, |at| at.max(changed)),
        }
    }
}
