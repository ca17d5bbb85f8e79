//! Mounting and unmounting.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{BlockDevice, Handle as Executor, IoError, Nanos, Request};
use manylogs_plant::{Bug, is};

use super::{Caller, Durability, ReplayProgress};
use crate::ahead::Ahead;
use crate::alloc::Space;
use crate::cache::{Cache, read_block};
use crate::core::{Core, Mode};
use crate::error::{Error, Refusal, Result};
use crate::file::Backlog;
use crate::geometry::{Geometry, check_state};
use crate::inode::{Ends, Losses, Nodes};
use crate::journal::jbd2::{self, Jbd2Sink, Journalled, LogPlace};
use crate::journal::{CommitSink, Journal};
use crate::marks::without_bit;
use crate::memory::Memory;
use crate::metadata::Metadata;
use crate::ondisk::group::Group;
use crate::ondisk::jbd2::Tid;
use crate::ondisk::superblock::Superblock;
use crate::units::{BlockNo, GroupNo, Run, Timestamp};
use crate::xattr::{DurableNames, Judge};

/// How a file system is mounted.
#[derive(Clone)]
pub struct Options {
    /// The wall clock, for the times of files.
    pub clock: Rc<dyn Fn() -> Timestamp>,
    /// Whether nothing is written, not even by a replay: a file system that needs one is refused.
    pub read_only: bool,
    /// Durability that is promised without syncs.
    pub durability: Durability,
    /// The account of the mount's memory.
    pub memory: Memory,
    /// Where a replay notes how far it is.
    pub replay: ReplayProgress,
}

/// A mounted file system. Clones are the same one.
///
/// Operations are methods in the modules of [`crate`] that they belong to. An operation's future
/// must not be dropped half-way: that would leave others waiting.
#[derive(Clone, Debug)]
pub struct Ext4 {
    pub(crate) core: Rc<Core>,
    /// The user on whose behalf calls are made.
    pub(crate) caller: Caller,
}

impl Ext4 {
    /// Mounts the file system on `device` in [`Mode::Ordered`]: replays its journal, deletes or
    /// cuts its orphans, and starts the background tasks.
    ///
    /// # Errors
    /// [`Error::Refused`] with advice, [`Error::Corrupt`], and those of the device.
    pub async fn mount(
        device: Rc<dyn BlockDevice>,
        runtime: Executor,
        options: Options,
    ) -> Result<Self> {
        Self::mount_in(Mode::Ordered, device, runtime, options).await
    }

    /// As [`Ext4::mount`], in another mode.
    ///
    /// # Errors
    /// As [`Ext4::mount`].
    pub async fn mount_in(
        mode: Mode,
        device: Rc<dyn BlockDevice>,
        runtime: Executor,
        options: Options,
    ) -> Result<Self> {
        let ahead = Rc::new(Ahead::new(device, &options.memory));
        let device = Rc::clone(&ahead) as Rc<dyn BlockDevice>;
        let fs = Self::mount_own(mode, device, runtime, options).await?;
        fs.core.begin_to_read(ahead);
        Ok(fs)
    }

    /// Mounts the file system with its own journal.
    async fn mount_own(
        mode: Mode,
        device: Rc<dyn BlockDevice>,
        runtime: Executor,
        options: Options,
    ) -> Result<Self> {
        let superblock = Self::superblock_of(&device).await?;
        let must_replay = superblock.needs_recovery() && !mode.stays_in_journal();
        if options.read_only && must_replay {
            return Err(Refusal::NeedsCheck("the journal must be replayed").into());
        }
        // What is read now must be durable: the last user may have left it in the device's cache.
        device.submit(Request::Flush).await?;
        let none = || Journal::none(&options.memory);
        let early = Self::load(mode, none(), &device, &runtime, &options).await?;
        let runs = early.core.journal_runs().await?;
        let journal = jbd2::read_superblock(&device, runs).await?.telling(&options.replay);
        let geometry = &early.core.geometry;
        if !superblock.needs_recovery() && journal.superblock.start().is_some() {
            return Err(Refusal::NeedsCheck("the journal holds what no mount announced").into());
        }
        if mode.stays_in_journal() && superblock.needs_recovery() {
            let (format, blocks) = (geometry.journal_format(), geometry.blocks);
            let opened = jbd2::open(&device, &journal, format, blocks, &options.memory).await?;
            if let Some(sink) = opened
                && let Some(fs) =
                    Self::go_on(sink, &journal.place, &device, &runtime, &options).await?
            {
                return Ok(fs);
            }
            if options.read_only {
                return Err(Refusal::NeedsCheck("the journal must be replayed").into());
            }
        }
        let replayed = if superblock.needs_recovery() {
            jbd2::replay_whole(&device, &journal, geometry, &options.memory).await?
        } else {
            journal.next_if_empty()
        };
        // The replay may have changed all metadata that was read so far.
        let loaded = Self::load(mode, none(), &device, &runtime, &options).await?;
        let runs = loaded.check_journal(&journal.place).await?;
        loaded.begin(journal, &runs, replayed).await
    }

