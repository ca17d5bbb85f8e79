//! The places of the journal's blocks on the device.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, Completion, Hint, Payload, Request};

use crate::units::{BlockNo, Run};

/// The blocks of the journal, and the part of them that is the log.
#[derive(Clone, Debug)]
pub(crate) struct LogPlace {
    runs: Vec<Run>,
    first: u32,
    end: u32,
}

impl LogPlace {
    /// The log in blocks `first` to `end` (not included) of a journal in `runs`; `None` if that is
    /// impossible.
    pub(crate) fn new(runs: Vec<Run>, first: u32, end: u32) -> Option<Self> {
        let blocks: u64 = runs.iter().map(|run| u64::from(run.blocks)).sum();
        let sound = first > 0 && first < end && u64::from(end) <= blocks;
        sound.then_some(Self { runs, first, end })
    }

    /// The first block of the log.
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// How many blocks the log has.
    pub(crate) const fn blocks(&self) -> u32 {
        self.end - self.first
    }

    /// Whether block `at` of the journal is in the log.
    pub(crate) const fn contains(&self, at: u32) -> bool {
        at >= self.first && at < self.end
    }

    /// The block of the log behind `at`: the first follows the last.
    pub(crate) const fn after(&self, at: u32) -> u32 {
        if at + 1 >= self.end { self.first } else { at + 1 }
    }

    /// The block of the log `blocks` behind `at`.
    pub(super) const fn ahead(&self, at: u32, blocks: u32) -> u32 {
        let (blocks, to_end) = (blocks % self.blocks(), self.end - at);
        if blocks < to_end { at + blocks } else { self.first + (blocks - to_end) }
    }

    /// How many blocks of the log lie behind `from` and before `to`, `from` included.
    pub(super) const fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { self.blocks() - (from - to) }
    }

    /// The blocks of the log from `at` on that lie together on the device, `most` at most.
    pub(crate) fn run(&self, at: u32, most: u32) -> Run {
        let start = self.home(at);
        let most = most.min(self.end - at);
        let together = (1..most).take_while(|n| self.home(at + n).0 == start.0 + u64::from(*n));
        Run { start, blocks: 1 + manylogs_block::narrow::<_, u32>(together.count() as u64) }
    }

    /// Where block `at` of the journal is.
    pub(crate) fn home(&self, at: u32) -> BlockNo {
        let mut left = at;
        for run in &self.runs {
            if left < run.blocks {
                return BlockNo(run.start.0 + u64::from(left));
            }
            left -= run.blocks;
        }
        unreachable!("a block of the journal")
    }
}

/// Begins to write blocks, neighbours in one request. The caller waits for the completions.
pub(super) fn write_blocks(
    device: &Rc<dyn BlockDevice>,
    blocks: impl IntoIterator<Item = (BlockNo, Bytes)>,
) -> Vec<Completion> {
    let mut requests = Vec::new();
    let mut run: Option<(Run, Payload)> = None;
    for (block, bytes) in blocks {
        if let Some((run, payload)) = &mut run
            && run.range().end == block.0
            && run.blocks < RUN_MOST
        {
            run.blocks += 1;
            payload.append(Payload::bytes(bytes));
            continue;
        }
        let next = (Run { start: block, blocks: 1 }, Payload::bytes(bytes));
        requests.extend(run.replace(next).map(|(run, payload)| write(device, run, payload)));
    }
    requests.extend(run.map(|(run, payload)| write(device, run, payload)));
    requests
}

/// Blocks of one request: 1 MiB.
const RUN_MOST: u32 = 256;

fn write(device: &Rc<dyn BlockDevice>, run: Run, payload: Payload) -> Completion {
    let extent = run.sectors();
    device.submit(Request::Write { extent, payload, fua: false, hint: Hint::None })
}
