//! A drive joins a mirrored link: what the link holds is copied to it while the chain is used.
//!
//! From the moment at which the labels say that it joins, the drive gets all changes of its link.
//! What was there before is copied segment by segment, and only what segments hold. The drive
//! becomes current when all of it is durable there and it missed nothing. How many segments it
//! durably has is noted in the labels from time to time. After a crash the copy goes on from there,
//! if the drive took part in all openings since: what is written to these segments goes to it as to
//! a current half, and what a crash leaves in doubt is settled on it, too.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, IoError, Lba, Nanos, Request, Sectors, narrow, to_usize,
};
use manylogs_logstore::ondisk::equal_logs::ROOTS;
use manylogs_logstore::{BLANK, Log, LogId};
use manylogs_plant::{self as plant, Bug};
use thiserror::Error;

use crate::chain::Chain;
use crate::keeper::{Drive, NotChanged};
use crate::ondisk::Superblock;
use crate::pair::Pair;
use crate::roster::{Change, HALVES, Impossible, Joining, Roster};
use crate::state::Inner;

/// Longest piece that is copied at a time.
const PIECE: Sectors = Sectors(2048);
/// How long the copy rests at a time while others use the link.
const REST: Nanos = Nanos::from_millis(5);
/// Most rests before a piece, so that the copy ends on a link that is never idle.
const RESTS: u32 = 20;

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Segments of the link.
    pub segments: u64,
    /// Segments that are done.
    pub done: u64,
    /// Content that was copied.
    pub content: Sectors,
}

/// The state of a half of a mirrored link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has everything since this opening.
    Current(u32),
    /// It is copied to, and then takes the place of this half.
    Joining(Option<Copied>),
    /// There is no such half: it missed a write, or is missing.
    None,
}

/// A half of a mirrored link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfState {
    /// The link, counted from 0.
    pub link: usize,
    /// The half, 0 or 1.
    pub half: usize,
    /// Whether it has everything.
    pub standing: Standing,
    /// Number of its drive among the drives with which the chain was opened.
    pub given: Option<usize>,
    /// Id of the drive, 0 if there is none.
    pub id: u64,
}

/// Who can help when a drive did not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceFault {
    /// The order cannot be carried out: another drive, or another half, must be named.
    Order,
    /// The chain is busy: the same order may succeed later.
    Busy,
    /// A drive, or the chain, did not do what it should.
    Failure,
}

/// Why a drive did not join.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplaceError {
    /// The links of the chain are single drives.
    #[error("the chain is not mirrored: copy what it holds, and format it with --mirror")]
    NotMirrored,
    /// There is no such half.
    #[error("the chain has no half {} of a pair {}", half + 1, link + 1)]
    NoSuchHalf {
        /// The link, counted from 0.
        link: usize,
        /// The half, 0 or 1.
        half: usize,
    },
    /// The drive is too small.
    #[error("the new drive has {} sectors, the chain uses {} of each", have.0, need.0)]
    TooSmall {
        /// Size of the drive.
        have: Sectors,
        /// Least size that would do.
        need: Sectors,
    },
    /// The drive writes larger sectors than the chain's records fill.
    #[error("the new drive writes sectors of 4096 bytes at a time, the chain's records fill 512")]
    LargeSectors,
    /// Zoned drives cannot be mirrored.
    #[error("the new drive is zoned: zoned drives cannot be mirrored yet")]
    Zoned,
    /// Another drive joins.
    #[error("another drive is being copied to: wait until it has joined (member list)")]
    Busy,
    /// The drive failed, or missed a write, while it was copied to.
    #[error("the new drive failed while it was copied to: it does not join, use another one")]
    Failed,
    /// The chain was closed. The copy goes on when it is opened with the drive.
    #[error("the chain was closed: the copy goes on at its next opening")]
    Closed,
    /// A drive failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl ReplaceError {
    /// Who can help.
    #[must_use]
    pub const fn fault(&self) -> ReplaceFault {
        match self {
            Self::Busy => ReplaceFault::Busy,
            Self::Failed | Self::Closed | Self::Io(_) => ReplaceFault::Failure,
            Self::NotMirrored
            | Self::NoSuchHalf { .. }
            | Self::TooSmall { .. }
            | Self::LargeSectors
            | Self::Zoned => ReplaceFault::Order,
        }
    }
}

impl From<NotChanged> for ReplaceError {
    fn from(why: NotChanged) -> Self {
        match why {
            NotChanged::Impossible(Impossible::Busy) => Self::Busy,
            NotChanged::Impossible(_) => Self::Failed,
            NotChanged::Io(error) => Self::Io(error),
        }
    }
}

