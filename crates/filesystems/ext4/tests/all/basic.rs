//! Basic operations: data that this crate writes is read back, and the image is checked by other
//! programs.

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, mkfs, names};
use manylogs_ext4::{
    Allocate, Change, Credentials, Error, Ext4, FileKind, Ino, New, NewTime, OpenFor, Seek, SetIds,
    SetXattr, Taken, Timestamp,
};

async fn file(fs: &Ext4, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
    let new = New::plain(FileKind::File, 0o644);
    let ino = fs.create(dir, name.as_bytes(), new).await.unwrap().ino;
    fs.write(ino, 0, bytes.to_vec()).await.unwrap();
    ino
}

#[test]
fn a_new_image_mounts_and_unmounts_clean() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let listed = world.run(async |fs| {
        let listed = names(&fs, Ino::ROOT).await;
        fs.unmount().await.unwrap();
        listed
    });
    assert_eq!(listed.unwrap(), [(b"lost+found".to_vec(), Ino(11))]);
    world.check();
}

#[test]
fn files_and_directories_come_and_go() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(2, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let dir = fs.create(Ino::ROOT, b"dir", New::plain(FileKind::Directory, 0o755)).await;
        let dir = dir.unwrap().ino;
        let long = content(1, 3_000_000);
        let ino = file(&fs, dir, "long", &long).await;
        assert_eq!(fs.read(ino, 0, 4_000_000).await.unwrap(), long);
        fs.sync(ino).await.unwrap();
        assert_eq!(fs.read(ino, 5, 2_000_000).await.unwrap(), long[5..2_000_005]);
        fs.write(ino, 4_000_000, vec![7; 10]).await.unwrap();
        fs.write(ino, 100, vec![8; 5000]).await.unwrap();
        for synced in [false, true] {
            if synced {
                fs.sync(ino).await.unwrap();
            }
            let seek = async |offset, what| fs.seek(ino, offset, what).await;
            assert_eq!(seek(5, Seek::Data).await, Ok(5));
            // The block that 3,000,000 bytes end in is data.
            assert_eq!(seek(5, Seek::Hole).await, Ok(3_002_368));
            assert_eq!(seek(3_100_000, Seek::Hole).await, Ok(3_100_000));
            assert_eq!(seek(3_100_000, Seek::Data).await, Ok(3_997_696));
            assert_eq!(seek(3_999_000, Seek::Hole).await, Ok(4_000_010));
            assert_eq!(seek(4_000_010, Seek::Data).await, Err(Error::BeyondEnd));
        }
        let read = fs.read(ino, 0, 5_000_000).await.unwrap();
        assert_eq!(read.len(), 4_000_010);
        assert_eq!(read[..100], long[..100]);
        assert_eq!(read[100..5100], [8; 5000]);
        assert_eq!(read[5100..3_000_000], long[5100..]);
        assert!(read[3_000_000..4_000_000].iter().all(|byte| *byte == 0));
        fs.change(ino, Change { size: Some(5000), ..Change::default() }).await.unwrap();
        fs.change(ino, Change { size: Some(9000), ..Change::default() }).await.unwrap();
        let read = fs.read(ino, 4990, 5000).await.unwrap();
        assert_eq!(read[..10], [8; 10]);
        assert!(read[10..].iter().all(|byte| *byte == 0) && read.len() == 4010);
        for number in 0..300 {
            file(&fs, dir, &format!("a file with quite a long name {number}"), b"short").await;
        }
        fs.sync_all().await.unwrap();
        for number in (0..300).step_by(2) {
            let name = format!("a file with quite a long name {number}");
            fs.unlink(dir, name.as_bytes()).await.unwrap();
        }
        assert_eq!(names(&fs, dir).await.len(), 151);
        assert_eq!(fs.remove_directory(Ino::ROOT, b"dir").await, Err(Error::NotEmpty));
        assert_eq!(fs.unlink(Ino::ROOT, b"dir").await, Err(Error::IsADirectory));
        assert_eq!(fs.lookup(dir, b"none").await.err(), Some(Error::NotFound));
        let target = vec![b'x'; 200];
        for (name, target) in [(&b"fast"[..], &b"dir/long"[..]), (b"slow", &target)] {
            let new =
                New { target: target.to_vec().into(), ..New::plain(FileKind::Symlink, 0o777) };
            let link = fs.create(Ino::ROOT, name, new).await.unwrap().ino;
            assert_eq!(fs.read_link(link).await.unwrap(), target);
        }
        assert_eq!(fs.link(ino, Ino::ROOT, b"other").await.unwrap().links, 2);
        fs.unlink(dir, b"long").await.unwrap();
        assert_eq!(fs.attributes(ino).await.unwrap().links, 1);
        let gone = fs.create(Ino::ROOT, b"gone", New::plain(FileKind::Directory, 0o755)).await;
        fs.remove_directory(Ino::ROOT, b"gone").await.unwrap();
        assert!(gone.is_ok());
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
    let (_dir, path) = world.saved();
    let view = ext4_view::Ext4::load_from_path(&path).unwrap();
    assert_eq!(view.read("/other").unwrap().len(), 9000);
    assert_eq!(view.read_dir("/dir").unwrap().count(), 152);
}

