//! A controller between the host and a drive, with memory that survives power cuts (NVRAM): writes
//! are durable when they are in it, and go to the drive in the order of the addresses.
//!
//! The model has what decides how long requests wait: how much memory there is, and that writes
//! wait for the drive when it is full. The controller itself takes no time.

mod lines;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Extent, Handle, Hint, IoError, Media,
    Payload, Request, Sectors, completion,
};

use lines::Lines;

/// Runs of sectors that are on their way to the drive at a time.
const FLYING_MAX: usize = 8;
/// Longest run.
const RUN: Sectors = Sectors(512);

/// Memory of a [`Controller`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerMemory {
    /// For writes that are not on the drive yet. A longer write waits until all others are there.
    pub writes: Sectors,
    /// For what was read.
    pub reads: Sectors,
}

/// A drive behind a controller with memory that survives power cuts. Reads are answered from that
/// memory if all of their sectors are there. Discards are not supported. When the drive fails to
/// take a write, all later writes fail with its error. Clones are the same device.
#[derive(Clone)]
pub struct Controller(Rc<State>);

struct State {
    below: Rc<dyn BlockDevice>,
    runtime: Handle,
    memory: ControllerMemory,
    held: RefCell<Held>,
}

#[derive(Default)]
struct Held {
    /// Content that is not on the drive yet.
    content: Media,
    /// The sectors of that, each with the number of the last write to it.
    dirty: BTreeMap<u64, u64>,
    writes: u64,
    /// Sectors on their way to the drive.
    flying: BTreeSet<u64>,
    runs: usize,
    /// Where the next run is looked for.
    head: u64,
    /// Writes that wait for room, in order.
    waiting: VecDeque<(Extent, Payload, Completer)>,
    lines: Lines,
    failed: Option<IoError>,
}

/// Sectors on their way to the drive, each with the number of its write.
struct Run {
    extent: Extent,
    numbers: Vec<u64>,
    content: Payload,
}

impl Controller {
    /// A controller with so much memory before the device.
    #[must_use]
    pub fn new(runtime: Handle, below: Rc<dyn BlockDevice>, memory: ControllerMemory) -> Self {
        Self(Rc::new(State { below, runtime, memory, held: RefCell::default() }))
    }

    /// How much is in the memory that is not on the drive yet.
    #[must_use]
    pub fn unwritten(&self) -> Sectors {
        Sectors(self.0.held.borrow().dirty.len() as u64)
    }
}

impl Held {
    fn has_room(&self, extent: Extent, most: Sectors) -> bool {
        let known = self.dirty.range(extent.range()).count() as u64;
        let all = self.dirty.len() as u64 + extent.len.0 - known;
        self.dirty.is_empty() || all <= most.0
    }

    /// Takes a write into memory.
    fn take(&mut self, extent: Extent, payload: &Payload) {
        self.writes += 1;
        self.content.write(extent, payload);
        self.dirty.extend(extent.range().map(|lba| (lba, self.writes)));
        self.lines.spoil(extent);
    }

    /// The next sectors to write, in order of address and from the beginning again: none that are
    /// on their way already.
    fn next_run(&mut self) -> Option<Run> {
        let free = |(lba, _): &(&u64, &u64)| !self.flying.contains(lba);
        let from = |start| self.dirty.range(start..).find(free).map(|(lba, _)| *lba);
        let start = from(self.head).or_else(|| from(0))?;
        let mut numbers = Vec::new();
        for (at, (lba, number)) in (start..start + RUN.0).zip(self.dirty.range(start..)) {
            if at != *lba || self.flying.contains(lba) {
                break;
            }
            numbers.push(*number);
        }
        let extent = Extent::new(start, numbers.len() as u64);
        self.head = extent.end().0;
        self.flying.extend(extent.range());
        Some(Run { extent, numbers, content: self.content.read(extent) })
    }

    /// A run is on the drive. What was written again since stays in memory.
    fn landed(&mut self, run: &Run) {
        for (lba, number) in run.extent.range().zip(&run.numbers) {
            self.flying.remove(&lba);
            if self.dirty.get(&lba) == Some(number) {
                self.dirty.remove(&lba);
                self.content.zero(Extent::new(lba, 1));
            }
        }
    }

    /// Takes the writes that have room now, in order.
    fn admit(&mut self, most: Sectors) -> Vec<Completer> {
        let mut taken = Vec::new();
        while self.waiting.front().is_some_and(|(extent, ..)| self.has_room(*extent, most)) {
            if let Some((extent, payload, completer)) = self.waiting.pop_front() {
                self.take(extent, &payload);
                taken.push(completer);
            }
        }
        taken
    }

