//! The operations of builds: of one tree of sources, and of many, in MLFS.

use std::collections::HashMap;

use manylogs_block::{Handle, Rng};
use manylogs_ext4::{Change, Error, Ext4, FileKind, Ino, New};
use manylogs_workload::programs::{
    CompileBench, CompileBenchRun, SourceDirectory, SourceFile, SourceKind, SourceStep, SourceTree,
};

use super::programs::{Done, write};

/// Makes a tree durably, and builds it.
///
/// # Errors
/// Those of the file system.
pub(super) async fn build(
    fs: Ext4,
    clock: Handle,
    tree: SourceTree,
    mut rng: Rng,
) -> Result<Done, Error> {
    let mut work = Work::new(fs, clock);
    for step in tree.make(0, &mut rng) {
        work.take(step).await?;
    }
    work.fs.sync_all().await?;
    let prepared = work.clock.now();
    work.written = 0;
    for step in tree.build(&mut rng) {
        work.take(step).await?;
    }
    work.fs.sync_all().await?;
    Ok(Done { prepared, written: work.written, operations: tree.sources.into() })
}

/// Does all that Compilebench does, durably.
///
/// # Errors
/// Those of the file system.
pub(super) async fn compile_bench(
    fs: Ext4,
    clock: Handle,
    bench: CompileBench,
    rng: Rng,
) -> Result<Done, Error> {
    let mut work = Work::new(fs, clock);
    let (prepared, mut operations) = (work.clock.now(), 0);
    for step in CompileBenchRun::new(bench, rng) {
        work.take(step).await?;
        operations += 1;
    }
    work.fs.sync_all().await?;
    Ok(Done { prepared, written: work.written, operations })
}

/// The file system, and what is on it.
struct Work {
    fs: Ext4,
    clock: Handle,
    directories: HashMap<SourceDirectory, Ino>,
    files: HashMap<SourceFile, Ino>,
    written: u64,
}

impl Work {
    fn new(fs: Ext4, clock: Handle) -> Self {
        Self { fs, clock, directories: HashMap::new(), files: HashMap::new(), written: 0 }
    }

    fn place(&self, directory: SourceDirectory) -> Result<Ino, Error> {
        self.directories.get(&directory).copied().ok_or(Error::NotFound)
    }

    async fn take(&mut self, step: SourceStep) -> Result<(), Error> {
        match step {
            SourceStep::MakeDirectory(directory) => {
                let parent = directory.parent().map(|parent| self.place(parent)).transpose()?;
                let name = match parent {
                    None => format!("tree {}", directory.tree),
                    Some(_) => format!("directory {}", directory.number),
                };
                let new = New::plain(FileKind::Directory, 0o755);
                let parent = parent.unwrap_or(Ino::ROOT);
                let made = self.fs.create(parent, name.as_bytes(), new).await?;
                self.directories.insert(directory, made.ino);
                Ok(())
            }
            SourceStep::Write(file, bytes) => self.write(file, bytes).await,
            // Content is in the host's memory.
            SourceStep::Read(file) => {
                let parent = self.place(file.directory)?;
                self.fs.lookup(parent, name(file).as_bytes()).await.map(drop)
            }
            SourceStep::Delete(file) => {
                let parent = self.place(file.directory)?;
                self.files.remove(&file);
                self.fs.unlink(parent, name(file).as_bytes()).await.map(drop)
            }
            SourceStep::Compute(span) => {
                self.clock.sleep(span).await;
                Ok(())
            }
        }
    }

    /// Writes a file, which is cut to nothing before if it is there.
    async fn write(&mut self, file: SourceFile, bytes: u64) -> Result<(), Error> {
        let ino = match self.files.get(&file) {
            Some(ino) => {
                let cut = Change { size: Some(0), ..Change::default() };
                self.fs.change(*ino, cut).await?;
                *ino
            }
            None => {
                let new = New::plain(FileKind::File, 0o644);
                let parent = self.place(file.directory)?;
                self.fs.create(parent, name(file).as_bytes(), new).await?.ino
            }
        };
        self.files.insert(file, ino);
        self.written += bytes;
        write(&self.fs, ino, 0, bytes).await
    }
}

fn name(file: SourceFile) -> String {
    let number = file.number;
    match file.kind {
        SourceKind::Source => format!("source{number}.c"),
        SourceKind::Object => format!("source{number}.o"),
        SourceKind::Headers => format!(".source{number}.o.d"),
        SourceKind::Command => format!(".source{number}.o.cmd"),
        SourceKind::Linked => "built-in.o".to_owned(),
    }
}
