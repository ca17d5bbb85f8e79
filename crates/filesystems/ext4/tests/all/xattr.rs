//! Extended attributes and access control lists: with this crate alone, and exchanged with the
//! kernel.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::{Judged, World, content, has, image_dir, load, mkfs, save};
use manylogs_block::Rng;
use manylogs_ext4::{Change, Error, Ext4, FileKind, Ino, New, SetXattr};
use manylogs_sim::Survival;

const MIB: u64 = 32;
const ANY: SetXattr = SetXattr { create: false, replace: false, drop_set_gid: false };
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// A list in the form of programs: owner, user 1000, group, mask, others.
fn list(allowed: [u16; 5]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, allowed) in [1_u16, 2, 4, 0x10, 0x20].into_iter().zip(allowed) {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(allowed.to_le_bytes());
        bytes.extend(if tag == 2 { 1000 } else { u32::MAX }.to_le_bytes());
    }
    bytes
}

async fn file(fs: &Ext4, name: &[u8]) -> Ino {
    fs.create(Ino::ROOT, name, New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

/// All attributes of an inode.
async fn all(fs: &Ext4, ino: Ino) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in fs.xattrs(ino).await.unwrap() {
        let value = fs.xattr(ino, &name).await.unwrap().to_vec();
        all.insert(name, value);
    }
    all
}

fn with_world(options: &[&str], test: impl AsyncFnOnce(Ext4) + 'static) {
    let Some(image) = mkfs(MIB, options) else { return };
    let world = World::new(1, MIB, image);
    world
        .run(async |fs| {
            test(fs.clone()).await;
            fs.unmount().await.unwrap();
        })
        .unwrap();
    world.check();
}

#[test]
fn attributes_are_set_replaced_listed_and_removed() {
    for options in [&[][..], &["-I", "128"], &["-O", "^metadata_csum,^ext_attr"]] {
        with_world(options, async |fs: Ext4| {
            let free = fs.usage().free_blocks;
            let ino = file(&fs, b"file").await;
            let mut expected = BTreeMap::new();
            let mut rng = Rng::new(4);
            for round in 0..300 {
                let space = [&b"user."[..], b"trusted.", b"security."][round % 3];
                let name = [space, format!("n{}", rng.below(12)).as_bytes()].concat();
                let len = usize::try_from(rng.below(500)).unwrap();
                let known = expected.contains_key(&name);
                if rng.one_in(4) {
                    let removed = fs.remove_xattr(ino, &name).await;
                    assert_eq!(removed.is_ok(), expected.remove(&name).is_some());
                    continue;
                }
                let other = SetXattr { create: known, replace: !known, drop_set_gid: false };
                let refused = fs.set_xattr(ino, &name, vec![1], other).await;
                let why = if known { Error::Exists } else { Error::NoXattr };
                assert_eq!(refused, Err(why));
                let value = content(round as u64, len);
                match fs.set_xattr(ino, &name, value.clone(), ANY).await {
                    Ok(()) => drop(expected.insert(name, value)),
                    Err(error) => assert_eq!(error, Error::NoSpace),
                }
                assert_eq!(all(&fs, ino).await, expected);
            }
            assert!(expected.len() > 3);
            assert_eq!(fs.xattr(ino, b"user.none").await, Err(Error::NoXattr));
            let strange = fs.set_xattr(ino, b"system.other", vec![1], ANY).await;
            assert!(matches!(strange, Err(Error::Unsupported(_))));
            fs.unlink(Ino::ROOT, b"file").await.unwrap();
            fs.sync_all().await.unwrap();
            assert_eq!(fs.usage().free_blocks, free);
            file(&fs, b"again").await;
        });
    }
}

#[test]
fn a_value_too_large_is_refused_and_nothing_is_lost() {
    with_world(&[], async |fs: Ext4| {
        let ino = file(&fs, b"file").await;
        fs.set_xattr(ino, b"user.a", content(1, 4000), ANY).await.unwrap();
        for len in [4041, 5000, 65_536] {
            let refused = fs.set_xattr(ino, b"user.a", content(2, len), ANY).await;
            assert_eq!(refused, Err(Error::NoSpace));
        }
        assert_eq!(fs.xattr(ino, b"user.a").await.unwrap(), content(1, 4000));
        assert_eq!(fs.attributes(ino).await.unwrap().sectors, 8);
        fs.set_xattr(ino, b"user.a", content(2, 20), ANY).await.unwrap();
        assert_eq!(fs.attributes(ino).await.unwrap().sectors, 0);
    });
}

#[test]
fn lists_of_access_and_modes_keep_in_step_and_are_handed_down() {
    with_world(&[], async |fs: Ext4| {
        let new = |kind, mode, umask| New { umask, ..New::plain(kind, mode) };
        let above = fs.create(Ino::ROOT, b"dir", new(FileKind::Directory, 0o777, 0o22)).await;
        let above = above.unwrap();
        assert_eq!(above.permissions, 0o755);
        let given = list([7, 6, 5, 6, 1]);
        fs.set_xattr(above.ino, DEFAULT, given.clone(), ANY).await.unwrap();
        let child = fs.create(above.ino, b"file", new(FileKind::File, 0o666, 0o77)).await.unwrap();
        assert_eq!(child.permissions, 0o660, "a default list counts, the umask does not");
        let own = fs.xattr(child.ino, ACCESS).await.unwrap();
        assert_eq!(own, list([6, 6, 5, 6, 0]));
        assert_eq!(fs.xattr(child.ino, DEFAULT).await, Err(Error::NoXattr));
        let dir = fs.create(above.ino, b"sub", new(FileKind::Directory, 0o750, 0)).await.unwrap();
        assert_eq!(dir.permissions, 0o740);
        assert_eq!(fs.xattr(dir.ino, DEFAULT).await.unwrap(), given);
        let permissions = Some(0o4704);
        fs.change(child.ino, Change { permissions, ..Change::default() }).await.unwrap();
        assert_eq!(fs.xattr(child.ino, ACCESS).await.unwrap(), list([7, 6, 5, 0, 4]));
        let permissions = Some(0o2700);
        fs.change(child.ino, Change { permissions, ..Change::default() }).await.unwrap();
        let drop_it = SetXattr { drop_set_gid: true, ..ANY };
        fs.set_xattr(child.ino, ACCESS, list([6, 7, 7, 5, 3]), drop_it).await.unwrap();
        assert_eq!(fs.attributes(child.ino).await.unwrap().permissions, 0o653);
        // A list that says no more than a mode is stored as the mode alone.
        let plain: Vec<u8> = [1_u16, 4, 0x20].into_iter().zip([6_u16, 4, 0]).fold(
            2_u32.to_le_bytes().to_vec(),
            |mut all, (tag, allowed)| {
                all.extend(tag.to_le_bytes());
                all.extend(allowed.to_le_bytes());
                all.extend(u32::MAX.to_le_bytes());
                all
            },
        );
        fs.set_xattr(child.ino, ACCESS, plain, ANY).await.unwrap();
        assert_eq!(fs.attributes(child.ino).await.unwrap().permissions, 0o640);
        assert!(fs.xattrs(child.ino).await.unwrap().is_empty());
        fs.remove_xattr(child.ino, ACCESS).await.unwrap();
        let refused = fs.set_xattr(child.ino, DEFAULT, list([7; 5]), ANY).await;
        assert_eq!(refused, Err(Error::AccessDenied));
        let wrong = fs.set_xattr(child.ino, ACCESS, list([7, 7, 7, 9, 7]), ANY).await;
        assert!(matches!(wrong, Err(Error::Invalid(_))));
    });
}

#[test]
fn crashes_leave_attributes_whole() {
    let Some(image) = mkfs(MIB, crate::common::SMALL) else { return };
    for seed in 0..30 {
        let world = World::new(seed, MIB, image.clone());
        world
            .run(async move |fs| {
                let mut rng = Rng::new(seed);
                for number in 0..20 {
                    let ino = file(&fs, format!("file {number}").as_bytes()).await;
                    for _ in 0..1 + rng.below(4) {
                        let name = format!("user.{}", rng.below(3)).into_bytes();
                        let len = usize::try_from(rng.below(1300)).unwrap();
                        fs.set_xattr(ino, &name, content(number, len), ANY).await.unwrap();
                    }
                    if rng.one_in(3) {
                        fs.sync(ino).await.unwrap();
                    }
                    if rng.one_in(3) {
                        let name = format!("file {number}").into_bytes();
                        fs.unlink(Ino::ROOT, &name).await.unwrap();
                    }
                }
                let ino = file(&fs, b"last").await;
                fs.set_xattr(ino, b"user.kept", content(seed, 1000), ANY).await.unwrap();
                fs.sync(ino).await.unwrap();
                fs.remove_xattr(ino, b"user.kept").await.unwrap();
                fs.unlink(Ino::ROOT, b"last").await.unwrap();
            })
            .unwrap();
        let crashed = world.disk.after_power_cut(Survival::Random, &mut Rng::new(seed));
        let world = World::new(seed, MIB, crashed);
        world
            .run(async move |fs| {
                if let Ok(last) = fs.lookup(Ino::ROOT, b"last").await {
                    match fs.xattr(last.ino, b"user.kept").await {
                        Ok(value) => assert_eq!(value, content(seed, 1000)),
                        Err(error) => assert_eq!(error, Error::NoXattr),
                    }
                }
                fs.unmount().await.unwrap();
            })
            .unwrap();
        world.check();
    }
}

/// The output of `getfattr` and `getfacl` for the files in a mounted image.
fn told(root: &std::path::Path) -> String {
    let run = |program: &str, options: &[&str]| {
        let said = Command::new(program).args(options).arg(".").current_dir(root).output();
        let said = said.unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    };
    run("getfattr", &["-R", "-d", "-m", "user|trusted", "-e", "hex"]) + &run("getfacl", &["-Rn"])
}

#[test]
fn the_kernel_and_we_read_one_anothers_attributes() {
    if !crate::common::can_mount() || !has("getfattr") || !has("setfacl") {
        manylogs_testkit::skip("needs root, loop devices, getfattr and setfacl");
        return;
    }
    for options in [&[][..], &["-I", "128", "-O", "^metadata_csum,^64bit"]] {
        let Some(image) = mkfs(MIB, options) else { return };
        let dir = image_dir().unwrap();
        let path = dir.path().join("image");
        save(&image, MIB, &path);
        let script = "mkdir d; setfacl -d -m u:1000:rwx,g:7:r d; touch d/f; mkdir d/s; \
            for i in 1 2 3 4 5 6; do touch same$i; \
            setfattr -n user.same -v \"$(head -c 900 /dev/zero | tr '\\0' x)\" same$i; done; \
            setfattr -n user.t\u{e4}st -v \u{e4}\u{fc} d/f; setfattr -n trusted.t -v 0x0102 d/f";
        {
            let Some(mounted) = crate::common::Mounted::new(&path) else { return };
            let done =
                Command::new("sh").args(["-ec", script]).current_dir(mounted.path()).status();
            assert!(done.unwrap().success());
        }
        let world = World::new(1, MIB, load(&path));
        world
            .run(async |fs| {
                // The kernel lets files share a block: each change copies it first.
                for number in 1..=4 {
                    let name = format!("same{number}").into_bytes();
                    let ino = fs.lookup(Ino::ROOT, &name).await.unwrap().ino;
                    let value = fs.xattr(ino, b"user.same").await.unwrap();
                    assert_eq!(value, vec![b'x'; 900]);
                    match number {
                        1 => fs.set_xattr(ino, b"user.more", content(1, 1500), ANY).await,
                        2 => fs.remove_xattr(ino, b"user.same").await,
                        3 => fs.unlink(Ino::ROOT, &name).await,
                        _ => fs.set_xattr(ino, b"user.same", vec![b'y'; 901], ANY).await,
                    }
                    .unwrap();
                }
                let dir = fs.lookup(Ino::ROOT, b"d").await.unwrap().ino;
                let file = fs.lookup(dir, b"f").await.unwrap().ino;
                let name = "user.t\u{e4}st".as_bytes();
                assert_eq!(fs.xattr(file, name).await.unwrap(), "\u{e4}\u{fc}".as_bytes());
                assert!(fs.xattr(file, ACCESS).await.unwrap().len() > 4);
                fs.set_xattr(file, b"user.z\xc3\xa4", content(9, 2000), ANY).await.unwrap();
                let new = New { umask: 0o77, ..New::plain(FileKind::Directory, 0o770) };
                fs.create(dir, b"made", new).await.unwrap();
                fs.unmount().await.unwrap();
            })
            .unwrap();
        world.check();
        save(&world.settled(), MIB, &path);
        let Some(mounted) = crate::common::Mounted::new(&path) else { return };
        let told = told(mounted.path());
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(told.contains(&format!("user.more=0x{}", hex(&content(1, 1500)))), "{told}");
        assert!(told.contains(&format!("user.same=0x{}", "79".repeat(901))));
        assert!(told.contains(&hex(&content(9, 2000))) && told.contains("trusted.t=0x0102"));
        assert_eq!(told.matches(&format!("user.same=0x{}\n", "78".repeat(900))).count(), 3);
        let made = told.split("# file: d/made").nth(1).unwrap();
        assert!(made.contains("default:user:1000:rwx") && made.contains("user:1000:rwx"), "{made}");
    }
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::Bug;
    let replaced = attributes_are_set_replaced_listed_and_removed;
    crate::common::assert_noticed(Bug::Ext4XattrBlockKept, replaced);
    crate::common::assert_noticed(Bug::Ext4XattrHashWrong, crashes_leave_attributes_whole);
    let lists = lists_of_access_and_modes_keep_in_step_and_are_handed_down;
    crate::common::assert_noticed(Bug::Ext4AclLeavesMode, lists);
}
