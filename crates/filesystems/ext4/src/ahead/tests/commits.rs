//! Commits that change what the device holds, as those of a volume's logs do.

use std::pin::Pin;

use crate::journal::{Closed, Logged, LoggedKind, Newest, SinkStats, Step};
use crate::ondisk::jbd2::Tid;
use crate::units::Timestamp;

use super::*;

/// A sink whose commits change the device below what reads ahead, when so much time has gone by.
struct Through {
    device: Rc<MemoryDevice>,
    runtime: Handle,
    span: Nanos,
    /// Blocks of this range are read one by one.
    apart: Range<u64>,
    /// These lie one behind the other in a log.
    log: Vec<BlockNo>,
}

impl CommitSink for Through {
    fn largest(&self) -> usize {
        1
    }

    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn make_room(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    fn commit<'a>(&'a self, transaction: &'a Closed) -> Step<'a> {
        Box::pin(async {
            self.runtime.sleep(self.span).await;
            for (block, logged) in &transaction.blocks {
                self.device.submit(write(*block, logged.bytes[0])).await?;
            }
            // A version in a log that is superseded: the older one at home is read again.
            for block in transaction.freed.iter().flat_map(|run| run.range()) {
                self.device.submit(write(BlockNo(block), b'o')).await?;
            }
            Ok(())
        })
    }

    fn changes_device(&self) -> bool {
        true
    }

    fn in_one_piece(&self, block: BlockNo, run: Run) -> Run {
        let end = self.apart.start.max(block.0 + 1).min(run.range().end);
        Run { blocks: manylogs_block::narrow(end - run.start.0), ..run }
    }

    fn read_around(&self, block: BlockNo, _: u32) -> Option<Together> {
        let (completer, content) = completion();
        let (device, later, span) = (Rc::clone(&self.device), self.runtime.clone(), self.span);
        let blocks = self.log.clone();
        self.runtime.spawn(async move {
            let mut found = Payload::default();
            for block in blocks {
                found.append(
                    device.submit(Request::Read { extent: block.sectors() }).await.unwrap(),
                );
            }
            later.sleep(span).await;
            completer.complete(Ok(found));
        });
        self.log.contains(&block).then_some(Together { blocks: self.log.clone(), content })
    }

    fn quiet(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    fn newest(&self, _: BlockNo) -> Option<Newest> {
        None
    }

    fn logged(&self, _: Run) -> Vec<BlockNo> {
        Vec::new()
    }

    fn give_up(&self) -> Pin<Box<dyn Future<Output = IoResult<bool>> + '_>> {
        Box::pin(async { Ok(true) })
    }

    fn stats(&self) -> SinkStats {
        SinkStats::default()
    }

    fn drain(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }
}

/// A transaction that changes [`BEHIND`], or frees it.
fn transaction(frees: bool) -> Closed {
    let bytes = Bytes::from(vec![b'n'; BLOCK_BYTES]);
    let logged = Logged { bytes, before: None, kind: LoggedKind::Metadata, is_renewed: false };
    let (mut blocks, mut freed) = (BTreeMap::new(), Vec::new());
    match frees {
        true => freed.push(Run { start: BEHIND, blocks: 1 }),
        false => drop(blocks.insert(BEHIND, logged)),
    }
    Closed {
        tid: Tid(1),
        blocks,
        revoked: Vec::new(),
        freed,
        data_written: false,
        closed_at: Timestamp::default(),
        closed_by_runtime: Default::default(),
        held: Memory::default().hold(Part::Journal, 0),
    }
}

/// What is read of [`BEHIND`] when a read that brings it, and a commit, have ended: each began
/// after so long, and took so long.
fn read_after_both(read: (Nanos, Nanos), commit: (Nanos, Nanos), frees: bool) -> u8 {
    let (sim, runtime, device, ahead) = world_over(read.1, SOON, None);
    let (node, apart) = (sim.node(), u64::MAX..u64::MAX);
    let sink = Rc::new(Through {
        device,
        runtime: runtime.clone(),
        span: commit.1,
        apart,
        log: Vec::new(),
    });
    let (reader, of_reader, later) = (Rc::clone(&ahead), Rc::clone(&sink), runtime.clone());
    runtime.spawn(async move {
        later.sleep(read.0).await;
        assert_eq!(reader.read(&*of_reader, READ, Some(TABLE)).await.unwrap()[0], 65);
    });
    let (writer, of_writer, later) = (Rc::clone(&ahead), Rc::clone(&sink), runtime.clone());
    runtime.spawn(async move {
        later.sleep(commit.0).await;
        writer.commit(&*of_writer, &transaction(frees)).await.unwrap();
    });
    sim.block_on(node, async move {
        runtime.sleep(Nanos(1000)).await;
        ahead.read(&*sink, BEHIND, Some(TABLE)).await.unwrap()[0]
    })
}

fn committed_later() -> u8 {
    read_after_both((Nanos(0), SOON), (SPAN, SOON), false)
}

fn committed_while_it_is_read() -> u8 {
    read_after_both((Nanos(0), SPAN), (SOON, SOON), false)
}

fn read_while_it_is_committed() -> u8 {
    read_after_both((SOON, SOON), (Nanos(0), SPAN), false)
}

#[test]
fn what_is_committed_is_not_served_as_it_was() {
    assert_eq!(committed_later(), b'n');
    assert_eq!(committed_while_it_is_read(), b'n');
    assert_eq!(read_while_it_is_committed(), b'n');
    assert_eq!(read_after_both((Nanos(0), SOON), (SPAN, SOON), true), b'o', "it was freed");
}

#[test]
fn what_lies_in_logs_is_not_read_with_others() {
    let (sim, runtime, device, ahead) = world_over(SPAN, SOON, None);
    let (node, span) = (sim.node(), SOON);
    let sink =
        Through { device, runtime: runtime.clone(), span, apart: 80..u64::MAX, log: Vec::new() };
    let spans = sim.block_on(node, async move {
        let mut spans = Vec::new();
        for block in [66, 79, 80, 81] {
            let began = runtime.now();
            let found = ahead.read(&sink, BlockNo(block), Some(TABLE)).await.unwrap();
            assert_eq!(u64::from(found[0]), block);
            spans.push(runtime.now().since(began).0);
        }
        spans
    });
    assert_eq!(spans, [SPAN.0, 0, SPAN.0, SPAN.0]);
}

/// The blocks of a log that [`read_of_log`] asks for.
const IN_LOG: [BlockNo; 4] = [BlockNo(3), BlockNo(70), BlockNo(71), BEHIND];

/// What is read of [`BEHIND`], and how long that takes, when a read of another block has brought it
/// from a log, and [`transaction`] was committed meanwhile or not.
fn read_of_log(commits: bool) -> (u8, Nanos) {
    let (sim, runtime, device, ahead) = world_over(SPAN, SOON, None);
    ahead.set(ReadAhead::All);
    let (node, apart) = (sim.node(), u64::MAX..u64::MAX);
    let sink = Rc::new(Through {
        device,
        runtime: runtime.clone(),
        span: SPAN,
        apart,
        log: IN_LOG.into(),
    });
    let (writer, of_writer) = (Rc::clone(&ahead), Rc::clone(&sink));
    runtime.spawn(async move {
        if commits {
            writer.commit(&*of_writer, &transaction(false)).await.unwrap();
        }
    });
    sim.block_on(node, async move {
        runtime.sleep(SOON).await;
        for block in [IN_LOG[1], IN_LOG[2], IN_LOG[0]] {
            let found = ahead.read(&*sink, block, None).await.unwrap();
            assert_eq!((u64::from(found[0]), found.len()), (block.0, BLOCK_BYTES));
        }
        runtime.sleep(SPAN).await;
        let began = runtime.now();
        let found = ahead.read(&*sink, BEHIND, None).await.unwrap();
        (found[0], runtime.now().since(began))
    })
}

#[test]
fn what_lies_in_a_log_is_read_in_its_order_and_by_one_read() {
    assert_eq!(read_of_log(false), (90, Nanos(0)), "it belongs elsewhere and lies beside it");
    let (found, span) = read_of_log(true);
    assert_eq!(found, b'n', "it was committed while it was read");
    assert!(span.0 > 0);
}

#[cfg(feature = "plant")]
#[test]
fn old_blocks_that_are_served_after_a_commit_are_noticed() {
    use manylogs_plant::plant;
    for (bug, read) in [
        (Bug::AheadCommitNotTold, committed_later as fn() -> u8),
        (Bug::AheadCommitNotTold, committed_while_it_is_read),
        (Bug::AheadUnderCommit, read_while_it_is_committed),
    ] {
        plant(Some(bug));
        let found = read();
        plant(None);
        assert_eq!(found, 90, "{bug:?}");
    }
    plant(Some(Bug::AheadUnderCommit));
    let (found, _) = read_of_log(true);
    plant(None);
    assert_eq!(found, 90, "it was read from a log");
}
