//! The part of the tail cache on an SSD: what leaves memory goes there, in stripes that are written
//! as a whole. The stripe that was used least recently is overwritten first.
//!
//! Nothing on the SSD is believed. A version is looked for under the data sequence that the map has
//! now, and what the SSD returns is held against the checksums that the log has of that place. So
//! an SSD that is lost, old, swapped, torn or failing costs hits alone.

use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, Extent, Nanos, Payload, Request, Sectors, narrow};
use manylogs_logstore::DataSequence;
use manylogs_plant::{self as plant, Bug};

use super::Version;
use super::ondisk::{HEADER, Header, Label, VERSIONS_MOST};

/// Requests of the SSD that fail, or answer something else, before it is used no more.
const FAULTS_MOST: u64 = 32;

/// Time in which the SSD answers a request. If it does not, it is used no more, and reads that wait
/// for it go to the drives.
pub(crate) const ANSWERS_WITHIN: Nanos = Nanos::from_secs(1);

/// What the SSD of a tail cache did and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashFigures {
    /// Its size, as far as stripes use it.
    pub size: Sectors,
    /// Content that it holds and that reads may still ask for.
    pub held: Sectors,
    /// What was written to it since the chain was opened.
    pub written: Sectors,
    /// What was ever written to it as a cache of this chain.
    pub written_ever: Sectors,
    /// Reads that it answered.
    pub hits: u64,
    /// Requests that failed, and reads that answered something else than was written.
    pub faults: u64,
    /// Whether it is used no more, because of its faults, or because it did not answer.
    pub is_given_up: bool,
    /// Whether it did not answer a request in time.
    pub is_silent: bool,
}

#[derive(Clone, Debug, Default)]
struct Stripe {
    /// The versions that it was written with.
    versions: Vec<DataSequence>,
    /// When it was written or read, in a count of such events. Zero if it is empty.
    used: u64,
    /// Reads under way, which keep it from being written.
    reads: u32,
}

/// A version on the SSD.
#[derive(Clone, Copy, Debug)]
struct Placed {
    extent: Extent,
    stripe: u32,
    /// Where its content begins, in sectors of the stripe.
    at: u32,
    /// Sectors that no newer version has displaced.
    live: u64,
}

/// A stripe that is about to be written.
#[derive(Debug)]
pub(crate) struct Filling {
    stripe: u32,
    /// Its versions, and where the content of each begins.
    versions: Vec<(DataSequence, u32)>,
}

/// A read of the SSD that is under way.
#[derive(Debug)]
pub(crate) struct Hit {
    stripe: u32,
}

/// See the module.
pub(crate) struct Flash {
    device: Rc<dyn BlockDevice>,
    label: Label,
    stripes: Vec<Stripe>,
    placed: BTreeMap<DataSequence, Placed>,
    /// Sectors of `placed` that are live.
    held: u64,
    /// Versions that have left memory and wait for a stripe, and those that are being written.
    leaving: BTreeMap<DataSequence, Version>,
    writing: BTreeMap<DataSequence, Version>,
    is_writing: bool,
    /// Whether all stripes were looked at. Until then none is written.
    is_ready: bool,
    /// Length of what waits.
    waiting: u64,
    uses: u64,
    /// Stripes that were ever written, and those of this opening.
    written_ever: u64,
    written: u64,
    hits: u64,
    faults: u64,
    is_silent: bool,
}

impl Flash {
    pub(super) fn new(device: Rc<dyn BlockDevice>, label: Label) -> Self {
        Self {
            device,
            label,
            stripes: vec![Stripe::default(); manylogs_block::to_usize(label.stripes())],
            placed: BTreeMap::new(),
            held: 0,
            leaving: BTreeMap::new(),
            writing: BTreeMap::new(),
            is_writing: false,
            is_ready: false,
            waiting: 0,
            uses: 0,
            written_ever: 0,
            written: 0,
            hits: 0,
            faults: 0,
            is_silent: false,
        }
    }

    /// Whether it is used no more.
    pub(super) const fn is_given_up(&self) -> bool {
        self.faults >= FAULTS_MOST || self.is_silent
    }

