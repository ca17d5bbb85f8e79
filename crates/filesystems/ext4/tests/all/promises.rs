//! Durability without a sync: of files that replace others, and as mounts and flags promise.

use std::rc::Rc;

use crate::common::{SMALL, SMALL_MIB, World, content, mkfs};
use manylogs_block::Rng;
use manylogs_ext4::{
    Allocate, Change, Durability, Error, Ext4, FileKind, Ino, Mode, New, Options, SetXattr, Taken,
};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::options;

const SYNC: u32 = 0x8;
const DIR_SYNC: u32 = 0x10000;

/// Mounts in this way, runs `work`, and cuts the power when it returns: only durable changes are
/// left.
fn after_power_cut<F: Future<Output = ()> + 'static>(
    image: &DiskImage,
    (mode, durability): (Mode, Durability),
    work: impl FnOnce(Ext4) -> F + 'static,
) -> World {
    let world = World::new(1, SMALL_MIB, image.clone());
    let (device, runtime) = (Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, async move {
        let options = Options { durability, ..options(runtime.clone()) };
        work(Ext4::mount_in(mode, device, runtime, options).await.unwrap()).await;
    });
    World::new(2, SMALL_MIB, world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1)))
}

async fn file(fs: &Ext4, dir: Ino, name: &[u8]) -> Ino {
    fs.create(dir, name, New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

async fn directory(fs: &Ext4, dir: Ino, name: &[u8]) -> Ino {
    fs.create(dir, name, New::plain(FileKind::Directory, 0o755)).await.unwrap().ino
}

/// The content of a file.
fn found(world: &World, name: &'static [u8]) -> Vec<u8> {
    world
        .run(async move |fs| {
            let ino = fs.lookup(Ino::ROOT, name).await.unwrap().ino;
            fs.read(ino, 0, 1 << 20).await.unwrap().to_vec()
        })
        .unwrap()
}

const NO_CARE: Durability = Durability { sync: false, dir_sync: false, no_auto_alloc: true };

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Rename,
    OtherDirectory,
    Exchange,
}

/// A new file takes the name of an old one, and another program syncs.
async fn replace(fs: Ext4, way: Way, len: usize) {
    let old = file(&fs, Ino::ROOT, b"name").await;
    fs.write(old, 0, content(1, 5000)).await.unwrap();
    let dir = if way == Way::OtherDirectory {
        directory(&fs, Ino::ROOT, b"dir").await
    } else {
        Ino::ROOT
    };
    fs.sync_all().await.unwrap();
    let new = file(&fs, dir, b"new").await;
    fs.write(new, 0, content(2, len)).await.unwrap();
    let taken = if way == Way::Exchange { Taken::Exchanged } else { Taken::Replaced };
    fs.rename((dir, b"new"), (Ino::ROOT, b"name"), taken).await.unwrap();
    let other = file(&fs, Ino::ROOT, b"other").await;
    fs.sync(other).await.unwrap();
}

#[test]
fn a_file_that_replaces_another_is_not_found_empty() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for mode in [Mode::Ordered, Mode::Data] {
        for way in [Way::Rename, Way::OtherDirectory, Way::Exchange] {
            for len in [3, 9000, 700_000] {
                let how = (mode, Durability::default());
                let left = after_power_cut(&image, how, move |fs| replace(fs, way, len));
                assert!(found(&left, b"name") == content(2, len), "{mode:?}, {way:?}, {len}");
            }
        }
    }
    let left = after_power_cut(&image, (Mode::Ordered, NO_CARE), |fs| replace(fs, Way::Rename, 9));
    assert!(found(&left, b"name").is_empty());
}

/// A file is cut to nothing, written and closed, and another program syncs.
async fn save_again(fs: Ext4, copies: u32) {
    let ino = file(&fs, Ino::ROOT, b"name").await;
    fs.write(ino, 0, content(1, 5000)).await.unwrap();
    fs.sync_all().await.unwrap();
    let opened = fs.new_descriptor();
    fs.change(ino, Change { size: Some(0), ..Change::default() }).await.unwrap();
    // As under a shell: each program that it starts closes a copy of the descriptor.
    for copy in 0..copies {
        fs.write(ino, 5000 * u64::from(copy), content(copy.into(), 5000)).await.unwrap();
        fs.close_copy(ino, Some(opened)).await.unwrap();
    }
    fs.write(ino, 5000 * u64::from(copies), content(copies.into(), 5000)).await.unwrap();
    fs.close_opened(ino, opened).await.unwrap();
    let other = file(&fs, Ino::ROOT, b"other").await;
    fs.sync(other).await.unwrap();
}

