//! The places of the journal's blocks on the device.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, Completion, Hint, Payload, Request};

use crate::ondisk::jbd2::JournalSuperblock;
use crate::units::{BLOCK_BYTES, BlockNo, Run};

/// The blocks of the journal, and the part of them that is the log.
#[derive(Clone, Debug)]
pub(crate) struct LogPlace {
    /// The blocks of the journal's file; runs that lie together on the device are one.
    runs: Vec<Run>,
    /// The block of the journal behind each run.
    ends: Vec<u32>,
    first: u32,
    end: u32,
}

impl LogPlace {
    /// The log in blocks `first` to `end` (not included) of a journal in `runs`; `None` if that is
    /// impossible.
    pub(crate) fn new(runs: Vec<Run>, first: u32, end: u32) -> Option<Self> {
        let blocks: u64 = runs.iter().map(|run| u64::from(run.blocks)).sum();
        if first == 0 || first >= end || u64::from(end) > blocks {
            return None;
        }
        let runs = first_of(&runs, u32::MAX);
        let mut behind = 0_u32;
        let ends = runs.iter().map(|run| {
            behind = behind.saturating_add(run.blocks);
            behind
        });
        let ends = ends.collect();
        Some(Self { runs, ends, first, end })
    }

    /// The first block of the log.
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// How many blocks the log has.
    pub(crate) const fn blocks(&self) -> u32 {
        self.end - self.first
    }

    /// The block of the journal behind the log.
    pub(crate) const fn end(&self) -> u32 {
        self.end
    }

    /// The log in the same journal that ends before block `end`; `None` if that is impossible.
    pub(crate) fn with_end(&self, end: u32) -> Option<Self> {
        Self::new(self.runs.clone(), self.first, end)
    }

    /// In how many pieces of the device the log lies.
    pub(crate) fn pieces(&self) -> usize {
        first_of(&self.runs, self.end).len()
    }

    /// Whether the log lies in the same places if these are the blocks of the journal.
    pub(crate) fn lies_in(&self, runs: &[Run]) -> bool {
        first_of(&self.runs, self.end) == first_of(runs, self.end)
    }

    /// Whether these are all blocks of the journal's file, as they were found at home.
    pub(crate) fn is_all(&self, runs: &[Run]) -> bool {
        self.runs == first_of(runs, u32::MAX)
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
        let (number, start) = self.found(at);
        Run { start, blocks: most.min(self.end - at).min(self.ends[number] - at) }
    }

    /// Where block `at` of the journal is.
    pub(crate) fn home(&self, at: u32) -> BlockNo {
        self.found(at).1
    }

    /// The run with block `at` of the journal, and where the block is.
    fn found(&self, at: u32) -> (usize, BlockNo) {
        let number = self.ends.partition_point(|end| *end <= at);
        let Some(run) = self.runs.get(number) else { unreachable!("a block of the journal") };
        let behind = self.ends[number] - at;
        (number, BlockNo(run.range().end - u64::from(behind)))
    }

    /// The request that writes the journal's superblock, durably.
    pub(crate) fn write_of(&self, superblock: &mut JournalSuperblock) -> Request {
        let mut block = vec![0; BLOCK_BYTES];
        superblock.encode(&mut block);
        Request::write_fua(self.home(0).sectors(), Payload::bytes(block))
    }
}

/// The first `blocks` blocks of a file in these runs, neighbours together.
fn first_of(runs: &[Run], blocks: u32) -> Vec<Run> {
    let (mut left, mut first) = (blocks, Vec::<Run>::new());
    for run in runs {
        let blocks = run.blocks.min(left);
        left -= blocks;
        match first.last_mut() {
            Some(last) if last.range().end == run.start.0 => last.blocks += blocks,
            _ if blocks > 0 => first.push(Run { blocks, ..*run }),
            _ => {}
        }
    }
    first
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grew_has_its_log_where_it_was() {
        let run = |start, blocks| Run { start: BlockNo(start), blocks };
        let log = LogPlace::new(vec![run(100, 50), run(300, 50)], 1, 80).unwrap();
        assert_eq!((log.end(), log.pieces()), (80, 2));
        assert!(log.lies_in(&[run(100, 20), run(120, 30), run(300, 90), run(7, 1)]), "grown");
        assert!(!log.lies_in(&[run(100, 50), run(301, 50)]), "moved");
        assert!(!log.lies_in(&[run(100, 50), run(300, 29)]), "cut");
        assert!(log.with_end(100).is_some() && log.with_end(101).is_none());
    }

    #[test]
    fn runs_that_lie_together_are_one() {
        let run = |start, blocks| Run { start: BlockNo(start), blocks };
        let runs = [run(100, 10), run(110, 20), run(50, 5), run(200, 15)];
        let log = LogPlace::new(runs.to_vec(), 1, 50).unwrap();
        assert_eq!((log.runs.len(), log.pieces()), (3, 3));
        let homes = [0, 9, 10, 29, 30, 34, 35, 49].map(|at| log.home(at).0);
        assert_eq!(homes, [100, 109, 110, 129, 50, 54, 200, 214]);
        assert_eq!(log.run(5, 99), run(105, 25), "up to where the run ends");
        assert_eq!(log.run(40, 99), run(205, 10), "up to where the log ends");
        assert_eq!(log.run(31, 2), run(51, 2), "as many as were asked for");
        assert!(log.is_all(&runs) && log.is_all(&[run(100, 30), run(50, 5), run(200, 15)]));
        assert!(!log.is_all(&[run(100, 30), run(50, 5), run(200, 16)]));
    }
}
