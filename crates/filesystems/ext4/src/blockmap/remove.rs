//! Unmapping blocks, last ones first.

use std::ops::Range;

use super::{Table, nonzero};
use crate::error::{Corruption, Result};
use crate::extents::{MAP_CREDITS, Unmapped};
use crate::journal::Handle;
use crate::metadata::Metadata;
use crate::ondisk::blockmap::BLOCKS_MOST;
use crate::ondisk::inode::RawInode;
use crate::units::{Ino, Run};

/// The tables on the way to a block, each with the index of the pointer that the way follows.
type Way = Vec<(Table, usize)>;

impl Metadata {
    /// As [`Metadata::remove_extents`], for files that are mapped by blocks.
    pub(crate) async fn remove_pointers(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        range: Range<u64>,
        then: Unmapped,
    ) -> Result<bool> {
        let mut end = range.end.min(BLOCKS_MOST);
        while range.start < end {
            if handle.credits_left() < 2 * MAP_CREDITS {
                return Ok(false);
            }
            end = self.remove_last_run(handle, ino, raw, range.start..end, then).await?;
        }
        Ok(true)
    }

    /// Unmaps the last run of consecutive blocks in `range`, and frees the tables that have no
    /// pointers then. Returns the end of the part of `range` in which blocks may still be mapped.
    async fn remove_last_run(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        range: Range<u64>,
        then: Unmapped,
    ) -> Result<u64> {
        let mut way = Way::new();
        let mut table = Table::root(raw);
        while let Some(slot) = last_pointer(&table, &range) {
            let (level, block) = (table.level.child(slot), nonzero(table.get(slot)));
            let (Some(level), Some(block)) = (level, block) else {
                let first = first_of_run(&table, slot, &range);
                self.unmap_run(handle, ino, raw, &mut table, (first, slot), then).await?;
                let end = table.level.covers(first).start;
                self.free_empty_tables(handle, ino, raw, way, table).await?;
                return Ok(end);
            };
            let child = self.table(ino, block, level).await?;
            way.push((std::mem::replace(&mut table, child), slot));
        }
        let start = table.level.covers(0).start;
        self.free_empty_tables(handle, ino, raw, way, table).await?;
        Ok(start.max(range.start))
    }

    /// Clears the pointers `first` to `last`, which lead to consecutive blocks.
    async fn unmap_run(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        table: &mut Table,
        (first, last): (usize, usize),
        then: Unmapped,
    ) -> Result<()> {
        let bad = || Corruption::inode(ino, "a pointer to no block");
        let start = nonzero(table.get(first)).ok_or_else(bad)?;
        table.put(handle, raw, (first..=last).map(|slot| (slot, 0)));
        let blocks = manylogs_block::narrow((last - first + 1) as u64);
        match then {
            Unmapped::Kept => Ok(()),
            Unmapped::Freed { metadata } => {
                self.free_run(handle, ino, raw, Run { start, blocks }, metadata).await
            }
        }
    }

    /// Frees the last table of a way if it has no pointers, and then likewise the tables above it.
    async fn free_empty_tables(
        &self,
        handle: &mut Handle<'_>,
        ino: Ino,
        raw: &mut RawInode,
        mut way: Way,
        mut table: Table,
    ) -> Result<()> {
        while table.is_empty()
            && !manylogs_plant::is(manylogs_plant::Bug::Ext4TableKept)
            && let Some((mut above, slot)) = way.pop()
            && let Some(buffer) = table.buffer.take()
        {
            above.put(handle, raw, std::iter::once((slot, 0)));
            let run = Run { start: buffer.block(), blocks: 1 };
            drop(buffer);
            self.free_run(handle, ino, raw, run, true).await?;
            table = above;
        }
        Ok(())
    }
}

/// The last pointer of a table that leads to blocks in `range`, if there is one.
fn last_pointer(table: &Table, range: &Range<u64>) -> Option<usize> {
    (0..table.level.len()).rev().find(|slot| {
        let covered = table.level.covers(*slot);
        table.get(*slot) != 0 && covered.start < range.end && range.start < covered.end
    })
}

/// The first of the pointers before `last` that lead to consecutive blocks, within `range`.
fn first_of_run(table: &Table, last: usize, range: &Range<u64>) -> usize {
    let mut first = last;
    while let Some(before) = first.checked_sub(1)
        && table.level.child(before).is_none()
        && table.level.covers(before).start >= range.start
        && table.get(before) != 0
        && table.get(before).checked_add(1) == Some(table.get(first))
    {
        first = before;
    }
    first
}
