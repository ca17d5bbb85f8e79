//! A model of what md writes by itself, to the beginning of every member.
//!
//! An array with copies or parity is marked clean when nothing was written for a moment
//! (`safe_mode_delay`), and dirty before the next write. A bitmap has a bit for each chunk of the
//! members: it is set before the first write into the chunk, and cleared some time after the last.
//! Marking dirty and setting a bit hold the write back until they are durable on all members: a
//! flush and a write with FUA on each (Linux' `md_super_write`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, Handle, Hint, IoError, Nanos,
    Payload, Request, Sectors, TaskLock, Time, all_done, completion,
};
use manylogs_filters::Part;

/// Where the array's content begins on each member: behind superblock and bitmap.
const DATA: Sectors = Sectors(2048);
/// A superblock, and a page of the bitmap.
const PAGE: Sectors = Sectors(8);
const SUPERBLOCK: Extent = Extent::new(8, PAGE.0);
const BITMAP: Extent = Extent::new(16, PAGE.0);
/// A bit is cleared when its chunk was quiet for so long: the third pass of md's thread, every 5 s.
const BIT_QUIET: Nanos = Nanos::from_secs(15);

/// What md writes by itself in a modelled array; nothing unless it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnWrites {
    /// The array is marked clean when nothing was written for so long; never, if `None`.
    pub safe_mode: Option<Nanos>,
    /// What one bit of the bitmap stands for, on each member; no bitmap, if `None`.
    pub bitmap: Option<Sectors>,
}

impl OwnWrites {
    /// Whether md writes anything.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.safe_mode.is_some() || self.bitmap.is_some()
    }
}

/// The part of each member in which the array's content lies.
pub(crate) fn data_of(members: &[Rc<dyn BlockDevice>]) -> Vec<Rc<dyn BlockDevice>> {
    let data = |member: &Rc<dyn BlockDevice>| -> Rc<dyn BlockDevice> {
        let len = member.capabilities().capacity - DATA;
        Rc::new(Part::new(Rc::clone(member), Extent::new(DATA.0, len.0)))
    };
    members.iter().map(data).collect()
}

/// An array whose members md writes to by itself, too. Clones are the same array.
#[derive(Clone)]
pub struct SelfWriting(Rc<Shared>);

struct Shared {
    runtime: Handle,
    array: Rc<dyn BlockDevice>,
    /// Whole members.
    members: Vec<Rc<dyn BlockDevice>>,
    own: OwnWrites,
    /// Sectors of the array for each sector of a member.
    columns: u64,
    /// One change of superblocks or bitmap at a time.
    changing: TaskLock,
    is_dirty: Cell<bool>,
    /// Writes that the array has not answered.
    under_way: Cell<u64>,
    written_at: Cell<Time>,
    /// The chunks whose bit is set, and when each was written last.
    bits: RefCell<BTreeMap<u64, Time>>,
    /// Whether a task waits for quiet.
    is_watched: Cell<bool>,
}

impl SelfWriting {
    /// `array` lies on [`data_of`] of the `members`, and is dealt out to `columns` of them.
    pub(crate) fn new(
        runtime: Handle,
        (array, columns): (Rc<dyn BlockDevice>, u16),
        members: Vec<Rc<dyn BlockDevice>>,
        own: OwnWrites,
    ) -> Self {
        let (written_at, columns) = (Cell::new(runtime.now()), u64::from(columns));
        let (changing, bits) = (TaskLock::default(), RefCell::default());
        let (is_dirty, under_way, is_watched) = Default::default();
        Self(Rc::new(Shared {
            runtime,
            array,
            members,
            own,
            columns,
            changing,
            is_dirty,
            under_way,
            written_at,
            bits,
            is_watched,
        }))
    }

    fn send(&self, request: Request, urgent: bool) -> Completion {
        let Some(extent) = request.extent().filter(|_| !is_read(&request)) else {
            return self.0.pass(request, urgent);
        };
        if let Err(error) = self.0.array.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        self.0.under_way.set(self.0.under_way.get() + 1);
        let (completer, answer) = completion();
        let shared = Rc::clone(&self.0);
        // A write that needs no mark goes at once, so that the array joins it with others.
        let at_once = shared.is_marked(extent).then(|| shared.pass(request.clone(), urgent));
        self.0.runtime.spawn(async move {
            let result = match at_once {
                Some(answer) => answer.await,
                None => match shared.mark(extent).await {
                    Ok(()) => shared.pass(request, urgent).await,
                    Err(error) => Err(error),
                },
            };
            shared.written(extent);
            completer.complete(result);
            shared.watch();
        });
        answer
    }
}

