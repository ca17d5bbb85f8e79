//! Names with the same hash in directories with an index.

use std::collections::BTreeSet;
use std::process::Command;

use crate::common::{Judged, SMALL, SMALL_MIB, World, has, image_dir, load, mkfs, save};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};
use manylogs_sim::DiskImage;

/// Names of 80 bytes with the same TEA hash. Each 16 bytes are a key of four words. The cipher
/// stays the same when the highest bits of the first two words change, and likewise for the last
/// two.
fn alike(number: u32) -> Vec<u8> {
    let mut name = vec![b'n'; 80];
    for (pair, words) in name.chunks_mut(8).enumerate() {
        if number >> pair & 1 == 1 {
            words[0] ^= 0x80;
            words[4] ^= 0x80;
        }
    }
    name
}

/// An image whose directories hash names with TEA.
fn image() -> Option<DiskImage> {
    if !has("tune2fs") {
        manylogs_testkit::skip("needs tune2fs");
        return None;
    }
    let image = mkfs(SMALL_MIB, SMALL)?;
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&image, SMALL_MIB, &path);
    let tuned = Command::new("tune2fs").args(["-E", "hash_alg=tea"]).arg(&path).output().unwrap();
    assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
    Some(load(&path))
}

/// Names with one hash fill many blocks, and names with other hashes lie before and behind them.
fn names_of_one_hash_are_found() {
    const NAMES: u32 = 400;
    let Some(image) = image() else { return };
    let world = World::new(1, SMALL_MIB, image);
    let done = world.run(async |fs: Ext4| {
        let new = || New::plain(FileKind::File, 0o600);
        let dir = fs.create(Ino::ROOT, b"dir", New::plain(FileKind::Directory, 0o755)).await;
        let dir = dir.unwrap().ino;
        let other = |number: u32| format!("other {number}").into_bytes();
        let mut made = Vec::new();
        for number in 0..NAMES {
            for name in [alike(number), other(number)] {
                made.push((fs.create(dir, &name, new()).await.unwrap().ino, name));
            }
        }
        for (ino, name) in &made {
            assert_eq!(fs.lookup(dir, name).await.map(|known| known.ino), Ok(*ino));
            assert_eq!(fs.create(dir, name, new()).await.unwrap_err(), Error::Exists);
        }
        let (mut seen, mut cookie) = (BTreeSet::new(), 0);
        loop {
            // As few as a small buffer has room for.
            let listed = fs.list(dir, cookie).await.unwrap();
            let Some(last) = listed.iter().take(3).next_back() else { break };
            cookie = last.next;
            listed.iter().take(3).for_each(|listed| assert!(seen.insert(listed.name.clone())));
        }
        assert!(made.iter().all(|(_, name)| seen.contains(name)), "a name is not listed");
        for (_, name) in made.iter().step_by(3) {
            fs.unlink(dir, name).await.unwrap();
        }
        for (number, (_, name)) in made.iter().enumerate() {
            assert_eq!(fs.lookup(dir, name).await.is_ok(), number % 3 != 0);
        }
        fs.unmount().await
    });
    assert_eq!(done, Ok(Ok(())));
    world.check();
}

#[test]
fn names_of_one_hash_are_found_wherever_they_go_on() {
    names_of_one_hash_are_found();
}

#[cfg(feature = "plant")]
#[test]
fn an_index_that_does_not_say_that_a_hash_goes_on_is_noticed() {
    use manylogs_plant::Bug;

    crate::common::assert_noticed(Bug::Ext4HashEndsWithBlock, names_of_one_hash_are_found);
}

#[cfg(feature = "plant")]
#[test]
fn lists_that_miss_names_of_one_hash_are_noticed() {
    use manylogs_plant::Bug;

    for bug in [Bug::Ext4ListDropsAlike, Bug::Ext4ListCutsHash] {
        crate::common::assert_noticed(bug, names_of_one_hash_are_found);
    }
}
