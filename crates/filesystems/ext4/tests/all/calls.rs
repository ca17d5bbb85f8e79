//! Effects of system calls besides content: times, privileges, blocks, whiteouts. The kernel's ext4
//! does the same (`crates/cli/tests/differential.rs` compares).

use crate::common::{Judged, SMALL, SMALL_MIB, World, mkfs};
use manylogs_ext4::{
    AccessTimes, Allocate, Attributes, Change, Credentials, Error, Ext4, FileKind, Ino, New,
    NewTime, SetIds, SetXattr, Taken, Timestamp,
};

const CAPABILITY: &[u8] = b"security.capability";

async fn file(fs: &Ext4, name: &str, permissions: u16) -> Ino {
    let new = New { uid: 7, gid: 8, ..New::plain(FileKind::File, permissions) };
    fs.create(Ino::ROOT, name.as_bytes(), new).await.unwrap().ino
}

/// The attributes of a file before and after `work`. Time passes before `work` begins.
async fn around(fs: &Ext4, ino: Ino, work: impl AsyncFnOnce()) -> [Attributes; 2] {
    let other = fs.lookup(Ino::ROOT, b"other").await.unwrap().ino;
    fs.write(other, 0, vec![1; 100]).await.unwrap();
    fs.sync(other).await.unwrap();
    let before = fs.attributes(ino).await.unwrap();
    work().await;
    [before, fs.attributes(ino).await.unwrap()]
}

/// Whether the times of change of content and of attributes moved.
fn moved([before, after]: [Attributes; 2]) -> (bool, bool) {
    (before.modified < after.modified, before.changed < after.changed)
}

/// Runs `work` on a small image, and then checks the image.
fn on_image<F: Future<Output = ()> + 'static>(
    options: &[&str],
    work: impl FnOnce(Ext4) -> F + 'static,
) {
    let Some(image) = mkfs(SMALL_MIB, &[SMALL, options].concat()) else { return };
    let world = World::new(5, SMALL_MIB, image);
    let done = world.run(async |fs| {
        file(&fs, "other", 0o644).await;
        work(fs.clone()).await;
        fs.unmount().await.unwrap();
    });
    done.unwrap();
    world.check();
}

#[test]
fn times_move_with_every_change_of_content_or_size() {
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o644).await;
        let resize = async |size| {
            let change = Change { size: Some(size), ..Change::default() };
            fs.change(ino, change).await.unwrap();
        };
        let allocate = async |range, what, keep| {
            fs.allocate(ino, range, what, keep).await.unwrap();
        };
        let write = async || {
            fs.write(ino, 0, vec![3; 50_000]).await.unwrap();
        };
        let both = (true, true);
        assert_eq!(moved(around(&fs, ino, async || resize(0).await).await), both, "empty");
        write().await;
        let same = around(&fs, ino, async || resize(50_000).await).await;
        assert_eq!(moved(same), both, "the same size");
        for what in [Allocate::Blocks, Allocate::Zeroes, Allocate::Hole] {
            for keep in [true, false] {
                write().await;
                let within = around(&fs, ino, async || allocate(5_000..30_000, what, keep).await);
                assert_eq!(moved(within.await), both, "{what:?}, {keep}");
            }
        }
        let stays = around(&fs, ino, async || {
            fs.change(ino, Change::default()).await.unwrap();
        });
        assert_eq!(moved(stays.await), (false, true), "the owner that it has");
    });
}

#[test]
fn blocks_behind_the_end_are_counted_once_and_go_with_the_size() {
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o644).await;
        let sectors = async || fs.attributes(ino).await.unwrap().sectors;
        fs.write(ino, 0, vec![3; 26_166]).await.unwrap();
        fs.allocate(ino, 0..26_166, Allocate::Blocks, true).await.unwrap();
        assert_eq!(sectors().await, 7 * 8, "pages that wait have the blocks that were taken");
        fs.allocate(ino, 15_271..27_143, Allocate::Hole, true).await.unwrap();
        assert_eq!(sectors().await, 4 * 8, "the last block goes whole");
        fs.allocate(ino, 28_672..65_536, Allocate::Blocks, true).await.unwrap();
        fs.allocate(ino, 30_000..60_000, Allocate::Hole, true).await.unwrap();
        assert_eq!(sectors().await, 13 * 8, "no hole behind the end");
        let change = Change { size: Some(26_166), ..Change::default() };
        fs.change(ino, change).await.unwrap();
        assert_eq!(sectors().await, 4 * 8, "the size that it has");
    });
}

