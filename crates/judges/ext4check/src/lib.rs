//! A judge of ext4 file systems: reads all metadata of an image or a disk, changes nothing, and
//! reports what `e2fsck -fn` would find, in a small part of its time.
//!
//! It shares no code with the driver `manylogs-ext4`, not even offsets: both are written from the
//! documentation of the format, so that a mistake in one shows in the other. Tests compare its
//! verdicts with those of e2fsck, on images that are good and on images that were damaged.
//!
//! ```text
//!   superblock, groups      where everything is; own structures do not overlap
//!   inodes                  fields, checksums; extents or block maps; attributes
//!   journal, orphans        superblock and copy of its place; none is left
//!   names                   records, kinds, an index and its hashes; where each name leads
//!   connections             every directory is below the root; counts of links
//!   bitmaps                 each bit, each count of a group, the totals
//! ```
//!
//! # What is not judged
//!
//! Blocks of data; times, owners and permissions; copies of the superblock and of group
//! descriptors; what the journal holds; whether extent trees could be smaller. File systems with
//! other features than [`check`] names are refused: e2fsck knows them.
//!
//! Where it says more than e2fsck: counts of the superblock and its copy of the journal's place,
//! which e2fsck corrects without a word; the list of orphans, which `e2fsck -n` leaves alone;
//! fields of the journal's superblock, which e2fsck reads for a replay only; the depth that a node
//! of extents says; the kinds of `.` and `..`; entries of the resize inode's map; more unused
//! inodes than inodes; a name that an index cannot find because its hash is the first of the next
//! block.
//!
//! Memory: 24 bytes for each inode in use and 8 for each block of a directory, and 4 KiB for each
//! group in use.

mod attributes;
mod bitmaps;
mod bytes;
mod checker;
mod finding;
mod groups;
mod hash;
mod index;
mod inodes;
mod journal;
mod layout;
mod map;
mod names;
mod orphans;
mod reserved;
mod source;
mod space;
mod structures;
mod superblock;
mod units;

pub use checker::FINDINGS_MAX;
pub use finding::{Count, Finding, Place, Problem, Report, Unreadable};
pub use source::{Block, FileSource, Source};
pub use structures::{Structure, Survey, Target};
pub use units::{BLOCK_BYTES, BlockNo, GroupNo, Ino};

use checker::Checker;

/// Checks a file system that nobody uses. The journal is not replayed: a file system that needs
/// recovery is judged as it stands, and [`Report::needs_recovery`] says so.
///
/// # Errors
/// [`Unreadable`] if there is no file system, it has features that are not known here, its
/// superblock says something impossible, or the device fails.
pub fn check(source: &dyn Source) -> Result<Report, Unreadable> {
    Ok(Checker::new(source, false)?.run()?.0)
}
