//! A client that does one step after another in a directory of its own.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, to_usize};
use manylogs_ext4::{Allocate, Change, Error, Ext4, FileKind, Ino, New};

use super::homes::Births;
use super::judge::FILE_MOST;
use super::model::{FileId, History, Model};
use super::plan::Shape;

/// The largest size of a file.
const SIZE_MOST: u64 = 400_000;

pub(crate) struct Client {
    pub(crate) fs: Ext4,
    pub(crate) runtime: Handle,
    pub(crate) name: Vec<u8>,
    pub(crate) model: Rc<RefCell<Model>>,
    pub(crate) rng: RefCell<Rng>,
    pub(crate) shape: Shape,
    /// Whether some files need durability and no place.
    pub(crate) durable: bool,
    /// Number of the mount.
    pub(crate) mount: u64,
    /// Files that had the property from their birth on.
    pub(crate) births: Births,
    /// Last number that was given to a name or a content.
    pub(crate) next: Cell<u64>,
    /// An open file that was unlinked.
    pub(crate) open: Cell<Option<Ino>>,
    /// Number of requests that the device failed; `None` if it may not fail any.
    pub(crate) failed: Option<Rc<Cell<u64>>>,
    /// Whether the content of a file is neither known nor readable.
    pub(crate) ended: Cell<bool>,
    /// Number of losses of the file system at the client's last check.
    pub(crate) losses: Cell<u64>,
}

impl Client {
    /// Makes the directory durably, unless it exists. Works in it until the steps are done, or
    /// until the device has failed so badly that no change is possible.
    pub(crate) async fn run(&self, steps: u64) -> Result<(), Error> {
        match self.work(steps).await {
            Err(error) if self.is_failure(&error) => Ok(()),
            done => done,
        }
    }

    /// Whether the error is due to a failure of the device.
    fn is_failure(&self, error: &Error) -> bool {
        let failed = self.failed.as_ref().is_some_and(|failed| failed.get() > 0);
        failed && matches!(error, Error::Io(_) | Error::Aborted(_))
    }

    async fn work(&self, steps: u64) -> Result<(), Error> {
        let new = New::plain(FileKind::Directory, 0o755);
        let dir = match self.fs.create(Ino::ROOT, &self.name, new).await {
            Err(Error::Exists) => self.fs.lookup(Ino::ROOT, &self.name).await?.ino,
            made => made?.ino,
        };
        self.fs.sync(Ino::ROOT).await?;
        self.changed().dir = Some(dir);
        if self.durable && self.below(2) == 0 {
            self.set_durable(dir, true).await?;
        }
        for _ in 0..steps {
            let done = match self.durable && self.below(5) == 0 {
                true => self.durable(dir).await,
                false => self.step(dir).await,
            };
            self.look_after_losses().await?;
            match done {
                Ok(()) | Err(Error::NoSpace) => {}
                Err(error @ Error::Io(_)) if self.is_failure(&error) && !self.ended.get() => {}
                Err(error) => return Err(error),
            }
            if self.below(10) == 0 {
                self.runtime.sleep(Nanos::from_millis(1 << self.below(13))).await;
                self.look_after_losses().await?;
            }
        }
        Ok(())
    }

    /// After a loss, reads all files to learn what the device has lost for good.
    async fn look_after_losses(&self) -> Result<(), Error> {
        if self.losses.replace(self.fs.losses()) == self.fs.losses() {
            return Ok(());
        }
        let files: Vec<_> = self.model.borrow().now().values().copied().collect();
        for (ino, id) in files {
            let Some(id) = id else { continue };
            let found = self.fs.read(ino, 0, FILE_MOST).await;
            let found = found.inspect_err(|_| self.ended.set(true))?;
            self.push(id, found.to_vec());
        }
        Ok(())
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    /// The model, to be changed.
    pub(super) fn changed(&self) -> RefMut<'_, Model> {
        let mut model = self.model.borrow_mut();
        model.moment += 1;
        model
    }

    pub(super) fn number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    pub(super) fn any_file(&self) -> Option<(Vec<u8>, Ino, FileId)> {
        let model = self.model.borrow();
        let names = model.now().iter();
        let files: Vec<_> = names.filter_map(|(n, (ino, id))| Some((n, *ino, (*id)?))).collect();
        let (name, ino, id) = *files.get(to_usize(self.below(files.len() as u64)))?;
        Some((name.clone(), ino, id))
    }

    async fn step(&self, dir: Ino) -> Result<(), Error> {
        match self.pick() {
            0..4 if self.below(8) == 0 => self.create_unnamed(dir).await,
            0..4 => self.create(dir).await,
            4..9 => self.write().await,
            9 => self.cut().await,
            10 if self.below(3) == 0 => self.replace_content().await,
            10 => self.allocate().await,
            11 => self.unlink(dir).await,
            12 => self.unlink_open(dir).await,
            13 => self.directories(dir).await,
            14 if self.below(2) == 0 => self.link(dir).await,
            14 => self.rename(dir).await,
            15 => self.sync_names(dir).await,
            16 if self.below(4) == 0 => self.sync_all().await,
            _ => self.sync().await,
        }
    }

