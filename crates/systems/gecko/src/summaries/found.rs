//! Reading the tables at an opening, and then the summaries of all links at the same time.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Completion, Extent, IoError, Payload, Request, Sectors, narrow, to_usize,
};
use manylogs_engine::read_copy;
use manylogs_logstore::{LogId, Record, RecordShape, Summary, SummaryOf, VolumeId};
use manylogs_plant::{self as plant, Bug};

use super::area::Mark;
use super::{Area, Floor, Tables};

/// Length that is read at a time, unless a summary is longer.
const AT_ONCE: Sectors = Sectors(4096);
/// Reads under way on each link.
const AHEAD: usize = 2;
const UNKNOWN: Floor = Floor::Unknown;

/// Some summaries that lie together.
struct Run {
    /// The number, within its link, of the first segment, and how many there are.
    first: u64,
    count: u64,
}

/// The summaries of one link's segments, on another link.
struct OfLink {
    place: usize,
    device: Rc<dyn BlockDevice>,
    runs: VecDeque<Run>,
    asked: VecDeque<(Run, Completion)>,
}

/// Reads the summaries that the tables name.
pub(crate) struct SummaryReader<'a> {
    tables: &'a Tables,
    of: SummaryOf,
    links: Vec<OfLink>,
    turn: usize,
    read: VecDeque<(LogId, Vec<Record>)>,
}

impl Tables {
    /// Reads the mark of a link, and the table of its segments on `keeper`.
    ///
    /// # Errors
    /// If one of them cannot be read, and the medium is not at fault.
    pub(crate) async fn read(
        &self,
        (place, device): (usize, &Rc<dyn BlockDevice>),
        (keeper, kept): (usize, &Rc<dyn BlockDevice>),
    ) -> Result<(), IoError> {
        let [own, table] = self.area.mark_and_table();
        let own = Extent { len: self.physical, ..own };
        let of = |content: Payload| content.to_bytes();
        let mark = read_copy(device, own).await?.ok().and_then(of);
        let mark = mark.and_then(|bytes| Mark::decode(self.chain, &bytes));
        let bytes = read_copy(kept, table).await?.ok().and_then(of);
        self.put(place, mark, (keeper, bytes.as_deref()));
        Ok(())
    }
}

impl<'a> SummaryReader<'a> {
    /// A reader of the summaries of the segments of links: each with the link that has them.
    pub(crate) fn new(
        tables: &'a Tables,
        links: impl Iterator<Item = (usize, Rc<dyn BlockDevice>)>,
        (volume, len, capacity, shape): (VolumeId, Sectors, Sectors, RecordShape),
    ) -> Self {
        let of = SummaryOf { volume, log: LogId(0), len, capacity, shape };
        let links = links.map(|(place, device)| {
            let runs = runs(tables, place);
            OfLink { place, device, runs, asked: VecDeque::new() }
        });
        Self { tables, of, links: links.collect(), turn: 0, read: VecDeque::new() }
    }

    /// The next segment whose summary counts, and its records; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<(LogId, Vec<Record>)> {
        while self.read.is_empty() {
            let area = self.tables.area;
            self.links.iter_mut().for_each(|link| link.ask(area));
            self.links.retain(|link| !link.asked.is_empty());
            // Each link in turn: while one is awaited, all others read.
            self.turn = (self.turn + 1) % self.links.len().max(1);
            let link = self.links.get_mut(self.turn)?;
            let (place, (run, read)) = (link.place, link.asked.pop_front()?);
            let content = read.await.ok().and_then(|content| content.to_bytes());
            let indices = run.first..run.first + run.count;
            let Some(content) = content else {
                // What cannot be read is read in the segment itself.
                indices.for_each(|index| self.tables.set_floor(self.log(place, index), UNKNOWN));
                continue;
            };
            let slots = content.chunks(to_usize(area.slot.bytes()));
            for (index, bytes) in indices.zip(slots) {
                self.take(self.log(place, index), bytes);
            }
        }
        self.read.pop_front()
    }

    fn log(&self, place: usize, index: u64) -> LogId {
        LogId(narrow(place as u64 * self.tables.area.segments + index))
    }

    fn take(&mut self, log: LogId, bytes: &[u8]) {
        let of = SummaryOf { log, ..self.of };
        let Some((last, records)) = Summary::decode(bytes, &of) else { return };
        let is_any = plant::is(Bug::StaleSummaryBelieved) || plant::is(Bug::ForeignSummaryBelieved);
        if self.tables.counts(log, last) || is_any {
            self.read.push_back((log, records));
        }
    }
}

impl OfLink {
    fn ask(&mut self, area: Area) {
        while self.asked.len() < AHEAD
            && let Some(run) = self.runs.pop_front()
        {
            let first = area.slot(run.first);
            let extent = Extent { len: Sectors(run.count * area.slot.0), ..first };
            let read = self.device.submit(Request::Read { extent });
            self.asked.push_back((run, read));
        }
    }
}

/// The summaries of a link's segments that may count, in runs.
fn runs(tables: &Tables, place: usize) -> VecDeque<Run> {
    let links = tables.links.borrow();
    let most = (AT_ONCE.0 / tables.area.slot.0).max(1);
    let mut runs: VecDeque<Run> = VecDeque::new();
    let is_any = plant::is(Bug::StaleSummaryBelieved);
    let counts = |floor: &Floor| matches!(floor, Floor::Above(_)) || is_any;
    let of_link = links.get(place).map(|of| of.floors.as_slice()).unwrap_or_default();
    for (index, _) in (0..).zip(of_link).filter(|(_, floor)| counts(floor)) {
        match runs.back_mut() {
            Some(last) if last.first + last.count == index && last.count < most => last.count += 1,
            _ => runs.push_back(Run { first: index, count: 1 }),
        }
    }
    runs
}
