//! Updates of metadata that fill a journal several times over, in virtual time: what is renewed in
//! the journal, what goes home, how long somebody waits, and what mounts take (*Evolving Ext4 for
//! Shingled Disks*, sections 3.2 and 4.4). Nothing else uses the disk.

mod case;
mod mounts;
mod run;

pub use case::{BLOCK_BYTES_PER_INODE, CleanerCase};
pub use mounts::{MountsCase, MountsResult, measure_mounts};
pub use run::{CleanerResult, measure_one};
