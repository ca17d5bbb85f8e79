//! Taking an ext4 file system over in place, and giving it back.
//!
//! ```text
//!                  log file            pointer, then
//!   ext4  ----->   allocated   ----->  bit everywhere ----->  MLFS
//!         pointer  by jbd2             (adopted)
//!         (taking over)
//!
//!                  copies of the       pointer                 log file          pointer
//!   MLFS  ----->   superblock   ---->  and bit       ----->   removed   ----->  cleared  ---> ext4
//!         drained  lose the bit        (giving back)           by jbd2
//! ```
//!
//! Each arrow is durable before the next begins. Before "adopted" and from "giving back" on it is a
//! whole ext4 for every program, perhaps with a journal to replay and a file `/.manylogs` of
//! unwritten extents. In between it belongs to MLFS, and the newest durable versions may be only in
//! its logs. The stage is one sector of the first superblock (see [`manylogs_ext4::Stage`]). After
//! a crash at any step, [`adopt`] and [`release`] go on from there, in either direction.

mod give_back;
mod layout;
mod look;
mod open;
mod repair;
mod state;
mod take_over;
mod view;
mod volumes;

use std::future::Future;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle};
use manylogs_ext4::{Durability, JournalRepaired, LogFile, Refusal, Run, Timestamp};
use thiserror::Error;

pub use give_back::release;
pub use layout::{LogLayout, Spacing};
pub use look::{LogState, Looked, look};
pub use open::{Located, Opened, locate, open};
pub use repair::{Repaired, check_logs, repair};
pub use state::{Known, State, look_closely};
pub use take_over::{Adopted, adopt};
pub use view::{Held, View};
pub use volumes::Volumes;
pub(crate) use volumes::is_damage;

/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

/// A device that nobody else uses, with the executor of its tasks.
#[derive(Clone)]
pub struct Site {
    /// The disk or image.
    pub device: Rc<dyn BlockDevice>,
    /// Runs the tasks of a mount.
    pub runtime: Handle,
    /// The wall clock, for the times of files.
    pub clock: Rc<dyn Fn() -> Timestamp>,
}

/// The logs of an adopted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// The file system's id.
    pub uuid: [u8; 16],
    /// Their places, in the order of the log file.
    pub runs: Vec<Run>,
}

/// Keeps records in the logs. Its structures for an opening lie in the first and the last run.
pub trait LogEngine {
    /// Least number of blocks that it needs, in all runs together.
    fn blocks_least(&self) -> u64;

    /// Whether logs can be made on the device. Nothing is written.
    ///
    /// # Errors
    /// The reason.
    fn check_device(&self, _: &Site) -> Result<(), AdoptError> {
        Ok(())
    }

    /// Whether records can be written to the logs. Nothing is written.
    ///
    /// # Errors
    /// The reason.
    fn check(&self, _: &Site, _: &Logs) -> impl Future<Output = Result<(), AdoptError>> {
        std::future::ready(Ok(()))
    }

    /// Makes the logs empty and drained, whatever they hold. Durable when it returns.
    ///
    /// # Errors
    /// Those of the device.
    fn format(&self, site: &Site, logs: &Logs) -> impl Future<Output = Result<(), AdoptError>>;

    /// Whether everything is at home, so that nothing would be lost with the logs.
    ///
    /// # Errors
    /// [`AdoptError::NoEngine`] if the logs are not those of an engine, and those of the device.
    fn is_drained(
        &self,
        site: &Site,
        logs: &Logs,
    ) -> impl Future<Output = Result<bool, AdoptError>>;

    /// Brings home what the logs hold, durably, and then notes durably that they are drained.
    ///
    /// # Errors
    /// As [`LogEngine::is_drained`].
    fn drain(&self, site: &Site, logs: &Logs) -> impl Future<Output = Result<(), AdoptError>>;
}