impl Chain {
    /// Lets `new` take the place of a half of a mirrored link, and overwrites what it holds. The
    /// chain is used meanwhile, and the old half stays until `new` has everything. Ends when that
    /// is durably in all labels. After a crash before that, an opening that is given `new` goes on.
    /// [`HalfState::given`] names `new` by the number `given`.
    ///
    /// # Errors
    /// See [`ReplaceError`]. The pair is as before, but for drives of it that failed.
    pub async fn replace(
        &self,
        (link, half): (usize, usize),
        (new, given): (Rc<dyn BlockDevice>, usize),
    ) -> Result<Copied, ReplaceError> {
        self.0.fits((link, half), &new)?;
        self.0.begin_joining((link, half), (new, given)).await?;
        self.0.copy_and_join().await
    }

    /// The halves of all mirrored links, with the drive that joins in the place of the one that it
    /// replaces as a further entry. Empty if links are single drives.
    #[must_use]
    pub fn halves(&self) -> Vec<HalfState> {
        let (keeper, roster) = (&self.0.keeper, self.0.keeper.roster());
        let mut all = Vec::new();
        for link in roster.in_use().filter(|_| self.0.is_mirrored()) {
            let drives = keeper.current(link);
            for (half, of) in roster.links[link].iter().enumerate() {
                let drive = drives.iter().find(|drive| drive.label.id == of.id);
                let standing = drive.map_or(Standing::None, |_| Standing::Current(of.since));
                let given = drive.map(|drive| drive.given);
                all.push(HalfState { link, half, standing, given, id: of.id });
            }
        }
        if let Some(Joining { id, link, half, .. }) = roster.joining {
            let standing = Standing::Joining(self.0.copying.get());
            let given = keeper.joining().map(|drive| drive.given);
            all.push(HalfState { link: link.into(), half: half.into(), standing, given, id });
        }
        all
    }
}

impl Inner {
    /// Checks that `new` can take the place of a half.
    fn fits(
        &self,
        (link, half): (usize, usize),
        new: &Rc<dyn BlockDevice>,
    ) -> Result<(), ReplaceError> {
        if !self.is_mirrored() {
            return Err(ReplaceError::NotMirrored);
        }
        if !self.keeper.roster().has(link) || half >= HALVES {
            return Err(ReplaceError::NoSuchHalf { link, half });
        }
        let told = new.capabilities();
        let (have, need) = (told.capacity, self.label.least_device());
        if have < need {
            return Err(ReplaceError::TooSmall { have, need });
        }
        if told.physical_sector > self.label.physical {
            return Err(ReplaceError::LargeSectors);
        }
        if new.is_reset_first() {
            return Err(ReplaceError::Zoned);
        }
        Ok(())
    }

    /// Notes durably that `new` joins. Changes of the link go to it from then on.
    async fn begin_joining(
        &self,
        (link, half): (usize, usize),
        (new, given): (Rc<dyn BlockDevice>, usize),
    ) -> Result<(), ReplaceError> {
        let keeper = &self.keeper;
        if self.copying.get().is_some() || keeper.joining().is_some() {
            return Err(ReplaceError::Busy);
        }
        self.copying.set(Some(Copied::default()));
        let begun = async {
            // A drive that joined once and is not there any more joins no longer.
            if let Some(Joining { id, .. }) = keeper.roster().joining {
                keeper.change(Change::Leave { id }).await?;
            }
            let roster = keeper.roster();
            let id = free_id(&roster, || self.engine.runtime.random());
            let (number, sectors) = (narrow(link), new.capabilities().capacity);
            let label = Superblock { drive: number, sectors, id, ..self.label };
            keeper.add(self.bedded(new, label, given));
            let half = narrow(half);
            let joining = Joining { id, link: number, half, copied: 0 };
            let begun = keeper.change(Change::Begin(joining)).await;
            if begun.is_err() || !keeper.roster().joins(id) {
                keeper.forget(id);
            }
            begun?;
            match keeper.roster().joins(id) {
                true => Ok(()),
                false => Err(ReplaceError::Failed),
            }
        };
        let begun = begun.await;
        if begun.is_err() {
            self.copying.set(None);
        }
        begun
    }

    /// Goes on with what an earlier opening began.
    pub(crate) fn resume_joining(self: &Rc<Self>) {
        if !self.is_mirrored() || self.keeper.joining().is_none() {
            return;
        }
        self.copying.set(Some(Copied::default()));
        let chain = Rc::clone(self);
        self.engine.runtime.spawn(async move {
            // If it fails, the drive has left, and the list of halves says so.
            let _ = chain.copy_and_join().await;
        });
    }

