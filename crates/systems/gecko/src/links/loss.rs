//! Links whose drive failed: the chain goes on without one, and forgets what only it held, if its
//! owner accepts that.
//!
//! While the drive is away the map still says what it held, so only reads of that fail. When the
//! owner gives the link up, records at the tail say of each such range that it is lost, like other
//! changes. They have newer sequences than all other versions, so that an opening finds no older
//! version in their place. Only when they are durable, the labels forget the link.
//!
//! What a drive held is known from its own records alone. So a chain that is opened without it,
//! before the labels have forgotten the link, is refused: it would show older versions.

use manylogs_block::{BlockDevice, Extent, IoError, Request, Sectors};
use manylogs_engine::{check_copies, lose_member, wait_durable};
use manylogs_logstore::store::{Batch, Live, NewEntry, Place};
use manylogs_logstore::{Class, EntryKind, LogId};
use manylogs_plant::{self as plant, Bug};

use super::{LinkError, device};
use crate::ondisk::Superblock;
use crate::state::{Inner, ORDER};

/// Ranges that one batch says are lost. Its record is no longer than one with content.
const AT_ONCE: usize = 8;

/// What a removal does when something on the link cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// It stops with an error. The link stays, and nothing is lost.
    Stop,
    /// It goes on: what cannot be read is lost.
    Accept,
}

/// What was lost with a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The ranges, as clients address them, in order: at most [`Loss::LISTED_MOST`].
    pub ranges: Vec<Extent>,
    /// Length of all ranges, also of those that are not listed.
    pub sectors: Sectors,
    /// Whether no more ranges are listed.
    is_full: bool,
}

impl Loss {
    /// Ranges that are listed; of others only the length is told.
    pub const LISTED_MOST: usize = 1 << 16;

    fn add(&mut self, range: Extent) {
        self.sectors += range.len;
        if self.is_full {
            return;
        }
        self.ranges.push(range);
        // Now and then: each time costs as much as there are ranges.
        if self.ranges.len() >= 2 * Self::LISTED_MOST {
            *self = std::mem::take(self).merged();
            self.is_full = self.ranges.len() >= Self::LISTED_MOST;
        }
    }

    /// The same with ranges in order, those that touch as one.
    pub(super) fn merged(mut self) -> Self {
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|next, range| {
            let touches = range.end() >= next.start;
            if touches {
                *range = Extent::between(range.start, range.end().max(next.end()));
            }
            touches
        });
        self.ranges.truncate(Self::LISTED_MOST);
        self
    }
}

impl Inner {
    /// Whether the chain goes on without a link whose drive is gone: if it could do without the
    /// link for ever, the others have room for what was promised and for cleaning, and no other
    /// one is lost. Asked until it says yes.
    pub(crate) fn goes_on_without_link(&self, link: usize) -> bool {
        let roster = self.keeper.roster();
        let leaves = roster.leaving.map(usize::from).filter(|leaving| *leaving != link);
        let drives = roster.in_use().filter(|of| *of != link && leaves != Some(*of)).count();
        let has_room = {
            let state = self.engine.state.borrow();
            // What takes no records has no room that others would have to make up for.
            state.store.logs().is_shut(device(link)) || self.has_room_without(&state, device(link))
        };
        let may_be = roster.has(link) && !self.is_mirrored() && self.keeper.lost().is_none();
        let goes_on = self.bear(drives).is_ok() && has_room && may_be;
        if goes_on {
            self.keeper.lose(link);
            self.engine.state.borrow_mut().pace.forget_counts();
            self.engine.wanted.notify();
            self.engine.commit.notify();
        }
        goes_on
    }

    /// Looks whether the drive of a link still answers. If not, the chain goes on without it. If
    /// its owner accepts a loss, a drive on which neither copy of the label can be read counts as
    /// gone.
    pub(super) async fn look_for_loss(&self, link: usize, on_loss: OnLoss) {
        let drives = self.keeper.current(link);
        let [drive] = drives.as_slice() else { return };
        let mut is_gone = on_loss == OnLoss::Accept;
        for extent in Superblock::places(drive.label.sectors) {
            match drive.device.submit(Request::Read { extent }).await {
                Ok(_) => return,
                Err(error) => is_gone |= error == IoError::Gone,
            }
        }
        if is_gone {
            lose_member(self, device(link));
        }
    }