#[test]
fn an_open_file_without_a_name_lives_until_it_is_closed() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(3, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let before = fs.usage().free_blocks;
        let ino = file(&fs, Ino::ROOT, "open", &content(2, 100_000)).await;
        fs.open(ino);
        fs.sync(ino).await.unwrap();
        fs.unlink(Ino::ROOT, b"open").await.unwrap();
        assert_eq!(fs.read(ino, 0, 200_000).await.unwrap(), content(2, 100_000));
        fs.write(ino, 100_000, vec![1; 50_000]).await.unwrap();
        fs.close(ino, 1).await.unwrap();
        fs.sync_all().await.unwrap();
        assert_eq!(fs.usage().free_blocks, before);
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

#[test]
fn a_file_born_without_a_name_ends_or_gets_one() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(3, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let before = (fs.usage().free_blocks, fs.usage().free_inodes);
        let new = New { uid: 7, umask: 0o22, ..New::plain(FileKind::File, 0o666) };
        let born = fs.create_unnamed(Ino::ROOT, new.clone(), true).await.unwrap();
        assert_eq!((born.links, born.uid, born.permissions), (0, 7, 0o644));
        fs.write(born.ino, 0, content(5, 50_000)).await.unwrap();
        fs.close(born.ino, 1).await.unwrap();
        fs.sync_all().await.unwrap();
        assert_eq!((fs.usage().free_blocks, fs.usage().free_inodes), before);
        let directory = New::plain(FileKind::Directory, 0o755);
        let refused = fs.create_unnamed(Ino::ROOT, directory, true).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        // With O_EXCL it never gets a name.
        let kept = fs.create_unnamed(Ino::ROOT, new.clone(), false).await.unwrap().ino;
        assert_eq!(fs.link(kept, Ino::ROOT, b"kept").await.unwrap_err(), Error::NotFound);
        fs.close(kept, 1).await.unwrap();
        let linked = fs.create_unnamed(Ino::ROOT, new, true).await.unwrap().ino;
        fs.write(linked, 0, content(6, 50_000)).await.unwrap();
        assert_eq!(fs.link(linked, Ino::ROOT, b"linked").await.unwrap().links, 1);
        assert_eq!(fs.link(linked, Ino::ROOT, b"again").await.unwrap().links, 2);
        fs.close(linked, 1).await.unwrap();
        assert_eq!(fs.lookup(Ino::ROOT, b"linked").await.unwrap().ino, linked);
        // Once it has lost its names it gets no new one.
        fs.open(linked);
        fs.unlink(Ino::ROOT, b"linked").await.unwrap();
        fs.unlink(Ino::ROOT, b"again").await.unwrap();
        assert_eq!(fs.link(linked, Ino::ROOT, b"late").await.unwrap_err(), Error::NotFound);
        fs.close(linked, 1).await.unwrap();
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

#[test]
fn privileges_end_when_content_or_owner_change() {
    const CAPABILITY: &[u8] = b"security.capability";
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(3, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let ino = file(&fs, Ino::ROOT, "program", b"content").await;
        let privileged = async || {
            let set = Change { permissions: Some(0o6755), ..Change::default() };
            fs.change(ino, set).await.unwrap();
            fs.set_xattr(ino, CAPABILITY, vec![1; 20], SetXattr::default()).await.unwrap();
        };
        let held = async || {
            let capability = fs.xattr(ino, CAPABILITY).await;
            assert!(matches!(capability, Ok(_) | Err(Error::NoXattr)), "{capability:?}");
            (fs.attributes(ino).await.unwrap().permissions, capability.is_ok())
        };
        for kill_set_ids in [false, true] {
            let mode = if kill_set_ids { 0o755 } else { 0o6755 };
            privileged().await;
            assert_eq!(held().await, (0o6755, true));
            fs.drop_privileges(ino, SetIds::taken_if(kill_set_ids, Credentials::ROOT))
                .await
                .unwrap();
            assert_eq!(held().await, (mode, false), "written");
            let none = Change { kill_set_ids, ..Change::default() };
            let (size, uid) = (Some(3), Some(9));
            for change in [Change { size, ..none }, Change { uid, ..none }] {
                privileged().await;
                fs.change(ino, change).await.unwrap();
                assert_eq!(held().await, (mode, false), "{change:?}");
            }
            privileged().await;
            fs.change(ino, Change { accessed: Some(NewTime::At(Timestamp::default())), ..none })
                .await
                .unwrap();
            assert_eq!(held().await, (0o6755, true), "a time gives no rights");
        }
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

#[test]
fn what_does_not_fit_is_refused_when_it_is_written() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(4, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let ino = file(&fs, Ino::ROOT, "full", b"").await;
        let mut size = 0;
        let refused = loop {
            if let Err(error) = fs.write(ino, size, vec![5; 100_000]).await {
                break error;
            }
            size += 100_000;
        };
        assert_eq!(refused, Error::NoSpace);
        fs.sync(ino).await.unwrap();
        assert_eq!(fs.attributes(ino).await.unwrap().size, size);
        fs.unlink(Ino::ROOT, b"full").await.unwrap();
        let ino = file(&fs, Ino::ROOT, "again", &vec![6; 10_000_000]).await;
        fs.sync(ino).await.unwrap();
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

#[test]
fn directories_below_the_root_are_spread_and_deeper_ones_stay_near() {
    // 64 groups of 128 inodes, and 16 have their tables in one place.
    let Some(image) = mkfs(64, &["-g", "256", "-J", "size=4", "-N", "8192"]) else { return };
    let world = World::new(1, 64, image);
    let groups = world.run(async |fs| {
        let new = New::plain(FileKind::Directory, 0o755);
        let group = |ino: Ino| (ino.0 - 1) / 128;
        let (mut above, mut below) = (Vec::new(), Vec::new());
        for number in 0..16 {
            let name = format!("user {number}");
            let dir = fs.create(Ino::ROOT, name.as_bytes(), new.clone()).await.unwrap().ino;
            let inner = fs.create(dir, b"inner", new.clone()).await.unwrap().ino;
            above.push(group(dir));
            below.push((group(inner) / 16, group(dir) / 16));
        }
        fs.unmount().await.unwrap();
        (above, below)
    });
    let (mut above, below) = groups.unwrap();
    assert!(below.iter().all(|(inner, outer)| inner == outer), "{below:?}");
    above.sort_unstable();
    above.dedup();
    assert_eq!(above.len(), 16, "no two are in one group: {above:?}");
    let widest = above.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(above[0] < 20 && above[15] >= 44 && widest < 20, "all over the disk: {above:?}");
    world.check();
}

/// Enough names for an index of two levels, with and without checksums.
#[test]
fn large_directories_get_an_index_that_others_believe() {
    for options in [&[][..], &["-O", "^metadata_csum,^64bit"]] {
        let Some(image) = mkfs(48, &[&["-N", "40000"], options].concat()) else { return };
        let world = World::new(5, 48, image);
        let done = world.run(async |fs| {
            let dir = fs.create(Ino::ROOT, b"many", New::plain(FileKind::Directory, 0o755)).await;
            let (dir, long) = (dir.unwrap().ino, "n".repeat(150));
            let first =
                fs.create(dir, b"first", New::plain(FileKind::File, 0o600)).await.unwrap().ino;
            let name = |number: u32| format!("{number} {long}").into_bytes();
            for number in 0..14_000 {
                fs.link(first, dir, &name(number)).await.unwrap();
            }
            assert_eq!(names(&fs, dir).await.len(), 14_001);
            for number in (0..14_000).step_by(3) {
                fs.unlink(dir, &name(number)).await.unwrap();
            }
            for number in 0..14_000 {
                let found = fs.lookup(dir, &name(number)).await;
                assert_eq!(found.is_ok(), number % 3 != 0, "{number}");
            }
            for number in (1..3000).step_by(3) {
                let (old, new) = (name(number), format!("new {number}").into_bytes());
                fs.rename((dir, &old), (dir, &new), Taken::Replaced).await.unwrap();
            }
            fs.unmount().await.unwrap();
        });
        done.unwrap();
        world.check();
        let (_dir, path) = world.saved();
        let view = ext4_view::Ext4::load_from_path(&path).unwrap();
        assert!(view.exists("/many/new 4").unwrap());
        assert_eq!(view.read_dir("/many").unwrap().count(), 14_001 - 4667 + 2);
    }
}

#[test]
fn renames_replace_exchange_and_refuse() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(6, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let root = Ino::ROOT;
        let dir = async |above, name: &[u8]| {
            let new = New::plain(FileKind::Directory, 0o755);
            fs.create(above, name, new).await.unwrap().ino
        };
        let (a, b) = (dir(root, b"a").await, dir(root, b"b").await);
        let sub = dir(a, b"sub").await;
        let one = file(&fs, a, "one", b"one").await;
        let two = file(&fs, b, "two", b"two").await;
        let rename = async |from, to, taken| fs.rename(from, to, taken).await;
        assert_eq!(rename((a, b"one"), (b, b"two"), Taken::Kept).await, Err(Error::Exists));
        rename((a, b"one"), (b, b"two"), Taken::Exchanged).await.unwrap();
        assert_eq!(fs.lookup(b, b"two").await.unwrap().ino, one);
        assert_eq!(fs.lookup(a, b"one").await.unwrap().ino, two);
        rename((a, b"one"), (b, b"two"), Taken::Replaced).await.unwrap();
        assert_eq!(fs.lookup(b, b"two").await.unwrap().ino, two);
        assert_eq!(fs.lookup(a, b"one").await.err(), Some(Error::NotFound));
        let inside = rename((root, b"a"), (sub, b"a"), Taken::Replaced).await;
        assert!(matches!(inside, Err(Error::Invalid(_))));
        let over = rename((a, b"sub"), (b, b"two"), Taken::Replaced).await;
        assert_eq!(over, Err(Error::NotADirectory));
        rename((a, b"sub"), (b, b"moved"), Taken::Replaced).await.unwrap();
        assert_eq!(fs.lookup(sub, b"..").await.unwrap().ino, b);
        assert_eq!(fs.attributes(b).await.unwrap().links, 3);
        rename((b, b"moved"), (root, b"a"), Taken::Exchanged).await.unwrap();
        rename((root, b"a"), (b, b"moved"), Taken::Replaced).await.unwrap();
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

/// The inode's time of change counts if it is newer than that of content that still waits.
#[test]
fn a_rename_changes_the_time_of_a_file_whose_content_waits() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(8, SMALL_MIB, image);
    let times = world.run(async |fs| {
        let ino = file(&fs, Ino::ROOT, "old", b"content").await;
        let written = fs.attributes(ino).await.unwrap();
        // This takes time on the disk.
        let other = file(&fs, Ino::ROOT, "other", b"content").await;
        fs.sync(other).await.unwrap();
        fs.rename((Ino::ROOT, b"old"), (Ino::ROOT, b"new"), Taken::Replaced).await.unwrap();
        let renamed = fs.attributes(ino).await.unwrap();
        fs.sync(ino).await.unwrap();
        let synced = fs.attributes(ino).await.unwrap();
        fs.unmount().await.unwrap();
        [written, renamed, synced].map(|found| (found.modified, found.changed))
    });
    let [written, renamed, synced] = times.unwrap();
    assert_eq!((written.0, renamed), (renamed.0, synced));
    assert!(renamed.1 > written.1, "{renamed:?}");
}

/// e2fsck requires the feature if a file is that long.
#[test]
fn a_file_of_two_gibibytes_sets_the_feature() {
    let options = [SMALL, &["-O", "^large_file,^huge_file"]].concat();
    let Some(image) = mkfs(SMALL_MIB, &options) else { return };
    let world = World::new(9, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let ino = file(&fs, Ino::ROOT, "long", b"content").await;
        fs.write(ino, 1 << 31, vec![1]).await.unwrap();
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

#[test]
fn immutable_inodes_stay_and_append_only_ones_grow() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(7, SMALL_MIB, image);
    let done = world.run(async |fs| {
        for name in ["immutable", "append"] {
            file(&fs, Ino::ROOT, name, b"content").await;
        }
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    let (_dir, path) = world.saved();
    for (name, flags) in [("immutable", "0x80010"), ("append", "0x80020")] {
        let set = format!("set_inode_field {name} flags {flags}");
        let mut debugfs = std::process::Command::new("debugfs");
        assert!(
            debugfs
                .args(["-w", "-R", &set])
                .arg(&path)
                .output()
                .is_ok_and(|said| said.status.success())
        );
    }
    let world = World::new(8, SMALL_MIB, crate::common::load(&path));
    let done = world.run(async |fs| {
        let root = Ino::ROOT;
        let no = Some(Error::NotPermitted);
        let mode = Change { permissions: Some(0), ..Change::default() };
        let cut = Change { size: Some(1), ..Change::default() };
        for name in [&b"immutable"[..], b"append"] {
            let ino = fs.lookup(root, name).await.unwrap().ino;
            assert_eq!(fs.unlink(root, name).await.err(), no);
            assert_eq!(fs.rename((root, name), (root, b"new"), Taken::Kept).await.err(), no);
            assert_eq!(fs.link(ino, root, b"new").await.err(), no);
            assert_eq!(fs.change(ino, mode).await.err(), no);
            assert_eq!(fs.change(ino, cut).await.err(), no);
            // The calls of `touch`, and then of `touch -d`.
            let now = Some(NewTime::Now);
            let touch = Change { accessed: now, modified: now, ..Change::default() };
            let touched = fs.change(ino, touch).await.err();
            assert_eq!(touched, no.clone().filter(|_| name == b"immutable"));
            let then = Change { modified: Some(NewTime::At(Timestamp::default())), ..touch };
            assert_eq!(fs.change(ino, then).await.err(), no);
            let whole = OpenFor { write: true, ..OpenFor::default() };
            assert_eq!(fs.check_open(ino, whole).await.err(), no);
            let at_end = OpenFor { append: true, ..whole };
            let allowed = fs.check_open(ino, at_end).await.err();
            assert_eq!(allowed, no.clone().filter(|_| name == b"immutable"));
            assert_eq!(fs.check_open(ino, OpenFor { truncate: true, ..at_end }).await.err(), no);
            // A program that opened the file before may write anywhere.
            for place in [3, 7] {
                let written = fs.write(ino, place, vec![1]).await.err();
                assert_eq!(written, no.clone().filter(|_| name == b"immutable"));
            }
        }
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

#[test]
fn ranges_get_blocks_lose_them_and_read_as_zeroes() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(9, SMALL_MIB, image);
    let done = world.run(async |fs| {
        let free = fs.usage().free_blocks;
        let ino = file(&fs, Ino::ROOT, "ranges", b"").await;
        let (mut model, mut rng) = (Vec::new(), manylogs_block::Rng::new(3));
        for step in 0..400 {
            let (from, len) = (rng.below(300_000), 1 + rng.below(60_000));
            let (at, end) = (usize::try_from(from).unwrap(), usize::try_from(from + len).unwrap());
            let keep = rng.one_in(2);
            let what = [Allocate::Blocks, Allocate::Hole, Allocate::Zeroes];
            match rng.below(5) {
                0 => fs.sync(ino).await.unwrap(),
                1 => {
                    let bytes = content(step, end - at);
                    model.resize(model.len().max(end), 0);
                    model[at..end].copy_from_slice(&bytes);
                    fs.write(ino, from, bytes).await.unwrap();
                }
                picked => {
                    let what = what[usize::try_from(picked).unwrap() - 2];
                    if what != Allocate::Hole && !keep {
                        model.resize(model.len().max(end), 0);
                    }
                    let end = end.min(model.len());
                    if what != Allocate::Blocks && at < end {
                        model[at..end].fill(0);
                    }
                    fs.allocate(ino, from..from + len, what, keep).await.unwrap();
                }
            }
            let read = fs.read(ino, 0, 1 << 20).await.unwrap();
            assert!(read == model, "step {step}: {} {}", read.len(), model.len());
        }
        fs.sync_all().await.unwrap();
        assert!(fs.attributes(ino).await.unwrap().sectors > 0);
        fs.unlink(Ino::ROOT, b"ranges").await.unwrap();
        fs.sync_all().await.unwrap();
        assert_eq!(fs.usage().free_blocks, free);
        let ino = file(&fs, Ino::ROOT, "kept", b"abc").await;
        fs.allocate(ino, 0..10_000_000, Allocate::Blocks, true).await.unwrap();
        fs.write(ino, 500_000, content(1, 5000)).await.unwrap();
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}
