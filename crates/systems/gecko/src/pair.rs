//! A link of two drives with the same content.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Copies, Extent, Handle, IoError, IoResult, Lba, Payload,
    Request, Signal, completion,
};
use manylogs_plant::{self as plant, Bug};

use crate::keeper::{Drive, Keeper, NotChanged};
use crate::roster::Change;

mod root;

/// A mirrored link as the engine sees it: one device. Changes and flushes go to all current drives,
/// and to the one that joins. A drive that misses one leaves the link, durably, before the request
/// is answered. Reads go to current drives alone. Clones are the same link.
#[derive(Clone)]
pub(crate) struct Pair(Rc<Shared>);

struct Shared {
    runtime: Handle,
    keeper: Rc<Keeper>,
    link: usize,
    capabilities: Capabilities,
    /// Whether the halves may differ after a crash. Then all reads go to the first.
    apart: Cell<bool>,
    /// Changes and flushes under way, in the order of their beginning.
    changes: RefCell<BTreeMap<u64, Extent>>,
    begun: Cell<u64>,
    ended: Signal,
    /// Range that is copied now: changes of it wait.
    copied: Cell<Option<Extent>>,
    /// Requests of the engine that are not answered.
    under_way: Cell<usize>,
    /// Where the last read of each drive ends.
    heads: RefCell<BTreeMap<u64, Lba>>,
}

impl Pair {
    /// The link with the current drives of `keeper`; at least one.
    pub(crate) fn new(runtime: Handle, keeper: Rc<Keeper>, link: usize, apart: bool) -> Self {
        let capabilities = together(&keeper.current(link));
        Self(Rc::new(Shared {
            runtime,
            keeper,
            link,
            capabilities,
            apart: Cell::new(apart),
            changes: RefCell::default(),
            begun: Cell::default(),
            ended: Signal::default(),
            copied: Cell::default(),
            under_way: Cell::default(),
            heads: RefCell::default(),
        }))
    }

    /// Says that the halves have the same content now.
    pub(crate) fn is_in_step(&self) {
        self.0.apart.set(false);
    }

    /// Whether the engine waits for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.under_way.get() > 0
    }

    /// Resolves when all changes have ended that began before the call.
    pub(crate) async fn settles(&self) {
        let begun = self.0.begun.get();
        self.waits(|changes| changes.keys().next().is_none_or(|first| *first >= begun)).await;
    }

    async fn waits(&self, until: impl Fn(&BTreeMap<u64, Extent>) -> bool) {
        loop {
            let ended = self.0.ended.wait();
            if until(&self.0.changes.borrow()) {
                return;
            }
            ended.await;
        }
    }

    /// Copies `extent` to `target`. Changes of it wait meanwhile, so that the copy is never over a
    /// newer one.
    pub(crate) async fn copy(&self, extent: Extent, target: &Drive) -> Result<(), IoError> {
        let holds = !plant::is(Bug::CopyOverNewer);
        if holds {
            self.0.copied.set(Some(extent));
            self.waits(|changes| !changes.values().any(|change| change.overlaps(extent))).await;
        }
        let copied = self.copy_now(extent, target).await;
        self.0.copied.set(None);
        self.0.ended.notify();
        copied
    }

    async fn copy_now(&self, extent: Extent, target: &Drive) -> Result<(), IoError> {
        let payload = self.0.read(Request::Read { extent }, None).await?;
        let hint = manylogs_block::Hint::None;
        let write = Request::Write { extent, payload, fua: false, hint };
        target.device.submit(write).await.map(drop)
    }

    fn change(&self, request: Request) -> Completion {
        let (completer, answer) = completion();
        let held = request.extent().zip(self.0.copied.get());
        if self.0.alone_awake(&request).is_some() {
            let pair = self.clone();
            self.0.runtime.spawn(async move {
                let result = match pair.write_root(&request).await {
                    Some(result) => result,
                    None => pair.change(request).await,
                };
                completer.complete(result);
            });
        } else if held.is_some_and(|(extent, copied)| extent.overlaps(copied)) {
            let pair = self.clone();
            self.0.runtime.spawn(async move {
                loop {
                    let ended = pair.0.ended.wait();
                    let copied = pair.0.copied.get();
                    let extent = request.extent().unwrap_or_default();
                    if !copied.is_some_and(|copied| copied.overlaps(extent)) {
                        break;
                    }
                    ended.await;
                }
                let (number, sent) = pair.0.send(&request);
                completer.complete(pair.0.ends(number, sent).await);
            });
        } else {
            let (number, sent) = self.0.send(&request);
            let shared = Rc::clone(&self.0);
            self.0.runtime.spawn(async move {
                completer.complete(shared.ends(number, sent).await);
            });
        }
        answer
    }
}

