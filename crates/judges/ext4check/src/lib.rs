//! A judge of ext4 file systems. It reads all metadata of an image or a disk, changes nothing, and
//! reports what `e2fsck -fn` would find, in a fraction of its time.
//!
//! The judge shares no code with the driver `manylogs-ext4`, not even offsets. Both are written
//! from the documentation of the format, so that a mistake in one shows in the other. Tests compare
//! the judge's verdicts with those of e2fsck, on good images and on damaged ones.
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
//! It reports more than e2fsck in these cases: counts of the superblock and its copy of the
//! journal's map, which e2fsck corrects silently; the list of orphans, which `e2fsck -n` leaves
//! alone; fields of the journal's superblock, which e2fsck reads only for a replay; the depth in a
//! node of extents; the kinds of `.` and `..`; entries of the resize inode's map; more unused
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
pub use finding::{Count, Finding, Location, Problem, Report, Unreadable};
pub use source::{Block, FileSource, Source};
pub use structures::{Structure, Survey, Target};
pub use units::{BLOCK_BYTES, BlockNo, GroupNo, Ino};

use checker::Checker;

/// Checks a file system that is not in use. The journal is not replayed: a file system that needs
/// recovery is judged as it stands, and [`Report::needs_recovery`] says so.
///
/// # Errors
/// [`Unreadable`] if there is no file system, it has unknown features, a field of its superblock is
/// impossible, or the device fails.
pub fn check(source: &dyn Source) -> Result<Report, Unreadable> {
    Ok(Checker::new(source, false)?.run()?.0)
}
