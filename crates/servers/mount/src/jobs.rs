//! Jobs of the file system, and how their results are sent to the kernel.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_ext4::{AccessTimes, Attributes, Error, Ext4, Ino, Memory, Part, Permit, Timestamp};
use manylogs_fuse::request::Room;
use manylogs_fuse::{Created, Entry, Errno, FileHandle, Known, KnownFromBirth, Opened, Reply};
use manylogs_operate::status::AskedKind;
use manylogs_operate::{Asked, Operated};

use crate::agreed::{MAX_WRITE, OPENED};
use crate::asking::{Asked as Question, Asking, Touched};
use crate::caches::Caches;
use crate::convert::{to_errno, to_time};
use crate::options::OnError;
use crate::served::Served;
use crate::tasks::TaskGroup;

/// Bytes of memory of a job and its answer without the content of files: names, values of
/// attributes, and the task itself.
const JOB_COST: u64 = 32 << 10;
/// Memory of the largest request: a read of 1 MiB.
pub(crate) const LARGEST: u64 = JOB_COST + 2 * MAX_WRITE as u64;

/// Begins jobs, in the thread that owns the file system.
pub(crate) struct Jobs {
    fs: Ext4,
    operated: Rc<Operated>,
    tasks: TaskGroup,
    on_error: OnError,
    memory: Memory,
    pub(crate) caches: Caches,
    pub(crate) asking: Asking,
}

/// Handles a job's errors before the kernel gets them.
#[derive(Clone)]
pub(crate) struct Refuse {
    on_error: OnError,
    /// Whether the job met an error.
    failed: Rc<Cell<bool>>,
}

impl Refuse {
    /// Returns the error's number. If the error is damage, the file system is marked, or accepts no
    /// more changes.
    pub(crate) fn errno(&self, fs: &Ext4, error: &Error) -> Errno {
        self.failed.set(true);
        if let Error::Corrupt(what) = error {
            match self.on_error {
                OnError::ReadOnly => fs.stop_changes(),
                OnError::Continue => fs.note_damage(what),
            }
        }
        to_errno(error)
    }
}

impl Jobs {
    pub(crate) fn new(served: &Served, on_error: OnError, caches: Caches) -> Self {
        let (fs, operated) = (served.fs().clone(), Rc::clone(&served.operated));
        let (memory, tasks) = (fs.memory().clone(), served.tasks.clone());
        Self { fs, operated, tasks, on_error, memory, caches, asking: Asking::default() }
    }

