//! The state of a server's thread: the file system, and the operator's view of it.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use manylogs::PhaseProbe;
use manylogs_block::{Handle, LocalTask, Nanos, Sectors};
use manylogs_ext4::{Ext4, Memory, PartUse, Usage};
use manylogs_fuse::{PolledSession, Tally};
use manylogs_mlfs::{JournalMode, MountError, Mounted};
use manylogs_operate::control::{Answer, Order, OrderError};
use manylogs_operate::log::{Level, line};
use manylogs_operate::status::{
    FileSystemStatus, KernelRequests, MemoryPart, MemoryStatus, Status,
};
use manylogs_operate::{Emulated, Operated, Subject};
use manylogs_storage::Watcher;

use crate::kept::{arrange, bring_home, journal_status, scrub};
use crate::tasks::TaskGroup;

/// How requests come, as the status calls it.
const IO_URING: &str = "io_uring";
/// See [`IO_URING`].
const DEVICE: &str = "/dev/fuse";
/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

/// A mounted file system in its thread, with the operator's view of it.
pub(crate) struct Served {
    mounted: Mounted,
    mounted_on: String,
    pub(crate) operated: Rc<Operated>,
    pub(crate) runtime: Handle,
    /// The jobs under way.
    pub(crate) tasks: TaskGroup,
    /// Waits for the kernel's requests.
    pub(crate) watcher: Watcher,
    /// Counts of the kernel's requests, once a session serves them.
    tally: RefCell<Option<Tally>>,
    /// Bytes of address space of the ring through which they come.
    ring_bytes: Cell<Option<u64>>,
    /// What the mount took.
    mounting: Nanos,
}

impl Served {
    /// The file system on the device called `source`, with the time that its mount took. The
    /// volume of its logs, if it has one, was opened with `probe`.
    pub(crate) fn new(
        (mounted, mounting): (Mounted, Nanos),
        (source, target): (&Path, &Path),
        drive: Option<Emulated>,
        probe: PhaseProbe,
        (runtime, watcher): (Handle, Watcher),
    ) -> Self {
        let subject = Subject {
            name: source.display().to_string(),
            capacity: capacity_of(&mounted.fs().usage()),
            volume: mounted.volume().cloned(),
            system: None,
            drive,
            recognised: None,
            probe,
        };
        let operated = Operated::start(runtime.clone(), subject);
        Self {
            mounted,
            mounted_on: target.display().to_string(),
            operated,
            tasks: TaskGroup::new(runtime.clone()),
            runtime,
            watcher,
            tally: RefCell::default(),
            ring_bytes: Cell::default(),
            mounting,
        }
    }

    pub(crate) const fn fs(&self) -> &Ext4 {
        self.mounted.fs()
    }

    /// Notes that `session` serves the kernel from now on.
    pub(crate) fn begins(&self, session: &PolledSession) {
        self.tally.replace(Some(session.tally()));
        self.ring_bytes.set(session.ring().map(|ring| ring.reserved_bytes() as u64));
        if let Some(error) = session.ring_refused() {
            let message = format!("requests come through /dev/fuse, not io_uring: {error}");
            let source = Path::new(&self.operated.subject().name);
            line(Level::Warning, Some(source), &message, &[]);
        }
    }

    /// Waits for the jobs under way, and makes everything durable. Logged versions stay in the
    /// logs. A scrub of the journal may take hours, and ends early.
    pub(crate) async fn unmount(self) -> Result<(), MountError> {
        self.fs().end_scrubs();
        self.tasks.none().await;
        self.operated.stop();
        self.mounted.unmount().await
    }

    fn status(&self) -> Status {
        let (fs, journal) = (self.fs(), self.fs().journal_stats());
        let file_system = FileSystemStatus {
            mounted_on: self.mounted_on.clone(),
            mode: self.mounted.mode().name().to_owned(),
            fsyncs: fs.syncs(),
            transactions: journal.transactions,
            records: journal.records,
            flushes: journal.flushes,
            log_bytes: journal.log_bytes,
            bytes_at_risk: journal.at_risk_bytes,
            checkpoint_bytes: journal.home_bytes,
            memory: memory_status(fs.memory()),
            kernel_requests: self.kernel_requests(),
            requests_through: if self.ring_bytes.get().is_some() { IO_URING } else { DEVICE }
                .to_owned(),
            ring_bytes: self.ring_bytes.get().unwrap_or_default(),
            mount_ms: self.mounting.0 / 1_000_000,
            journal: journal_status(fs),
            too_old_stays: fs.too_old_stays().map(|error| error.to_string()),
        };
        Status { file_system: Some(file_system), ..self.operated.status() }
    }

    fn kernel_requests(&self) -> Vec<KernelRequests> {
        let tally = self.tally.borrow();
        let counts = tally.as_ref().map(Tally::counts).unwrap_or_default().into_iter();
        let status =
            |(kind, requests): (&str, u64)| KernelRequests { kind: kind.to_owned(), requests };
        counts.map(status).collect()
    }

    /// Begins to carry out an order; `reply` gets the answer.
    pub(crate) fn obey(&self, order: Order, reply: impl FnOnce(Answer) + 'static) -> LocalTask {
        let answer = match order {
            Order::Status => serde_json::to_value(self.status()).map_err(OrderError::new),
            Order::Stop { .. } => {
                let message = format!("unmount it: manylogs fs unmount {}", self.mounted_on);
                Err(OrderError::in_use(message))
            }
            Order::Checkpoint if self.mounted.mode() == JournalMode::Lazy => {
                let (fs, runtime) = (self.fs().clone(), self.runtime.clone());
                return Box::pin(async move { reply(bring_home(&fs, &runtime).await) });
            }
            Order::Arrange if self.mounted.mode() == JournalMode::Lazy => {
                let (fs, runtime) = (self.fs().clone(), self.runtime.clone());
                return Box::pin(async move { reply(arrange(&fs, &runtime).await) });
            }
            Order::Scrub if self.mounted.mode() == JournalMode::Lazy => {
                let fs = self.fs().clone();
                return Box::pin(async move { reply(scrub(&fs).await) });
            }
            Order::Set { .. }
            | Order::Checkpoint
            | Order::Arrange
            | Order::Scrub
            | Order::Snapshot
                if self.mounted.volume().is_none() =>
            {
                let mode = self.mounted.mode();
                Err(OrderError::bad_input(format!(
                    "it is mounted in the mode {mode}, in which its journal is ext4's own: \
                     settings are those of the modes manylogs and adaptive, and checkpoints also \
                     of the mode lazy, in which alone metadata is arranged and the journal \
                     scrubbed"
                )))
            }
            other => {
                let operated = Rc::clone(&self.operated);
                return Box::pin(async move { reply(operated.obey(other).await) });
            }
        };
        Box::pin(async move { reply(answer) })
    }
}

/// Size of the whole file system, including blocks of overhead.
const fn capacity_of(usage: &Usage) -> Sectors {
    Sectors((usage.blocks + usage.overhead_blocks) * BLOCK_SECTORS)
}

fn memory_status(memory: &Memory) -> MemoryStatus {
    let parts = memory.parts();
    let status = |part: &PartUse| MemoryPart {
        part: part.part.name().to_owned(),
        share_bytes: part.most,
        used_bytes: part.used,
        peak_bytes: part.peak,
        waits: part.waits,
    };
    MemoryStatus {
        bound_bytes: memory.bound(),
        used_bytes: parts.iter().map(|part| part.used).sum(),
        parts: parts.iter().map(status).collect(),
    }
}
