//! The files of a program's instance on a mounted file system.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{Handle, Nanos, Rng, Time, to_usize};
use manylogs_ext4::{Allocate, DURABLE_XATTR, Error, Ext4, FileKind, Ino, New, SetXattr, Taken};
use manylogs_workload::programs::{FileId, Files, Operation, Pace, Program};

use super::super::disk::{BIG_BYTES, MlfsError, file};
use super::cached::PageCache;
use crate::stats::Latencies;

/// Bytes written at a time when files are filled.
const PIECE_BYTES: u64 = 1 << 20;
/// Seed of the initial files' lengths. It does not depend on the seed of a measurement, so that
/// measurements share disks.
const LENGTHS: u64 = 0xf11e5;

/// The files of an instance before it begins.
#[derive(Clone, Debug)]
pub(super) struct InstanceFiles {
    dir: Ino,
    pub(super) initial: Vec<(FileId, u64)>,
    inos: Vec<Ino>,
}

/// The files of a measurement.
#[derive(Clone, Debug)]
pub(super) struct ApplicationFiles {
    pub(super) big: Ino,
    pub(super) instances: Vec<InstanceFiles>,
}

/// Makes the reader's file, and those of each instance in a directory of its own: ext4 places the
/// directories below the root all over the disk.
pub(super) async fn fill(
    fs: Ext4,
    program: Program,
    instances: u32,
) -> Result<ApplicationFiles, MlfsError> {
    let big = file(&fs, Ino::ROOT, BIG_BYTES).await?;
    let mut rng = Rng::new(LENGTHS);
    let mut all = Vec::new();
    for number in 1..=instances {
        let new = New::plain(FileKind::Directory, 0o755);
        let dir = fs.create(Ino::ROOT, number.to_string().as_bytes(), new).await?.ino;
        let initial = program.initial(&mut rng);
        let mut inos = Vec::with_capacity(initial.len());
        for (id, bytes) in &initial {
            let new = New::plain(FileKind::File, 0o644);
            let ino = fs.create(dir, &name(*id), new).await?.ino;
            write(&fs, ino, 0, *bytes, 0).await?;
            inos.push(ino);
        }
        fs.sync_all().await?;
        all.push(InstanceFiles { dir, initial, inos });
    }
    fs.sync_all().await?;
    Ok(ApplicationFiles { big, instances: all })
}

/// Makes the logs of a program durable-only.
pub(super) async fn keep_logs(
    fs: Ext4,
    program: Program,
    files: ApplicationFiles,
) -> Result<(), Error> {
    for instance in &files.instances {
        let inos = instance.initial.iter().zip(&instance.inos);
        for (_, ino) in inos.filter(|((file, _), _)| program.is_log(*file)) {
            keep_log(&fs, *ino).await?;
        }
    }
    fs.sync_all().await
}

async fn keep_log(fs: &Ext4, ino: Ino) -> Result<(), Error> {
    fs.set_xattr(ino, DURABLE_XATTR.as_bytes(), "1", SetXattr::default()).await
}

fn name(file: FileId) -> Vec<u8> {
    file.0.to_string().into_bytes()
}

async fn write(fs: &Ext4, ino: Ino, offset: u64, bytes: u64, content: u8) -> Result<(), Error> {
    let mut at = 0;
    while at < bytes {
        let len = PIECE_BYTES.min(bytes - at);
        fs.write(ino, offset + at, Bytes::from(vec![content; to_usize(len)])).await?;
        at += len;
    }
    Ok(())
}

/// Counters of all instances, and the times at which counting begins and ends.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) from: Time,
    pub(super) until: Time,
    pub(super) flushes: RefCell<Latencies>,
    pub(super) requests: RefCell<Latencies>,
    pub(super) operations: Cell<u64>,
    pub(super) running: Cell<usize>,
    pub(super) failed: RefCell<Option<Error>>,
    /// When the next measured operation may begin.
    pub(super) pace: Option<Pace>,
}

/// One instance's view of the file system.
pub(super) struct Host {
    runtime: Handle,
    fs: Ext4,
    dir: Ino,
    inos: RefCell<HashMap<FileId, Ino>>,
    cache: Rc<RefCell<PageCache>>,
    counts: Rc<Counts>,
    /// Of new files these are durable-only.
    logs_of: Option<Program>,
}

