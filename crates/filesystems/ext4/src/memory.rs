//! The account of a mount's memory: its uses, its bound, and the tasks that wait for more.
//!
//! All use of memory that grows with programs' work holds a [`Permit`], which gives the memory back
//! when dropped. The bound is split among [`Part`]s, so that none takes memory that another needs
//! to go on: dirty pages cannot keep a transaction from being committed. Six parts have a fixed
//! share; blocks of metadata have the rest.
//!
//! A task that can wait *takes* memory, in the order of requests. A task that cannot wait *holds*
//! the memory that it needs, and then makes room again: such use is bounded by memory that was
//! taken before.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use manylogs_plant::{Bug, is};

const MIB: u64 = 1 << 20;

/// A use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Requests of programs under way: their content, their answers, and the work itself.
    Requests,
    /// Dirty pages of files, and memory for pages of writes under way.
    Pages,
    /// Pages in flight to the device: copies, and old versions of pages.
    Writing,
    /// Blocks of metadata, and of content if the journal holds it.
    Metadata,
    /// Blocks that transactions keep besides that: old versions, and versions that wait to go home.
    Journal,
    /// Inodes that are in use, or known to the kernel.
    Inodes,
    /// The table that finds logged blocks.
    Table,
}

/// The account: see the module. Clones are the same account.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Account>);

#[derive(Debug)]
struct Account {
    bound: u64,
    ledgers: [Ledger; Part::ALL.len()],
}

/// The account of one part.
#[derive(Debug, Default)]
struct Ledger {
    most: u64,
    used: AtomicU64,
    peak: AtomicU64,
    /// How often a task had to wait.
    waits: AtomicU64,
    /// Length of the queue.
    waiting: AtomicU64,
    queue: Mutex<VecDeque<Arc<Turn>>>,
}

/// A task that waits.
#[derive(Debug)]
struct Turn {
    bytes: u64,
    state: Mutex<TurnState>,
}

#[derive(Debug, Default)]
struct TurnState {
    granted: bool,
    waker: Option<Waker>,
}

/// Memory that is in use until this is dropped.
#[derive(Debug)]
pub struct Permit {
    account: Arc<Account>,
    part: Part,
    bytes: u64,
}

/// See [`Memory::take`]. Dropping it ends the wait.
#[derive(Debug)]
#[must_use = "nothing is taken until it is awaited"]
pub struct Take {
    memory: Memory,
    part: Part,
    bytes: u64,
    turn: Option<Arc<Turn>>,
}

/// A part of the account as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartUse {
    /// The part.
    pub part: Part,
    /// Its share, in bytes.
    pub most: u64,
    /// Bytes in use now.
    pub used: u64,
    /// The most bytes that were in use at a time.
    pub peak: u64,
    /// How often a task had to wait for room.
    pub waits: u64,
}

impl Part {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Requests,
        Self::Pages,
        Self::Writing,
        Self::Metadata,
        Self::Journal,
        Self::Inodes,
        Self::Table,
    ];

    /// Its name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Pages => "pages",
            Self::Writing => "writing",
            Self::Metadata => "metadata",
            Self::Journal => "journal",
            Self::Inodes => "inodes",
            Self::Table => "table",
        }
    }

    /// Its share of `bound` bytes. 64 MiB each for pages and writing keep any device busy, and the
    /// journal gains nothing from more than 128 MiB.
    fn share(self, bound: u64) -> u64 {
        match self {
            Self::Requests => 3 * bound / 16,
            Self::Pages => (3 * bound / 16).min(64 * MIB),
            Self::Writing => (bound / 8).min(64 * MIB),
            Self::Journal => (3 * bound / 16).min(128 * MIB),
            Self::Inodes => bound / 8,
            Self::Table => bound / 16,
            Self::Metadata => {
                let others = Self::ALL.into_iter().filter(|part| *part != Self::Metadata);
                bound - others.map(|part| part.share(bound)).sum::<u64>()
            }
        }
    }
}

impl Memory {
    /// The least bound: with less the largest requests and transactions do not fit their shares.
    pub const LEAST: u64 = 64 * MIB;
    /// The default bound.
    pub const USUAL: u64 = 512 * MIB;

    /// An account of `bound` bytes, but at least [`Memory::LEAST`].
    #[must_use]
    pub fn new(bound: u64) -> Self {
        let bound = bound.max(Self::LEAST);
        let ledger = |part: Part| Ledger { most: part.share(bound), ..Ledger::default() };
        Self(Arc::new(Account { bound, ledgers: Part::ALL.map(ledger) }))
    }

    /// The most bytes that may be in use.
    #[must_use]
    pub fn bound(&self) -> u64 {
        self.0.bound
    }

    /// The share of a part.
    #[must_use]
    pub fn most(&self, part: Part) -> u64 {
        self.0.ledger(part).most
    }

    /// The bytes that a part uses now.
    #[must_use]
    pub fn used(&self, part: Part) -> u64 {
        self.0.ledger(part).used.load(SeqCst)
    }

    /// Whether a task waits for memory of this part.
    #[must_use]
    pub fn is_wanted(&self, part: Part) -> bool {
        self.0.ledger(part).waiting.load(SeqCst) > 0
    }

