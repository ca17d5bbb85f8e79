//! Lists of directories that change while they are read, and of damaged ones.

use std::collections::BTreeMap;

use crate::common::{SMALL, SMALL_MIB, World, mkfs};
use manylogs_block::{Extent, Lba, Sector};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};
use manylogs_sim::DiskImage;

/// How often each name was listed.
type Seen = BTreeMap<Vec<u8>, u32>;

/// Reads a directory as a program with a small buffer does: `step` names at a time. Before each
/// look `between` changes the directory.
async fn read_in_steps(
    fs: &Ext4,
    dir: Ino,
    step: usize,
    mut between: impl AsyncFnMut(u32),
) -> Result<Seen, Error> {
    let (mut seen, mut cookie) = (Seen::new(), 0);
    for look in 0..100_000 {
        between(look).await;
        let listed = fs.list(dir, cookie).await?;
        let Some(last) = listed.iter().take(step).next_back() else { return Ok(seen) };
        assert!(last.next > cookie, "the list goes back");
        cookie = last.next;
        for name in listed.into_iter().take(step) {
            *seen.entry(name.name).or_default() += 1;
        }
    }
    panic!("a list without end");
}

fn name(kind: &str, number: u32) -> Vec<u8> {
    format!("{kind} {number} {}", "n".repeat(150)).into_bytes()
}

/// Makes a directory with one file that has `names` names there.
async fn directory(fs: &Ext4, names: u32) -> (Ino, Ino) {
    let dir = fs.create(Ino::ROOT, b"dir", New::plain(FileKind::Directory, 0o755)).await.unwrap();
    let file = fs.create(dir.ino, &name("old", 0), New::plain(FileKind::File, 0o600)).await;
    let file = file.unwrap().ino;
    for number in 1..names {
        fs.link(file, dir.ino, &name("old", number)).await.unwrap();
    }
    (dir.ino, file)
}

/// A directory that begins with one block, and one with an index: while it is read in small steps
/// names are added and removed, so that all its blocks are split.
fn names_that_stay_are_listed_once() {
    for (names, step) in [(18, 5), (18, 1), (200, 7), (200, 1000)] {
        let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
        let world = World::new(1, SMALL_MIB, image);
        let done = world.run(async move |fs| {
            let (dir, file) = directory(&fs, names).await;
            let mut next = 0;
            let add = async |look| {
                for _ in 0..if look < 40 { 20 } else { 0 } {
                    fs.link(file, dir, &name("new", next)).await.unwrap();
                    if next % 3 == 0 {
                        fs.unlink(dir, &name("new", next / 2)).await.ok();
                    }
                    next += 1;
                }
            };
            let seen = read_in_steps(&fs, dir, step, add).await.unwrap();
            for number in 0..names {
                let times = seen.get(&name("old", number)).copied().unwrap_or(0);
                assert_eq!(times, 1, "old name {number} of {names}, in steps of {step}");
            }
            assert!(seen.values().all(|times| *times == 1), "a name was listed twice");
            assert!(seen.contains_key(&b"."[..]) && seen.contains_key(&b".."[..]));
            fs.unmount().await.unwrap();
        });
        done.unwrap();
    }
}

#[test]
fn names_that_stay_are_listed_once_while_blocks_are_split() {
    names_that_stay_are_listed_once();
}

#[cfg(feature = "plant")]
#[test]
fn lists_by_place_are_noticed() {
    use manylogs_plant::Bug;

    crate::common::assert_noticed(Bug::Ext4ListedByPlace, names_that_stay_are_listed_once);
}

/// An image with a directory of 300 names, and the first sector of the root of its index. It has no
/// checksums.
fn indexed() -> Option<(DiskImage, u64)> {
    let image = mkfs(SMALL_MIB, &[SMALL, &["-O", "^metadata_csum"]].concat())?;
    let world = World::new(2, SMALL_MIB, image);
    let made = world.run(async |fs| {
        directory(&fs, 300).await;
        fs.unmount().await.unwrap();
    });
    made.unwrap();
    let image = world.settled();
    let is_root = |sector: &u64| {
        let bytes = block(&image, *sector);
        bytes[20..26] == *b"..\0\0\0\0" && bytes[29] == 8 && bytes[34] > 4
    };
    let root = (0..SMALL_MIB << 11).step_by(8).find(is_root).unwrap();
    Some((image, root))
}

fn block(image: &DiskImage, sector: u64) -> Vec<u8> {
    image.read(Extent::new(sector, 8)).to_bytes().unwrap().to_vec()
}

/// Changes a block.
type Change = fn(&mut [u8]);

/// Changes to the root of an index, whose children begin at byte 32 with the first one's block 4
/// bytes on: hash, block, hash, block.
const HOSTILE: [(&str, Change); 6] = [
    ("sound", |_| {}),
    ("all children are one block", |root| {
        let first: [u8; 4] = root[36..40].try_into().unwrap();
        root[40..].chunks_mut(8).take(20).for_each(|child| child[4..8].copy_from_slice(&first));
    }),
    ("two blocks in turn", |root| {
        let two: [[u8; 4]; 2] = [36, 44].map(|at| root[at..at + 4].try_into().unwrap());
        let children = root[32..].chunks_mut(8).take(20).enumerate();
        children.for_each(|(number, child)| child[4..8].copy_from_slice(&two[number % 2]));
    }),
    ("each child goes on in the next", |root| {
        root[40..].chunks_mut(8).take(20).for_each(|child| child[0] |= 1);
    }),
    ("all have one hash that goes on", |root| {
        root[40..].chunks_mut(8).take(20).for_each(|child| child[..4].copy_from_slice(&[1; 4]));
    }),
    ("two levels more", |root| root[30] = 2),
];

#[test]
fn hostile_indexes_end_with_an_error_or_fewer_names() {
    let Some((image, root)) = indexed() else { return };
    for (what, change) in HOSTILE {
        let mut image = image.clone();
        let mut bytes = block(&image, root);
        change(&mut bytes);
        for (number, sector) in (0..).zip(bytes.chunks(512)) {
            image.corrupt(Lba(root + number), Sector::Bytes(sector.to_vec().into()));
        }
        let world = World::new(3, SMALL_MIB, image);
        let listed = world.run(async move |fs| {
            let dir = fs.lookup(Ino::ROOT, b"dir").await.unwrap().ino;
            let read = async |step| read_in_steps(&fs, dir, step, async |_| {}).await;
            (read(3).await, read(1000).await)
        });
        let (few, many) = listed.unwrap();
        assert!(what != "sound" || few == many, "in small steps it is another list");
        for listed in [few, many] {
            match listed {
                Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{what}: {error}"),
                Ok(seen) => {
                    assert!(seen.values().all(|times| *times == 1), "{what}: a name comes twice");
                    assert!(what != "sound" || seen.len() == 302, "{} names", seen.len());
                }
            }
        }
    }
}
