//! Keeps the roster in the labels of all drives: the only writer of labels of an open chain.
//!
//! A change counts when it is in the labels of all current drives. Those of other links are written
//! first, so that an opening without the drives of the changed link knows of it. Both the roster
//! before a change and the one after it must be right while it is written: a crash finds either.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{BlockDevice, IoError, Nanos, Signal, TaskLock};
use manylogs_plant::{self as plant, Bug};

use crate::ondisk::Superblock;
use crate::roster::{Change, Impossible, Roster};
use crate::sleep::{Sleeper, WakeCause};

/// Time between two starts: a drive that starts draws several times the power of one that turns.
const STARTS_APART: Nanos = Nanos::from_secs(1);

/// A drive of the chain that is used.
#[derive(Clone)]
pub(crate) struct Drive {
    pub(crate) device: Rc<dyn BlockDevice>,
    pub(crate) label: Superblock,
    /// The number by which the owner of the chain knows it: that among the drives given.
    pub(crate) given: usize,
    /// Its power, if the chain commands it.
    pub(crate) sleeper: Option<Sleeper>,
}

/// See the module.
pub(crate) struct Keeper {
    roster: Cell<Roster>,
    /// The greatest version that may be in a label.
    version: Cell<u64>,
    opening: Cell<u32>,
    drives: RefCell<Vec<Drive>>,
    /// The link that is lost: its drive is gone, and the chain goes on without it.
    lost: Cell<Option<usize>>,
    /// Whether a drive left that may be the only one of its link with the newest root.
    has_lost_root: Cell<bool>,
    /// Told when one left.
    left: Signal,
    turn: TaskLock,
}

/// Why the roster was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotChanged {
    Impossible(Impossible),
    /// A drive that its link cannot do without failed to take its label.
    Io(IoError),
}

impl Drive {
    /// Whether requests to the drive would wait until it has started.
    pub(crate) fn is_asleep(&self) -> bool {
        self.sleeper.as_ref().is_some_and(Sleeper::is_asleep)
    }

    /// Orders the halves of a pair for reads: those that failed last, and before them those that
    /// sleep.
    pub(crate) fn rank(&self) -> (bool, bool) {
        let sleeper = self.sleeper.as_ref();
        sleeper.map_or((false, false), |it| (it.has_failed(), it.is_spared()))
    }
}

impl From<Impossible> for NotChanged {
    fn from(reason: Impossible) -> Self {
        Self::Impossible(reason)
    }
}

impl Keeper {
    pub(crate) fn new(roster: Roster, opening: u32, drives: Vec<Drive>) -> Self {
        let version = Cell::new(roster.version);
        let (roster, opening) = (Cell::new(roster), Cell::new(opening));
        let (lost, turn) = (Cell::default(), TaskLock::default());
        let drives = RefCell::new(drives);
        let (has_lost_root, left) = (Cell::default(), Signal::default());
        Self { roster, version, opening, drives, lost, has_lost_root, left, turn }
    }

    /// Commands the power of the drives that the chain was given.
    pub(crate) fn command(&self, sleepers: &[Sleeper]) {
        for drive in self.drives.borrow_mut().iter_mut() {
            drive.sleeper = sleepers.get(drive.given).cloned();
        }
    }

    /// The link that is lost, if any.
    pub(crate) fn lost(&self) -> Option<usize> {
        self.lost.get()
    }

    /// Told when a drive left, and once more by whoever ends the tasks that wait for that.
    pub(crate) const fn left(&self) -> &Signal {
        &self.left
    }

    /// Whether a drive left since the last call.
    pub(crate) fn take_left(&self) -> bool {
        self.has_lost_root.take()
    }

    /// Notes that a link is lost. Its labels are written no more: if its drive comes back, the
    /// newer roster of the others counts.
    pub(crate) fn lose(&self, link: usize) {
        self.lost.set(Some(link));
    }

    pub(crate) fn roster(&self) -> Roster {
        self.roster.get()
    }