impl Shared {
    fn pass(&self, request: Request, urgent: bool) -> Completion {
        if urgent { self.array.submit_urgent(request) } else { self.array.submit(request) }
    }

    /// The bits of the bitmap for an extent of the array.
    fn bits_of(&self, extent: Extent) -> std::ops::RangeInclusive<u64> {
        let chunk = self.own.bitmap.map_or(u64::MAX, |chunk| chunk.0.max(1) * self.columns);
        extent.start.0 / chunk..=(extent.end().0 - 1) / chunk
    }

    fn is_marked(&self, extent: Extent) -> bool {
        let bits = self.bits.borrow();
        let is_dirty = self.is_dirty.get() || self.own.safe_mode.is_none();
        let is_set = |bit| bits.contains_key(&bit);
        is_dirty && (self.own.bitmap.is_none() || self.bits_of(extent).all(is_set))
    }

    /// Makes durable that the extent may differ between members.
    async fn mark(&self, extent: Extent) -> Result<(), IoError> {
        let _changing = self.changing.take().await;
        if self.own.safe_mode.is_some() && !self.is_dirty.get() {
            self.write_on_all(SUPERBLOCK).await?;
            self.is_dirty.set(true);
        }
        if !self.is_marked(extent) {
            self.write_on_all(BITMAP).await?;
            let now = self.runtime.now();
            self.bits.borrow_mut().extend(self.bits_of(extent).map(|bit| (bit, now)));
        }
        Ok(())
    }

    fn written(&self, extent: Extent) {
        let now = self.runtime.now();
        self.under_way.set(self.under_way.get() - 1);
        self.written_at.set(now);
        if self.own.bitmap.is_some() {
            self.bits.borrow_mut().extend(self.bits_of(extent).map(|bit| (bit, now)));
        }
    }

    /// Waits for quiet, unless a task does so already.
    fn watch(self: &Rc<Self>) {
        if !self.is_watched.replace(true) {
            let shared = Rc::clone(self);
            self.runtime.spawn(async move {
                while let Some(next) = shared.settle().await {
                    shared.runtime.sleep_until(next).await;
                }
                shared.is_watched.set(false);
            });
        }
    }

    /// Marks clean what was quiet for long enough. Returns when the next may have been; `None` if
    /// all is clean.
    async fn settle(&self) -> Option<Time> {
        let _changing = self.changing.take().await;
        let (now, mut next) = (self.runtime.now(), None::<Time>);
        let mut later = |time: Time| next = Some(next.map_or(time, |next| next.min(time)));
        let delay = self.own.safe_mode.filter(|_| self.is_dirty.get());
        if let Some(quiet) = delay.map(|delay| self.written_at.get() + delay) {
            if self.under_way.get() > 0 {
                later(now + delay.unwrap_or_default());
            } else if now < quiet {
                later(quiet);
            } else {
                // A write that comes now is marked dirty again behind this.
                self.is_dirty.set(false);
                let _ = self.write_on_all(SUPERBLOCK).await;
            }
        }
        let is_old = |at: &Time| *at + BIT_QUIET <= now;
        let old = self.bits.borrow().values().filter(|at| is_old(at)).count();
        if old > 0 && self.under_way.get() == 0 {
            self.bits.borrow_mut().retain(|_, at| !is_old(at));
            let _ = self.write_on_all(BITMAP).await;
        }
        if let Some(first) = self.bits.borrow().values().min() {
            later((*first + BIT_QUIET).max(now + Nanos::from_secs(1)));
        }
        next
    }

    /// Writes a page of every member, durably.
    async fn write_on_all(&self, extent: Extent) -> Result<(), IoError> {
        let payload = Payload::tags(1, extent.len);
        let write = Request::Write { extent, payload, fua: true, hint: Hint::None };
        let flushes: Vec<_> =
            self.members.iter().map(|member| member.submit(Request::Flush)).collect();
        all_done(flushes).await?;
        let writes: Vec<_> =
            self.members.iter().map(|member| member.submit(write.clone())).collect();
        all_done(writes).await
    }
}

const fn is_read(request: &Request) -> bool {
    matches!(request, Request::Read { .. })
}

impl BlockDevice for SelfWriting {
    fn capabilities(&self) -> Capabilities {
        self.0.array.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.send(request, false)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.send(request, true)
    }

    fn has_priorities(&self) -> bool {
        self.0.array.has_priorities()
    }

    fn geometry(&self) -> Option<Geometry> {
        self.0.array.geometry()
    }

    fn has_copies(&self) -> bool {
        self.0.array.has_copies()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.array.extents(within)
    }
}

impl std::fmt::Debug for SelfWriting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SelfWriting").field("own", &self.0.own).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