    pub(crate) fn figures(&self) -> FlashFigures {
        let stripes = |count: u64| Sectors(count * self.label.stripe.0);
        FlashFigures {
            size: stripes(self.stripes.len() as u64),
            held: Sectors(self.held),
            written: stripes(self.written),
            written_ever: stripes(self.written_ever),
            hits: self.hits,
            faults: self.faults,
            is_given_up: self.is_given_up(),
            is_silent: self.is_silent,
        }
    }

    /// Takes a version that leaves memory. It is lost if too much waits for the SSD already: the
    /// tail never waits for it.
    pub(super) fn take(&mut self, sequence: DataSequence, version: Version) {
        let len = version.extent.len.0;
        let most = self.label.content().0;
        if self.is_given_up() || len > most || self.waiting + len > 2 * most {
            return;
        }
        self.waiting += len;
        // An entry that was appended again, because its record failed, may wait already.
        if let Some(older) = self.leaving.insert(sequence, version) {
            self.waiting -= older.extent.len.0;
        }
    }

    fn place(&mut self, sequence: DataSequence, placed: Placed) {
        self.forget(sequence);
        self.held += placed.live;
        self.placed.insert(sequence, placed);
        self.stripes[placed.stripe as usize].versions.push(sequence);
    }

    fn forget(&mut self, sequence: DataSequence) {
        if let Some(placed) = self.placed.remove(&sequence) {
            self.held -= placed.live;
        }
    }

    /// Forgets what a stripe holds. It is the next one to be written.
    fn empty(&mut self, stripe: u32) {
        self.stripes[stripe as usize].used = 0;
        for sequence in std::mem::take(&mut self.stripes[stripe as usize].versions) {
            // A version that was written once more is in another stripe now.
            if self.placed.get(&sequence).is_some_and(|placed| placed.stripe == stripe) {
                self.forget(sequence);
            }
        }
    }

    /// Whether a stripe can be filled now.
    pub(super) fn is_due(&self) -> bool {
        let is_full = self.waiting >= self.label.content().0 || self.leaving.len() >= VERSIONS_MOST;
        is_full && self.is_ready && !self.is_writing && !self.is_given_up()
    }

    /// The next stripe to write, with the write. What it held is forgotten.
    pub(crate) fn fill(&mut self) -> Option<(Filling, Completion)> {
        if !self.is_due() {
            return None;
        }
        let idle = self.stripes.iter().enumerate().filter(|(_, stripe)| stripe.reads == 0);
        let (number, _) = idle.min_by_key(|(_, stripe)| stripe.used)?;
        let stripe: u32 = narrow(number as u64);
        self.empty(stripe);
        let (mut versions, mut filled) = (Vec::new(), Vec::new());
        let mut content = Payload::default();
        while let Some((sequence, version)) = self.leaving.pop_first() {
            let len = version.extent.len.0;
            if content.len().0 + len > self.label.content().0 || versions.len() >= VERSIONS_MOST {
                self.leaving.insert(sequence, version);
                break;
            }
            self.waiting -= len;
            filled.push((sequence, narrow(HEADER.0 + content.len().0)));
            versions.push((sequence, version.extent));
            content.append(version.content.clone());
            self.writing.insert(sequence, version);
        }
        (self.written_ever, self.written) = (self.written_ever + 1, self.written + 1);
        let header = Header { stripe, written: self.written_ever, versions };
        let mut payload = header.encode(self.label.chain);
        payload.append(content);
        let place = self.label.place(stripe);
        let extent = Extent { len: payload.len(), ..place };
        self.is_writing = true;
        let hint = manylogs_block::Hint::None;
        let write = self.device.submit(Request::Write { extent, payload, fua: false, hint });
        Some((Filling { stripe, versions: filled }, write))
    }

    /// The stripe was written, or not.
    pub(crate) fn filled(&mut self, filling: Filling, is_written: bool) {
        self.is_writing = false;
        let mut writing = std::mem::take(&mut self.writing);
        if !is_written {
            self.failed();
            return;
        }
        self.uses += 1;
        for (sequence, at) in filling.versions {
            let Some(Version { extent, live, .. }) = writing.remove(&sequence) else { continue };
            self.place(sequence, Placed { extent, stripe: filling.stripe, at, live });
        }
        self.stripes[filling.stripe as usize].used = self.uses;
    }