#[test]
fn set_id_bits_go_as_the_caller_may_not_keep_them() {
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o6644).await;
        let mode = async || fs.attributes(ino).await.unwrap().permissions;
        let set = async |permissions| {
            let permissions = Some(permissions);
            fs.change(ino, Change { permissions, ..Change::default() }).await.unwrap();
        };
        let (member, stranger) = (|gid| gid == 8, |_| false);
        let member = Credentials { uid: 9, in_group: &member };
        let stranger = Credentials { uid: 9, in_group: &stranger };
        fs.drop_privileges(ino, SetIds::TakenBy(member)).await.unwrap();
        assert_eq!(mode().await, 0o2644, "who is in the group keeps its bit");
        fs.drop_privileges(ino, SetIds::TakenBy(stranger)).await.unwrap();
        assert_eq!(mode().await, 0o644);
        // An empty change by a stranger clears nothing; one by the owner clears the bit.
        set(0o4755).await;
        fs.change_by(stranger, ino, Change::default()).await.unwrap();
        assert_eq!(mode().await, 0o4755);
        fs.change_by(Credentials { uid: 7, ..stranger }, ino, Change::default()).await.unwrap();
        assert_eq!(mode().await, 0o755);
        // A file that may not be changed keeps its bits.
        set(0o4755).await;
        fs.set_inode_flags(ino, 0x8_0010).await.unwrap();
        let cut = Change { size: Some(1 << 32), kill_set_ids: true, ..Change::default() };
        assert_eq!(fs.change_by(member, ino, cut).await.err(), Some(Error::NotPermitted));
        let dropped = fs.drop_privileges(ino, SetIds::TakenBy(member)).await;
        assert_eq!(dropped.err(), Some(Error::NotPermitted));
        assert_eq!(mode().await, 0o4755);
        fs.set_inode_flags(ino, 0x8_0000).await.unwrap();
    });
}

#[test]
fn a_directory_keeps_its_capability_and_a_list_that_is_not_there_changes_nothing() {
    on_image(&[], async |fs| {
        let new = New::plain(FileKind::Directory, 0o2755);
        let dir = fs.create(Ino::ROOT, b"dir", new).await.unwrap().ino;
        fs.set_xattr(dir, CAPABILITY, vec![1; 20], SetXattr::default()).await.unwrap();
        let change = Change { uid: Some(5), kill_set_ids: true, ..Change::default() };
        assert_eq!(fs.change(dir, change).await.unwrap().permissions, 0o2755);
        assert_eq!(fs.xattr(dir, CAPABILITY).await.unwrap(), vec![1; 20]);
        let removed = around(&fs, dir, async || {
            fs.remove_xattr(dir, b"system.posix_acl_default").await.unwrap();
        });
        assert_eq!(moved(removed.await), (false, false));
        fs.open(dir);
        fs.remove_directory(Ino::ROOT, b"dir").await.unwrap();
        assert_eq!(fs.attributes(dir).await.unwrap().size, 0);
        assert_eq!(fs.list(dir, 0).await.err(), Some(Error::NotFound));
        fs.close(dir, 1).await.unwrap();
    });
}