    /// What is in memory of `extent` that is not on the drive yet.
    fn unwritten(&self, extent: Extent) -> Vec<(Extent, Payload)> {
        let mut parts: Vec<Extent> = Vec::new();
        for (lba, _) in self.dirty.range(extent.range()) {
            match parts.last_mut().filter(|last| last.end().0 == *lba) {
                Some(last) => last.len += Sectors(1),
                None => parts.push(Extent::new(*lba, 1)),
            }
        }
        parts.into_iter().map(|part| (part, self.content.read(part))).collect()
    }
}

impl State {
    fn write(self: &Rc<Self>, extent: Extent, payload: Payload) -> Completion {
        let mut held = self.held.borrow_mut();
        if let Some(error) = &held.failed {
            return Completion::ready(Err(error.clone()));
        }
        if !held.waiting.is_empty() || !held.has_room(extent, self.memory.writes) {
            let (completer, later) = completion();
            held.waiting.push_back((extent, payload, completer));
            return later;
        }
        held.take(extent, &payload);
        drop(held);
        self.fly();
        Completion::ready(Ok(Payload::default()))
    }

    /// Sends sectors to the drive, as many runs at a time as may be.
    fn fly(self: &Rc<Self>) {
        while self.held.borrow().runs < FLYING_MAX {
            let Some(run) = self.held.borrow_mut().next_run() else { return };
            self.held.borrow_mut().runs += 1;
            let (extent, payload) = (run.extent, run.content.clone());
            let write = Request::Write { extent, payload, fua: true, hint: Hint::None };
            let (state, written) = (Rc::clone(self), self.below.submit(write));
            self.runtime.spawn(async move {
                let result = written.await;
                state.landed(&run, result.err());
            });
        }
    }

    fn landed(self: &Rc<Self>, run: &Run, failed: Option<IoError>) {
        let mut held = self.held.borrow_mut();
        held.runs -= 1;
        if let Some(error) = failed {
            // The sectors stay in memory, and are not tried again.
            held.failed = Some(error.clone());
            let waiting = std::mem::take(&mut held.waiting);
            drop(held);
            waiting.into_iter().for_each(|(.., waiter)| waiter.complete(Err(error.clone())));
            return;
        }
        held.landed(run);
        let taken = held.admit(self.memory.writes);
        drop(held);
        taken.into_iter().for_each(|writer| writer.complete(Ok(Payload::default())));
        self.fly();
    }

    fn read(self: &Rc<Self>, extent: Extent) -> Completion {
        let mut held = self.held.borrow_mut();
        let unwritten = held.unwritten(extent);
        if let [(part, content)] = &unwritten[..]
            && *part == extent
        {
            return Completion::ready(Ok(content.clone()));
        }
        if unwritten.is_empty()
            && let Some(content) = held.lines.lookup(extent)
        {
            return Completion::ready(Ok(content));
        }
        let reading = held.lines.begin(extent);
        drop(held);
        let (state, read) = (Rc::clone(self), self.below.submit(Request::Read { extent }));
        Completion::of_others(async move {
            let result = read.await;
            let mut held = state.held.borrow_mut();
            let content = with_newer(extent, result, &unwritten);
            held.lines.end(reading, content.as_ref().ok(), state.memory.reads);
            content
        })
    }
}

/// What the drive returned, with what was not there yet.
fn with_newer(
    extent: Extent,
    read: Result<Payload, IoError>,
    newer: &[(Extent, Payload)],
) -> Result<Payload, IoError> {
    let below = read?;
    let (mut content, mut next) = (Payload::default(), extent.start);
    for (part, payload) in newer {
        let skip = Sectors(next.0 - extent.start.0);
        content.append(below.slice(skip, Sectors(part.start.0 - next.0)));
        content.append(payload.clone());
        next = part.end();
    }
    let skip = Sectors(next.0 - extent.start.0);
    content.append(below.slice(skip, Sectors(extent.len.0 - skip.0)));
    Ok(content)
}

impl BlockDevice for Controller {
    fn capabilities(&self) -> Capabilities {
        let below = self.0.below.capabilities();
        let (volatile_cache, native_fua) = (false, true);
        Capabilities { volatile_cache, native_fua, discard: false, fast_zero: false, ..below }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Read { extent } => self.0.read(extent),
            Request::Write { extent, payload, .. } => self.0.write(extent, payload),
            Request::WriteZeroes { extent, if_fast: false, .. } => {
                self.0.write(extent, Payload::zeroes(extent.len))
            }
            Request::Flush => Completion::ready(Ok(Payload::default())),
            _ => Completion::ready(Err(IoError::Unsupported)),
        }
    }
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memory = &self.0.memory;
        f.debug_struct("Controller").field("memory", memory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
