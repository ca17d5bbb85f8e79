//! Operations on a tree.

use bytes::Bytes;
use manylogs_block::Rng;
use manylogs_ext4::{BLOCK_BYTES, Error, Ext4, FileKind, Ino, New};

/// Directories in each directory, except those of the last level.
const FAN_OUT: u32 = 4;

/// Makes a tree of `directories` directories below the root, level by level; `order` is the seed of
/// a random order.
pub(super) async fn make(fs: &Ext4, directories: u32, order: Option<u64>) -> Result<(), Error> {
    let mut rng = order.map(Rng::new);
    let new = New::plain(FileKind::Directory, 0o755);
    let top = fs.create(Ino::ROOT, b"tree", new.clone()).await?.ino;
    let (mut level, mut left) = (vec![top], directories.saturating_sub(1));
    while left > 0 {
        if let Some(rng) = &mut rng {
            rng.shuffle(&mut level);
        }
        let mut next = Vec::new();
        for parent in level {
            for number in 0..FAN_OUT.min(left) {
                let name = format!("directory {number}");
                next.push(fs.create(parent, name.as_bytes(), new.clone()).await?.ino);
                left -= 1;
            }
        }
        level = next;
    }
    Ok(())
}

/// Something in a directory that is walked.
struct Within {
    parent: Ino,
    ino: Ino,
    kind: FileKind,
    name: Vec<u8>,
}

impl Within {
    fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// What is asked for of all that is in a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// What it is, as the directory says.
    Kind,
    /// Its attributes, as `ls -l` does.
    Attributes,
}

/// What is in `dir`.
async fn within(fs: &Ext4, dir: Ino, ask: Ask) -> Result<Vec<Within>, Error> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = fs.list(dir, cookie).await?;
        let Some(last) = listed.last() else { return Ok(found) };
        cookie = last.next;
        for entry in listed {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let kind = match entry.kind.filter(|_| ask == Ask::Kind) {
                Some(kind) => kind,
                None => fs.attributes(entry.ino).await?.kind,
            };
            let name = entry.name.to_vec();
            found.push(Within { parent: dir, ino: entry.ino, kind, name });
        }
    }
}

async fn top(fs: &Ext4) -> Result<Within, Error> {
    let (parent, name) = (Ino::ROOT, b"tree".to_vec());
    let ino = fs.lookup(parent, &name).await?.ino;
    Ok(Within { parent, ino, kind: FileKind::Directory, name })
}

/// Walks all directories, each before those in it, has `each` look at what is no directory, and
/// returns how many directories there are.
async fn walk(
    fs: &Ext4,
    ask: Ask,
    mut each: impl AsyncFnMut(Within) -> Result<(), Error>,
) -> Result<u32, Error> {
    let mut waiting = vec![top(fs).await?.ino];
    let mut count = 0;
    while let Some(dir) = waiting.pop() {
        count += 1;
        let mut below = Vec::new();
        for found in within(fs, dir, ask).await? {
            if found.is_directory() {
                below.push(found.ino);
            } else {
                each(found).await?;
            }
        }
        waiting.extend(below.into_iter().rev());
    }
    Ok(count)
}

/// Lists all directories, as `ls -lR` does, and returns how many there are.
pub(super) async fn list(fs: &Ext4) -> Result<u32, Error> {
    walk(fs, Ask::Attributes, async |_| Ok(())).await
}

/// Lists the names in all directories, as `find` does, and returns how many there are.
pub(super) async fn find(fs: &Ext4) -> Result<u32, Error> {
    walk(fs, Ask::Kind, async |_| Ok(())).await
}

/// Looks up so many directories, each by names from the top down to a last one.
pub(super) async fn stat(fs: &Ext4, count: u32, seed: u64) -> Result<(), Error> {
    let (top, mut rng) = (top(fs).await?.ino, Rng::new(seed));
    for _ in 0..count {
        let mut at = top;
        loop {
            let name = format!("directory {}", rng.below(FAN_OUT.into()));
            match fs.lookup(at, name.as_bytes()).await {
                Ok(found) => at = found.ino,
                Err(Error::NotFound) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Makes so many files of a block in the directories, one after the other in each.
pub(super) async fn create(fs: &Ext4, files: u32) -> Result<(), Error> {
    let mut directories = Vec::new();
    let mut waiting = vec![top(fs).await?.ino];
    while let Some(dir) = waiting.pop() {
        directories.push(dir);
        let below = within(fs, dir, Ask::Kind).await?;
        waiting.extend(below.into_iter().rev().map(|found| found.ino));
    }
    let content = Bytes::from(vec![b'f'; BLOCK_BYTES]);
    let each = files.div_ceil(manylogs_block::narrow(directories.len() as u64));
    let new = New::plain(FileKind::File, 0o644);
    let mut left = files;
    for dir in directories {
        for number in 0..each.min(left) {
            let name = format!("file {number}");
            let ino = fs.create(dir, name.as_bytes(), new.clone()).await?.ino;
            fs.write(ino, 0, content.clone()).await?;
            left -= 1;
        }
    }
    Ok(())
}

/// Lists all directories and reads all files, as `tar` does, and returns how many files there are.
pub(super) async fn read(fs: &Ext4) -> Result<u32, Error> {
    let mut files = 0;
    let each = async |found: Within| {
        files += 1;
        match fs.read(found.ino, 0, BLOCK_BYTES).await?.len() {
            BLOCK_BYTES => Ok(()),
            _ => Err(Error::Invalid("a file is short: this is a defect")),
        }
    };
    walk(fs, Ask::Attributes, each).await?;
    Ok(files)
}

/// Removes all files, and returns how many there were.
pub(super) async fn unlink(fs: &Ext4) -> Result<u32, Error> {
    let mut files = 0;
    let each = async |found: Within| {
        files += 1;
        fs.unlink(found.parent, &found.name).await
    };
    walk(fs, Ask::Kind, each).await?;
    Ok(files)
}

/// Removes all directories, each after those in it, as `rm -r` does.
pub(super) async fn remove(fs: &Ext4) -> Result<(), Error> {
    let mut waiting = vec![(top(fs).await?, false)];
    while let Some((dir, is_empty)) = waiting.pop() {
        if is_empty {
            fs.remove_directory(dir.parent, &dir.name).await?;
            continue;
        }
        let below = within(fs, dir.ino, Ask::Attributes).await?;
        waiting.push((dir, true));
        waiting.extend(below.into_iter().rev().map(|found| (found, false)));
    }
    Ok(())
}