/// Why a file system is not taken over, opened or given back, and what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdoptError {
    /// The device failed, or the file system is refused or damaged.
    #[error(transparent)]
    FileSystem(#[from] manylogs_ext4::Error),
    /// It is adopted already.
    #[error(
        "it is adopted already: mount it in the mode manylogs, or give it back with \
             manylogs fs release"
    )]
    AlreadyAdopted,
    /// It is plain ext4.
    #[error(
        "it is not adopted: it is plain ext4, and has no logs. What its own journal holds goes \
         home by a mount in the mode ordered, or by e2fsck -p"
    )]
    NotAdopted,
    /// A take-over or a release was interrupted.
    #[error("{0} was interrupted: run it again, or undo it with {1}")]
    Interrupted(&'static str, &'static str),
    /// Something other than a log file has its name.
    #[error("the file /.manylogs is there and is no log file: rename it")]
    NameTaken,
    /// Other software uses bytes of the superblock.
    #[error("bytes 0x3e0 to 0x3fb of the superblock are in use by other software")]
    BytesTaken,
    /// The superblock has the bit, but no pointer to the logs.
    #[error(
        "the superblock has the feature bit 0x40000000 and no pointer to a log file: other \
             software has set it, or the superblock was damaged"
    )]
    BitWithoutPointer,
    /// There is no room for logs.
    #[error("no room for logs: {}", no_room(*least_blocks, *longest, elsewhere.as_ref()))]
    NoRoom {
        /// Blocks that a log needs in one free run.
        least_blocks: u32,
        /// The longest free run where logs were looked for.
        longest: Option<Run>,
        /// A free run that is long enough, in a group without a place for a log.
        elsewhere: Option<Run>,
    },
    /// The drive writes larger sectors than blocks.
    #[error(
        "this disk writes sectors of {bytes} bytes and the file system blocks of 4096: a block of \
         a log could not be written without its neighbours. Give --physical-sector 4096 if the \
         drive says that it writes 4096 bytes atomically, even when the power fails"
    )]
    LargeSectors {
        /// Bytes of a sector.
        bytes: u64,
    },
    /// It was used as ext4 although it was adopted, and its journal must be replayed.
    #[error(
        "it was used as ext4 after it was adopted, and was not unmounted cleanly: run e2fsck -fp, \
         and mount it again; or manylogs fs release, which leaves it to ext4"
    )]
    UsedUncleanly,
    /// The log file is not where the pointer says.
    #[error(
        "the log file is not where its pointer says ({0}): a program that ignores the feature \
             bit moved or changed it. Nothing is opened, so that nothing is overwritten; restore a \
             copy of the disk, or take the bit away as docs/mlfs.md says and run e2fsck -f: what \
             the logs held is lost then"
    )]
    LogsMoved(&'static str),
    /// It was used as ext4 although it was adopted, and its logs moved.
    #[error(
        "it has been used as ext4 since it was adopted, and its logs are not where they were: \
             run manylogs fs release, which clears what is left of the adoption"
    )]
    UsedSince,
    /// The bit was cleared while the logs held something.
    #[error(
        "the logs hold changes, and the first superblock has lost the feature bit: other \
             programs may have changed files since. Nothing is opened, so that nothing is \
             overwritten: restore a copy of the disk, or take the other bits away as docs/mlfs.md \
             says and run e2fsck -f: what the logs held is lost then"
    )]
    BitTakenAway,
    /// It was given back, except that the log file is still there, because errors were found in it.
    #[error(
        "everything is home and ext4 has it back, but errors were found in it earlier: run \
             e2fsck -f, and then manylogs fs release again, which removes the log file"
    )]
    HasErrors,
    /// Records are damaged or cannot be read, or blocks are lost with them.
    #[error("the logs: {0}")]
    Damaged(String),
    /// The logs were made for a disk that writes shorter sectors.
    #[error("{0}")]
    ShortSectors(String),
    /// The engine cannot do what it was asked for.
    #[error("the logs: {0}")]
    Engine(String),
    /// The logs are not those of an engine.
    #[error(
        "neither the first nor the last log holds anchors of this file system: they are \
             damaged"
    )]
    NoEngine,
}

