//! The modelled drive as a block device: the state machine of [`Drive`] driven by a clock.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Extent, Handle, Payload, PowerCommand, PowerState,
    PowerTimes, Request, Sectors, Time, completion, to_usize,
};

use crate::command::{Command, CommandKind, Completion, Counters};
use crate::drive::{Drive, Options};
use crate::host::Host;
use crate::link::Link;
use crate::profile::Profile;
use crate::shingled::ShingledFigures;

/// A command that the mechanism carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Time of completion.
    pub at: Time,
    /// The sectors.
    pub extent: Extent,
    /// Whether the sectors were written, not read.
    pub write: bool,
}

/// A modelled drive that keeps no content: reads return absent sectors. Clones are the same drive.
///
/// Requests beyond the depth of the drive's queue wait in the [`Host`].
#[derive(Clone)]
pub struct ModelledDrive(Rc<Shared>);

type Observer = Box<dyn FnMut(&Carried)>;

struct Shared {
    runtime: Handle,
    capabilities: Capabilities,
    /// Whether the drive serves urgent commands first.
    priority: bool,
    host: RefCell<Host>,
    /// Requests under way, by tag.
    asked: RefCell<Vec<Asked>>,
    free_tags: RefCell<Vec<usize>>,
    observer: RefCell<Option<Observer>>,
    /// Waker of the drive's task, set when the task first ran.
    waker: RefCell<Option<Waker>>,
    /// Time of the earliest timer that is set.
    armed: Cell<Option<Time>>,
    /// Empty between runs of the task; kept to reuse its memory.
    completed: RefCell<Vec<Completion>>,
}

struct Asked {
    completer: Option<Completer>,
    /// Cell that gets the time at which the drive completes the command.
    due: Option<Rc<Cell<Time>>>,
    extent: Extent,
    kind: CommandKind,
}

impl ModelledDrive {
    /// The drive that `profile` describes; its task runs on the node of `runtime`.
    #[must_use]
    pub fn new(runtime: Handle, profile: &Profile, options: &Options) -> Self {
        let drive = Drive::new(profile, options);
        let capabilities = Capabilities {
            capacity: drive.capacity(),
            physical_sector: Sectors(u64::from(profile.geometry.physical_sector_bytes / 512)),
            untorn: Sectors(u64::from(profile.geometry.physical_sector_bytes / 512)),
            rotational: true,
            volatile_cache: options.write_cache,
            native_fua: !options.write_cache || options.link.fua,
            discard: false,
            fast_zero: false,
        };
        let device = Self(Rc::new(Shared {
            runtime: runtime.clone(),
            capabilities,
            priority: options.priority,
            host: RefCell::new(Host::new(drive)),
            asked: RefCell::default(),
            free_tags: RefCell::default(),
            observer: RefCell::default(),
            waker: RefCell::default(),
            armed: Cell::default(),
            completed: RefCell::default(),
        }));
        runtime.spawn(DriveTask(Rc::clone(&device.0)));
        device
    }

    /// Calls `observer` for each command that the mechanism carries out, at its completion.
    pub fn observe(&self, observer: impl FnMut(&Carried) + 'static) {
        *self.0.observer.borrow_mut() = Some(Box::new(observer));
    }

    /// The link to the host.
    #[must_use]
    pub fn link(&self) -> Link {
        self.0.host.borrow().drive().link()
    }

    /// Number of commands that the drive takes at a time.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.host.borrow().drive().depth()
    }

    /// What the translation layer of a shingled drive did; `None` for a conventional drive.
    #[must_use]
    pub fn shingled(&self) -> Option<ShingledFigures> {
        self.0.host.borrow().drive().shingled()
    }

    /// See [`crate::Drive::fill_persistent_cache`].
    pub fn fill_persistent_cache(&self, share: f64, seed: u64) {
        let now = self.0.runtime.now();
        self.0.host.borrow_mut().drive_mut().fill_persistent_cache(share, seed, now);
    }

    /// How long the drive was in which state, from time zero on.
    #[must_use]
    pub fn power_times(&self) -> PowerTimes {
        self.0.host.borrow().drive().power_times(self.0.runtime.now())
    }

    /// Counters of the drive.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.host.borrow().drive().counters()
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

    fn power(&self, command: PowerCommand) -> manylogs_block::Completion<PowerState> {
        let runtime = &self.0.runtime;
        let state =
            |shared: &Shared| shared.host.borrow().drive().power_state(shared.runtime.now());
        let (completer, answer) = completion();
        let drive = self.clone();
        match command {
            PowerCommand::Check => return manylogs_block::Completion::ready(Ok(state(&self.0))),
            PowerCommand::Standby => {
                let flushed = self.submit(Request::Flush);
                runtime.spawn(async move {
                    let stopped = flushed.await.map(|_| {
                        let now = drive.0.runtime.now();
                        drive.0.host.borrow_mut().drive_mut().standby(now);
                        state(&drive.0)
                    });
                    completer.complete(stopped);
                });
            }
            PowerCommand::Wake => {
                let ready = self.0.host.borrow_mut().drive_mut().wake(runtime.now());
                runtime.spawn(async move {
                    drive.0.runtime.sleep_until(ready).await;
                    completer.complete(Ok(state(&drive.0)));
                });
            }
        }
        answer
    }
}

impl ModelledDrive {
    /// As [`BlockDevice::submit`]; also sets `due`, before the answer, to the time at which the
    /// drive completed the request by its own time. On a real clock that is earlier than the
    /// answer.
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
            Request::Read { extent } => (CommandKind::Read, extent),
            Request::Write { extent, fua, .. } | Request::WriteZeroes { extent, fua, .. } => {
                (CommandKind::Write { fua }, extent)
            }
            Request::Flush => (CommandKind::Flush, Extent::default()),
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
        // The task may be late on a real clock, so events before the command are carried out first.
        if self.armed.get().is_none_or(|armed| armed < now)
            && let Some(before) = now.0.checked_sub(1)
        {
            self.advance(Time(before));
        }
        self.host.borrow_mut().submit(now, command, urgent);
    }

    /// Advances the drive to `now`, and answers the completed requests.
    ///
    /// The drive and its host still pass through every event at its own time, even if that is
    /// before `now`. So a late task does not make the drive slower.
    fn advance(&self, now: Time) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.advance_to(at);
            if at == now {
                // Events that follow at the same time wait until the tasks just answered have run.
                return;
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.host.borrow().next_event()
    }

    fn advance_to(&self, at: Time) {
        let mut completed = self.completed.take();
        self.host.borrow_mut().advance(at, &mut |completion| completed.push(completion));
        completed.drain(..).for_each(|completion| self.answer(&completion));
        *self.completed.borrow_mut() = completed;
    }

    fn answer(&self, completion: &Completion) {
        let tag = to_usize(completion.tag);
        let (completer, due, extent, kind) = {
            let asked = &mut self.asked.borrow_mut()[tag];
            (asked.completer.take(), asked.due.take(), asked.extent, asked.kind)
        };
        due.inspect(|due| due.set(completion.at));
        self.free_tags.borrow_mut().push(tag);
        if !completion.buffered
            && let Some(observer) = &mut *self.observer.borrow_mut()
        {
            observer(&Carried { at: completion.at, extent, write: kind != CommandKind::Read });
        }
        let Some(completer) = completer else { unreachable!("a request is answered once") };
        completer.complete(Ok(match kind {
            CommandKind::Read => Payload::absent(extent.len),
            CommandKind::Write { .. } | CommandKind::Flush => Payload::default(),
        }));
    }

    /// Sets a timer that runs the task at the drive's next event.
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

/// The task that advances the drive.
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