impl Host {
    pub(super) fn new(
        runtime: &Handle,
        fs: &Ext4,
        files: &InstanceFiles,
        (cache, program): (&Rc<RefCell<PageCache>>, Program),
        counts: &Rc<Counts>,
        odur: bool,
    ) -> Self {
        let ids = files.initial.iter().map(|(id, _)| *id);
        Self {
            runtime: runtime.clone(),
            fs: fs.clone(),
            dir: files.dir,
            inos: RefCell::new(ids.zip(files.inos.iter().copied()).collect()),
            cache: Rc::clone(cache),
            counts: Rc::clone(counts),
            logs_of: odur.then_some(program),
        }
    }

    fn ino(&self, file: FileId) -> Result<Ino, Error> {
        self.inos.borrow().get(&file).copied().ok_or(Error::NotFound)
    }
}

impl Files for Host {
    type Error = Error;

    async fn create(&self, file: FileId) -> Result<(), Error> {
        let new = New::plain(FileKind::File, 0o644);
        let ino = self.fs.create(self.dir, &name(file), new).await?.ino;
        self.inos.borrow_mut().insert(file, ino);
        self.cache.borrow_mut().put(ino, 0);
        match self.logs_of {
            Some(program) if program.is_log(file) => keep_log(&self.fs, ino).await,
            _ => Ok(()),
        }
    }

    async fn delete(&self, file: FileId) -> Result<(), Error> {
        let ino = self.ino(file)?;
        self.fs.unlink(self.dir, &name(file)).await?;
        self.inos.borrow_mut().remove(&file);
        self.cache.borrow_mut().forget(ino);
        Ok(())
    }

    async fn write(&self, file: FileId, offset: u64, bytes: u64) -> Result<(), Error> {
        let ino = self.ino(file)?;
        // As it is: the kernel sends a part of a page to a FUSE server, and keeps no writes back.
        write(&self.fs, ino, offset, bytes, 9).await?;
        // A file that was not wholly in memory still is not.
        let mut cache = self.cache.borrow_mut();
        if cache.has(ino) {
            cache.put(ino, offset + bytes);
        }
        Ok(())
    }

    async fn write_zeroes(&self, file: FileId, bytes: u64) -> Result<(), Error> {
        write(&self.fs, self.ino(file)?, 0, bytes, 0).await
    }

    async fn reserve(&self, file: FileId, bytes: u64) -> Result<(), Error> {
        self.fs.allocate(self.ino(file)?, 0..bytes, Allocate::Blocks, true).await
    }

    async fn rename(&self, from: FileId, to: FileId) -> Result<(), Error> {
        let ino = self.ino(from)?;
        let (old, new) = (name(from), name(to));
        self.fs.rename((self.dir, &old), (self.dir, &new), Taken::Kept).await?;
        let mut inos = self.inos.borrow_mut();
        inos.remove(&from);
        inos.insert(to, ino);
        Ok(())
    }

    async fn read(&self, file: FileId, bytes: u64) -> Result<(), Error> {
        let ino = self.ino(file)?;
        if self.cache.borrow().has(ino) {
            return Ok(());
        }
        let mut at = 0;
        while at < bytes {
            let len = PIECE_BYTES.min(bytes - at);
            self.fs.read(ino, at, to_usize(len)).await?;
            at += len;
        }
        self.cache.borrow_mut().put(ino, bytes);
        Ok(())
    }

    async fn sync(&self, file: FileId) -> Result<(), Error> {
        self.fs.sync(self.ino(file)?).await
    }

    async fn stat(&self, file: FileId) -> Result<(), Error> {
        self.fs.lookup(self.dir, &name(file)).await.map(drop)
    }

    async fn admitted(&self) {
        if let Some(pace) = &self.counts.pace {
            pace.turn(&self.runtime).await;
        }
    }

    fn done(&self, operation: Operation, took: Nanos) {
        let now = self.runtime.now();
        if !(self.counts.from..self.counts.until).contains(&now) {
            return;
        }
        match operation {
            Operation::Flush => self.counts.flushes.borrow_mut().record(took),
            Operation::Request => self.counts.requests.borrow_mut().record(took),
            Operation::Other => self.counts.operations.set(self.counts.operations.get() + 1),
        }
    }

    fn goes_on(&self) -> bool {
        self.runtime.now() < self.counts.until && self.counts.failed.borrow().is_none()
    }

    fn ended(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.counts.failed.borrow_mut().get_or_insert(error);
        }
        self.counts.running.set(self.counts.running.get() - 1);
    }
}
