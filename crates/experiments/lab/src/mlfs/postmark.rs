//! Postmark on MLFS, in virtual time, in each mode of the journal (*Evolving Ext4 for Shingled
//! Disks*, section 4.2.2). All directories lie in the root, so that ext4 spreads them and their
//! metadata over the disk.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{Handle, Nanos, Rng, Sectors, to_usize};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};
use manylogs_workload::programs::{Postmark, PostmarkFile, PostmarkRun, PostmarkStep};

use super::case::DiskCase;
use super::disk::{MlfsError, Prepared, World};
use crate::stats::round3;

/// Bytes that are written at a time: the paper's size of an I/O.
const PIECE_BYTES: usize = 1 << 20;
/// What is written. Its value does not matter.
static CONTENT: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// Postmark on one disk.
#[derive(Clone, Debug)]
pub struct PostmarkCase {
    /// The disk, and the mode of its journal.
    pub disk: DiskCase,
    /// Length of the file system, at the beginning of the disk.
    pub span: Sectors,
    /// What is done.
    pub program: Postmark,
    /// In such intervals everything is brought home, as a kernel's ext4 brings metadata home some
    /// time after its last change; `None` leaves that to the mode.
    pub home_every: Option<Nanos>,
}

/// What a case gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PostmarkResult {
    /// The working set, until all of it is durable.
    pub fill_s: f64,
    /// The transactions, until all of them are durable.
    pub transactions_s: f64,
    /// The unmount.
    pub leave_s: f64,
    /// Bands that a shingled drive has to clean then.
    pub dirty_bands: u64,
    /// For how long it does so.
    pub clean_s: f64,
    /// Content that was written.
    pub written_mib: f64,
    /// Metadata that was written home before the unmount.
    pub home_mib: f64,
}

/// Measures one case on this thread. Content that was written is in the host's memory, so that
/// nothing is read: the paper, too, looks at writes alone.
///
/// # Errors
/// [`MlfsError::Setting`] without a directory, and whatever fails; a checkpoint of
/// [`PostmarkCase::home_every`] too: without it the case would be another one.
pub fn measure_one(case: &PostmarkCase) -> Result<PostmarkResult, MlfsError> {
    if case.program.directories == 0 {
        return Err(MlfsError::Setting("Postmark needs a directory for its files".to_owned()));
    }
    let prepared = Prepared::within(&case.disk, case.span, async |_| Ok(()))?;
    let world = prepared.world(&case.disk)?;
    world.cool()?;
    let mounted = world.mounted(&case.disk)?;
    let (fs, runtime) = (mounted.fs().clone(), world.runtime());
    let (program, rng) = (case.program, Rng::new(case.disk.seed));
    let homes = Rc::new(Homes::default());
    if let Some(span) = case.home_every {
        runtime.spawn(Rc::clone(&homes).bring(fs.clone(), runtime.clone(), span));
    }
    let began = world.now();
    let mut work = Work { fs, directories: Vec::new(), files: HashMap::new(), written: 0 };
    let mut run = PostmarkRun::new(program, rng);
    let (mut work, mut run) = world.run(async move {
        work.fill(&program, &mut run).await?;
        Ok::<_, Error>((work, run))
    })?;
    let filled = world.now();
    let work = world.run(async move {
        for _ in 0..program.transactions {
            for step in run.transaction() {
                work.take(step).await?;
            }
        }
        work.fs.sync_all().await?;
        Ok::<_, Error>(work)
    })?;
    let done = world.now();
    homes.ended.set(true);
    homes.failure.take().map_or(Ok(()), Err)?;
    let home = work.fs.journal_stats().home_bytes;
    let written = work.written;
    drop(work);
    world.run(async move { mounted.unmount().await })?;
    let left = world.now();
    Ok(figures(
        &world,
        [filled.since(began), done.since(filled), left.since(done)],
        [written, home],
    ))
}

fn figures(world: &World, spans: [Nanos; 3], bytes: [u64; 2]) -> PostmarkResult {
    let seconds = |span: Nanos| round3(span.as_secs_f64());
    let [fill_s, transactions_s, leave_s] = spans.map(seconds);
    let [written_mib, home_mib] = bytes.map(|bytes| round3(bytes as f64 / f64::from(1 << 20)));
    let dirty_bands = world.dirty_bands();
    let clean_s = seconds(world.let_clean());
    PostmarkResult { fill_s, transactions_s, leave_s, dirty_bands, clean_s, written_mib, home_mib }
}

/// The checkpoints beside the program.
#[derive(Default)]
struct Homes {
    /// Whether the program has ended.
    ended: Cell<bool>,
    /// Why they ended before it.
    failure: RefCell<Option<Error>>,
}

impl Homes {
    /// Brings everything home in intervals until the program has ended, or until that fails.
    async fn bring(self: Rc<Self>, fs: Ext4, runtime: Handle, span: Nanos) {
        loop {
            runtime.sleep(span).await;
            if self.ended.get() {
                return;
            }
            if let Err(error) = fs.bring_home().await {
                self.failure.replace(Some(error));
                return;
            }
        }
    }
}

/// The file system, and what is on it.
struct Work {
    fs: Ext4,
    directories: Vec<Ino>,
    files: HashMap<PostmarkFile, Ino>,
    written: u64,
}

impl Work {
    /// Makes the directories and the working set, durably.
    async fn fill(&mut self, program: &Postmark, run: &mut PostmarkRun) -> Result<(), Error> {
        for number in 0..program.directories {
            let (name, new) = (format!("s{number}"), New::plain(FileKind::Directory, 0o755));
            let made = self.fs.create(Ino::ROOT, name.as_bytes(), new).await?;
            self.directories.push(made.ino);
        }
        for _ in 0..program.files {
            self.take(run.create()).await?;
        }
        self.fs.sync_all().await
    }

    async fn take(&mut self, step: PostmarkStep) -> Result<(), Error> {
        match step {
            PostmarkStep::Create(file, bytes) => {
                let (dir, name) = self.place(file);
                let new = New::plain(FileKind::File, 0o644);
                let ino = self.fs.create(dir, name.as_bytes(), new).await?.ino;
                self.files.insert(file, ino);
                self.write(ino, 0, bytes).await
            }
            PostmarkStep::Append { file, offset, bytes } => {
                let ino = self.files.get(&file).copied().ok_or(Error::NotFound)?;
                self.write(ino, offset, bytes).await
            }
            // Content is in the host's memory.
            PostmarkStep::Read(file, _) => {
                let (dir, name) = self.place(file);
                self.fs.lookup(dir, name.as_bytes()).await.map(drop)
            }
            PostmarkStep::Delete(file) => {
                let (dir, name) = self.place(file);
                self.files.remove(&file);
                self.fs.unlink(dir, name.as_bytes()).await.map(drop)
            }
        }
    }

    /// The directory of a file, and its name there.
    fn place(&self, file: PostmarkFile) -> (Ino, String) {
        (self.directories[to_usize(file.directory.into())], file.number.to_string())
    }

    async fn write(&mut self, ino: Ino, offset: u64, bytes: u64) -> Result<(), Error> {
        let mut at = 0;
        while at < bytes {
            let len = to_usize(bytes - at).min(PIECE_BYTES);
            self.fs.write(ino, offset + at, Bytes::from_static(&CONTENT[..len])).await?;
            at += len as u64;
        }
        self.written += bytes;
        Ok(())
    }
}
