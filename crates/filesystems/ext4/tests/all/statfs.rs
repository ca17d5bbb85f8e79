//! `df` shows the same figures as with the kernel's ext4 on the same image.

use std::path::Path;
use std::process::Command;

use crate::common::{Mounted, World, can_mount, image_dir, mkfs, save};
use manylogs_ext4::{Ext4, FileKind, Ino, New};

const MIB: u64 = 200;

/// Kinds of file systems: with superblocks in many groups, in two, in all; with long and short
/// journals, and with room for descriptors or none.
const KINDS: [&[&str]; 12] = [
    &[],
    &["-g", "1024", "-J", "size=4"],
    &["-O", "^metadata_csum,^64bit"],
    &["-O", "^resize_inode"],
    &["-O", "sparse_super2,^resize_inode"],
    &["-O", "meta_bg,^resize_inode", "-g", "1024"],
    &["-O", "^sparse_super,^resize_inode", "-g", "2048"],
    &["-O", "^flex_bg", "-I", "128"],
    &["-O", "orphan_file,metadata_csum_seed"],
    &["-m", "0", "-J", "size=16"],
    &["-m", "20", "-N", "20000"],
    &["-E", "resize=100000000"],
];

/// Blocks, free blocks, blocks that any user may have, inodes, and free inodes.
type Shown = [u64; 5];

fn by_kernel(root: &Path) -> Shown {
    let said = Command::new("stat").args(["-f", "-c", "%b %f %a %c %d"]).arg(root).output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn by_us(fs: &Ext4) -> Shown {
    let usage = fs.usage();
    let blocks = [usage.blocks, usage.free_blocks, usage.available_blocks];
    [blocks[0], blocks[1], blocks[2], usage.inodes, usage.free_inodes]
}

#[test]
fn what_is_in_use_is_what_the_kernel_says() {
    if !can_mount() {
        return;
    }
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    for kind in KINDS {
        let Some(image) = mkfs(MIB, kind) else { return };
        let world = World::new(1, MIB, image);
        let ours = world.run(async |fs: Ext4| {
            let new = New::plain(FileKind::File, 0o644);
            let ino = fs.create(Ino::ROOT, b"file", new).await.unwrap().ino;
            let before = by_us(&fs);
            fs.write(ino, 0, vec![1; 1_000_000]).await.unwrap();
            // Blocks promised to dirty data are not free.
            assert_eq!(before[1] - by_us(&fs)[1], 245);
            fs.sync_all().await.unwrap();
            assert_eq!(before[1] - by_us(&fs)[1], 245);
            let shown = by_us(&fs);
            fs.unmount().await.unwrap();
            shown
        });
        save(&world.settled(), MIB, &path);
        let Some(mounted) = Mounted::new(&path) else { return };
        assert_eq!(ours.unwrap(), by_kernel(mounted.path()), "{kind:?}");
    }
}
