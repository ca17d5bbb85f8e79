//! Reading a block that may go home meanwhile.

use manylogs_block::{IoResult, MemoryDevice, Payload, Request};
use manylogs_sim::{Sim, TaskOrder};

use super::*;

/// A sink that names a copy in the log at the first call; at the next one the block is home.
#[derive(Debug)]
struct Moving(Cell<bool>);

const IN_LOG: BlockNo = BlockNo(3);

impl CommitSink for Moving {
    fn largest(&self) -> usize {
        LARGEST_LEAST
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

    fn commit<'a>(&'a self, _: &'a Closed) -> Step<'a> {
        Box::pin(async { Ok(()) })
    }

    fn quiet(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }

    fn newest(&self, _: BlockNo) -> Option<Newest> {
        let copy = LogCopy { at: IN_LOG, tid: Tid(1), escaped: false, checksum: 0 };
        (!self.0.replace(true)).then_some(Newest::InLog(copy))
    }

    fn logged(&self, _: Run) -> Vec<BlockNo> {
        Vec::new()
    }

    fn give_up(&self) -> std::pin::Pin<Box<dyn Future<Output = IoResult<bool>> + '_>> {
        Box::pin(async { Ok(true) })
    }

    fn stats(&self) -> SinkStats {
        SinkStats::default()
    }

    fn drain(&self) -> Step<'_> {
        Box::pin(async { Ok(()) })
    }
}

/// Reads a block that goes home meanwhile, so that its place in the log has other content by then.
/// Returns the first byte.
fn read_while_it_moves() -> u8 {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let journal = Journal::new(Rc::new(Moving(Cell::default())), Tid(1), &Memory::default());
    sim.block_on(node, async move {
        let device = MemoryDevice::new(manylogs_block::Sectors(128));
        for (block, byte) in [(IN_LOG, b'x'), (BlockNo(5), b'h')] {
            let payload = Payload::bytes(vec![byte; BLOCK_BYTES]);
            device.submit(Request::write_fua(block.sectors(), payload)).await.unwrap();
        }
        journal.read(async |at| read_block(&device, at).await, BlockNo(5)).await.unwrap()[0]
    })
}

#[test]
fn a_place_in_the_log_is_asked_for_again() {
    assert_eq!(read_while_it_moves(), b'h');
}

#[cfg(feature = "plant")]
#[test]
fn a_place_that_is_not_asked_for_again_is_noticed() {
    manylogs_plant::plant(Some(Bug::LazyPlaceNotAsked));
    let read = read_while_it_moves();
    manylogs_plant::plant(None);
    assert_eq!(read, b'x');
}
