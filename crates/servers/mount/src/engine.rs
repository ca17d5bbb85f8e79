//! The thread that owns the file system.

mod arrivals;
mod awake;
mod companion;

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use manylogs::PhaseProbe;
use manylogs_block::{BlockDevice, Handle, Inbox, LocalTask, Mailbox, Nanos, mailbox, yield_now};
use manylogs_ext4::{DurableNames, Ext4, Memory, Options, Part};
use manylogs_fuse::{Ended, PolledSession, Session, Turn};
use manylogs_mlfs::{JournalMode, Mounted, now};
use manylogs_operate::control::{Answer, Order, OrderError};
use manylogs_operate::log::{Level, line};
use manylogs_storage::{FileDevice, OpenMode, OpenOptions, Reactor, RequestRing, Watcher};

use arrivals::Arrivals;
use companion::Companion;

use crate::front::Front;
use crate::jobs::LARGEST;
use crate::served::Served;
use crate::teller::ToTell;
use crate::{MountOptions, MountServerError};

/// Entries for requests that come through a ring may have one part in so many of the memory.
const RING_PART: u64 = 8;

/// A request of another thread to the file system: becomes a task of the file system's thread.
pub(crate) type Job = Box<dyn FnOnce(&Served) -> LocalTask + Send>;

/// Sends jobs to the thread. If the thread has ended, for any reason, the job is dropped, and its
/// sender notices.
pub(crate) type Queue = Mailbox<Job>;

/// The thread that owns the file system.
pub(crate) struct Engine {
    queue: Queue,
    found: Found,
    may_keep_awake: bool,
    thread: JoinHandle<Result<(), MountServerError>>,
}

/// What the thread tells when it has mounted the file system.
#[derive(Clone, Copy, Default)]
struct Found {
    is_adopted: bool,
    /// Whether the kernel's requests can come through its ring.
    has_ring: bool,
}

/// Has the thread carry out an order of the operator, and blocks until it is done.
pub(crate) fn order(queue: &Queue, order: Order) -> Answer {
    let (tell, told) = mpsc::channel();
    let reply = move |answer| drop(tell.send(answer));
    queue.push(Box::new(move |served| served.obey(order, reply)));
    told.recv().unwrap_or_else(|_| Err(OrderError::new("it is being unmounted")))
}

impl Engine {
    /// Mounts the file system on `source`, opened in the given mode, in a thread of its own.
    /// Programs will find it at `target`.
    pub(crate) fn start(
        source: &Path,
        target: &Path,
        (options, memory): (MountOptions, Memory),
        open: OpenMode,
    ) -> Result<Self, MountServerError> {
        let (queue, jobs) = mailbox();
        let (tell, told) = mpsc::channel();
        let (source, target) = (source.to_owned(), target.to_owned());
        let may_keep_awake = options.keeps_awake();
        let named = thread::Builder::new().name("mlfs".to_owned());
        let run = move || run((&source, &target), (options, memory, open), jobs, &tell);
        let thread = named.spawn(run)?;
        let told = told.recv();
        let found = told.unwrap_or_default();
        let engine = Self { queue, found, may_keep_awake, thread };
        match told {
            Ok(_) => Ok(engine),
            // The thread ended before it had mounted; its result says why.
            Err(_) => {
                engine.stop().and(Err(MountServerError::Lost)).map(|()| unreachable!("an error"))
            }
        }
    }

    pub(crate) const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Has the thread serve the session's requests, and blocks until the file system is unmounted.
    ///
    /// # Errors
    /// Those of reading from the kernel; [`MountServerError::Lost`].
    pub(crate) fn serve(
        &self,
        session: Session,
        front: impl FnOnce(&Served) -> Front + Send + 'static,
        to_tell: ToTell,
    ) -> io::Result<Ended> {
        to_tell.start(session.notifier())?;
        let (tell, told) = mpsc::channel();
        let may_keep_awake = self.may_keep_awake;
        self.queue.push(Box::new(move |served| {
            let (watcher, fs, front) = (served.watcher.clone(), served.fs().clone(), front(served));
            let runtime = served.runtime.clone();
            let near = Companion::new(runtime.clone(), may_keep_awake);
            // The ring belongs to this thread.
            let ring_bytes = fs.memory().bound() / RING_PART;
            let session = session.polled(&watcher, ring_bytes);
            let session = session.inspect(|session| served.begins(session));
            Box::pin(async move {
                let ended = match session {
                    Ok(session) => serve(session, &front, (&watcher, &runtime), &fs, near).await,
                    Err(error) => Err(error),
                };
                // The receiver is gone only if the program is ending.
                drop(tell.send(ended));
            })
        }));
        told.recv().unwrap_or_else(|_| Err(io::Error::other(MountServerError::Lost)))
    }

    /// Whether the journal is in the log file.
    pub(crate) const fn is_adopted(&self) -> bool {
        self.found.is_adopted
    }