    pub(crate) fn opening(&self) -> u32 {
        self.opening.get()
    }

    /// The current drives of a link, in the order of its halves.
    pub(crate) fn current(&self, link: usize) -> Vec<Drive> {
        let roster = self.roster.get();
        let half = |drive: &Drive| roster.place(drive.label.id).filter(|(of, _)| *of == link);
        let drives = self.drives.borrow();
        let mut found: Vec<_> = drives.iter().filter_map(|d| Some((half(d)?.1, d))).collect();
        found.sort_by_key(|(half, _)| *half);
        found.into_iter().map(|(_, drive)| drive.clone()).collect()
    }

    /// The drive that joins, if it is there.
    pub(crate) fn joining(&self) -> Option<Drive> {
        let roster = self.roster.get();
        self.drives.borrow().iter().find(|drive| roster.joins(drive.label.id)).cloned()
    }

    /// Adds a drive. Nothing is written to it before it joins.
    pub(crate) fn add(&self, drive: Drive) {
        self.drives.borrow_mut().push(drive);
    }

    /// Drops a drive that was added and does not join.
    pub(crate) fn forget(&self, id: u64) {
        let roster = self.roster.get();
        let is_used = roster.link_of(id).is_some();
        self.drives.borrow_mut().retain(|drive| is_used || drive.label.id != id);
    }

    /// Begins an opening without the drives `missing`, durably on all others. The drive `behind`
    /// joins, and missed something: it is copied to from the beginning.
    pub(crate) async fn begin(
        &self,
        opening: u32,
        missing: &[u64],
        behind: Option<u64>,
    ) -> Result<(), NotChanged> {
        self.opening.set(opening);
        // All are awake, and the newest root is in its places on all halves.
        self.roster.set(Roster { has_sleepers: false, ..self.roster.get() });
        let leaves = missing.iter().map(|id| Change::Leave { id: *id });
        let begins = behind.map(|id| Change::Copied { id, segments: 0 });
        for change in leaves.chain(begins) {
            match (self.change(change).await, change) {
                // The drive that joins failed, and has left.
                (Err(NotChanged::Io(_)), Change::Copied { id, .. }) if !self.roster().joins(id) => {
                }
                (changed, _) => changed?,
            }
        }
        if missing.is_empty() && behind.is_none() {
            let _turn = self.turn.take().await;
            self.write(self.roster.get(), None).await?;
        }
        Ok(())
    }

    /// Changes the roster, durably. Another drive that fails to take its label leaves its link. If
    /// the change fails, labels may hold the new roster or the old one.
    pub(crate) async fn change(&self, change: Change) -> Result<(), NotChanged> {
        let _turn = self.turn.take().await;
        let now = self.roster.get();
        let Some(next) = now.after(change)? else { return Ok(()) };
        let next = self.numbered(next);
        let link = match change {
            Change::Begin(joining) => Some(joining.link.into()),
            Change::Add { link, .. } | Change::Evacuate { link } | Change::Remove { link } => {
                Some(link.into())
            }
            Change::Join { id, .. } | Change::Copied { id, .. } | Change::Leave { id } => {
                now.link_of(id)
            }
            Change::Cache | Change::Sleepers(_) => None,
        };
        // The drive that this is about knows it first: if it does not, it is copied to anew.
        if let Change::Join { id, .. } | Change::Copied { id, .. } = change
            && let Some(drive) = self.joining()
            && let Err(error) = self.write_label(&drive, &next).await
        {
            // The half that it was to replace stays.
            if let Some(fewer) = now.after(Change::Leave { id })? {
                self.write(self.numbered(fewer), link).await?;
            }
            return Err(NotChanged::Io(error));
        }
        if let Change::Add { ids, .. } = change {
            let added = self.write_added(&ids, now, next).await;
            if added.is_err() {
                // Labels that name the new link count no more, whichever have taken it.
                self.write(self.numbered(now), None).await?;
            }
            return added;
        }
        self.write(next, link).await
    }

