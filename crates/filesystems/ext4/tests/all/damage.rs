//! Damage that is found in use is noted in the superblock, as ext4 does, so that e2fsck sees it.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use crate::common::{
    Judged, SMALL, SMALL_MIB, World, content, e2fsck, image_dir, load, mkfs, mount, save,
};
use manylogs_block::Rng;
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};
use manylogs_sim::{DiskImage, Survival};

/// The output of dumpe2fs about the superblock.
fn dumped(path: &Path) -> String {
    let said = Command::new("dumpe2fs").arg("-h").arg(path).output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

/// An image with files, of which `first` and `second` are damaged.
fn damaged() -> Option<(DiskImage, [Ino; 2])> {
    let image = mkfs(SMALL_MIB, SMALL)?;
    let world = World::new(1, SMALL_MIB, image);
    let inodes = world.run(async |fs| {
        let mut inodes = Vec::new();
        for name in ["first", "second", "sound"] {
            let new = New::plain(FileKind::File, 0o600);
            let ino = fs.create(Ino::ROOT, name.as_bytes(), new).await.unwrap().ino;
            fs.write(ino, 0, content(1, 5000)).await.unwrap();
            inodes.push(ino);
        }
        fs.unmount().await.unwrap();
        inodes
    });
    let (_dir, path) = world.saved();
    for (name, field) in [("first", "checksum 1"), ("second", "block[0] 0x7777")] {
        let set = format!("set_inode_field /{name} {field}");
        let mut debugfs = Command::new("debugfs");
        let set = debugfs.args(["-w", "-R", &set]).arg(&path).output().unwrap();
        assert!(set.status.success(), "{set:?}");
    }
    let inodes = inodes.unwrap();
    Some((load(&path), [inodes[0], inodes[1]]))
}

/// Reads the damaged files in the given order, and notes the damage each time.
async fn meet(fs: &Ext4, files: &[Ino]) {
    for ino in files {
        let Err(Error::Corrupt(what)) = fs.read(*ino, 0, 100).await else {
            panic!("{ino} is not damaged")
        };
        fs.note_damage(&what);
    }
}

/// Checks that the note is the one that ext4 would have written, and that e2fsck clears it.
fn check_marked(path: &Path, [first, last]: [Ino; 2], count: u32) {
    let said = dumped(path);
    let has = |line: &str| {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.lines().any(|found| words(found) == line), "{line}: {said}");
    };
    assert!(said.contains("with errors"), "{said}");
    has(&format!("FS Error count: {count}"));
    has(&format!("First error inode #: {}", first.0));
    has(&format!("Last error inode #: {}", last.0));
    assert!(said.contains("First error time:"), "{said}");
    let world = World::new(1, SMALL_MIB, load(path));
    let refused = world.run(async |_| ()).unwrap_err().to_string();
    assert!(refused.contains("errors were found earlier"), "{refused}");
    let (code, text) = e2fsck(&["-fy"], path);
    assert_eq!(code, 1, "{text}");
    assert!(!dumped(path).contains("FS Error count"), "e2fsck clears the mark");
    World::new(2, SMALL_MIB, load(path)).run(async |fs| fs.unmount().await).unwrap().unwrap();
}

#[test]
fn damage_is_marked_with_its_place_and_time_when_unmounted() {
    let Some((image, files)) = damaged() else { return };
    let world = World::new(1, SMALL_MIB, image);
    let [first, second] = files;
    let unmounted = world.run(async move |fs| {
        meet(&fs, &[first, second, second]).await;
        // Changes go on.
        fs.create(Ino::ROOT, b"new", New::plain(FileKind::File, 0o600)).await.unwrap();
        fs.unmount().await
    });
    assert_eq!(unmounted, Ok(Ok(())));
    let (_dir, path) = world.saved();
    check_marked(&path, files, 3);
}

#[test]
fn the_mark_is_durable_with_the_next_commit() {
    let Some((image, files)) = damaged() else { return };
    let world = World::new(1, SMALL_MIB, image);
    let [first, second] = files;
    let mounting = mount(Rc::new(world.disk.clone()), world.runtime());
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        meet(&fs, &[first, second]).await;
        let made = fs.create(Ino::ROOT, b"new", New::plain(FileKind::File, 0o600)).await.unwrap();
        fs.sync(made.ino).await.unwrap();
    });
    let left = world.disk.after_power_cut(Survival::Random, &mut Rng::new(1));
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&left, SMALL_MIB, &path);
    // The replay brings the note home.
    let refused = World::new(1, SMALL_MIB, left).run(async |_| ()).unwrap_err().to_string();
    assert!(refused.contains("errors were found earlier"), "{refused}");
    let replayed = e2fsck(&["-y", "-E", "journal_only"], &path);
    assert!(replayed.0 < 4, "{replayed:?}");
    check_marked(&path, files, 2);
}

#[test]
fn the_first_error_stays_and_counts_add_up() {
    let Some((image, [first, second])) = damaged() else { return };
    let world = World::new(1, SMALL_MIB, image);
    let mounting = mount(Rc::new(world.disk.clone()), world.runtime());
    let unmounted = world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        meet(&fs, &[second]).await;
        // The first note is in the superblock now.
        fs.sync_all().await.unwrap();
        meet(&fs, &[first]).await;
        fs.unmount().await
    });
    assert_eq!(unmounted, Ok(()));
    let (_dir, path) = world.saved();
    check_marked(&path, [second, first], 2);
}