    /// Copies what the link holds to the drive that joins, which is current then.
    async fn copy_and_join(&self) -> Result<Copied, ReplaceError> {
        let result = self.copy_all().await;
        let copied = self.copying.take().unwrap_or_default();
        match result {
            Ok(()) => Ok(copied),
            Err(ReplaceError::Closed) => Err(ReplaceError::Closed),
            Err(error) => {
                if let Some(drive) = self.keeper.joining() {
                    let _ = self.keeper.change(Change::Leave { id: drive.label.id }).await;
                }
                Err(error)
            }
        }
    }

    async fn copy_all(&self) -> Result<(), ReplaceError> {
        let target = self.keeper.joining().ok_or(ReplaceError::Failed)?;
        let (link, id) = (usize::from(target.label.drive), target.label.id);
        let pair = &self.places.pair(link).ok_or(ReplaceError::Failed)?;
        // Changes that began before the drive joined did not go to it. Then they are copied.
        pair.settles().await;
        if self.settings.sleep.is_some() && !plant::is(Bug::RootNotRenewed) {
            // The half that is copied from may have slept, and have an old root.
            self.renew_root().await?;
        }
        let [first, second] = ROOTS;
        self.copy(pair, Extent::between(first.start, second.end()), &target).await?;
        if let Some(area) = self.label.area() {
            self.copy(pair, area.place(), &target).await?;
        }
        let segments: Vec<LogId> = self.segments_of(link).collect();
        let done = self.keeper.roster().joining.map_or(0, |joining| joining.copied);
        self.note(|copied| {
            copied.segments = segments.len() as u64;
            copied.done = copied.segments.min(done.into());
        });
        let mut noted = self.copied().content;
        for segment in segments.into_iter().skip(to_usize(done.into())) {
            let extent = self.held_by(segment);
            self.copy(pair, extent, &target).await?;
            self.note(|copied| copied.done += 1);
            if self.copied().content - noted >= self.settings.copy_noted {
                self.note_durably(&target).await?;
                noted = self.copied().content;
            }
        }
        if !plant::is(Bug::JoinedBeforeDurable) {
            target.device.submit(Request::Flush).await?;
        }
        let opening = self.keeper.opening();
        Ok(self.keeper.change(Change::Join { id, opening }).await?)
    }

    /// The part of a segment that recovery may read: its records, and what comes behind them. Of a
    /// segment without records, the beginning, which says so.
    fn held_by(&self, segment: LogId) -> Extent {
        let state = self.engine.state.borrow();
        let logs = state.store.logs();
        let region = logs.region(segment);
        let used = logs.get(segment).map_or(Sectors(0), Log::used);
        let len = Sectors(used.0 + self.label.physical.0).max(BLANK).min(region.len);
        Extent { len, ..region }
    }

    async fn copy(&self, pair: &Pair, extent: Extent, target: &Drive) -> Result<(), ReplaceError> {
        let mut at = extent.start;
        while at < extent.end() {
            self.rest(pair).await?;
            let end = Lba((at.0 + PIECE.0).min(extent.end().0));
            let piece = Extent::between(at, end);
            match pair.copy(piece, target).await {
                Err(_) if plant::is(Bug::JoinedThoughCopyFailed) => {}
                copied => copied?,
            }
            self.note(|copied| copied.content += piece.len);
            at = end;
        }
        Ok(())
    }

    /// Waits while others use the link, but not for ever. An error if the drive does not join any
    /// more.
    async fn rest(&self, pair: &Pair) -> Result<(), ReplaceError> {
        for _ in 0..RESTS {
            if !pair.is_busy() {
                break;
            }
            self.engine.runtime.sleep(REST).await;
        }
        match self.keeper.joining() {
            None if !plant::is(Bug::JoinedThoughCopyFailed) => Err(ReplaceError::Failed),
            _ if self.engine.is_closed() => Err(ReplaceError::Closed),
            _ => Ok(()),
        }
    }

    fn copied(&self) -> Copied {
        self.copying.get().unwrap_or_default()
    }

    /// Notes in the labels how many segments the drive has. They are durable there first.
    async fn note_durably(&self, target: &Drive) -> Result<(), ReplaceError> {
        if !plant::is(Bug::CopyNotedEarly) {
            target.device.submit(Request::Flush).await?;
        }
        let (id, segments) = (target.label.id, narrow(self.copied().done));
        Ok(self.keeper.change(Change::Copied { id, segments }).await?)
    }

    fn note(&self, change: impl FnOnce(&mut Copied)) {
        let mut copied = self.copied();
        change(&mut copied);
        self.copying.set(Some(copied));
    }
}

/// A random id that no drive of the roster has.
pub(crate) fn free_id(roster: &Roster, random: impl Fn() -> u64) -> u64 {
    let ids = std::iter::repeat_with(random);
    ids.into_iter().find(|id| *id != 0 && roster.link_of(*id).is_none()).unwrap_or_default()
}