/// A request sent to one drive.
struct Sent {
    id: u64,
    is_current: bool,
    answer: Completion,
}

impl Shared {
    /// Notes that a change is under way.
    fn begin(&self, extent: Extent) -> u64 {
        let number = self.begun.get();
        self.begun.set(number + 1);
        self.changes.borrow_mut().insert(number, extent);
        number
    }

    fn end(&self, number: u64) {
        self.changes.borrow_mut().remove(&number);
        self.ended.notify();
    }

    /// Sends a change or a flush to all drives that must have it.
    fn send(&self, request: &Request) -> (u64, Vec<Sent>) {
        let number = self.begin(request.extent().unwrap_or_default());
        let current = self.keeper.current(self.link);
        let sent = |(drive, is_current): (Drive, bool)| {
            let answer = drive.device.submit(request.clone());
            Sent { id: drive.label.id, is_current, answer }
        };
        let joining = self.keeper.joining().filter(|drive| {
            usize::from(drive.label.drive) == self.link && !plant::is(Bug::CopySkipsWritten)
        });
        let all = current.into_iter().map(|drive| (drive, true));
        (number, all.chain(joining.map(|drive| (drive, false))).map(sent).collect())
    }

    /// The answer to a change: when all drives have answered, and those that failed have left.
    async fn ends(&self, number: u64, sent: Vec<Sent>) -> IoResult {
        let (mut failed, mut taken, mut first) = (Vec::new(), false, None);
        for Sent { id, is_current, answer } in sent {
            match answer.await {
                Ok(_) => taken |= is_current,
                Err(error) => {
                    failed.push((id, is_current, error.clone()));
                    first = if is_current { first.or(Some(error)) } else { first };
                }
            }
        }
        let mut result = match first {
            Some(error) if !taken => Err(error),
            _ => Ok(Payload::default()),
        };
        for (id, is_current, error) in failed {
            // If no current drive has taken it, all are alike: none is better than the other.
            if (is_current && !taken) || error == IoError::Unsupported {
                result = result.and(Err(error));
                continue;
            }
            if is_current && plant::is(Bug::LossNotTold) {
                continue;
            }
            result = result.and(self.leaves(id, error).await.map(|()| Payload::default()));
        }
        self.end(number);
        result
    }

    /// Takes a drive out that missed a change, durably.
    async fn leaves(&self, id: u64, missed: IoError) -> Result<(), IoError> {
        match self.keeper.change(Change::Leave { id }).await {
            Ok(()) => Ok(()),
            // Its twin left meanwhile: what this one missed is nowhere whole.
            Err(NotChanged::Impossible(_)) => Err(missed),
            Err(NotChanged::Io(error)) => Err(error),
        }
    }

    /// Reads from a current drive, and from the next one if that fails. `begun` is the read that
    /// was sent already. A medium error of that read goes to the engine, which mends the place: see
    /// [`BlockDevice::copies`].
    async fn read(&self, request: Request, begun: Option<(u64, Completion)>) -> IoResult {
        let is_mended = begun.is_some() && !self.apart.get();
        let mut tried = Vec::new();
        let mut result = None;
        if let Some((id, answer)) = begun {
            result = Some(answer.await);
            tried.push(id);
        }
        loop {
            let goes_on = match &result {
                None => true,
                Some(Ok(_) | Err(IoError::OutOfRange { .. } | IoError::Unsupported)) => false,
                // Who is read must not depend on what passes: another half may differ.
                Some(Err(IoError::Medium { .. })) => !is_mended,
                Some(Err(_)) => !self.apart.get(),
            };
            let next = || {
                let current = self.keeper.current(self.link);
                let mut left = current.into_iter().filter(|drive| !tried.contains(&drive.label.id));
                if self.apart.get() { left.next() } else { left.min_by_key(Drive::rank) }
            };
            let (true, Some(drive)) = (goes_on, next()) else { break };
            tried.push(drive.label.id);
            let again = drive.device.submit(request.clone()).await;
            // The first error tells more than that of a drive that was asked in its place.
            result = Some(match (result, again) {
                (Some(error), Err(_)) => error,
                (_, again) => again,
            });
        }
        result.unwrap_or(Err(IoError::Gone))
    }

