//! The modelled drive as a block device: the state machine of [`Drive`] driven by a clock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Extent, Handle, Payload, Request, Sectors, Time,
    completion,
};

use crate::command::{Command, Completion, Counters, Event, Kind};
use crate::drive::{Drive, Options, QueueFull};
use crate::profile::Profile;

/// Every drive modelled here writes 4 KiB at a time, whatever it says.
const PHYSICAL_SECTOR: Sectors = Sectors(8);

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
/// Commands beyond the depth of the drive's queue wait in the host, first come, first served.
#[derive(Clone)]
pub struct ModelledDrive(Rc<Shared>);

type Observer = Box<dyn FnMut(&Carried)>;

struct Shared {
    runtime: Handle,
    capabilities: Capabilities,
    drive: RefCell<Drive>,
    /// Commands that the drive's queue had no room for.
    host_queue: RefCell<VecDeque<Command>>,
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

struct Asked {
    completer: Option<Completer>,
    extent: Extent,
    kind: Kind,
}

impl ModelledDrive {
    /// The drive that `profile` describes, its task on the node of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle, profile: &Profile, options: &Options) -> Self {
        let capabilities = Capabilities {
            capacity: Sectors(profile.geometry.capacity_sectors),
            physical_sector: PHYSICAL_SECTOR,
            rotational: true,
            volatile_cache: options.write_cache,
            native_fua: true,
            discard: false,
        };
        let drive = Self(Rc::new(Shared {
            runtime: runtime.clone(),
            capabilities,
            drive: RefCell::new(Drive::new(profile, options)),
            host_queue: RefCell::default(),
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
        if let Err(error) = self.0.capabilities.check(&request) {
            return manylogs_block::Completion::ready(Err(error));
        }
        let (kind, extent) = match request {
            Request::Read { extent } => (Kind::Read, extent),
            Request::Write { extent, fua, .. } | Request::WriteZeroes { extent, fua } => {
                (Kind::Write { fua }, extent)
            }
            Request::Flush => (Kind::Flush, Extent::default()),
            Request::Discard { .. } => {
                return manylogs_block::Completion::ready(Ok(Payload::default()));
            }
        };
        let (completer, completion) = completion();
        let tag = self.0.tag(Asked { completer: Some(completer), extent, kind });
        self.0.start(Command { tag, kind, extent });
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

    fn start(&self, command: Command) {
        let mut waiting = self.host_queue.borrow_mut();
        if !waiting.is_empty() {
            return waiting.push_back(command);
        }
        let accepted = self.drive.borrow_mut().submit(self.runtime.now(), command);
        if let Err(QueueFull(command)) = accepted {
            waiting.push_back(command);
        }
    }

    /// Lets the drive's time pass up to now, and answers what completed.
    fn advance(&self) {
        let now = self.runtime.now();
        let mut completed = self.completed.take();
        {
            let mut drive = self.drive.borrow_mut();
            let mut waiting = self.host_queue.borrow_mut();
            drive.advance(now, &mut |event| {
                if let Event::Completed(completion) = event {
                    completed.push(completion);
                }
            });
            while drive.has_room()
                && let Some(command) = waiting.pop_front()
            {
                let accepted = drive.submit(now, command);
                debug_assert!(accepted.is_ok(), "the drive said that it has room");
            }
        }
        completed.drain(..).for_each(|completion| self.complete(&completion));
        *self.completed.borrow_mut() = completed;
    }

    fn complete(&self, completion: &Completion) {
        let tag = manylogs_block::to_usize(completion.tag);
        let (completer, extent, kind) = {
            let asked = &mut self.asked.borrow_mut()[tag];
            (asked.completer.take(), asked.extent, asked.kind)
        };
        self.free_tags.borrow_mut().push(tag);
        if !completion.buffered
            && let Some(observer) = &mut *self.observer.borrow_mut()
        {
            observer(&Carried { at: completion.at, extent, write: kind != Kind::Read });
        }
        let Some(completer) = completer else { unreachable!("a command completes once") };
        completer.complete(Ok(match kind {
            Kind::Read => Payload::absent(extent.len),
            Kind::Write { .. } | Kind::Flush => Payload::default(),
        }));
    }

    /// Sees to it that the task runs at the drive's next event.
    fn arm(&self) {
        let Some(next) = self.drive.borrow().next_event() else { return };
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
        shared.advance();
        shared.arm();
        Poll::Pending
    }
}

impl std::fmt::Debug for ModelledDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelledDrive").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