    /// Draws the next step. Every second one is of the kind that the client prefers.
    fn pick(&self) -> u64 {
        match self.shape {
            Shape::ManyNames if self.below(2) == 0 => 0,
            Shape::Scattered if self.below(2) == 0 => 4 + self.below(7),
            _ => self.below(20),
        }
    }

    async fn create(&self, dir: Ino) -> Result<(), Error> {
        let least = if self.shape == Shape::ManyNames { 160 } else { 0 };
        let pad = "x".repeat(to_usize(least + self.below(60)));
        let name = format!("file {} {pad}", self.number()).into_bytes();
        let id = FileId(self.next.get());
        self.changed().files.insert(id, History::of(vec![Vec::new()]));
        self.make(dir, name, FileKind::File, Some(id)).await
    }

    /// Creates a file without a name, writes to it, and gives it a name or drops it.
    async fn create_unnamed(&self, dir: Ino) -> Result<(), Error> {
        let new = self.new_inode(FileKind::File, 0o644);
        let born = self.moment();
        let made = self.fs.create_unnamed(dir, new, true).await?;
        self.note_birth(&made, born).await?;
        let (ino, id) = (made.ino, FileId(self.number()));
        let bytes = self.content_at(id.0, 0, to_usize(self.below(30_000)));
        let written = self.fs.write(ino, 0, bytes.clone()).await;
        if self.below(2) == 0 {
            self.fs.sync(ino).await?;
        }
        if written.is_ok() && self.below(3) > 0 {
            let name = format!("born {}", id.0).into_bytes();
            let history = History::of(vec![Vec::new(), bytes]);
            self.changed().files.insert(id, history);
            self.changed().rename(&[ino], |names| {
                names.insert(name.clone(), (ino, Some(id)));
            });
            let done = self.fs.link(ino, dir, &name).await;
            self.undo_if(done)?;
        }
        self.fs.close(ino, 1).await
    }

    async fn make(
        &self,
        dir: Ino,
        name: Vec<u8>,
        kind: FileKind,
        id: Option<FileId>,
    ) -> Result<(), Error> {
        self.changed().coming = Some(name.clone());
        let born = self.moment();
        let made = self.fs.create(dir, &name, self.new_inode(kind, 0o755)).await;
        self.changed().coming = None;
        let made = made?;
        self.changed().rename(&[made.ino], |names| {
            names.insert(name, (made.ino, id));
        });
        self.note_birth(&made, born).await
    }