    /// The parts as they are now.
    #[must_use]
    pub fn parts(&self) -> [PartUse; Part::ALL.len()] {
        Part::ALL.map(|part| {
            let ledger = self.0.ledger(part);
            let load = |of: &AtomicU64| of.load(SeqCst);
            let (used, peak) = (load(&ledger.used), load(&ledger.peak));
            PartUse { part, most: ledger.most, used, peak, waits: load(&ledger.waits) }
        })
    }

    /// Holds memory for a task that cannot wait, whether or not there is room.
    #[must_use]
    pub fn hold(&self, part: Part, bytes: u64) -> Permit {
        self.0.ledger(part).add(bytes);
        Permit { account: Arc::clone(&self.0), part, bytes }
    }

    /// Takes memory if there is room now and nobody waits; else `None`.
    #[must_use]
    pub fn try_take(&self, part: Part, bytes: u64) -> Option<Permit> {
        let ledger = self.0.ledger(part);
        (!self.is_wanted(part) && ledger.fits(bytes)).then(|| self.hold(part, bytes))
    }

    /// Takes memory as soon as there is room for it, after all earlier requests. A request that is
    /// larger than the part's share is granted when nothing else of the part is in use.
    pub fn take(&self, part: Part, bytes: u64) -> Take {
        Take { memory: self.clone(), part, bytes, turn: None }
    }

    /// Resolves when there is room for `bytes`. The caller takes them before other tasks run.
    pub async fn room(&self, part: Part, bytes: u64) {
        let ledger = self.0.ledger(part);
        if self.is_wanted(part) || !ledger.fits(bytes) {
            drop(self.take(part, bytes).await);
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Self::USUAL)
    }
}

impl Account {
    fn ledger(&self, part: Part) -> &Ledger {
        &self.ledgers[part as usize]
    }
}

impl Ledger {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<Turn>>> {
        // No code that may panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fits(&self, bytes: u64) -> bool {
        let used = self.used.load(SeqCst);
        used == 0 || used.saturating_add(bytes) <= self.most || is(Bug::MemoryUnbounded)
    }

    fn add(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, SeqCst) + bytes;
        self.peak.fetch_max(used, SeqCst);
    }

    fn subtract(&self, bytes: u64) {
        self.used.fetch_sub(bytes, SeqCst);
        // A waiting task is counted in `waiting` before it looks at `used`.
        if self.waiting.load(SeqCst) > 0 {
            self.let_in(&mut self.queue());
        }
    }

    /// Grants waiting requests in their order, as long as there is room.
    fn let_in(&self, queue: &mut VecDeque<Arc<Turn>>) {
        while let Some(first) = queue.front().filter(|first| self.fits(first.bytes)) {
            self.add(first.bytes);
            let waker = {
                let mut state = first.state();
                state.granted = true;
                state.waker.take()
            };
            queue.pop_front();
            self.waiting.store(queue.len() as u64, SeqCst);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Turn {
    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Splits a part off: `bytes`, or all if there are fewer.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { account: Arc::clone(&self.account), part: self.part, bytes }
    }

    /// Changes its size, without waiting.
    pub fn set(&mut self, bytes: u64) {
        let ledger = self.account.ledger(self.part);
        if bytes > self.bytes {
            ledger.add(bytes - self.bytes);
        } else if bytes < self.bytes {
            ledger.subtract(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 && !(self.part == Part::Requests && is(Bug::MemoryPermitLeaks)) {
            self.account.ledger(self.part).subtract(self.bytes);
        }
    }
}

impl Future for Take {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let (part, bytes) = (self.part, self.bytes);
        if self.turn.is_none() {
            if let Some(permit) = self.memory.try_take(part, bytes) {
                return Poll::Ready(permit);
            }
            let state = TurnState { granted: false, waker: Some(cx.waker().clone()) };
            let turn = Arc::new(Turn { bytes, state: Mutex::new(state) });
            self.turn = Some(Arc::clone(&turn));
            let ledger = self.memory.0.ledger(part);
            ledger.waits.fetch_add(1, SeqCst);
            let mut queue = ledger.queue();
            queue.push_back(turn);
            ledger.waiting.store(queue.len() as u64, SeqCst);
            ledger.let_in(&mut queue);
        }
        let granted = self.turn.as_ref().is_none_or(|turn| {
            let mut state = turn.state();
            if !state.granted {
                state.waker = Some(cx.waker().clone());
            }
            state.granted
        });
        if !granted {
            return Poll::Pending;
        }
        self.turn = None;
        let account = Arc::clone(&self.memory.0);
        Poll::Ready(Permit { account, part, bytes })
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let ledger = self.memory.0.ledger(self.part);
        let mut queue = ledger.queue();
        if turn.state().granted {
            drop(queue);
            return ledger.subtract(self.bytes);
        }
        queue.retain(|waiting| !Arc::ptr_eq(waiting, &turn));
        ledger.waiting.store(queue.len() as u64, SeqCst);
        // The requests behind may fit now.
        ledger.let_in(&mut queue);
    }
}

#[cfg(test)]
mod tests;
