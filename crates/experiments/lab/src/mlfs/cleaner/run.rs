//! Runs a case in its own simulated world.

use manylogs_block::{Nanos, Rng, Time, to_usize};
use manylogs_ext4::{Change, Error, Ext4, FileKind, Ino, New, SinkStats};
use manylogs_workload::{Zipf, shuffled};

use super::super::disk::{MlfsError, Prepared};
use super::case::CleanerCase;
use crate::stats::round3;

/// Files of a directory: ext4 spreads directories over the disk.
const FILES: u32 = 1024;
/// How often the journal is filled before counting begins, and while it lasts.
const WARM_LAPS: u64 = 2;
const LAPS: u64 = 3;

/// What a case gave, counted when the journal was filled twice, over three laps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerResult {
    /// Blocks written anew for each block that was changed and logged.
    pub renewed: f64,
    /// Blocks written home for each of these.
    pub home: f64,
    /// The longest time that an update, or a sync of some, took.
    pub longest_wait_ms: f64,
    /// Updates a second.
    pub updates_per_s: f64,
}

/// Measures one case on this thread.
///
/// # Errors
/// Whatever fails.
pub fn measure_one(case: &CleanerCase) -> Result<CleanerResult, MlfsError> {
    let blocks = case.blocks();
    let prepared =
        Prepared::within(&case.disk, case.span, async move |fs| make(&fs, blocks).await)?;
    let world = prepared.world(&case.disk)?;
    let mounted = world.mounted(&case.disk)?;
    let fs = mounted.fs().clone();
    fs.clean_by(case.cleaner);
    let mut rng = Rng::new(case.disk.seed);
    let zipf = Zipf::new(blocks, case.exponent, &mut rng);
    let (runtime, inos) = (world.runtime(), prepared.files().clone());
    let (all, lap) = (shuffled(blocks, &mut rng), case.disk.journal.bytes());
    let per_sync = case.per_sync;
    let result = world.run(async move {
        let mut updates = Updates::new(fs, runtime, inos);
        for number in all {
            updates.next(number, per_sync).await?;
        }
        while updates.logged() < WARM_LAPS * lap {
            updates.next(zipf.draw(&mut rng), per_sync).await?;
        }
        updates.longest = Nanos(0);
        let (before, began, done) =
            (updates.fs.journal_stats(), updates.runtime.now(), updates.done);
        while updates.logged() < (WARM_LAPS + LAPS) * lap {
            updates.next(zipf.draw(&mut rng), per_sync).await?;
        }
        Ok::<_, Error>(updates.since(&before, began, done))
    })?;
    world.run(async move { mounted.unmount().await })?;
    Ok(result)
}

/// Makes so many files. Each has an inode in a block of its own.
pub(super) async fn make(fs: &Ext4, count: u32) -> Result<Vec<Ino>, MlfsError> {
    let (mut inos, mut dir) = (Vec::with_capacity(to_usize(count.into())), Ino::ROOT);
    for number in 0..count {
        let name = number.to_string();
        if number % FILES == 0 {
            let new = New::plain(FileKind::Directory, 0o755);
            dir = fs.create(Ino::ROOT, name.as_bytes(), new).await?.ino;
        }
        let new = New::plain(FileKind::File, 0o644);
        inos.push(fs.create(dir, name.as_bytes(), new).await?.ino);
    }
    Ok(inos)
}

/// Updates, one after the other, with syncs.
pub(super) struct Updates {
    fs: Ext4,
    runtime: manylogs_block::Handle,
    inos: Vec<Ino>,
    done: u64,
    longest: Nanos,
}

impl Updates {
    pub(super) const fn new(fs: Ext4, runtime: manylogs_block::Handle, inos: Vec<Ino>) -> Self {
        Self { fs, runtime, inos, done: 0, longest: Nanos(0) }
    }

    /// Whether so much was logged that the map of the journal should be saved.
    pub(super) fn is_map_old(&self) -> bool {
        self.fs.is_map_old()
    }

    pub(super) async fn sync(&self) -> Result<(), Error> {
        self.fs.sync_all().await
    }

    fn logged(&self) -> u64 {
        self.fs.journal_stats().log_bytes
    }

    /// Updates the inode of this number, and syncs all after each `per_sync` updates.
    pub(super) async fn next(&mut self, number: u32, per_sync: u32) -> Result<(), Error> {
        let began = self.runtime.now();
        // Each update gives the inode another mode.
        let permissions = Some(0o400 | (self.done % 64) as u16);
        let change = Change { permissions, ..Change::default() };
        self.fs.change(self.inos[to_usize(number.into())], change).await?;
        self.done += 1;
        if self.done.is_multiple_of(per_sync.max(1).into()) {
            self.fs.sync_all().await?;
        }
        self.longest = self.longest.max(self.runtime.now().since(began));
        Ok(())
    }

    /// What happened since then.
    fn since(&self, before: &SinkStats, began: Time, done: u64) -> CleanerResult {
        let stats = self.fs.journal_stats().since(before);
        let changed = (stats.changed_bytes as f64).max(1.0);
        let seconds = self.runtime.now().since(began).as_secs_f64();
        CleanerResult {
            renewed: round3(stats.renewed_bytes as f64 / changed),
            home: round3(stats.home_bytes as f64 / changed),
            longest_wait_ms: round3(self.longest.as_secs_f64() * 1e3),
            updates_per_s: round3((self.done - done) as f64 / seconds.max(1e-9)),
        }
    }
}