    /// Mounts with the log of `sink` as it is: its blocks are read in place of their homes. Before,
    /// at most the note of a saved map was changed. `None` if a copy is damaged that the mount
    /// needs, or if the journal's file has grown and its inode is not home: a replay says what is
    /// lost, and brings the inode home.
    async fn go_on(
        sink: Jbd2Sink,
        place: &LogPlace,
        device: &Rc<dyn BlockDevice>,
        runtime: &Executor,
        options: &Options,
    ) -> Result<Option<Self>> {
        let next = sink.go_on(options.read_only).await?;
        let journal = Journal::new(Rc::new(sink), next, &options.memory);
        let loading = async {
            let loaded = Self::load(Mode::Lazy, journal, device, runtime, options).await?;
            loaded.check_journal(place).await.map(|runs| (loaded, runs))
        };
        let (loaded, runs) = match loading.await {
            Err(Error::Io(IoError::Checksum { .. })) => return Ok(None),
            loaded => loaded?,
        };
        // The inode at home still names nodes that the log has freed. If somebody used these,
        // nobody would find the log.
        if !options.read_only && !place.is_all(&runs) && !is(Bug::LengthenedNotReplayed) {
            return Ok(None);
        }
        let mut core = loaded.alone();
        core.metadata_mut().geometry.add_journal(&runs);
        if core.read_only {
            return Ok(Some(Self::of(Rc::new(core))));
        }
        let fs = Self::start(core).await?;
        fs.core.log_superblock(Superblock::set_has_large_files).await?;
        Ok(Some(fs))
    }

    /// Checks that the log lies where it was found before the replay, and returns the blocks of
    /// the journal's file: it may have grown ([`Ext4::lengthen_journal`]).
    pub(super) async fn check_journal(&self, place: &LogPlace) -> Result<Vec<Run>> {
        let runs = self.core.journal_runs().await?;
        if place.lies_in(&runs) {
            return Ok(runs);
        }
        Err(Refusal::NeedsCheck("the journal's own inode changed").into())
    }

    /// Mounts a file system whose transactions go through `sink`, not into its own journal, which
    /// must need no replay. The sink brings blocks home to `device`; reads of `device` must return
    /// the newest durable version, from the sink or from home. The sink is ready, and only this
    /// mount uses it. The file system may belong to MLFS.
    ///
    /// # Errors
    /// As [`Ext4::mount`].
    pub async fn mount_through(
        sink: Rc<dyn CommitSink>,
        mode: Mode,
        device: Rc<dyn BlockDevice>,
        runtime: Executor,
        options: Options,
    ) -> Result<Self> {
        let ahead = Rc::new(Ahead::new(device, &options.memory));
        let device = Rc::clone(&ahead) as Rc<dyn BlockDevice>;
        let superblock = Self::superblock_to_mount_through(&device).await?;
        let block = read_block(&*device, BlockNo(0)).await?;
        let none = Journal::none(&options.memory);
        let loaded = Self::load_as(&superblock, block, mode, none, &device, &runtime, &options);
        let loaded = loaded.await?;
        let runs = loaded.core.journal_runs().await?;
        let journal = jbd2::read_superblock(&device, runs.clone()).await?;
        if journal.superblock.start().is_some() {
            return Err(Refusal::NeedsReplay.into());
        }
        let mut core = loaded.alone();
        core.metadata_mut().geometry.add_journal(&runs);
        if core.read_only {
            core.begin_to_read(ahead);
            return Ok(Self::of(Rc::new(core)));
        }
        core.metadata_mut().journal = Journal::new(sink, Tid(1), &core.memory);
        // Before the first commit, of which it must know.
        core.begin_to_read(ahead);
        Self::start(core).await
    }

    /// Sets the interval of write-back and of commits; 5 s by default.
    pub fn commit_every(&self, span: Nanos) {
        self.core.journal.interval.set(span);
    }

    /// New and renamed files with such names get [`DURABLE_XATTR`](crate::DURABLE_XATTR).
    pub fn keep_named(&self, names: DurableNames) {
        self.core.judge.set(names);
    }

    /// From now on, data of [`Ext4::write_synced`] counts as durable-only.
    pub fn keep_synced_writes(&self) {
        self.core.keeps_synced.set(true);
    }

    /// Checks that the superblock allows [`Ext4::mount_through`]. Nothing is written.
    ///
    /// # Errors
    /// [`Error::Refused`] with advice, [`Error::Corrupt`], and those of the device.
    pub async fn check_mount_through(device: &Rc<dyn BlockDevice>) -> Result<()> {
        Self::superblock_to_mount_through(device).await.map(drop)
    }

    /// The checked superblock, without the bit of MLFS.
    pub(crate) async fn superblock_to_mount_through(
        device: &Rc<dyn BlockDevice>,
    ) -> Result<Superblock> {
        let superblock = Self::superblock_of(device).await?;
        if superblock.is_mlfs() && superblock.has_errors() {
            return Err(Refusal::NeedsRelease.into());
        }
        let superblock = without_bit(&superblock);
        check_state(&superblock)?;
        if superblock.needs_recovery() {
            return Err(Refusal::NeedsReplay.into());
        }
        Geometry::of(&superblock)?;
        Ok(superblock)
    }