    /// Gives all drives of a link that is added a label, which does not name them yet. Then come
    /// the labels that do: one that names a drive without a label would keep the chain from being
    /// opened.
    async fn write_added(&self, ids: &[u64], now: Roster, next: Roster) -> Result<(), NotChanged> {
        let drives = self.drives.borrow().clone();
        for drive in drives.iter().filter(|drive| ids.contains(&drive.label.id)) {
            if !plant::is(Bug::AddedLinkLabelledLast) {
                self.write_label(drive, &now).await.map_err(NotChanged::Io)?;
            }
        }
        if plant::is(Bug::AddedLinkUsedEarly) {
            self.roster.set(next);
            return Ok(());
        }
        self.write(next, next.link_of(ids[0])).await
    }

    /// A version may be in some labels although its change failed, so none is used twice.
    fn numbered(&self, roster: Roster) -> Roster {
        self.version.set(self.version.get() + 1);
        Roster { version: self.version.get(), ..roster }
    }

    async fn write(&self, next: Roster, changed: Option<usize>) -> Result<(), NotChanged> {
        let (mut next, mut gone) = (next, None);
        while let Err((id, error)) = self.write_all(&next, changed, gone).await {
            let is_of_leaving = next.leaving.map(usize::from) == next.link_of(id);
            match next.after(Change::Leave { id }) {
                Ok(Some(fewer)) => next = self.numbered(fewer),
                // The last drive of a link that leaves: the labels of all others say that it does.
                _ if is_of_leaving && error == IoError::Gone => gone = Some(id),
                _ => return Err(NotChanged::Io(error)),
            }
        }
        let before = self.roster.replace(next);
        // Drives that left are used no more. One that was added joins in a change to come.
        let has_left = |id| before.link_of(id).is_some() && next.link_of(id).is_none();
        self.drives.borrow_mut().retain(|drive| {
            let leaves = has_left(drive.label.id);
            if leaves {
                self.has_lost_root.set(true);
                self.left.notify();
            }
            !leaves
        });
        self.lost.set(self.lost.get().filter(|link| next.has(*link)));
        Ok(())
    }

    /// Writes the labels of all drives of `next` that are neither lost nor `gone`, those of the
    /// link `changed` last.
    async fn write_all(
        &self,
        next: &Roster,
        changed: Option<usize>,
        gone: Option<u64>,
    ) -> Result<(), (u64, IoError)> {
        let drives = self.drives.borrow().clone();
        let of_next =
            drives.iter().filter_map(|drive| Some((next.link_of(drive.label.id)?, drive)));
        let mut order: Vec<(usize, &Drive)> =
            of_next.filter(|(link, _)| self.lost.get() != Some(*link)).collect();
        order.retain(|(_, drive)| gone != Some(drive.label.id));
        order.sort_by_key(|(link, drive)| (changed == Some(*link), *link, drive.label.id));
        wake_together(order.iter().map(|(_, drive)| *drive));
        for (_, drive) in order {
            let written = self.write_label(drive, next).await;
            written.map_err(|error| (drive.label.id, error))?;
        }
        Ok(())
    }

    async fn write_label(&self, drive: &Drive, roster: &Roster) -> Result<(), IoError> {
        let label = Superblock { opening: self.opening.get(), roster: *roster, ..drive.label };
        for write in label.writes() {
            drive.device.submit(write).await?;
        }
        Ok(())
    }
}

/// Starts those of the drives that sleep, one soon after the other: a write to each in turn would
/// wait for as many starts.
fn wake_together<'a>(drives: impl Iterator<Item = &'a Drive>) {
    let mut delay = Nanos(0);
    for sleeper in drives.filter_map(|drive| drive.sleeper.as_ref()).filter(|it| it.is_asleep()) {
        sleeper.wake_later(delay, WakeCause::Write);
        delay += STARTS_APART;
    }
}