#[test]
fn a_file_that_is_written_anew_and_closed_is_not_found_empty() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    for mode in [Mode::Ordered, Mode::Data] {
        for copies in [0, 2] {
            let how = (mode, Durability::default());
            let left = after_power_cut(&image, how, move |fs| save_again(fs, copies));
            let expected: Vec<u8> = (0..=copies).flat_map(|n| content(n.into(), 5000)).collect();
            assert!(found(&left, b"name") == expected, "{mode:?}, {copies}");
        }
    }
    let left = after_power_cut(&image, (Mode::Ordered, NO_CARE), |fs| save_again(fs, 0));
    assert!(found(&left, b"name").is_empty());
}

/// Changes of names: each is made in a directory `dir` with a file `old` and a directory `empty`.
const NAMES: [&str; 9] = [
    "create",
    "mkdir",
    "symlink",
    "link",
    "unlink",
    "rmdir",
    "rename away",
    "rename to",
    "exchange",
];

async fn change_names(fs: &Ext4, what: &str, dir: Ino, old: Ino) -> Result<(), Error> {
    match what {
        "create" => fs.create(dir, b"new", New::plain(FileKind::File, 0o600)).await.map(drop),
        "mkdir" => fs.create(dir, b"new", New::plain(FileKind::Directory, 0o700)).await.map(drop),
        "symlink" => {
            let target = content(3, 2000).into();
            let new = New { target, ..New::plain(FileKind::Symlink, 0o777) };
            fs.create(dir, b"new", new).await.map(drop)
        }
        "link" => fs.link(old, dir, b"new").await.map(drop),
        "unlink" => fs.unlink(dir, b"old").await,
        "rmdir" => fs.remove_directory(dir, b"empty").await,
        "rename away" => fs.rename((dir, b"old"), (Ino::ROOT, b"new"), Taken::Kept).await,
        "rename to" => fs.rename((Ino::ROOT, b"moved"), (dir, b"old"), Taken::Replaced).await,
        _ => fs.rename((Ino::ROOT, b"moved"), (dir, b"old"), Taken::Exchanged).await,
    }
}

/// The names of `dir` and of the root, with their inodes.
async fn names(fs: &Ext4, dir: Ino) -> [Vec<(Vec<u8>, Ino)>; 2] {
    [crate::common::names(fs, dir).await, crate::common::names(fs, Ino::ROOT).await]
}

fn names_survive(image: &DiskImage, durability: Durability, dir_flags: u32, expected: bool) {
    for what in NAMES {
        let (tell, told) = std::sync::mpsc::channel();
        let left = after_power_cut(image, (Mode::Ordered, durability), move |fs| async move {
            let dir = directory(&fs, Ino::ROOT, b"dir").await;
            let old = file(&fs, dir, b"old").await;
            directory(&fs, dir, b"empty").await;
            file(&fs, Ino::ROOT, b"moved").await;
            let flags = fs.inode_flags(dir).await.unwrap();
            fs.set_inode_flags(dir, flags | dir_flags).await.unwrap();
            fs.sync_all().await.unwrap();
            change_names(&fs, what, dir, old).await.unwrap();
            tell.send(names(&fs, dir).await).unwrap();
        });
        let then = left.run(async |fs| {
            let dir = fs.lookup(Ino::ROOT, b"dir").await.unwrap().ino;
            names(&fs, dir).await
        });
        let survived = then.unwrap() == told.recv().unwrap();
        assert_eq!(survived, expected, "{what}, {durability:?}, {dir_flags:#x}");
    }
}

#[test]
fn names_are_durable_when_that_is_promised() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let plain = Durability::default();
    names_survive(&image, plain, 0, false);
    names_survive(&image, Durability { sync: true, ..plain }, 0, true);
    names_survive(&image, Durability { dir_sync: true, ..plain }, 0, true);
    names_survive(&image, plain, DIR_SYNC, true);
    names_survive(&image, plain, SYNC, true);
}

const CHANGES: [&str; 8] =
    ["write", "append", "direct", "cut", "grow", "mode", "attribute", "allocate"];

