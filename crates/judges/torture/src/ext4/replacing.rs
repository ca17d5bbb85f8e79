//! Steps of clients that replace a file's content.

use manylogs_block::to_usize;
use manylogs_ext4::{Change, Error, Ino, Taken};

use super::client::Client;
use super::model::FileId;

impl Client {
    /// Gives a file a new name or the name of another, or exchanges the two names. The content of a
    /// file that takes the name of another is durable no later than the name.
    pub(super) async fn rename(&self, dir: Ino) -> Result<(), Error> {
        let Some((old, ino, id)) = self.any_file() else { return Ok(()) };
        let other = self.any_file().filter(|(_, other, _)| *other != ino && self.below(4) > 0);
        let taken =
            if other.is_some() && self.below(4) == 0 { Taken::Exchanged } else { Taken::Replaced };
        let (new, inos, replaced) = match other {
            Some((name, other, id)) => (name, vec![ino, other], Some((other, id))),
            None => (format!("renamed {}", self.number()).into_bytes(), vec![ino], None),
        };
        let exchanged = replaced.filter(|_| taken == Taken::Exchanged);
        let gain: Vec<FileId> = match replaced {
            Some(_) => exchanged.map(|(_, id)| id).into_iter().chain([id]).collect(),
            None => Vec::new(),
        };
        {
            let mut model = self.changed();
            model.rename(&inos, |names| {
                names.remove(&old);
                names.extend(exchanged.map(|(ino, id)| (old.clone(), (ino, Some(id)))));
                names.insert(new.clone(), (ino, Some(id)));
            });
            gain.iter().for_each(|id| model.promise(*id, false));
        }
        let done = self.fs.rename((dir, &old), (dir, &new), taken).await;
        if done.is_err() {
            gain.iter().for_each(|_| self.changed().take_back());
        }
        self.undo_if(done)
    }

    /// Truncates a file, writes it anew and closes it, as programs save files. Later changes are
    /// durable no sooner than the content.
    pub(super) async fn replace_content(&self) -> Result<(), Error> {
        let Some((_, ino, id)) = self.any_file() else { return Ok(()) };
        let opened = self.fs.new_descriptor();
        self.push(id, Vec::new());
        let change = Change { size: Some(0), ..Change::default() };
        let done = self.fs.change(ino, change).await.map(drop);
        self.note_refused(ino, id, done).await?;
        let bytes = self.content_at(self.number(), 0, to_usize(1 + self.below(60_000)));
        self.push(id, bytes.clone());
        let written = self.fs.write(ino, 0, bytes).await;
        if written.is_err() {
            self.changed().files.entry(id).or_default().contents.pop();
            return written;
        }
        let closed = match self.below(2) {
            0 => self.fs.close_copy(ino, Some(opened)).await,
            _ => Ok(()),
        };
        closed.and(self.fs.close_opened(ino, opened).await)?;
        self.changed().promise(id, true);
        Ok(())
    }
}