    /// Begins `job`.
    pub(crate) fn run<F: Future<Output = ()> + 'static>(
        &self,
        job: impl FnOnce(Ext4, Refuse) -> F + 'static,
    ) {
        self.run_with(0, job);
    }

    /// Like [`Jobs::run`], for a job that holds `bytes` more than others do.
    pub(crate) fn run_with<F: Future<Output = ()> + 'static>(
        &self,
        bytes: u64,
        job: impl FnOnce(Ext4, Refuse) -> F + 'static,
    ) {
        let (on_error, held) = (self.on_error, self.hold(bytes));
        let done = job(self.fs.clone(), Refuse { on_error, failed: Rc::default() });
        self.tasks.begin(async move {
            done.await;
            drop(held);
        });
    }

    /// Takes the memory of a job that holds `bytes` more than others do. There is room for it,
    /// because requests are read only when there is.
    fn hold(&self, bytes: u64) -> Permit {
        self.memory.hold(Part::Requests, JOB_COST + bytes)
    }

    /// Like [`Jobs::run`], for a request that the operator's statistics count.
    pub(crate) fn run_counted<F: Future<Output = ()> + 'static>(
        &self,
        asked: Asked,
        job: impl FnOnce(Ext4, Refuse) -> F + 'static,
    ) {
        // A read holds its content twice: in the device's answers, and in one piece for the kernel.
        let copies = if asked.kind == AskedKind::Read { 2 } else { 1 };
        let (on_error, held) = (self.on_error, self.hold(copies * asked.bytes));
        let counted = self.operated.count(asked);
        let failed = Rc::<Cell<bool>>::default();
        let done = job(self.fs.clone(), Refuse { on_error, failed: Rc::clone(&failed) });
        self.tasks.begin(async move {
            done.await;
            counted.end(failed.get());
            drop(held);
        });
    }

    /// Runs `job`, which makes something durable, and answers with its result.
    pub(crate) fn sync<F: Future<Output = Result<(), Error>> + 'static>(
        &self,
        reply: Reply<()>,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        let asked = Asked { kind: AskedKind::Flush, bytes: 0 };
        self.run_counted(asked, async move |fs, refuse| {
            answer_empty(&fs, &refuse, reply, job(fs.clone()).await);
        });
    }

    pub(crate) fn empty<F: Future<Output = Result<(), Error>> + 'static>(
        &self,
        reply: Reply<()>,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        self.run(async move |fs, refuse| {
            answer_empty(&fs, &refuse, reply, job(fs.clone()).await);
        });
    }

    /// Like [`Jobs::empty`], for a change. The job holds `bytes` more than others do.
    pub(crate) fn change<F: Future<Output = Result<(), Error>> + 'static>(
        &self,
        bytes: u64,
        reply: Reply<()>,
        touched: Touched,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        self.run_with(bytes, async move |fs, refuse| {
            let done = job(fs.clone()).await;
            touched.forget(&fs, &done, &reply).await;
            answer_empty(&fs, &refuse, reply, done);
        });
    }

    /// Answers with an inode, which the kernel knows from now on.
    pub(crate) fn entry<F: Future<Output = Result<Attributes, Error>> + 'static>(
        &self,
        reply: Reply<Entry>,
        touched: Touched,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        let caches = self.caches;
        self.run(async move |fs, refuse| {
            let done = job(fs.clone()).await;
            touched.forget(&fs, &done, &reply).await;
            match done {
                Ok(known) => {
                    fs.open(known.ino);
                    reply.send(&caches.entry(&known));
                }
                Err(error) => reply.error(refuse.errno(&fs, &error)),
            }
        });
    }

    /// Answers with a new open file, whose inode the job has already opened for the kernel.
    pub(crate) fn created<F: Future<Output = Result<Attributes, Error>> + 'static>(
        &self,
        reply: Reply<Created>,
        touched: Touched,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        let caches = self.caches;
        self.run(async move |fs, refuse| {
            let done = job(fs.clone()).await;
            touched.forget(&fs, &done, &reply).await;
            match done {
                Ok(known) => {
                    let opened = Opened { handle: FileHandle(fs.new_descriptor().0), ..OPENED };
                    reply.send(&Created { entry: caches.entry(&known), opened });
                }
                Err(error) => reply.error(refuse.errno(&fs, &error)),
            }
        });
    }

    /// Answers with the attributes of an inode, and its time of birth.
    pub(crate) fn known_from_birth<F: Future<Output = Result<Attributes, Error>> + 'static>(
        &self,
        reply: Reply<KnownFromBirth>,
        asked: Question,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        let caches = self.caches;
        self.run(async move |fs, refuse| {
            match job(fs.clone()).await {
                Ok(known) => {
                    let born = (known.born != Timestamp::default()).then(|| to_time(known.born));
                    reply.send(&KnownFromBirth { known: caches.known(&known), born });
                }
                Err(error) => reply.error(refuse.errno(&fs, &error)),
            }
            drop(asked);
        });
    }

    /// Answers with the attributes of an inode.
    pub(crate) fn attributes<F: Future<Output = Result<Attributes, Error>> + 'static>(
        &self,
        reply: Reply<Known>,
        asked: Question,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        let caches = self.caches;
        self.run(async move |fs, refuse| {
            match job(fs.clone()).await {
                Ok(known) => reply.send(&caches.known(&known)),
                Err(error) => reply.error(refuse.errno(&fs, &error)),
            }
            drop(asked);
        });
    }

    /// Answers a change of attributes with the new ones, which the kernel takes as newer than any
    /// other answer.
    pub(crate) fn set_attributes<F: Future<Output = Result<Attributes, Error>> + 'static>(
        &self,
        reply: Reply<Known>,
        touched: Touched,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        let caches = self.caches;
        self.run(async move |fs, refuse| match job(fs.clone()).await {
            Ok(known) => reply.send(&caches.known(&known)),
            failed @ Err(_) => {
                touched.forget(&fs, &failed, &reply).await;
                if let Err(error) = failed {
                    reply.error(refuse.errno(&fs, &error));
                }
            }
        });
    }

    /// Answers with content read from `ino`; `bytes` is the length asked for.
    pub(crate) fn content<F: Future<Output = Result<Bytes, Error>> + 'static>(
        &self,
        reply: Reply<[u8]>,
        ino: Ino,
        times: AccessTimes,
        bytes: u64,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        let asked = Asked { kind: AskedKind::Read, bytes };
        self.run_counted(asked, async move |fs, refuse| match job(fs.clone()).await {
            Ok(bytes) => {
                let noted = note_access(&fs, ino, times).await;
                reply.send(&bytes);
                noted.keep(&fs).await;
            }
            Err(error) => reply.error(refuse.errno(&fs, &error)),
        });
    }

    /// Answers with the bytes if the caller has `room` for them.
    pub(crate) fn xattr<F: Future<Output = Result<Bytes, Error>> + 'static>(
        &self,
        reply: Reply<[u8]>,
        room: Room,
        job: impl FnOnce(Ext4) -> F + 'static,
    ) {
        self.run(async move |fs, refuse| match job(fs.clone()).await {
            Ok(bytes) => room.answer(reply, &bytes),
            Err(error) => reply.error(refuse.errno(&fs, &error)),
        });
    }
}

pub(crate) fn answer_empty(
    fs: &Ext4,
    refuse: &Refuse,
    reply: Reply<()>,
    result: Result<(), Error>,
) {
    match result {
        Ok(()) => reply.send(&()),
        Err(error) => reply.error(refuse.errno(fs, &error)),
    }
}

/// An inode whose time of access has changed in memory and is still to be stored.
#[must_use]
pub(crate) struct Noted(Option<Ino>);

/// Notes that an inode was read. A failure to do so does not fail the reading.
pub(crate) async fn note_access(fs: &Ext4, ino: Ino, times: AccessTimes) -> Noted {
    Noted(fs.note_access(ino, times).await.is_ok_and(|noted| noted).then_some(ino))
}

impl Noted {
    /// Stores the time of access, after the reader was answered.
    pub(crate) async fn keep(self, fs: &Ext4) {
        if let Some(ino) = self.0 {
            let _ = fs.keep_access(ino).await;
        }
    }
}