    /// Whether the kernel's requests can come through the thread's ring, if the kernel offers it.
    pub(crate) const fn has_ring(&self) -> bool {
        self.found.has_ring
    }

    /// Finishes the jobs under way, makes everything durable, and unmounts the file system.
    pub(crate) fn stop(self) -> Result<(), MountServerError> {
        self.queue.close();
        self.thread.join().unwrap_or(Err(MountServerError::Lost))
    }
}

fn run(
    (source, target): (&Path, &Path),
    (options, memory, open): (MountOptions, Memory, OpenMode),
    jobs: Inbox<Job>,
    tell: &mpsc::Sender<Found>,
) -> Result<(), MountServerError> {
    let durability = options.durability();
    let reactor = Reactor::new()?;
    let device = Rc::new(FileDevice::open(&reactor, source, &OpenOptions::new(open))?);
    let (device, drive): (Rc<dyn BlockDevice>, _) = match options.between {
        Some(between) => {
            let emulated = between(&reactor, device).map_err(MountServerError::Between)?;
            (Rc::new(emulated.drive.clone()), Some(emulated))
        }
        None => (device, None),
    };
    let runtime = reactor.handle();
    let (mode, commit) = (options.mode, options.commit);
    let (max_age, saves_map) = (options.max_age, options.saves_map);
    let durable = (options.durable, options.durable_dsync);
    let clock = Rc::new(now);
    let (read_only, replay) = (options.read_only, options.replay);
    let options = Options { clock, read_only, durability, memory, replay };
    let probe = PhaseProbe::default();
    let mounting = Mounted::mount(mode, device, runtime.clone(), probe.clone(), options);
    let began = runtime.now();
    let mounted = reactor.block_on(mounting)?;
    let mounting = runtime.now().since(began);
    if let Some(seconds) = commit {
        mounted.fs().commit_every(Nanos::from_secs(seconds.get().into()));
    }
    mounted.fs().save_maps(saves_map);
    if let Some(most) = max_age {
        bound_age(&mounted, most, source);
    }
    if !durable.0.is_empty() || durable.1 {
        keep(&mounted, durable, source);
    }
    let watcher = reactor.watcher();
    let has_ring = RequestRing::is_possible(&watcher);
    // The receiver is gone only if the program is ending.
    let _ = tell.send(Found { is_adopted: mounted.volume().is_some(), has_ring });
    let on = (runtime.clone(), watcher);
    let served = Served::new((mounted, mounting), (source, target), drive, probe, on);
    reactor.block_on(async move {
        work(&served, &jobs).await;
        Ok(served.unmount().await?)
    })
}

/// Sets how old metadata may become in a journal that keeps it; warns if the mode is another one.
fn bound_age(mounted: &Mounted, most: Option<Nanos>, source: &Path) {
    let mode = mounted.mode();
    if mode == JournalMode::Lazy {
        mounted.fs().max_age(most);
        return;
    }
    let message = format!("max-age= changes nothing in the mode {mode}: it is for the mode lazy");
    line(Level::Warning, Some(source), &message, &[]);
}

/// Has files with such names, and with `synced` also synchronous writes, stay in the logs; warns if
/// the mode has no logs.
fn keep(mounted: &Mounted, (names, synced): (DurableNames, bool), source: &Path) {
    if mounted.keeps() {
        mounted.fs().keep_named(names);
        if synced {
            mounted.fs().keep_synced_writes();
        }
        return;
    }
    let mode = mounted.mode();
    let message = format!(
        "what needs no place is treated like the rest in the mode {mode}, which has no logs for it"
    );
    line(Level::Warning, Some(source), &message, &[]);
}

/// Serves requests until the file system is unmounted.
async fn serve(
    mut session: PolledSession,
    front: &Front,
    (watcher, runtime): (&Watcher, &Handle),
    fs: &Ext4,
    mut companion: Companion,
) -> io::Result<Ended> {
    let mut arrivals = Arrivals::new(&session, watcher, runtime)?;
    let teller = front.teller.clone();
    fs.tell_changes(move |ino, what| teller.changed(ino, what));
    loop {
        // Requests stay in the kernel until there is memory for them, and their callers wait. No
        // request under way needs a later one in order to end.
        fs.memory().room(Part::Requests, LARGEST).await;
        front.teller.remind(fs);
        match session.serve_next(front)? {
            // The request's task begins before the next request is read.
            Turn::Request { thread } => {
                yield_now().await;
                companion.served(thread);
                arrivals.after_request(&mut session, companion.keeps_awake()).await;
            }
            Turn::Nothing => arrivals.next(&mut session).await,
            Turn::Ended(ended) => {
                fs.tell_nobody();
                return Ok(ended);
            }
        }
    }
}

/// Begins jobs until the queue is closed.
async fn work(served: &Served, inbox: &Inbox<Job>) {
    loop {
        let jobs = inbox.take().await;
        if jobs.is_empty() {
            return;
        }
        for job in jobs {
            served.tasks.begin(job(served));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
