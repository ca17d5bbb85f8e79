//! The modelled drive as a block device: the state machine of [`Drive`] driven by a clock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Extent, Handle, Payload, Request, Sectors, Time,
    completion, to_usize,
};

use crate::command::{Command, Completion, Counters, Event, Kind};
use crate::drive::{Drive, Options};
use crate::host::{Dispatched, Elevator, ElevatorOptions};
use crate::profile::Profile;

/// A command that the mechanism carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// When it completed.
    pub at: Time,
    /// The sectors.
    pub extent: Extent,
    /// Whether they were written.
    pub write: bool,
}

/// A modelled drive that keeps no content: reads return absent sectors. Clones are the same drive.
///
/// Requests beyond the depth of the drive's queue wait in the host's [`Elevator`].
#[derive(Clone)]
pub struct ModelledDrive(Rc<Shared>);

type Observer = Box<dyn FnMut(&Carried)>;

struct Shared {
    runtime: Handle,
    capabilities: Capabilities,
    /// Whether the drive serves urgent commands first.
    priority: bool,
    drive: RefCell<Drive>,
    host: RefCell<Host>,
    /// What was asked for and who waits, by tag.
    asked: RefCell<Vec<Asked>>,
    free_tags: RefCell<Vec<usize>>,
    observer: RefCell<Option<Observer>>,
    /// The drive's task, once it ran.
    waker: RefCell<Option<Waker>>,
    /// The earliest timer that is set.
    armed: Cell<Option<Time>>,
    /// Empty between runs of the task, kept for its memory.
    completed: RefCell<Vec<Completion>>,
}

/// What the drive's queue had no room for.
struct Host {
    elevator: Elevator,
    /// Tags of flushes, which no elevator sorts.
    flushes: VecDeque<u64>,
    /// Urgent commands, which go first.
    urgent: VecDeque<Command>,
    /// Merged requests in the drive; the drive's tag is the index with [`MERGED`] set.
    merged: Vec<Option<Dispatched>>,
}

/// Marks tags of commands that answer several requests.
const MERGED: u64 = 1 << 63;

struct Asked {
    completer: Option<Completer>,
    /// Where to note when the drive completed it.
    due: Option<Rc<Cell<Time>>>,
    extent: Extent,
    kind: Kind,
}

impl ModelledDrive {
    /// The drive that `profile` describes, its task on the node of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle, profile: &Profile, options: &Options) -> Self {
        let capabilities = Capabilities {
            capacity: Sectors(profile.geometry.capacity_sectors),
            physical_sector: Sectors(u64::from(profile.geometry.physical_sector_bytes / 512)),
            rotational: true,
            volatile_cache: options.write_cache,
            native_fua: true,
            discard: false,
            fast_zero: false,
        };
        let drive = Self(Rc::new(Shared {
            runtime: runtime.clone(),
            capabilities,
            priority: options.priority,
            drive: RefCell::new(Drive::new(profile, options)),
            host: RefCell::new(Host {
                elevator: Elevator::new(ElevatorOptions::default()),
                flushes: VecDeque::new(),
                urgent: VecDeque::new(),
                merged: Vec::new(),
            }),
            asked: RefCell::default(),
            free_tags: RefCell::default(),
            observer: RefCell::default(),
            waker: RefCell::default(),
            armed: Cell::default(),
            completed: RefCell::default(),
        }));
        runtime.spawn(DriveTask(Rc::clone(&drive.0)));
        drive
    }

    /// Calls `observer` for each command that the mechanism carries out, as it completes.
    pub fn observe(&self, observer: impl FnMut(&Carried) + 'static) {
        *self.0.observer.borrow_mut() = Some(Box::new(observer));
    }

    /// What the drive has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.drive.borrow().counters()
    }
}

impl BlockDevice for ModelledDrive {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    fn submit(&self, request: Request) -> manylogs_block::Completion {
        self.start(&request, None, false)
    }

    fn submit_urgent(&self, request: Request) -> manylogs_block::Completion {
        self.start(&request, None, self.0.priority)
    }

    fn has_priorities(&self) -> bool {
        self.0.priority
    }
}

impl ModelledDrive {
    /// As [`BlockDevice::submit`]; also notes in `due`, before it answers, when the drive completed
    /// the request by its own time. In real time that is earlier than the answer.
    pub(crate) fn submit_noting(
        &self,
        request: &Request,
        due: Rc<Cell<Time>>,
    ) -> manylogs_block::Completion {
        due.set(self.0.runtime.now());
        self.start(request, Some(due), false)
    }

    fn start(
        &self,
        request: &Request,
        due: Option<Rc<Cell<Time>>>,
        urgent: bool,
    ) -> manylogs_block::Completion {
        if let Err(error) = self.0.capabilities.check(request) {
            return manylogs_block::Completion::ready(Err(error));
        }
        let (kind, extent) = match *request {
            Request::Read { extent } => (Kind::Read, extent),
            Request::Write { extent, fua, .. } | Request::WriteZeroes { extent, fua, .. } => {
                (Kind::Write { fua }, extent)
            }
            Request::Flush => (Kind::Flush, Extent::default()),
            Request::Discard { .. } => {
                return manylogs_block::Completion::ready(Ok(Payload::default()));
            }
        };
        let (completer, completion) = completion();
        let tag = self.0.tag(Asked { completer: Some(completer), due, extent, kind });
        self.0.start(Command { tag, kind, extent }, urgent);
        self.0.arm();
        completion
    }
}

impl Shared {
    fn tag(&self, asked: Asked) -> u64 {
        let mut all = self.asked.borrow_mut();
        if let Some(tag) = self.free_tags.borrow_mut().pop() {
            all[tag] = asked;
            return tag as u64;
        }
        all.push(asked);
        all.len() as u64 - 1
    }

