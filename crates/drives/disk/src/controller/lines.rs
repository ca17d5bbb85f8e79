//! What a controller keeps of what was read: lines of 4 KiB, of which the one that was used longest
//! ago goes first.

use std::collections::BTreeMap;

use manylogs_block::{Extent, Payload, Sectors};

/// Length of a line.
const LINE: u64 = 8;

/// Lines by number, and by their last use.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<u64, Line>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
    /// Reads of the drive: what is written meanwhile makes their content old.
    reading: BTreeMap<u64, Reading>,
    begun: u64,
}

#[derive(Debug)]
struct Line {
    content: Payload,
    used: u64,
}

#[derive(Debug)]
struct Reading {
    extent: Extent,
    is_spoilt: bool,
}

/// The lines of which `extent` has all sectors.
fn whole_lines(extent: Extent) -> std::ops::Range<u64> {
    extent.start.0.div_ceil(LINE)..extent.end().0 / LINE
}

/// The lines of which `extent` has some sectors.
fn all_lines(extent: Extent) -> std::ops::Range<u64> {
    extent.start.0 / LINE..extent.end().0.div_ceil(LINE)
}

impl Lines {
    /// The content, if all of it is here.
    pub(super) fn lookup(&mut self, extent: Extent) -> Option<Payload> {
        let all = all_lines(extent);
        if !all.clone().all(|line| self.lines.contains_key(&line)) {
            return None;
        }
        let mut content = Payload::default();
        for number in all.clone() {
            self.uses += 1;
            let line = self.lines.get_mut(&number)?;
            self.by_use.remove(&line.used);
            line.used = self.uses;
            self.by_use.insert(line.used, number);
            content.append(line.content.clone());
        }
        Some(content.slice(Sectors(extent.start.0 - all.start * LINE), extent.len))
    }

    /// A read of the drive begins.
    pub(super) fn begin(&mut self, extent: Extent) -> u64 {
        self.begun += 1;
        self.reading.insert(self.begun, Reading { extent, is_spoilt: false });
        self.begun
    }

    /// That read has ended. At most `most` sectors stay.
    pub(super) fn end(&mut self, reading: u64, content: Option<&Payload>, most: Sectors) {
        let Some(Reading { extent, is_spoilt }) = self.reading.remove(&reading) else { return };
        let Some(content) = content.filter(|_| !is_spoilt) else { return };
        for number in whole_lines(extent) {
            self.drop_line(number);
            let skip = Sectors(number * LINE - extent.start.0);
            self.uses += 1;
            self.by_use.insert(self.uses, number);
            let line = Line { content: content.slice(skip, Sectors(LINE)), used: self.uses };
            self.lines.insert(number, line);
        }
        while self.lines.len() as u64 * LINE > most.0 {
            let Some((_, number)) = self.by_use.pop_first() else { return };
            self.lines.remove(&number);
        }
    }

    /// What is here of `extent` is old.
    pub(super) fn spoil(&mut self, extent: Extent) {
        all_lines(extent).for_each(|number| self.drop_line(number));
        for reading in self.reading.values_mut().filter(|one| one.extent.overlaps(extent)) {
            reading.is_spoilt = true;
        }
    }

    fn drop_line(&mut self, number: u64) {
        if let Some(line) = self.lines.remove(&number) {
            self.by_use.remove(&line.used);
        }
    }
}
