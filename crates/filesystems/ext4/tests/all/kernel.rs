//! Tests against the kernel's ext4: it reads our files, we read its files, and it replays our
//! journal after a crash.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{
    Judged, Mounted, World, can_mount, content, image_dir, load, mkfs, names, save,
};
use manylogs_block::Rng;
use manylogs_ext4::{Ext4, FileKind, Ino, New};
use manylogs_sim::{DiskImage, Survival};

const MIB: u64 = 64;

/// A tree: for each path its kind, mode, links, and content or target.
type Tree = BTreeMap<String, (FileKind, u16, u32, Vec<u8>)>;

fn of_kernel(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            let full = root.join(&path);
            let known = fs::symlink_metadata(&full).unwrap();
            let kind = FileKind::of_mode(u16::try_from(known.mode() & 0o170_000).unwrap()).unwrap();
            let bytes = match kind {
                FileKind::File => fs::read(&full).unwrap(),
                FileKind::Symlink => {
                    fs::read_link(&full).unwrap().to_str().unwrap().as_bytes().to_vec()
                }
                _ => Vec::new(),
            };
            let mode = u16::try_from(known.permissions().mode() & 0o7777).unwrap();
            let links = u32::try_from(known.nlink()).unwrap();
            tree.insert(path.to_str().unwrap().to_owned(), (kind, mode, links, bytes));
            if kind == FileKind::Directory {
                open.push(path);
            }
        }
    }
    tree
}

async fn of_ours(fs: &Ext4) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![(Ino::ROOT, String::new())];
    while let Some((dir, path)) = open.pop() {
        for (name, ino) in names(fs, dir).await {
            let known = fs.attributes(ino).await.unwrap();
            let own = format!("{path}{}", String::from_utf8(name).unwrap());
            let bytes = match known.kind {
                FileKind::File => fs.read(ino, 0, 1 << 30).await.unwrap().to_vec(),
                FileKind::Symlink => fs.read_link(ino).await.unwrap().to_vec(),
                _ => Vec::new(),
            };
            if known.kind == FileKind::Directory {
                open.push((ino, format!("{own}/")));
            }
            tree.insert(own, (known.kind, known.permissions, known.links, bytes));
        }
    }
    tree
}

fn assert_same(one: &Tree, other: &Tree) {
    let paths = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(one), paths(other));
    for (path, known) in one {
        assert!(known == &other[path], "{path}: {:?} {:?}", known.0, other[path].0);
    }
}

/// Makes files of all kinds with the kernel.
fn fill(root: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    for number in 0..1500 {
        let dir = root.join(format!("dir {}", rng.below(3)));
        fs::create_dir_all(&dir).unwrap();
        let path =
            dir.join(format!("{number} {}", "n".repeat(usize::try_from(rng.below(90)).unwrap())));
        let file = fs::File::create(&path).unwrap();
        for _ in 0..rng.below(4) {
            let bits = rng.below(15);
            let len = usize::try_from(rng.below(1 << bits)).unwrap();
            file.write_all_at(&content(number, len), rng.below(200_000)).unwrap();
        }
        match rng.below(8) {
            0 => fs::remove_file(&path).unwrap(),
            1 => fs::hard_link(&path, root.join(format!("link {number}"))).unwrap(),
            2 => symlink(
                "t".repeat(1 + usize::try_from(number % 300).unwrap()),
                path.with_extension("s"),
            )
            .unwrap(),
            3 => file.set_len(rng.below(100_000)).unwrap(),
            _ => {}
        }
    }
    // Many extents: every second block of a file.
    let holes = fs::File::create(root.join("holes")).unwrap();
    for block in 0..1200 {
        holes.write_all_at(&content(block, 4096), block * 8192).unwrap();
    }
}

const KINDS: [&[&str]; 5] = [
    &[],
    &["-O", "^metadata_csum,^64bit"],
    &["-O", "^flex_bg,^uninit_bg,^metadata_csum", "-I", "128"],
    &["-O", "metadata_csum_seed,orphan_file"],
    &["-O", "^extent,^64bit"],
];

/// Calls `test` with a seed, an image of each kind, and the path of a file for images. `test`
/// returns `None` where the kernel does not mount images.
fn with_each_kind(test: impl Fn(u64, DiskImage, &Path) -> Option<()>) {
    if !can_mount() {
        return;
    }
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    for (seed, kind) in (1..).zip(KINDS) {
        let Some(image) = mkfs(MIB, kind) else { return };
        if test(seed, image, &path).is_none() {
            return;
        }
    }
}

#[test]
fn we_read_what_the_kernel_wrote_and_change_it() {
    with_each_kind(|seed, image, path| {
        save(&image, MIB, path);
        let tree = {
            let mounted = Mounted::new(path)?;
            fill(mounted.path(), seed);
            of_kernel(mounted.path())
        };
        let world = World::new(seed, MIB, load(path));
        let ours = world.run(async |fs| {
            let tree = of_ours(&fs).await;
            for (path, (kind, ..)) in &tree {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
                if *kind == FileKind::File && path.len() % 3 == 0 {
                    let above = match above {
                        "" => Ino::ROOT,
                        above => fs.lookup(Ino::ROOT, above.as_bytes()).await.unwrap().ino,
                    };
                    fs.unlink(above, name.as_bytes()).await.unwrap();
                }
            }
            let after = of_ours(&fs).await;
            fs.unmount().await.unwrap();
            (tree, after)
        });
        let (ours, after) = ours.unwrap();
        assert_same(&tree, &ours);
        world.check();
        save(&world.settled(), MIB, path);
        assert_same(&of_kernel(Mounted::new(path)?.path()), &after);
        Some(())
    });
}

#[test]
fn the_kernel_replays_what_a_crash_left_of_ours() {
    with_each_kind(|seed, image, path| {
        let world = World::new(seed, MIB, image);
        let tree = world.run(async move |fs| {
            for number in 0..300 {
                let name = format!("file {number}").into_bytes();
                let new = New::plain(FileKind::File, 0o640);
                let ino = fs.create(Ino::ROOT, &name, new).await.unwrap().ino;
                fs.write(ino, number * 10, content(number, 3000)).await.unwrap();
                if number % 4 == 0 {
                    let name = format!("file {}", number / 2).into_bytes();
                    fs.unlink(Ino::ROOT, &name).await.unwrap();
                }
                if number % 50 == 0 {
                    fs.sync(ino).await.unwrap();
                }
            }
            fs.sync_all().await.unwrap();
            of_ours(&fs).await
        });
        let crashed = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
        save(&crashed, MIB, path);
        assert_same(&of_kernel(Mounted::new(path)?.path()), &tree.unwrap());
        let (code, said) = crate::common::e2fsck(&["-fn"], path);
        assert_eq!(code, 0, "{said}");
        Some(())
    });
}
