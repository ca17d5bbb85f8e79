//! Arguments of `manylogs torture`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use manylogs_lab::Shape;

/// Whose histories are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TorturedSystem {
    /// A Manylogs volume on a disk.
    Volume,
    /// Base volumes whose writes are off-loaded to Everest's circular store.
    Everest,
    /// A chain of drives.
    Gecko,
    /// The file system ext4 of `manylogs fs`, with its own journal; needs mkfs.ext4 and e2fsck.
    Ext4,
    /// The same with a journal that keeps what it holds (mode lazy), mounted in another mode now
    /// and then; needs mkfs.ext4 and e2fsck.
    Lazy,
    /// File systems that `manylogs fs adopt` takes over, and `fs release` gives back; needs
    /// mkfs.ext4 and e2fsck.
    Adopt,
    /// The file system ext4 with its journal in logs near the head; needs mkfs.ext4, debugfs and
    /// e2fsck.
    Mlfs,
}

#[derive(Debug, Args)]
pub(crate) struct TortureArgs {
    /// The system that is crashed.
    #[arg(long, value_name = "SYSTEM", value_enum, default_value = "volume")]
    pub(crate) system: TorturedSystem,
    /// With --system volume or mlfs: it is on an array, raid0:N, raid1:N, raid10:N, raid5:N or
    /// raid6:N. A crash takes of each member's cache by itself, and may take members with it, as
    /// many as the level bears. In some histories members leave in use, and the array
    /// resynchronises meanwhile. Below volumes, arrays without parity are reshaped between two
    /// openings. The seed decides the chunk.
    #[arg(long, value_name = "ARRAY")]
    pub(crate) array: Option<Shape>,
    /// The histories to run, first and last included, as 1..1000000 or 4711..4711.
    #[arg(long, value_name = "FIRST..LAST", value_parser = seeds, default_value = "1..1000000")]
    pub(crate) seeds: RangeInclusive<u64>,
    /// Stop after the history that brings the distinct crash states to this number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) states: Option<u64>,
    /// Histories run at the same time; as many as there are cores when not given. The result is
    /// the same.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) jobs: Option<u64>,
    /// Also damage the images of crashed disks, and check that the volume notices.
    #[arg(long)]
    pub(crate) faults: bool,
    /// Let the device fail requests in every history, with medium errors and passing ones, while
    /// the volume is opened or in use. Few crashes are tried then, so that many histories run. With
    /// --system mlfs, while the file system is mounted or in use; nothing may be lost. With
    /// --system everest, logs of the store go out of use, and the store must go on. With --array
    /// members fail; where others have the same content, the volume must not notice.
    #[arg(long)]
    pub(crate) trouble: bool,
    /// With --system mlfs: metadata stays in the logs (mode manylogs+lazy), some mounts bring it
    /// home, and logs are cleaned meanwhile.
    #[arg(long)]
    pub(crate) lazy: bool,
    /// With --system ext4: nothing crashes, but this number of images, one for each seed from the
    /// first of --seeds on, is damaged, with checksums put right again, and then used.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) mutate: Option<u64>,
    /// With --system ext4, lazy, adopt or mlfs: one crash state or damaged image in so many is also
    /// judged by e2fsck; none if 0. All others are judged by a check of our own.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) e2fsck_every: u64,
    /// Write all counts to this JSON file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a line for each history to this file: its seed, its crash states, and a hash of these
    /// and of its counts. A program that writes the same lines did the same.
    #[arg(long, value_name = "FILE")]
    pub(crate) digests: Option<PathBuf>,
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let range = text.split_once("..").and_then(|(first, last)| {
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        (first <= last && last < u64::MAX).then_some(first..=last)
    });
    range.ok_or_else(|| "expected FIRST..LAST, both included, as 1..1000 or 4711..4711".to_owned())
}