    /// Notes that a segment could not be read by cleaning.
    pub(crate) fn note_unreadable(&self, segment: LogId, error: &IoError) {
        let of = self.engine.state.borrow().store.logs().device(segment);
        if *error == IoError::Gone {
            lose_member(self, of);
        }
        let mut state = self.engine.state.borrow_mut();
        // A write that fails takes its segment out of use, and is no error of cleaning.
        let is_of_read = !matches!(error, IoError::ReadOnly { .. });
        if state.leaving == Some(of) && is_of_read {
            state.unreadable.get_or_insert((segment, error.clone()));
            drop(state);
            self.engine.notify_progress();
        }
    }

    /// Why the link cannot be emptied, if it cannot.
    pub(super) fn obstacle(&self, link: usize) -> Option<LinkError> {
        if self.keeper.lost() == Some(link) {
            return (!self.is_empty(link)).then_some(LinkError::Lost { link });
        }
        let state = self.engine.state.borrow();
        let unreadable = state.unreadable.as_ref();
        unreadable.map(|(_, error)| LinkError::Unreadable { link, error: error.clone() })
    }

    /// Says durably of all that cannot be read on the link that it is lost, and adds it to `loss`.
    pub(super) async fn give_up(&self, link: usize, loss: &mut Loss) -> Result<(), LinkError> {
        let is_lost = self.keeper.lost() == Some(link);
        let unreadable = self.engine.state.borrow().unreadable.clone();
        let segments: Vec<LogId> = match unreadable {
            Some((segment, _)) if !is_lost => vec![segment],
            _ => self.segments_of(link).collect(),
        };
        for segment in segments {
            if !plant::is(Bug::LossNotNoted) {
                self.give_segment_up(segment, is_lost, loss).await?;
            }
        }
        self.engine.state.borrow_mut().unreadable = None;
        self.engine.wanted.notify();
        Ok(())
    }

    async fn give_segment_up(
        &self,
        segment: LogId,
        is_lost: bool,
        loss: &mut Loss,
    ) -> Result<(), LinkError> {
        let live = self.engine.state.borrow().store.live_by_inverse(segment).unwrap_or_default();
        if live.is_empty() {
            return Ok(());
        }
        let mut left = Vec::new();
        for one in live {
            let is_data = matches!(one.mapped.value, Place::Log { .. });
            if is_lost || is_data && check_copies(self, segment, &[one]).await.is_err() {
                left.push(one);
            }
        }
        for some in left.chunks(AT_ONCE) {
            self.note_lost(some, loss).await?;
        }
        let last = self.engine.state.borrow_mut().store.force_all();
        self.engine.commit.notify();
        if let Some(last) = last {
            wait_durable(self, last).await?;
        }
        Ok(())
    }

    /// Queues a record that says that these versions are lost. What it is known to be zeroes stays
    /// zeroes.
    async fn note_lost(&self, live: &[Live], loss: &mut Loss) -> Result<(), LinkError> {
        loop {
            let progress = self.engine.progress.wait();
            if self.engine.is_closed() {
                return Err(LinkError::Closed);
            }
            {
                let mut state = self.engine.state.borrow_mut();
                state.store.writable()?;
                // Others were overwritten meanwhile, and are not lost.
                let still = state.store.still_live(live);
                if still.is_empty() {
                    return Ok(());
                }
                let batch = lost(&still);
                let room = state.store.room_of(&batch);
                if state.store.fits(room + self.spared) {
                    state.put(batch, room, None);
                    self.keep_young(&mut state);
                    let is_content = |one: &&Live| !is_zeroes(one);
                    still.iter().filter(is_content).for_each(|one| loss.add(one.extent));
                    return Ok(());
                }
            }
            self.engine.wanted.notify();
            progress.await;
        }
    }
}

const fn is_zeroes(live: &Live) -> bool {
    matches!(live.mapped.value, Place::Zeroes { .. })
}

/// What is said of these versions.
fn lost(live: &[Live]) -> Batch {
    let entry = |one: &Live| {
        let is_zeroes = is_zeroes(one) || plant::is(Bug::LostReadsZeroes);
        let kind = if is_zeroes { EntryKind::Zeroes } else { EntryKind::Lost };
        NewEntry { extent: one.extent, kind, class: Class::Data, version: 0, payload: None }
    };
    Batch { entries: live.iter().map(entry).collect(), after: Some(ORDER) }
}
