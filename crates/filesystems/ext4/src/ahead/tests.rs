//! What waits is what the device holds.

use manylogs_block::{Handle, MemoryDevice, Nanos, Payload, Sectors, completion};
use manylogs_sim::{Sim, TaskOrder};

use super::*;
use crate::journal::NoSink;

mod commits;

/// The table of inodes of which a part is read.
const TABLE: Run = Run { start: BlockNo(64), blocks: 40 };
const READ: BlockNo = BlockNo(65);
/// It is read ahead.
const BEHIND: BlockNo = BlockNo(90);

/// A device that reads what there is when it is asked, and writes when it answers.
struct Slow {
    below: Rc<MemoryDevice>,
    runtime: Handle,
    read: Nanos,
    write: Nanos,
    /// Requests that read this block fail.
    bad: Option<BlockNo>,
}

impl BlockDevice for Slow {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let (completer, later) = completion();
        let (below, runtime, bad) = (Rc::clone(&self.below), self.runtime.clone(), self.bad);
        let (read, write) = (self.read, self.write);
        self.runtime.spawn(async move {
            if request.kind().is_change() {
                runtime.sleep(write).await;
                return completer.complete(below.submit(request).await);
            }
            let extent = request.extent().unwrap();
            let is_bad = bad.is_some_and(|bad| {
                (extent.start.0..extent.start.0 + extent.len.0).contains(&bad.sectors().start.0)
            });
            let found = below.submit(request).await;
            runtime.sleep(read).await;
            completer.complete(if is_bad { Err(IoError::Medium { extent }) } else { found });
        });
        later
    }
}

fn write(block: BlockNo, byte: u8) -> Request {
    Request::write_fua(block.sectors(), Payload::bytes(vec![byte; BLOCK_BYTES]))
}

/// A world with such a device, whose blocks hold their numbers.
fn world(read: Nanos, write_span: Nanos, bad: Option<BlockNo>) -> (Sim, Handle, Rc<Ahead>) {
    let (sim, runtime, _, ahead) = world_over(read, write_span, bad);
    (sim, runtime, ahead)
}

/// As [`world`], with the device at the bottom.
fn world_over(
    read: Nanos,
    write_span: Nanos,
    bad: Option<BlockNo>,
) -> (Sim, Handle, Rc<MemoryDevice>, Rc<Ahead>) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let below = Rc::new(MemoryDevice::new(Sectors(1024)));
    let filled = Rc::clone(&below);
    sim.block_on(node, async move {
        for number in 0..128 {
            filled.submit(write(BlockNo(number.into()), number)).await.unwrap();
        }
    });
    let device = Rc::clone(&below);
    let slow = Slow { below, runtime: runtime.clone(), read, write: write_span, bad };
    let ahead = Rc::new(Ahead::new(Rc::new(slow), &Memory::default()));
    ahead.set(ReadAhead::Tables);
    (sim, runtime, device, ahead)
}

/// What is read of a block that was read ahead and written, the read beginning after so long, the
/// write after so long, and both having ended.
fn read_when_both_are_done(read: (Nanos, Nanos), written: (Nanos, Nanos)) -> u8 {
    let (sim, runtime, ahead) = world(read.1, written.1, None);
    let node = sim.node();
    let (reader, later) = (Rc::clone(&ahead), runtime.clone());
    runtime.spawn(async move {
        later.sleep(read.0).await;
        assert_eq!(reader.read(&NoSink, READ, Some(TABLE)).await.unwrap()[0], 65);
    });
    let (writer, later) = (Rc::clone(&ahead), runtime.clone());
    runtime.spawn(async move {
        later.sleep(written.0).await;
        writer.submit(write(BEHIND, b'n')).await.unwrap();
    });
    sim.block_on(node, async move {
        runtime.sleep(Nanos(1000)).await;
        let found = ahead.read(&NoSink, BEHIND, Some(TABLE)).await.unwrap();
        assert!(found.iter().all(|byte| *byte == found[0]));
        found[0]
    })
}

const SOON: Nanos = Nanos(10);
const SPAN: Nanos = Nanos(100);

fn written_later() -> u8 {
    read_when_both_are_done((Nanos(0), SOON), (SPAN, SOON))
}

fn written_while_it_is_read() -> u8 {
    read_when_both_are_done((Nanos(0), SPAN), (SOON, SOON))
}

fn read_while_it_is_written() -> u8 {
    read_when_both_are_done((SOON, SOON), (Nanos(0), SPAN))
}

#[test]
fn what_is_written_is_not_served_as_it_was() {
    assert_eq!(written_later(), b'n');
    assert_eq!(written_while_it_is_read(), b'n');
    assert_eq!(read_while_it_is_written(), b'n');
}

#[cfg(feature = "plant")]
#[test]
fn old_blocks_that_are_served_are_noticed() {
    use manylogs_plant::plant;
    for (bug, read) in [
        (Bug::AheadKeepsOld, written_later as fn() -> u8),
        (Bug::AheadUnderWay, written_while_it_is_read),
        (Bug::AheadOfWrites, read_while_it_is_written),
    ] {
        plant(Some(bug));
        let found = read();
        plant(None);
        assert_eq!(found, 90, "{bug:?}");
    }
}

/// How long a read of a block takes after others were read.
fn read_after(bad: Option<BlockNo>, policy: ReadAhead, blocks: &[u64], last: u64) -> u64 {
    let (sim, runtime, ahead) = world(SPAN, SOON, bad);
    ahead.set(policy);
    let (node, blocks) = (sim.node(), blocks.to_vec());
    sim.block_on(node, async move {
        for block in blocks {
            ahead.read(&NoSink, BlockNo(block), Some(TABLE)).await.unwrap();
        }
        let began = runtime.now();
        let found = ahead.read(&NoSink, BlockNo(last), Some(TABLE)).await.unwrap();
        assert_eq!(u64::from(found[0]), last);
        runtime.now().since(began).0
    })
}

#[test]
fn what_was_read_ahead_takes_no_time() {
    assert_eq!(read_after(None, ReadAhead::Tables, &[70], 65), 0, "parts of tables are whole");
    assert_eq!(read_after(None, ReadAhead::Tables, &[70], 96), SPAN.0, "the next part");
    assert_eq!(read_after(None, ReadAhead::Tables, &[20, 21], 22), SPAN.0, "in no table");
    assert_eq!(read_after(None, ReadAhead::All, &[20], 22), 0, "it may pay");
    assert_eq!(read_after(None, ReadAhead::All, &[20], 18), 0, "on both sides");
    assert_eq!(read_after(None, ReadAhead::All, &[20], 32), SPAN.0, "the next part");
    assert_eq!(read_after(None, ReadAhead::All, &[20, 70], 100), 0, "it is twice as long");
    assert_eq!(read_after(None, ReadAhead::All, &[125, 126], 127), 0, "the device ends there");
    assert_eq!(read_after(None, ReadAhead::Off, &[70, 71], 72), SPAN.0);
}

#[test]
fn a_bad_neighbour_does_not_matter() {
    assert_eq!(read_after(Some(BlockNo(90)), ReadAhead::Tables, &[70], 71), 2 * SPAN.0);
}
