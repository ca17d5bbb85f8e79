//! A map is saved while transactions take the blocks of the log that it is written to.

use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Handle, MemoryDevice, Nanos, Request, Sectors, Signal,
    completion,
};
use manylogs_sim::{Sim, TaskOrder};

use super::super::replay::Journalled;
use super::super::{Jbd2Sink, LogPlace, open};
use crate::cache::read_block;
use crate::core::Mode;
use crate::journal::sink::{Closed, CommitSink, Logged, LoggedKind, Newest};
use crate::memory::{Memory, Part};
use crate::ondisk::bytes::put_be32;
use crate::ondisk::jbd2::{JournalSuperblock, Tid};
use crate::units::{BLOCK_BYTES, BlockNo, Run, Timestamp};

/// Blocks of the journal: its superblock, and the log.
const JOURNAL: Run = Run { start: BlockNo(8), blocks: 1024 };
/// Blocks of the device.
const BLOCKS: u64 = 1 << 13;
/// The first home of a logged block; each transaction has four of its own.
const HOMES: u64 = 2000;
/// Transactions of four blocks that lie in the log when the map is saved. With those that follow
/// they fill it to the last block.
const BEFORE: u32 = 150;
const MEANWHILE: u32 = 20;
/// How long a request takes, and one that writes a block of a map.
const EACH: Nanos = Nanos::from_millis(1);
const OF_MAP: Nanos = Nanos::from_millis(10);

/// A device on which writes take effect when they are answered, those of a map late.
struct Late {
    below: Rc<MemoryDevice>,
    runtime: Handle,
}

impl BlockDevice for Late {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let payload = match &request {
            Request::Write { payload, .. } => payload.to_bytes(),
            _ => None,
        };
        let is_map = payload.is_some_and(|bytes| bytes.starts_with(b"MLSM"));
        let (below, runtime) = (Rc::clone(&self.below), self.runtime.clone());
        let (completer, later) = completion();
        self.runtime.spawn(async move {
            runtime.sleep(if is_map { OF_MAP } else { EACH }).await;
            completer.complete(below.submit(request).await);
        });
        later
    }
}

/// The superblock of an empty journal.
fn superblock() -> JournalSuperblock {
    let mut block = vec![0; BLOCK_BYTES];
    let words = [0xC03B_3998, 4, 0, 4096, JOURNAL.blocks, 1, 1, 0];
    for (number, word) in words.into_iter().enumerate() {
        put_be32(&mut block, 4 * number, word);
    }
    let mut found = JournalSuperblock::decode(&block).unwrap();
    found.set_format(true, true);
    found
}

/// A transaction of so many blocks.
fn transaction(tid: u32, blocks: u64, memory: &Memory) -> Closed {
    let first = HOMES + 4 * u64::from(tid);
    let logged = |home: u64| {
        let bytes = vec![u8::try_from(home % 251).unwrap(); BLOCK_BYTES].into();
        (
            BlockNo(home),
            Logged { bytes, before: None, kind: LoggedKind::Metadata, is_renewed: false },
        )
    };
    Closed {
        tid: Tid(tid),
        blocks: (first..first + blocks).map(logged).collect::<BTreeMap<_, _>>(),
        revoked: Vec::new(),
        freed: Vec::new(),
        data_written: false,
        closed_at: Timestamp { seconds: tid.into(), nanos: 0 },
        closed_by_runtime: Default::default(),
        held: memory.hold(Part::Journal, 0),
    }
}

/// Saves the map, a block at a time, beginning so long after transactions begin to come that fill
/// the log. Then opens the log. Returns whether all that was committed is in it, and whole.
fn is_whole_if_saved(after: Nanos) -> bool {
    let (sim, memory) = (Sim::new(1, TaskOrder::Fifo), Memory::default());
    let node = sim.node();
    let runtime = sim.handle(node);
    let below = Rc::new(MemoryDevice::new(Sectors(BLOCKS * 8)));
    let device: Rc<dyn BlockDevice> =
        Rc::new(Late { below: Rc::clone(&below), runtime: runtime.clone() });
    let place = LogPlace::new(vec![JOURNAL], 1, JOURNAL.blocks).unwrap();
    sim.block_on(node, async move {
        let of = (place.clone(), superblock());
        let sink = Jbd2Sink::new(Mode::Lazy, Rc::clone(&device), of.0, of.1, &memory);
        sink.begin().await.unwrap();
        let sink = Rc::new(sink);
        let last = BEFORE + MEANWHILE + 1;
        for tid in 1..=BEFORE {
            sink.write(&transaction(tid, 4, &memory)).await.unwrap();
        }
        let (ended, saver, clock) = (Signal::default(), Rc::clone(&sink), runtime.clone());
        let (saved, signal) = (ended.wait(), ended.clone());
        runtime.spawn(async move {
            clock.sleep(after).await;
            saver.save(false, 1).await.unwrap();
            signal.notify();
        });
        for tid in BEFORE + 1..last {
            sink.write(&transaction(tid, 4, &memory)).await.unwrap();
        }
        sink.write(&transaction(last, 1, &memory)).await.unwrap();
        assert_eq!(sink.used(), place.blocks(), "the log is full");
        saved.await;
        let block = read_block(&*below, JOURNAL.start).await.unwrap();
        let superblock = JournalSuperblock::decode(&block).unwrap();
        let journal = Journalled { place, superblock, progress: Default::default() };
        let opened = open(&device, &journal, (true, true), BLOCKS, &memory).await.unwrap();
        let Some(opened) = opened else { return false };
        for home in HOMES + 4..=HOMES + 4 * u64::from(last) {
            let Some(Newest::InLog(copy)) = opened.newest(BlockNo(home)) else { return false };
            let bytes = read_block(&*below, copy.at).await.unwrap();
            if !opened.is_whole(&copy, &bytes) {
                return false;
            }
        }
        true
    })
}

/// Whether nothing that was committed is lost, whenever the map is saved.
fn nothing_is_written_over() -> bool {
    (0..80).step_by(3).all(|after| is_whole_if_saved(Nanos::from_millis(after)))
}

#[test]
fn a_map_is_not_written_over_what_is_committed_meanwhile() {
    assert!(nothing_is_written_over());
}

#[cfg(feature = "plant")]
#[test]
fn a_map_that_is_written_over_commits_is_noticed() {
    manylogs_plant::plant(Some(manylogs_plant::Bug::LazyMapOverCommits));
    let whole = nothing_is_written_over();
    manylogs_plant::plant(None);
    assert!(!whole);
}
