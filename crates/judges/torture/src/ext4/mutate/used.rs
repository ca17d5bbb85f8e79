//! Uses a damaged image.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{IoError, Lba, Sector};
use manylogs_ext4::{Allocate, Change, Error, Ext4, FileKind, Ino, New, SetXattr};
use manylogs_ext4check::{BLOCK_BYTES, BlockNo, Source};
use manylogs_sim::DiskImage;

use crate::ext4::images::ImageSource;
use crate::ext4::world::{SMALL_MIB, World, mount};

/// The device is this much larger than the file system.
const BEHIND_MIB: u64 = 1;
/// Number of steps of tasks after which a mount counts as hanging.
const PATIENCE: u64 = 400_000;
/// The most names that are looked at.
const NAMES_MOST: u64 = 400;

/// Mounts the image, uses all that is there and unmounts it. Returns whether it could be mounted.
///
/// # Errors
/// If it hangs, or reaches beyond the file system.
pub(super) fn use_image(image: DiskImage, is_at_rest: bool, seed: u64) -> Result<bool, String> {
    let world = World::new(seed, SMALL_MIB + BEHIND_MIB, image.clone());
    let (ended, mounted) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let wrong = Rc::new(RefCell::new(None));
    let mounting = mount(Rc::new(world.disk.clone()), world.runtime());
    let notes = (Rc::clone(&ended), Rc::clone(&mounted), Rc::clone(&wrong));
    world.sim.handle(world.user).spawn(async move {
        let result = match mounting.await {
            Ok(fs) => {
                notes.1.set(true);
                let used = use_all(&fs).await;
                used.and(local(fs.unmount().await))
            }
            Err(error) => local::<()>(Err(error)),
        };
        *notes.2.borrow_mut() = result.err();
        notes.0.set(true);
    });
    let mut steps = 0;
    world.sim.run_until(|| {
        steps += 1;
        ended.get() || steps > PATIENCE
    });
    if !ended.get() {
        return Err(format!("hangs after {steps} steps"));
    }
    if let Some(error) = wrong.take() {
        return Err(format!("{error}"));
    }
    nothing_is_written_outside(&image, is_at_rest, &world.settled())?;
    Ok(mounted.get())
}

/// Reads everything, and changes some of it. Errors are expected.
async fn use_all(fs: &Ext4) -> Result<(), Error> {
    let mut open = vec![(Ino::ROOT, 0)];
    let mut looked = 0;
    while let Some((dir, depth)) = open.pop() {
        let mut cookie = 0;
        while let Ok(listed) = fs.list(dir, cookie).await {
            let Some(last) = listed.last() else { break };
            cookie = last.next;
            for entry in listed {
                looked += 1;
                if looked > NAMES_MOST {
                    return local(fs.sync_all().await);
                }
                local(fs.lookup(dir, &entry.name).await)?;
                let Ok(found) = fs.attributes(entry.ino).await else { continue };
                let own = entry.name == b"." || entry.name == b"..";
                if found.kind == FileKind::Directory && depth < 4 && !own {
                    open.push((entry.ino, depth + 1));
                }
                look(fs, entry.ino, found.kind).await?;
                if looked % 5 == 0 && found.kind == FileKind::File {
                    change(fs, dir, &entry.name, entry.ino, found.size).await?;
                    let name = format!("new {looked}").into_bytes();
                    local(fs.create(dir, &name, New::plain(FileKind::File, 0o600)).await)?;
                }
            }
        }
    }
    local(fs.sync_all().await)
}

async fn look(fs: &Ext4, ino: Ino, kind: FileKind) -> Result<(), Error> {
    for name in fs.xattrs(ino).await.unwrap_or_default() {
        local(fs.xattr(ino, &name).await)?;
    }
    match kind {
        FileKind::File => local(fs.read(ino, 0, 100_000).await),
        FileKind::Symlink => local(fs.read_link(ino).await),
        _ => Ok(()),
    }
}

async fn change(fs: &Ext4, dir: Ino, name: &[u8], ino: Ino, size: u64) -> Result<(), Error> {
    local(fs.set_xattr(ino, b"user.new", vec![7; 300], SetXattr::default()).await)?;
    local(fs.write(ino, size / 2, vec![1; 5000]).await)?;
    local(fs.allocate(ino, size / 4..size / 4 + 9000, Allocate::Hole, true).await)?;
    let cut = Change { size: Some(size / 3), ..Change::default() };
    local(fs.change(ino, cut).await)?;
    local(fs.unlink(dir, name).await)
}

/// Passes on only the unexpected error: a request beyond the device.
fn local<T>(result: Result<T, Error>) -> Result<(), Error> {
    match result {
        Err(error @ Error::Io(IoError::OutOfRange { .. })) => Err(error),
        _ => Ok(()),
    }
}

/// The number of blocks in the superblock; a replay may bring another superblock.
fn blocks_of(image: &DiskImage) -> u64 {
    let sector = image.durable(Lba(2));
    let Sector::Bytes(bytes) = sector else { return 0 };
    let count = bytes.get(4..8).and_then(|bytes| bytes.try_into().ok());
    count.map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes)))
}

/// Checks that the boot sector and the blocks behind the file system's end are unchanged. A replay
/// writes all of block 0, with the content that the log has for it.
fn nothing_is_written_outside(
    before: &DiskImage,
    is_at_rest: bool,
    after: &DiskImage,
) -> Result<(), String> {
    let all = SMALL_MIB + BEHIND_MIB;
    let end = blocks_of(before).max(blocks_of(after)).min(all << 8);
    let (before, after) = (ImageSource::new(before, all), ImageSource::new(after, all));
    for number in is_at_rest.then_some(0).into_iter().chain(end..all << 8) {
        let (mut old, mut new) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        let read = before.read(BlockNo(number), &mut old);
        read.and_then(|()| after.read(BlockNo(number), &mut new)).map_err(|e| e.to_string())?;
        // The superblock begins behind the boot sector.
        let part = if number == 0 { 0..1024 } else { 0..BLOCK_BYTES };
        if old[part.clone()] != new[part] {
            return Err(format!("something was written into block {number}, outside"));
        }
    }
    Ok(())
}