#[test]
fn a_whiteout_takes_the_place_of_what_is_renamed() {
    on_image(&[], async |fs| {
        let root = Ino::ROOT;
        let (one, _) = (file(&fs, "one", 0o644).await, file(&fs, "two", 0o644).await);
        let dir = fs.create(root, b"dir", New::plain(FileKind::Directory, 0o755)).await;
        let dir = dir.unwrap().ino;
        let leave = async |from: &str, to: (Ino, &str), taken| {
            let (from, to) = ((root, from.as_bytes()), (to.0, to.1.as_bytes()));
            fs.rename_and_leave(from, to, taken, (3, 4)).await
        };
        let is_whiteout = async |name: &str| {
            let left = fs.lookup(root, name.as_bytes()).await.unwrap();
            let owner = (left.uid, left.gid, left.permissions, left.links);
            left.kind == FileKind::CharDevice && left.device == (0, 0) && owner == (3, 4, 0, 1)
        };
        assert_eq!(leave("one", (root, "two"), Taken::Kept).await, Err(Error::Exists));
        let exchanged = leave("one", (root, "two"), Taken::Exchanged).await;
        assert!(matches!(exchanged, Err(Error::Invalid(_))));
        leave("one", (root, "two"), Taken::Replaced).await.unwrap();
        assert_eq!(fs.lookup(root, b"two").await.unwrap().ino, one);
        leave("two", (dir, "moved"), Taken::Kept).await.unwrap();
        leave("dir", (root, "other dir"), Taken::Kept).await.unwrap();
        for name in ["one", "two", "dir"] {
            assert!(is_whiteout(name).await, "{name}");
        }
        assert_eq!(fs.lookup(dir, b"moved").await.unwrap().ino, one);
    });
}

#[test]
fn times_of_access_are_shown_before_they_are_kept() {
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o644).await;
        let read = around(&fs, ino, async || {
            assert!(fs.note_access(ino, AccessTimes::Relative).await.unwrap());
        });
        let [before, shown] = read.await;
        assert!(before.accessed < shown.accessed);
        assert!(!fs.note_access(ino, AccessTimes::Relative).await.unwrap(), "noted already");
        fs.keep_access(ino).await.unwrap();
        assert_eq!(fs.attributes(ino).await.unwrap().accessed, shown.accessed);
        // A time that is set meanwhile counts.
        let read = around(&fs, ino, async || {
            assert!(fs.note_access(ino, AccessTimes::Strict).await.unwrap());
        });
        read.await;
        let set = Timestamp { seconds: 1_000, nanos: 5 };
        let change = Change { accessed: Some(NewTime::At(set)), ..Change::default() };
        fs.change(ino, change).await.unwrap();
        fs.keep_access(ino).await.unwrap();
        assert_eq!(fs.attributes(ino).await.unwrap().accessed, set);
    });
}

#[test]
fn small_inodes_have_whole_seconds_at_once() {
    let Some(image) = mkfs(SMALL_MIB, &[SMALL, &["-I", "128"]].concat()) else { return };
    let world = World::new(5, SMALL_MIB, image);
    let times = world.run(async |fs| {
        let ino = file(&fs, "file", 0o644).await;
        fs.write(ino, 0, vec![1; 100]).await.unwrap();
        let waits = fs.attributes(ino).await.unwrap();
        fs.sync(ino).await.unwrap();
        let synced = fs.attributes(ino).await.unwrap();
        fs.unmount().await.unwrap();
        [waits, synced].map(|known| (known.modified, known.changed))
    });
    let [waits, synced] = times.unwrap();
    assert_eq!(waits, synced);
    assert_eq!((waits.0.nanos, waits.1.nanos), (0, 0));
    world.check();
}

#[test]
fn the_first_second_that_inodes_know_has_no_parts() {
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o644).await;
        let first = i64::from(i32::MIN);
        for (seconds, shown) in [(first, (first, 0)), (i64::MIN, (first, 0)), (-1, (-1, 9))] {
            let at = NewTime::At(Timestamp { seconds, nanos: 9 });
            let change = Change { modified: Some(at), ..Change::default() };
            let time = fs.change(ino, change).await.unwrap().modified;
            assert_eq!((time.seconds, time.nanos), shown);
        }
    });
}