    async fn write(&self) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        let size = self.model.borrow().files[&id].now().len() as u64;
        let offset = match self.shape {
            Shape::Scattered => 8192 * self.below(48),
            _ if self.below(2) == 0 => size,
            _ => self.below(size + 20_000),
        };
        // With a device that may fail, more writes are long enough to go home at once.
        let longest = if self.failed.is_some() { 16 } else { 13 };
        let len = 1 + self.below(1 << (4 + self.below(longest)));
        let (offset, len) = (offset.min(SIZE_MOST), to_usize(len));
        let bytes = self.content_at(self.number(), offset, len);
        let mut after = self.model.borrow().files[&id].now().to_vec();
        after.resize(after.len().max(to_usize(offset) + len), 0);
        after[to_usize(offset)..to_usize(offset) + len].copy_from_slice(&bytes);
        // A write under way may be on the device in part. Other programs see all of it only
        // afterwards.
        self.push(id, after);
        let written = self.fs.write(ino, offset, bytes).await;
        if written.is_err() {
            self.changed().files.entry(id).or_default().contents.pop();
            return written;
        }
        if self.below(4) == 0 {
            let read = self.fs.read(ino, 0, FILE_MOST).await?;
            let model = self.model.borrow();
            if read != model.files[&id].now() && self.losses.get() == self.fs.losses() {
                return Err(Error::Invalid("what was written is not read"));
            }
        }
        Ok(())
    }

    pub(super) fn push(&self, id: FileId, content: Vec<u8>) {
        let mut model = self.changed();
        if let Some(history) = model.files.get_mut(&id) {
            history.contents.push(content);
        }
    }

    async fn cut(&self) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        let mut after = self.model.borrow().files[&id].now().to_vec();
        let size = self.below(after.len() as u64 * 5 / 4 + 1);
        after.resize(to_usize(size), 0);
        self.push(id, after);
        let change = Change { size: Some(size), ..Change::default() };
        let done = self.fs.change(ino, change).await.map(drop);
        self.note_refused(ino, id, done).await
    }

    /// An operation that found no room, or that the device failed, may have taken effect in part.
    /// The file is then read: its content must lie between its last two, and counts from now on.
    pub(super) async fn note_refused(
        &self,
        ino: Ino,
        id: FileId,
        done: Result<(), Error>,
    ) -> Result<(), Error> {
        let refused = |error: &Error| *error == Error::NoSpace || self.is_failure(error);
        if done.as_ref().is_err_and(refused) {
            let found = self.fs.read(ino, 0, FILE_MOST).await;
            let found = found.inspect_err(|_| self.ended.set(true))?.to_vec();
            let checked =
                self.model.borrow().files.get(&id).map_or(Ok(()), |file| file.check(&found));
            if checked.is_err() && self.losses.get() == self.fs.losses() {
                return Err(Error::Invalid("a refused operation left what was never there"));
            }
            self.push(id, found);
        }
        done
    }

    /// Allocates blocks of a file, or punches a hole.
    async fn allocate(&self) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        let mut after = self.model.borrow().files[&id].now().to_vec();
        let from = self.below(after.len() as u64 + 10_000);
        let end = from + 1 + self.below(40_000);
        let hole = self.below(2) == 0;
        if hole {
            let (from, end) = (to_usize(from).min(after.len()), to_usize(end).min(after.len()));
            after[from..end].fill(0);
        } else {
            after.resize(after.len().max(to_usize(end)), 0);
        }
        self.push(id, after);
        let what = if hole { Allocate::Hole } else { Allocate::Blocks };
        let done = self.fs.allocate(ino, from..end, what, false).await;
        self.note_refused(ino, id, done).await
    }

    async fn unlink(&self, dir: Ino) -> Result<(), Error> {
        let Some((name, ino, _)) = self.any_file() else { return Ok(()) };
        // From now on a crash may show either state.
        self.changed().rename(&[ino], |names| {
            names.remove(&name);
        });
        let done = self.fs.unlink(dir, &name).await;
        self.undo_if(done)
    }

    /// Opens a file and unlinks it, or closes the one that is open.
    async fn unlink_open(&self, dir: Ino) -> Result<(), Error> {
        if let Some(ino) = self.open.take() {
            return self.fs.close(ino, 1).await;
        }
        let Some((name, ino, _)) = self.any_file() else { return Ok(()) };
        self.fs.open(ino);
        self.open.set(Some(ino));
        self.changed().rename(&[ino], |names| {
            names.remove(&name);
        });
        let done = self.fs.unlink(dir, &name).await;
        self.undo_if(done)
    }

    async fn directories(&self, dir: Ino) -> Result<(), Error> {
        let doomed = {
            let model = self.model.borrow();
            let mut names = model.now().iter();
            names.find(|(_, (_, id))| id.is_none()).map(|(name, (ino, _))| (name.clone(), *ino))
        };
        if let Some((name, ino)) = doomed {
            self.changed().rename(&[ino], |names| {
                names.remove(&name);
            });
            let done = self.fs.remove_directory(dir, &name).await;
            return self.undo_if(done);
        }
        let name = format!("dir {}", self.number()).into_bytes();
        self.make(dir, name, FileKind::Directory, None).await
    }

    pub(super) fn undo_if<T>(&self, done: Result<T, Error>) -> Result<(), Error> {
        if done.is_err() {
            self.changed().undo();
        }
        done.map(drop)
    }

    async fn link(&self, dir: Ino) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        let name = format!("link {}", self.number()).into_bytes();
        self.changed().rename(&[ino], |names| {
            names.insert(name.clone(), (ino, Some(id)));
        });
        let done = self.fs.link(ino, dir, &name).await;
        self.undo_if(done)
    }

    /// The newest state of names and version of each file: a sync makes all up to these durable.
    fn points(&self) -> (usize, Vec<(FileId, usize)>) {
        let model = self.model.borrow();
        let versions = model.files.iter().map(|(id, history)| (*id, history.contents.len() - 1));
        (model.last(), versions.collect())
    }

    async fn sync(&self) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        let (_, versions) = self.points();
        self.fs.sync(ino).await?;
        let mut model = self.changed();
        // A sync of a file makes its own names durable, and all changes before them.
        if let Some(named) = model.named.get(&ino).copied() {
            model.names_durable(named);
        }
        for (file, version) in versions {
            if file == id {
                model.content_durable(file, version);
            }
        }
        Ok(())
    }

    async fn sync_names(&self, dir: Ino) -> Result<(), Error> {
        let (names, _) = self.points();
        self.fs.sync(dir).await?;
        self.changed().names_durable(names);
        Ok(())
    }

    async fn sync_all(&self) -> Result<(), Error> {
        let (names, versions) = self.points();
        self.fs.sync_all().await?;
        let mut model = self.changed();
        model.names_durable(names);
        for (file, version) in versions {
            model.content_durable(file, version);
        }
        Ok(())
    }
}
