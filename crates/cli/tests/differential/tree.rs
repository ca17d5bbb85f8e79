//! Whole trees, file by file.

use std::collections::BTreeMap;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::perform::{World, names};
use crate::seen::{Change, Differs, Seen, compare};

/// A file and its content.
struct Held {
    seen: Seen,
    /// Checksums of the blocks that are not zero, by block.
    content: Vec<(u64, u32)>,
    xattrs: Vec<(String, Vec<u8>)>,
    target: Vec<u8>,
}

const BLOCK: usize = 4096;

/// Checksums of the blocks that are not all zeroes. A read error is compared too, and ends the
/// list.
fn content(file: &OwnedFd) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    if let Err((at, errno)) = add_content(file, &mut found) {
        found.push((at, errno.raw_os_error().cast_unsigned()));
    }
    found
}

fn add_content(file: &OwnedFd, found: &mut Vec<(u64, u32)>) -> Result<(), (u64, Errno)> {
    let (mut at, mut room) = (0, vec![0; 64 * BLOCK]);
    while let Ok(data) = fs::seek(file, fs::SeekFrom::Data(at)) {
        let end = fs::seek(file, fs::SeekFrom::Hole(data)).map_err(|errno| (data, errno))?;
        at = data / BLOCK as u64 * BLOCK as u64;
        while at < end {
            let len = rustix::io::pread(file, &mut room, at).map_err(|errno| (at, errno))?;
            if len == 0 {
                return Ok(());
            }
            for block in room[..len].chunks(BLOCK) {
                if block.iter().any(|byte| *byte != 0) {
                    found.push((at, crc32c::crc32c(block)));
                }
                at += BLOCK as u64;
            }
        }
    }
    Ok(())
}

fn held(world: &World, path: &str) -> Held {
    let seen = Seen::of(&world.base, path, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    let full = world.path.join(path);
    let mut room = vec![0; 70_000];
    let len = fs::llistxattr(&full, &mut room).unwrap();
    let value = |name: String| {
        let mut room = vec![0; 70_000];
        match fs::lgetxattr(&full, &*name, &mut room) {
            Ok(len) => (name, room[..len].to_vec()),
            Err(errno) => (name, errno.to_string().into_bytes()),
        }
    };
    let xattrs = names(&room[..len]).into_iter().map(value).collect();
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC;
    let (mut bytes, mut target) = (Vec::new(), Vec::new());
    match seen.mode & 0o170_000 {
        0o100_000 => {
            bytes = content(&fs::openat(&world.base, path, flags, Mode::empty()).unwrap());
        }
        0o120_000 => {
            target = fs::readlinkat(&world.base, path, Vec::new()).unwrap().into_bytes();
        }
        _ => {}
    }
    Held { seen, content: bytes, xattrs, target }
}

fn tree(world: &World) -> BTreeMap<String, Held> {
    let (mut tree, mut open) = (BTreeMap::new(), vec![String::new()]);
    while let Some(above) = open.pop() {
        let flags = OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
        let dir = if above.is_empty() { "." } else { &*above };
        let dir = fs::openat(&world.base, dir, flags, Mode::empty()).unwrap();
        let mut room = Vec::with_capacity(32_768);
        let mut entries = RawDir::new(dir, room.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap();
            if name == "." || name == ".." {
                continue;
            }
            let path = format!("{above}{name}");
            let held = held(world, &path);
            if held.seen.is_directory() {
                open.push(format!("{path}/"));
            }
            tree.insert(path, held);
        }
    }
    tree
}

/// How the tree of `ours` differs from the kernel's, by path.
pub(crate) fn differences(kernel: &World, ours: &World, now: i128) -> Vec<(String, Differs)> {
    let (theirs, own) = (tree(kernel), tree(ours));
    let mut found = Vec::new();
    for path in theirs.keys().chain(own.keys().filter(|path| !theirs.contains_key(*path))) {
        let change = |held: Option<&Held>| Change { before: None, after: held.map(|h| h.seen) };
        let (kernel, ours) = (theirs.get(path), own.get(path));
        let mut add = |differs| found.push((path.clone(), differs));
        compare(&change(kernel), &change(ours), now).into_iter().for_each(&mut add);
        let (Some(kernel), Some(ours)) = (kernel, ours) else { continue };
        let mut text = |what, kernel: String, ours: String| {
            if kernel != ours {
                add(Differs { what, kernel, ours });
            }
        };
        text("content", format!("{:x?}", kernel.content), format!("{:x?}", ours.content));
        text("xattrs", format!("{:?}", kernel.xattrs), format!("{:?}", ours.xattrs));
        text("target", format!("{:?}", kernel.target), format!("{:?}", ours.target));
    }
    found
}