#[test]
fn an_attribute_that_it_has_already_is_no_change() {
    on_image(&[], async |fs| {
        let new = New::plain(FileKind::Directory, 0o755);
        let dir = fs.create(Ino::ROOT, b"dir", new).await.unwrap().ino;
        let set = async |name: &str, value: &[u8]| {
            let (name, value) = (name.as_bytes(), value.to_vec());
            let set = around(&fs, dir, async || {
                fs.set_xattr(dir, name, value, SetXattr::default()).await.unwrap();
            });
            moved(set.await).1
        };
        // Owner, a user, group, mask and others; owner, group and others as the mode has them.
        let named = acl(&[(1, 7, !0), (2, 5, 9), (4, 5, !0), (16, 5, !0), (32, 5, !0)]);
        let plain = acl(&[(1, 7, !0), (4, 5, !0), (32, 5, !0)]);
        for (name, value, moves) in [
            ("security.capability", &[1_u8; 20][..], true),
            ("security.capability", &[1; 20], false),
            ("security.capability", &[2; 20], true),
            ("user.a", &[], true),
            ("user.a", &[], false),
            ("system.posix_acl_default", &named, true),
            ("system.posix_acl_default", &named, false),
            ("system.posix_acl_access", &plain, false),
            ("system.posix_acl_access", &named, true),
            ("system.posix_acl_access", &named, false),
            ("system.posix_acl_access", &plain, true),
        ] {
            assert_eq!(set(name, value).await, moves, "{name}: {value:?}");
        }
    });
}

/// An access control list in the form that programs give to Linux: tags, rights and ids.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn what_is_refused_is_known_before_privileges_go() {
    const MOST: u64 = ((1 << 32) - 1) * 4096;
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o4755).await;
        assert_eq!(fs.check_write(MOST - 4096, 4096), Ok(()));
        assert_eq!(fs.check_write(MOST - 4096, 4097), Err(Error::TooLarge));
        assert_eq!(fs.check_write(u64::MAX, 1), Err(Error::TooLarge));
        let check = async |range, what| fs.check_allocation(ino, &range, what).await;
        assert_eq!(check(0..MOST, Allocate::Blocks).await, Ok(()));
        assert_eq!(check(0..MOST + 1, Allocate::Hole).await, Err(Error::TooLarge));
        assert!(matches!(check(5..5, Allocate::Hole).await, Err(Error::Invalid(_))));
        fs.set_inode_flags(ino, 0x8_0020).await.unwrap();
        assert_eq!(check(0..5, Allocate::Blocks).await, Ok(()));
        assert_eq!(check(0..5, Allocate::Hole).await, Err(Error::NotPermitted));
        fs.set_inode_flags(ino, 0x8_0000).await.unwrap();
    });
}

#[test]
fn a_capability_without_a_value_stays() {
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o755).await;
        for (value, left) in [(vec![1; 20], Err(Error::NoXattr)), (vec![], Ok(vec![]))] {
            for give_away in [true, false] {
                fs.set_xattr(ino, CAPABILITY, value.clone(), SetXattr::default()).await.unwrap();
                if give_away {
                    let change = Change { uid: Some(9), ..Change::default() };
                    fs.change(ino, change).await.unwrap();
                } else {
                    let dropped = fs.drop_privileges(ino, SetIds::Kept).await.unwrap();
                    assert_eq!(dropped, !value.is_empty());
                }
                let found = fs.xattr(ino, CAPABILITY).await.map(|found| found.to_vec());
                assert_eq!(found, left, "{give_away}");
            }
        }
    });
}

#[test]
fn reading_an_immutable_file_changes_its_time_of_access() {
    on_image(&[], async |fs| {
        let ino = file(&fs, "file", 0o644).await;
        for (flags, noted) in [(0x8_0010, true), (0x8_0080, false)] {
            fs.set_inode_flags(ino, flags).await.unwrap();
            let read = around(&fs, ino, async || {
                assert_eq!(fs.note_access(ino, AccessTimes::Strict).await, Ok(noted));
                fs.keep_access(ino).await.unwrap();
            });
            let [before, after] = read.await;
            assert_eq!(before.accessed < after.accessed, noted, "{flags:x}");
        }
        fs.set_inode_flags(ino, 0x8_0000).await.unwrap();
    });
}
