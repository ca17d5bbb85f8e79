//! Operations on a tree.

use manylogs_block::Rng;
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};

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
            shuffle(&mut level, rng);
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

fn shuffle(all: &mut [Ino], rng: &mut Rng) {
    for last in (1..all.len()).rev() {
        all.swap(last, manylogs_block::to_usize(rng.below(last as u64 + 1)));
    }
}

/// A directory found in a walk, with its parent and its name there.
struct Within {
    parent: Ino,
    ino: Ino,
    name: Vec<u8>,
}

/// Lists the directories in `dir` and reads their attributes, as `ls -l` does.
async fn within(fs: &Ext4, dir: Ino) -> Result<Vec<Within>, Error> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = fs.list(dir, cookie).await?;
        let Some(last) = listed.last() else { return Ok(found) };
        cookie = last.next;
        for entry in listed {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let attributes = fs.attributes(entry.ino).await?;
            if attributes.kind == FileKind::Directory {
                found.push(Within { parent: dir, ino: entry.ino, name: entry.name.to_vec() });
            }
        }
    }
}

/// Lists all directories, each before those in it, and returns how many there are.
pub(super) async fn list(fs: &Ext4) -> Result<u32, Error> {
    let mut waiting = vec![fs.lookup(Ino::ROOT, b"tree").await?.ino];
    let mut count = 0;
    while let Some(dir) = waiting.pop() {
        count += 1;
        waiting.extend(within(fs, dir).await?.into_iter().rev().map(|found| found.ino));
    }
    Ok(count)
}

/// Removes all directories, each after those in it, as `rm -r` does.
pub(super) async fn remove(fs: &Ext4) -> Result<(), Error> {
    let ino = fs.lookup(Ino::ROOT, b"tree").await?.ino;
    let mut waiting = vec![(Within { parent: Ino::ROOT, ino, name: b"tree".to_vec() }, false)];
    while let Some((dir, is_empty)) = waiting.pop() {
        if is_empty {
            fs.remove_directory(dir.parent, &dir.name).await?;
            continue;
        }
        let below = within(fs, dir.ino).await?;
        waiting.push((dir, true));
        waiting.extend(below.into_iter().rev().map(|found| (found, false)));
    }
    Ok(())
}