    /// The drive that should be read: the one whose last read goes on, else the nearest.
    fn choose(&self, start: Lba) -> Option<Drive> {
        let mut current = self.keeper.current(self.link);
        if plant::is(Bug::JoiningHalfRead) {
            current.extend(self.keeper.joining());
            return current.pop();
        }
        if self.apart.get() {
            return current.into_iter().next();
        }
        // A half that sleeps would make the reader wait, and one that failed would fail again.
        if let Some(best) = current.iter().map(Drive::rank).min() {
            current.retain(|drive| drive.rank() == best);
        }
        let heads = self.heads.borrow();
        let head = |drive: &Drive| heads.get(&drive.label.id).copied().unwrap_or_default();
        current.into_iter().min_by_key(|drive| head(drive).distance(start))
    }
}

/// What both halves can do.
fn together(drives: &[Drive]) -> Capabilities {
    let each: Vec<_> = drives.iter().map(|drive| drive.device.capabilities()).collect();
    let least = each.iter().map(|one| one.capacity).min().unwrap_or_default();
    Capabilities {
        capacity: least,
        physical_sector: each.iter().map(|one| one.physical_sector).max().unwrap_or_default(),
        untorn: each.iter().map(|one| one.untorn).min().unwrap_or_default(),
        rotational: each.iter().any(|one| one.rotational),
        // Another drive may join, which has one.
        volatile_cache: true,
        native_fua: each.iter().all(|one| one.native_fua),
        discard: false,
        fast_zero: false,
    }
}

impl BlockDevice for Pair {
    fn capabilities(&self) -> Capabilities {
        // A drive that joins, or has joined, may have shorter sectors.
        let (current, joining) = (self.0.keeper.current(self.0.link), self.0.keeper.joining());
        let joining = joining.filter(|drive| usize::from(drive.label.drive) == self.0.link);
        let all = current.into_iter().chain(joining);
        let untorn = all.map(|drive| drive.device.capabilities().untorn).min();
        Capabilities { untorn: untorn.unwrap_or(self.0.capabilities.untorn), ..self.0.capabilities }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.0.capabilities.check(&request) {
            return Completion::ready(Err(error));
        }
        self.0.under_way.set(self.0.under_way.get() + 1);
        let sent = match request.extent() {
            Some(extent) if matches!(request, Request::Read { .. }) => self.read(request, extent),
            _ => self.change(request),
        };
        let (completer, answer) = completion();
        let shared = Rc::clone(&self.0);
        self.0.runtime.spawn(async move {
            let result = sent.await;
            shared.under_way.set(shared.under_way.get() - 1);
            completer.complete(result);
        });
        answer
    }

    fn has_copies(&self) -> bool {
        true
    }

    fn copies(&self) -> Copies {
        let half =
            |drive| -> Rc<dyn BlockDevice> { Rc::new(OneHalf { pair: Rc::clone(&self.0), drive }) };
        self.0.keeper.current(self.0.link).into_iter().map(half).collect()
    }
}

/// One half of a link: for reads of it alone, and for writes that make it the same as the other. If
/// such a write fails the half leaves the link, but not while the chain is opened, because what the
/// opening has found so far comes from this half.
struct OneHalf {
    pair: Rc<Shared>,
    drive: Drive,
}

impl BlockDevice for OneHalf {
    fn capabilities(&self) -> Capabilities {
        self.pair.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        let is_read = matches!(request, Request::Read { .. });
        let sent = self.drive.device.submit(request);
        if is_read || self.pair.apart.get() {
            return sent;
        }
        let (completer, answer) = completion();
        let (pair, id) = (Rc::clone(&self.pair), self.drive.label.id);
        self.pair.runtime.spawn(async move {
            let result = sent.await;
            if let Err(error) = &result {
                // If it is the last of its link it stays, and the damage with it.
                let _ = pair.leaves(id, error.clone()).await;
            }
            completer.complete(result);
        });
        answer
    }
}

impl Pair {
    fn read(&self, request: Request, extent: Extent) -> Completion {
        let chosen = self.0.choose(extent.start);
        let begun = chosen.map(|drive| {
            self.0.heads.borrow_mut().insert(drive.label.id, extent.end());
            (drive.label.id, drive.device.submit(request.clone()))
        });
        let (completer, answer) = completion();
        let shared = Rc::clone(&self.0);
        self.0.runtime.spawn(async move {
            completer.complete(shared.read(request, begun).await);
        });
        answer
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("link", &self.0.link).finish_non_exhaustive()
    }
}
