//! How far what a log holds lies in the order in which a walk of the tree meets it.

use manylogs_block::to_usize;

use crate::journal::LogCopy;
use crate::ondisk::jbd2::Tid;
use crate::units::BlockNo;

/// Bits that note which blocks were met, as a power of two: 1 MiB of memory.
const MET_BITS_LOG2: u32 = 23;

/// How a walk meets the blocks of a log. Each counts when it is met first: later it is in memory.
#[derive(Debug)]
pub(crate) struct Order {
    /// Blocks that lie in the log.
    pub(crate) met: u64,
    /// Those that lie neither in the transaction of the block before nor in the next one: a read of
    /// them costs a positioning.
    pub(crate) apart: u64,
    last: Option<Tid>,
    /// A bit for the hash of each block that was met. Blocks that share one are left out: what
    /// counts is a share.
    seen: Vec<u64>,
}

impl Default for Order {
    fn default() -> Self {
        Self { met: 0, apart: 0, last: None, seen: vec![0; 1 << (MET_BITS_LOG2 - 6)] }
    }
}

impl Order {
    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&self.seen[..]) as u64
    }

    /// Notes that a walk meets a block, of which the log has this copy.
    pub(super) fn note(&mut self, block: BlockNo, copy: &LogCopy) {
        // Fibonacci hashing: neighbours get bits that lie apart.
        let bit = block.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - MET_BITS_LOG2);
        let (word, mask) = (&mut self.seen[to_usize(bit / 64)], 1 << (bit % 64));
        if *word & mask != 0 {
            return;
        }
        *word |= mask;
        let step = self.last.map(|last| copy.tid.0.wrapping_sub(last.0));
        self.apart += u64::from(step.is_some_and(|step| step > 1));
        self.met += 1;
        self.last = Some(copy.tid);
    }
}
