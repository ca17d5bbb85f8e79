//! The operations of Postmark (*Evolving Ext4 for Shingled Disks*, section 4.2.2). All directories
//! lie in the root, so that ext4 spreads them and their metadata over the disk.

use std::collections::HashMap;

use manylogs_block::{Handle, Rng, to_usize};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};
use manylogs_workload::programs::{Postmark, PostmarkFile, PostmarkRun, PostmarkStep};

use super::programs::{Done, write};

/// Does all of it, durably.
///
/// # Errors
/// Those of the file system.
pub(super) async fn run(
    fs: Ext4,
    clock: Handle,
    program: Postmark,
    rng: Rng,
) -> Result<Done, Error> {
    let mut work = Work { fs, directories: Vec::new(), files: HashMap::new(), written: 0 };
    let mut run = PostmarkRun::new(program, rng);
    work.fill(&program, &mut run).await?;
    let prepared = clock.now();
    for _ in 0..program.transactions {
        for step in run.transaction() {
            work.take(step).await?;
        }
    }
    work.fs.sync_all().await?;
    Ok(Done { prepared, written: work.written, operations: program.transactions.into() })
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
        self.written += bytes;
        write(&self.fs, ino, offset, bytes).await
    }
}