    fn start(&self, command: Command, urgent: bool) {
        let now = self.runtime.now();
        // In real time the task may be late: what came before the command happens before it.
        if self.armed.get().is_none_or(|armed| armed < now)
            && let Some(before) = now.0.checked_sub(1)
        {
            self.advance(Time(before));
        }
        let (mut drive, mut host) = (self.drive.borrow_mut(), self.host.borrow_mut());
        let passes = host.elevator.is_empty() && host.flushes.is_empty();
        if (passes || urgent) && drive.has_room() {
            hand_over(&mut drive, now, command, urgent);
        } else if urgent {
            host.urgent.push_back(command);
        } else if command.kind == Kind::Flush {
            host.flushes.push_back(command.tag);
        } else {
            host.elevator.push(now, command.tag, command.kind != Kind::Read, command.extent);
        }
    }

    /// Lets the drive's time pass up to `now`, and answers what completed.
    ///
    /// The drive and its host go through every moment at which something happens, also where `now`
    /// is later: that the task ran late does not make the drive slower.
    fn advance(&self, now: Time) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.advance_to(at);
            if at == now {
                // What follows at once lets those who were answered act first.
                return;
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.drive.borrow().next_event()
    }

    fn advance_to(&self, at: Time) {
        let mut completed = self.completed.take();
        self.drive.borrow_mut().advance(at, &mut |event| {
            if let Event::Completed(completion) = event {
                completed.push(completion);
            }
        });
        if !completed.is_empty() {
            self.refill(at);
        }
        completed.drain(..).for_each(|completion| self.complete(&completion));
        *self.completed.borrow_mut() = completed;
    }

    /// Hands waiting requests to the drive while it has room.
    fn refill(&self, now: Time) {
        let (mut drive, mut host) = (self.drive.borrow_mut(), self.host.borrow_mut());
        while drive.has_room() {
            if let Some(command) = host.urgent.pop_front() {
                hand_over(&mut drive, now, command, true);
                continue;
            }
            if let Some(tag) = host.flushes.pop_front() {
                let extent = Extent::default();
                hand_over(&mut drive, now, Command { tag, kind: Kind::Flush, extent }, false);
                continue;
            }
            let Some(dispatched) = host.elevator.pop(now) else { return };
            let (kind, extent) = (self.kind_of(&dispatched), dispatched.extent);
            let tag = match dispatched.tags.as_slice() {
                [tag] => *tag,
                _ => host.keep(dispatched),
            };
            hand_over(&mut drive, now, Command { tag, kind, extent }, false);
        }
    }

    /// A merged write is durable if one of its parts has to be.
    fn kind_of(&self, dispatched: &Dispatched) -> Kind {
        if !dispatched.write {
            return Kind::Read;
        }
        let asked = self.asked.borrow();
        let fua = |tag: &u64| asked[to_usize(*tag)].kind == Kind::Write { fua: true };
        Kind::Write { fua: dispatched.tags.iter().any(fua) }
    }

    fn complete(&self, completion: &Completion) {
        if completion.tag & MERGED == 0 {
            self.answer(completion, completion.tag);
            return;
        }
        let index = to_usize(completion.tag & !MERGED);
        let dispatched = self.host.borrow_mut().merged[index].take();
        let Some(dispatched) = dispatched else { unreachable!("a command completes once") };
        dispatched.tags.into_iter().for_each(|tag| self.answer(completion, tag));
    }

    fn answer(&self, completion: &Completion, tag: u64) {
        let (completer, due, extent, kind) = {
            let asked = &mut self.asked.borrow_mut()[to_usize(tag)];
            (asked.completer.take(), asked.due.take(), asked.extent, asked.kind)
        };
        due.inspect(|due| due.set(completion.at));
        self.free_tags.borrow_mut().push(to_usize(tag));
        if !completion.buffered
            && let Some(observer) = &mut *self.observer.borrow_mut()
        {
            observer(&Carried { at: completion.at, extent, write: kind != Kind::Read });
        }
        let Some(completer) = completer else { unreachable!("a request is answered once") };
        completer.complete(Ok(match kind {
            Kind::Read => Payload::absent(extent.len),
            Kind::Write { .. } | Kind::Flush => Payload::default(),
        }));
    }

    /// Sees to it that the task runs at the drive's next event.
    fn arm(&self) {
        let Some(next) = self.next_event() else { return };
        if self.armed.get().is_some_and(|armed| armed <= next) {
            return;
        }
        // Before its first run the task has no waker; it will arm itself then.
        if let Some(waker) = &*self.waker.borrow() {
            self.armed.set(Some(next));
            self.runtime.wake_at(next, waker);
        }
    }
}

impl Host {
    /// Remembers whom a merged command answers; returns its tag.
    fn keep(&mut self, dispatched: Dispatched) -> u64 {
        let free = self.merged.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.merged.push(None);
            self.merged.len() - 1
        });
        self.merged[index] = Some(dispatched);
        index as u64 | MERGED
    }
}

fn hand_over(drive: &mut Drive, now: Time, command: Command, urgent: bool) {
    let accepted =
        if urgent { drive.submit_urgent(now, command) } else { drive.submit(now, command) };
    assert!(accepted.is_ok(), "the drive said that it has room");
}

/// Lets the drive's time pass.
struct DriveTask(Rc<Shared>);

impl Future for DriveTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &self.0;
        shared.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        if shared.armed.get().is_some_and(|armed| armed <= shared.runtime.now()) {
            shared.armed.set(None);
        }
        shared.advance(shared.runtime.now());
        shared.arm();
        Poll::Pending
    }
}

impl std::fmt::Debug for ModelledDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelledDrive").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
