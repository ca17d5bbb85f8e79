//! Content that goes through the journal: [`crate::Mode::Data`], and short runs in
//! [`crate::Mode::Runs`].

use bytes::Bytes;

use manylogs_plant::{Bug, is};

use super::place::Piece;
use super::writeback::Held;
use crate::core::Core;
use crate::error::Result;
use crate::extents::MAP_CREDITS;
use crate::inode::Node;
use crate::journal::{LoggedKind, Newest};
use crate::ondisk::inode::flags;
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// Pages of one handle: even the smallest journal's largest transaction holds them and the metadata
/// that maps them.
const PAGES: usize = 128;
/// Pages of zeroes in a row that become unwritten blocks: 32 KiB. Fewer would make short extents.
const ZEROES_LEAST: usize = 8;
/// A page of zeroes.
static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

impl Core {
    /// Puts pages into transactions, with the metadata that maps them.
    ///
    /// This may take several transactions. Each maps only pages whose content it has, so that a
    /// crash between two leaves a beginning of the written pages. The node notes the last
    /// transaction.
    ///
    /// In files that need durability and no place, zeroes become unwritten blocks, if the file has
    /// no content there: a log that is filled with zeroes before it is used takes no room.
    pub(super) async fn journal_pages(
        &self,
        node: &Node,
        batch: &[Held],
        kind: LoggedKind,
    ) -> Result<()> {
        let durable = kind.needs_no_place();
        for (run, zeroes) in runs(batch, durable) {
            for pages in run.chunks(PAGES) {
                let mut contents = pages.iter();
                for mut piece in self.plan(node, pages, None).await? {
                    piece.zeroes = zeroes && piece.needs_mapping();
                    let held = contents.by_ref().take(piece.extent.blocks as usize);
                    self.journal_piece(node, piece, held, kind).await?;
                }
                self.clean(node, pages);
            }
        }
        Ok(())
    }

    /// Puts the pages of a piece into the running transaction. If the blocks are mapped already, no
    /// metadata changes.
    pub(super) async fn journal_piece<'p>(
        &self,
        node: &Node,
        mut piece: Piece,
        pages: impl Iterator<Item = &'p Held>,
        kind: LoggedKind,
    ) -> Result<()> {
        let (extent, run) = (piece.extent, piece.run());
        let (mapped, mut zeroes) = (!piece.needs_mapping(), piece.zeroes);
        let credits = if mapped { 0 } else { 3 * MAP_CREDITS };
        let mut handle = self.begin(credits + run.blocks as usize).await?;
        if !mapped && !is(Bug::NearUnwrittenNotMapped) {
            let mut raw = self.inode(node.ino).await?;
            zeroes &= raw.has_flag(flags::EXTENTS);
            piece.zeroes = zeroes;
            self.map_piece(&mut handle, node, &mut raw, piece).await?;
            self.put_inode(&mut handle, node.ino, &mut raw).await?;
        }
        if is(Bug::DurableMapsAhead) && kind.needs_no_place() {
            let tid = handle.finish();
            self.journal.commit(tid).await?;
            handle = self.begin(credits + run.blocks as usize).await?;
        }
        // Nothing fails from here on.
        for (block, (_, bytes, _)) in run.range().zip(pages).filter(|_| !zeroes) {
            handle.log_content(BlockNo(block), bytes, kind);
        }
        self.note_change_of(node, handle.finish());
        self.keep_promises(node, extent);
        Ok(())
    }

    /// The blocks of a run whose newest content is not on the device yet, with their index in the
    /// run.
    pub(super) fn newer_than_device(&self, run: Run) -> Vec<(u32, Bytes)> {
        if !self.mode.journals_content() || is(Bug::Ext4JournalledContentUnread) {
            return Vec::new();
        }
        let newest = |block| {
            let cached = self.cache.get(block).map(|buffer| buffer.bytes());
            cached.or_else(|| match self.journal.newest(block)? {
                Newest::Bytes(bytes) => Some(bytes),
                Newest::InLog(_) => unreachable!("where it has content it keeps all in memory"),
            })
        };
        let blocks = (0..).zip(run.range().map(BlockNo));
        blocks.filter_map(|(number, block)| Some((number, newest(block)?))).collect()
    }
}

/// Splits pages into runs; if `wanted`, long runs of zeroes are split off, with `true`.
fn runs(pages: &[Held], wanted: bool) -> impl Iterator<Item = (&[Held], bool)> {
    let zeroes_at = move |pages: &[Held]| if wanted { zeroes_at(pages) } else { 0 };
    let mut rest = pages;
    std::iter::from_fn(move || {
        let all = rest;
        let zeroes = zeroes_at(all);
        let mut len = if wanted { zeroes } else { all.len() };
        while zeroes == 0 && len < all.len() && zeroes_at(&all[len..]) == 0 {
            len += 1;
        }
        rest = &all[len..];
        (len > 0).then_some((&all[..len], zeroes > 0))
    })
}

/// How many pages of zeroes a list begins with; 0 if they are fewer than [`ZEROES_LEAST`].
fn zeroes_at(pages: &[Held]) -> usize {
    let is_zero = |bytes: &[u8]| match is(Bug::DurableZeroesByFirst) {
        true => bytes[0] == 0,
        false => *bytes == ZEROES,
    };
    let count = pages.iter().take_while(|(_, bytes, _)| is_zero(bytes)).count();
    if count < ZEROES_LEAST { 0 } else { count }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of the runs of pages, which are zeroes where `pages` has a dot.
    fn lengths(pages: &str, wanted: bool) -> Vec<(usize, bool)> {
        let page = |(number, sign): (u32, u8)| {
            (number, Bytes::from(vec![u8::from(sign != b'.'); BLOCK_BYTES]), 0)
        };
        let pages: Vec<Held> = (0..).zip(pages.bytes()).map(page).collect();
        runs(&pages, wanted).map(|(run, zeroes)| (run.len(), zeroes)).collect()
    }

    #[test]
    fn long_runs_of_zeroes_are_told_from_the_rest() {
        assert_eq!(lengths("", true), []);
        assert_eq!(lengths("x..x.......", true), [(11, false)]);
        assert_eq!(lengths("........", true), [(8, true)]);
        assert_eq!(lengths("x..x.........xx", true), [(4, false), (9, true), (2, false)]);
        assert_eq!(lengths("x..x.........xx", false), [(15, false)]);
    }
}