    pub(super) async fn superblock_of(device: &Rc<dyn BlockDevice>) -> Result<Superblock> {
        let block = read_block(&**device, BlockNo(0)).await?;
        let superblock = Superblock::decode(&block)?;
        superblock.check_size(device.capabilities().capacity)?;
        Ok(superblock)
    }

    const fn of(core: Rc<Core>) -> Self {
        Self { core, caller: Caller::ROOT }
    }

    /// The core of a file system that was loaded and that nobody else uses yet.
    fn alone(self) -> Core {
        let Ok(core) = Rc::try_unwrap(self.core) else {
            unreachable!("nobody else knows of it yet");
        };
        core
    }

    /// Starts the tasks, and finishes the orphans.
    async fn start(core: Core) -> Result<Self> {
        let core = Rc::new(core);
        core.start_tasks();
        if let Err(error) = core.end_found_orphans().await {
            core.journal.end().await;
            return Err(error);
        }
        Ok(Self::of(core))
    }

    /// Loads a file system, with the journal's newer blocks. Nothing may be written to it yet.
    async fn load(
        mode: Mode,
        journal: Journal,
        device: &Rc<dyn BlockDevice>,
        runtime: &Executor,
        options: &Options,
    ) -> Result<Self> {
        let block = journal.read_early(&**device, &[BlockNo(0)]).await?.remove(0);
        let superblock = Superblock::decode(&block)?;
        check_state(&superblock)?;
        Self::load_as(&superblock, block, mode, journal, device, runtime, options).await
    }

    /// As [`Ext4::load`], with this superblock; `block` is block 0.
    pub(crate) async fn load_as(
        superblock: &Superblock,
        block: Bytes,
        mode: Mode,
        journal: Journal,
        device: &Rc<dyn BlockDevice>,
        runtime: &Executor,
        options: &Options,
    ) -> Result<Self> {
        let mut geometry = Geometry::of(superblock)?;
        let cache = Cache::new(options.memory.clone());
        let blocks = geometry.descriptor_blocks()?;
        let contents = journal.read_early(&**device, &blocks).await?;
        let found = blocks.into_iter().zip(contents);
        let tables = found.map(|(block, content)| cache.insert(block, content)).collect::<Vec<_>>();
        let (mut free_blocks, mut free_inodes) = (0, 0);
        for group in (0..geometry.groups).map(GroupNo) {
            let (table, range) = geometry.descriptor_at(group);
            let bytes = tables[table].bytes();
            let descriptor = Group(&bytes[range]);
            geometry.add_group(group, &descriptor)?;
            free_blocks += u64::from(descriptor.free_blocks());
            free_inodes += u64::from(descriptor.free_inodes());
        }
        let metadata = Metadata {
            device: Rc::clone(device),
            runtime: runtime.clone(),
            clock: Rc::clone(&options.clock),
            space: Space::new(geometry.blocks, free_blocks, free_inodes),
            superblock: cache.insert(BlockNo(0), block),
            journal,
            geometry,
            cache,
            tables,
            orphans: RefCell::default(),
            damage: RefCell::default(),
            read_only: options.read_only,
            mode,
            ahead: OnceCell::new(),
        };
        let core = Core {
            metadata: Rc::new(metadata),
            nodes: Nodes::new(&options.memory),
            backlog: Backlog::default(),
            ends: Ends::default(),
            syncs: Cell::default(),
            durability: options.durability,
            descriptors: Cell::default(),
            losses: Losses::default(),
            listener: RefCell::default(),
            judge: Judge::default(),
            keeps_synced: Cell::default(),
            memory: options.memory.clone(),
        };
        Ok(Self::of(Rc::new(core)))
    }

    /// Gives a loaded file system its journal, after which it may be written.
    async fn begin(self, mut journal: Journalled, runs: &[Run], next: Tid) -> Result<Self> {
        let mut core = self.alone();
        core.metadata_mut().geometry.add_journal(runs);
        if core.read_only {
            return Ok(Self::of(Rc::new(core)));
        }
        let format = core.geometry.journal_format();
        // First the journal is marked as empty, then the file system as one that may need a replay.
        jbd2::reset(&core.device, &mut journal, next, format).await?;
        let device = Rc::clone(&core.device);
        let Journalled { place, superblock, .. } = journal;
        let sink = Jbd2Sink::new(core.mode, device, place, superblock, &core.memory);
        let sink = Rc::new(sink);
        core.metadata_mut().journal = Journal::new(Rc::clone(&sink) as Rc<_>, next, &core.memory);
        core.write_superblock(|superblock| {
            superblock.set_needs_recovery(true);
            // Any write may make a file of 2 GiB, and the feature does no harm without such files.
            superblock.set_has_large_files();
        })
        .await?;
        sink.begin().await?;
        Self::start(core).await
    }
}

impl Core {
    async fn end_found_orphans(&self) -> Result<()> {
        let mut orphans = self.read_orphans().await?;
        if is(Bug::Ext4OrphansNotEnded) {
            orphans.clear();
        }
        *self.orphans.borrow_mut() = orphans;
        self.finish_orphans().await
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}