async fn change_inode(fs: &Ext4, what: &str, ino: Ino) -> Result<(), Error> {
    match what {
        "write" => fs.write(ino, 100, content(2, 3000)).await,
        "append" => fs.write(ino, 9000, content(2, 3000)).await,
        "direct" => fs.write_through(ino, 4096, content(2, 4096)).await,
        "cut" => fs.change(ino, Change { size: Some(77), ..Change::default() }).await.map(drop),
        "grow" => {
            fs.change(ino, Change { size: Some(77_777), ..Change::default() }).await.map(drop)
        }
        "mode" => {
            let change = Change { permissions: Some(0o640), ..Change::default() };
            fs.change(ino, change).await.map(drop)
        }
        "attribute" => fs.set_xattr(ino, b"user.a", content(4, 900), SetXattr::default()).await,
        _ => fs.allocate(ino, 0..60_000, Allocate::Blocks, false).await,
    }
}

type State = (u64, u64, u16, Vec<u8>, Vec<Vec<u8>>);

async fn state(fs: &Ext4) -> State {
    let ino = fs.lookup(Ino::ROOT, b"file").await.unwrap().ino;
    let known = fs.attributes(ino).await.unwrap();
    let bytes = fs.read(ino, 0, 1 << 20).await.unwrap().to_vec();
    (known.size, known.sectors, known.permissions, bytes, fs.xattrs(ino).await.unwrap())
}

fn changes_survive(image: &DiskImage, durability: Durability, flags: u32, expected: bool) {
    for (what, mode) in CHANGES.into_iter().flat_map(|c| [(c, Mode::Ordered), (c, Mode::Data)]) {
        let (tell, told) = std::sync::mpsc::channel();
        let left = after_power_cut(image, (mode, durability), move |fs| async move {
            let ino = file(&fs, Ino::ROOT, b"file").await;
            fs.write(ino, 0, content(1, 9000)).await.unwrap();
            let shown = fs.inode_flags(ino).await.unwrap();
            fs.set_inode_flags(ino, shown | flags).await.unwrap();
            fs.sync_all().await.unwrap();
            change_inode(&fs, what, ino).await.unwrap();
            tell.send(state(&fs).await).unwrap();
        });
        let then = left.run(async |fs| state(&fs).await).unwrap();
        let survived = then == told.recv().unwrap();
        assert_eq!(survived, expected, "{what}, {mode:?}, {durability:?}, {flags:#x}");
    }
}

#[test]
fn changes_of_files_are_durable_when_that_is_promised() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let plain = Durability::default();
    changes_survive(&image, plain, 0, false);
    changes_survive(&image, Durability { dir_sync: true, ..plain }, 0, false);
    changes_survive(&image, Durability { sync: true, ..plain }, 0, true);
    changes_survive(&image, plain, SYNC, true);
}

#[test]
fn flags_are_handed_down_as_the_kernel_does() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    world
        .run(async |fs| {
            let dir = directory(&fs, Ino::ROOT, b"dir").await;
            let flags = async |ino| fs.inode_flags(ino).await.unwrap() & (SYNC | DIR_SYNC | 0xC0);
            fs.set_inode_flags(dir, 0x80000 | SYNC | DIR_SYNC | 0xC0).await.unwrap();
            let below = directory(&fs, dir, b"below").await;
            assert_eq!(flags(below).await, SYNC | DIR_SYNC | 0xC0);
            let ino = file(&fs, below, b"file").await;
            assert_eq!(flags(ino).await, SYNC | 0xC0);
            let pipe = fs.create(below, b"pipe", New::plain(FileKind::Fifo, 0o600)).await.unwrap();
            assert_eq!(flags(pipe.ino).await, 0xC0);
            // A flag that a file cannot have is left out.
            fs.set_inode_flags(ino, 0x80000 | SYNC | DIR_SYNC).await.unwrap();
            assert_eq!(flags(ino).await, SYNC);
            fs.unmount().await.unwrap();
        })
        .unwrap();
}

#[cfg(feature = "plant")]
#[test]
fn broken_promises_are_noticed() {
    use manylogs_plant::Bug;
    for (bug, test) in [
        (Bug::Ext4RenameLeavesData, a_file_that_replaces_another_is_not_found_empty as fn()),
        (Bug::Ext4CloseLeavesData, a_file_that_is_written_anew_and_closed_is_not_found_empty),
        (Bug::Ext4DirSyncIgnored, names_are_durable_when_that_is_promised),
        (Bug::Ext4SyncIgnored, changes_of_files_are_durable_when_that_is_promised),
    ] {
        crate::common::assert_noticed(bug, test);
    }
}