    /// Notes what a stripe holds that an earlier opening has written. `live` tells how much of a
    /// version the map still has.
    pub(super) fn found(&mut self, header: &Header, live: impl Fn(DataSequence, Extent) -> u64) {
        self.written_ever = self.written_ever.max(header.written);
        self.uses = self.uses.max(header.written);
        self.stripes[header.stripe as usize].used = header.written;
        let mut at = HEADER.0;
        for &(sequence, extent) in &header.versions {
            let begin = at;
            at += extent.len.0;
            let live = live(sequence, extent);
            if live == 0 || at > self.label.stripe.0 {
                continue;
            }
            let at = narrow(begin);
            self.place(sequence, Placed { extent, stripe: header.stripe, at, live });
        }
    }

    /// All stripes were looked at.
    pub(super) const fn begin(&mut self) {
        self.is_ready = true;
    }

    /// A request was not answered in time: the SSD is used no more.
    pub(crate) fn fell_silent(&mut self) {
        self.is_silent = true;
        self.drop_what_waits();
    }

    /// What waits for an SSD that is used no more makes room.
    fn drop_what_waits(&mut self) {
        if self.is_given_up() {
            self.leaving.clear();
            self.waiting = 0;
        }
    }

    /// Whether a request was not answered in time.
    pub(crate) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// A request of the SSD failed.
    pub(super) fn failed(&mut self) {
        self.faults += 1;
        self.drop_what_waits();
    }

    /// The content of `part` of the version `sequence`, if it waits for its stripe.
    pub(super) fn in_memory(&self, part: Extent, sequence: DataSequence) -> Option<Payload> {
        let version = self.leaving.get(&sequence).or_else(|| self.writing.get(&sequence))?;
        version.of(part)
    }

    /// Whether the SSD has `part` of the version `sequence`.
    pub(super) fn has(&self, part: Extent, sequence: DataSequence) -> bool {
        let placed = self.placed.get(&sequence);
        placed.is_some_and(|placed| placed.extent.contains(part)) && !self.is_given_up()
    }

    /// Begins to read `part` of the version `sequence`.
    pub(crate) fn read(
        &mut self,
        part: Extent,
        sequence: DataSequence,
    ) -> Option<(Hit, Completion)> {
        if !self.has(part, sequence) {
            return None;
        }
        let placed = self.placed.get(&sequence)?;
        let skip = part.start.0 - placed.extent.start.0;
        let start = self.label.place(placed.stripe).start.0 + u64::from(placed.at) + skip;
        let stripe = &mut self.stripes[placed.stripe as usize];
        self.uses += 1;
        stripe.used = self.uses;
        stripe.reads += 1;
        let extent = Extent::new(start, part.len.0);
        let hit = Hit { stripe: placed.stripe };
        Some((hit, self.device.submit(Request::Read { extent })))
    }

    /// A read has ended, with the content that was written or not. If not, the stripe may have been
    /// torn by a power cut: nothing of it is believed, and it is written anew.
    pub(crate) fn has_read(&mut self, hit: &Hit, is_whole: bool) {
        self.stripes[hit.stripe as usize].reads -= 1;
        if is_whole {
            self.hits += 1;
            return;
        }
        self.failed();
        if !plant::is(Bug::FlashNotVerified) {
            self.empty(hit.stripe);
        }
    }

    /// Newer versions displace `sectors` of the version `sequence`.
    pub(super) fn displace(&mut self, sequence: DataSequence, sectors: u64) {
        for versions in [&mut self.leaving, &mut self.writing] {
            let Some(version) = versions.get_mut(&sequence) else { continue };
            version.live = version.live.saturating_sub(sectors);
        }
        if self.leaving.get(&sequence).is_some_and(|version| version.live == 0)
            && let Some(version) = self.leaving.remove(&sequence)
        {
            self.waiting -= version.extent.len.0;
        }
        if self.writing.get(&sequence).is_some_and(|version| version.live == 0) {
            self.writing.remove(&sequence);
        }
        let Some(placed) = self.placed.get_mut(&sequence) else { return };
        let gone = sectors.min(placed.live);
        placed.live -= gone;
        self.held -= gone;
        if placed.live == 0 {
            self.placed.remove(&sequence);
        }
    }
}