/// Text about the free runs that were found, and how to get room.
fn no_room(least: u32, longest: Option<Run>, elsewhere: Option<&Run>) -> String {
    let mib = |blocks: u32| format!("{:.1}", f64::from(blocks) / 256.0);
    let found = match longest {
        Some(run) => {
            let (first, last) = (run.range().start, run.range().end - 1);
            format!("the longest is {} MiB, blocks {first} to {last}", mib(run.blocks))
        }
        None => "there is none".to_owned(),
    };
    let advice = match elsewhere {
        Some(run) => format!(
            "there are {} MiB in one piece at block {}: --log-every 128M looks in every group",
            mib(run.blocks),
            run.start.0
        ),
        None => "remove or move large files until there is one".to_owned(),
    };
    let least = mib(least);
    format!("a log takes a free run of {least} MiB at the end of a stretch, {found}; {advice}")
}

impl From<Refusal> for AdoptError {
    fn from(refusal: Refusal) -> Self {
        Self::FileSystem(refusal.into())
    }
}

impl From<manylogs_block::IoError> for AdoptError {
    fn from(error: manylogs_block::IoError) -> Self {
        Self::FileSystem(error.into())
    }
}

impl Site {
    /// A site on this device, with the system's wall clock.
    #[must_use]
    pub fn new(device: Rc<dyn BlockDevice>, runtime: Handle) -> Self {
        Self { device, runtime, clock: Rc::new(crate::now) }
    }

    /// The same site on another device, e.g. a layer over its own.
    fn over(&self, device: Rc<dyn BlockDevice>) -> Self {
        Self { device, ..self.clone() }
    }

    fn options(&self, read_only: bool) -> manylogs_ext4::Options {
        let (durability, memory) = (Durability::default(), manylogs_ext4::Memory::default());
        let clock = Rc::clone(&self.clock);
        let replay = Default::default();
        manylogs_ext4::Options { clock, read_only, durability, memory, replay }
    }

    /// Replays what is whole in the own journal of a file system that is not adopted and that
    /// nobody uses, and gives up the rest: see [`manylogs_ext4::Ext4::repair_journal`].
    ///
    /// # Errors
    /// Those of [`manylogs_ext4::Ext4::repair_journal`].
    pub async fn repair_journal(&self) -> Result<JournalRepaired, AdoptError> {
        let (device, options) = (Rc::clone(&self.device), self.options(false));
        Ok(manylogs_ext4::Ext4::repair_journal(device, self.runtime.clone(), options).await?)
    }

    /// Gives the own journal of a file system that is not adopted and that nobody uses so many
    /// blocks: see [`manylogs_ext4::Ext4::lengthen_journal`].
    ///
    /// # Errors
    /// Those of [`manylogs_ext4::Ext4::lengthen_journal`].
    pub async fn lengthen_journal(
        &self,
        blocks: u32,
    ) -> Result<manylogs_ext4::Lengthened, AdoptError> {
        let (device, options) = (Rc::clone(&self.device), self.options(false));
        let runtime = self.runtime.clone();
        Ok(manylogs_ext4::Ext4::lengthen_journal(device, runtime, options, blocks).await?)
    }

    /// Mounts it as ext4 with its own journal, which is replayed.
    async fn mount(&self, read_only: bool) -> Result<manylogs_ext4::Ext4, AdoptError> {
        let device = Rc::clone(&self.device);
        let options = self.options(read_only);
        Ok(manylogs_ext4::Ext4::mount(device, self.runtime.clone(), options).await?)
    }
}

impl Logs {
    fn of(uuid: [u8; 16], file: &LogFile) -> Self {
        Self { uuid, runs: file.runs.clone() }
    }

    /// Whether an extent begins in one of the logs.
    fn have(&self, extent: Extent) -> bool {
        self.runs.iter().any(|run| {
            let range = run.range();
            (range.start * BLOCK_SECTORS..range.end * BLOCK_SECTORS).contains(&extent.start.0)
        })
    }

    /// Blocks of all logs.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.blocks)).sum()
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").finish_non_exhaustive()
    }
}
