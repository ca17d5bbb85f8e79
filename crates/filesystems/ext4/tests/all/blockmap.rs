//! Files that are mapped by blocks, as on ext3 and after mkfs.ext4 -O ^extent.

use crate::common::{Judged, World, content, mkfs};
use manylogs_block::{Extent, Lba, Rng, SECTOR_BYTES, Sector};
use manylogs_ext4::{Allocate, BLOCK_BYTES, Change, Error, Ext4, FileKind, Ino, New, Seek};
use manylogs_sim::{DiskImage, Survival};

const MIB: u64 = 48;
const BLOCKS: &[&str] = &["-O", "^extent,^64bit", "-J", "size=4"];
/// The first blocks that pointers of each level lead to.
const EDGES: [u64; 4] = [0, 12, 12 + 1024, 12 + 1024 + (1 << 20)];

fn edges() -> impl Iterator<Item = u64> {
    EDGES.into_iter().map(|block| (block * BLOCK_BYTES as u64).saturating_sub(5000))
}

async fn file(fs: &Ext4, name: &[u8]) -> Ino {
    fs.create(Ino::ROOT, name, New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

#[test]
fn blocks_of_all_levels_are_written_read_cut_and_freed() {
    let Some(image) = mkfs(MIB, BLOCKS) else { return };
    let world = World::new(1, MIB, image);
    let before = world.run(async |fs| fs.usage()).unwrap();
    world
        .run(async |fs| {
            let ino = file(&fs, b"deep").await;
            for (seed, at) in (0..).zip(edges()) {
                fs.write(ino, at, content(seed, 20_000)).await.unwrap();
            }
            fs.sync(ino).await.unwrap();
            for (seed, at) in (0..).zip(edges()) {
                assert_eq!(fs.read(ino, at, 20_000).await.unwrap(), content(seed, 20_000));
            }
            let hole = fs.seek(ino, 0, Seek::Hole).await.unwrap();
            let data = fs.seek(ino, hole, Seek::Data).await.unwrap();
            assert!((20_000..40_000).contains(&hole) && (40_000..50_000).contains(&data));
            fs.unmount().await.unwrap();
        })
        .unwrap();
    world.check();
    world
        .run(async move |fs| {
            let ino = fs.lookup(Ino::ROOT, b"deep").await.unwrap().ino;
            let first = content(0, 20_000);
            let range = 4096..4_700_000_000;
            fs.allocate(ino, range, Allocate::Hole, true).await.unwrap();
            let read = fs.read(ino, 0, 20_000).await.unwrap();
            assert!(read[..4096] == first[..4096] && read[4096..].iter().all(|byte| *byte == 0));
            let refused = fs.allocate(ino, 0..9000, Allocate::Blocks, false).await;
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
            let too_large = fs.write(ino, 5 << 40, vec![1]).await;
            assert_eq!(too_large, Err(Error::TooLarge));
            let size = Some(5000);
            fs.change(ino, Change { size, ..Change::default() }).await.unwrap();
            assert_eq!(fs.attributes(ino).await.unwrap().sectors, 8);
            fs.unlink(Ino::ROOT, b"deep").await.unwrap();
            fs.sync_all().await.unwrap();
            assert_eq!(fs.usage(), before);
            fs.unmount().await.unwrap();
        })
        .unwrap();
    world.check();
}

#[test]
fn directories_and_links_are_mapped_by_blocks_too() {
    let Some(image) = mkfs(MIB, BLOCKS) else { return };
    let world = World::new(2, MIB, image);
    world
        .run(async |fs| {
            let new = New::plain(FileKind::Directory, 0o755);
            let dir = fs.create(Ino::ROOT, b"dir", new).await.unwrap().ino;
            for number in 0..2000 {
                let name = format!("{number} {}", "n".repeat(100)).into_bytes();
                let target = "t".repeat(1 + number % 200).into_bytes().into();
                let new = New { target, ..New::plain(FileKind::Symlink, 0o777) };
                let link = fs.create(dir, &name, new).await.unwrap();
                assert_eq!(fs.read_link(link.ino).await.unwrap().len(), 1 + number % 200);
            }
            assert!(fs.attributes(dir).await.unwrap().size > 60 * 4096);
            fs.unmount().await.unwrap();
        })
        .unwrap();
    world.check();
    world
        .run(async |fs| {
            let dir = fs.lookup(Ino::ROOT, b"dir").await.unwrap().ino;
            for (name, _) in crate::common::names(&fs, dir).await {
                fs.unlink(dir, &name).await.unwrap();
            }
            fs.remove_directory(Ino::ROOT, b"dir").await.unwrap();
            fs.unmount().await.unwrap();
        })
        .unwrap();
    world.check();
}

#[test]
fn what_a_crash_leaves_is_whole() {
    let Some(image) = mkfs(MIB, BLOCKS) else { return };
    for seed in 0..20 {
        let world = World::new(seed, MIB, image.clone());
        let durable = world.run(async move |fs| {
            let mut rng = Rng::new(seed);
            for number in 0..12 {
                let ino = file(&fs, format!("file {number}").as_bytes()).await;
                for at in edges().filter(|_| rng.one_in(2)) {
                    fs.write(ino, at, content(number, 300_000)).await.unwrap();
                }
                fs.sync(ino).await.unwrap();
                if number % 3 == 2 {
                    let size = Some(rng.below(1 << 33));
                    fs.change(ino, Change { size, ..Change::default() }).await.unwrap();
                    let name = format!("file {}", number - 1).into_bytes();
                    fs.unlink(Ino::ROOT, &name).await.unwrap();
                }
            }
            let ino = file(&fs, b"last").await;
            fs.write(ino, 40_000, content(seed, 300_000)).await.unwrap();
            fs.sync(ino).await.unwrap();
            fs.unlink(Ino::ROOT, b"file 0").await.unwrap();
        });
        durable.unwrap();
        let mut rng = Rng::new(seed);
        let crashed = world.disk.after_power_cut(Survival::Random, &mut rng);
        let world = World::new(seed, MIB, crashed);
        world
            .run(async move |fs| {
                let ino = fs.lookup(Ino::ROOT, b"last").await.unwrap().ino;
                let read = fs.read(ino, 40_000, 300_000).await.unwrap();
                assert_eq!(read, content(seed, 300_000));
                fs.unmount().await.unwrap();
            })
            .unwrap();
        world.check();
    }
}

/// The block with the first table of pointers of a file, according to debugfs.
fn table_of(path: &std::path::Path, ino: Ino) -> Option<u64> {
    if !crate::common::has("debugfs") {
        manylogs_testkit::skip("needs debugfs");
        return None;
    }
    let asked = format!("stat <{}>", ino.0);
    let said = std::process::Command::new("debugfs").args(["-R", &asked]).arg(path).output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    let number = said.split("(IND):").nth(1).unwrap();
    number.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().ok()
}

/// The disk with the first pointers of a table replaced.
fn with_pointers(image: &DiskImage, table: u64, pointers: &[u32]) -> World {
    let mut image = image.clone();
    let lba = table * BLOCK_BYTES as u64 / SECTOR_BYTES;
    let content = image.read(Extent::new(lba, 1));
    let Some(Sector::Bytes(old)) = content.sectors().next().unwrap() else { panic!() };
    let mut sector = old.to_vec();
    for (at, pointer) in pointers.iter().enumerate() {
        sector[4 * at..4 * at + 4].copy_from_slice(&pointer.to_le_bytes());
    }
    image.corrupt(Lba(lba), Sector::Bytes(sector.into()));
    World::new(4, MIB, image)
}

#[test]
fn pointers_that_lead_nowhere_are_errors() {
    let Some(image) = mkfs(MIB, BLOCKS) else { return };
    let world = World::new(3, MIB, image);
    let ino = world
        .run(async |fs| {
            let ino = file(&fs, b"file").await;
            fs.write(ino, 0, content(7, 200_000)).await.unwrap();
            fs.unmount().await.unwrap();
            ino
        })
        .unwrap();
    let (_dir, path) = world.saved();
    let Some(table) = table_of(&path, ino) else { return };
    for bad in [u32::MAX, 1, 0x0200_0000] {
        let damaged = with_pointers(&world.settled(), table, &[bad]);
        damaged
            .run(async move |fs| {
                assert!(fs.read(ino, 0, 4096).await.unwrap() == content(7, 200_000)[..4096]);
                let read = fs.read(ino, 12 * 4096, 4096).await.map(drop);
                assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
                let size = Some(0);
                let cut = fs.change(ino, Change { size, ..Change::default() }).await;
                assert!(matches!(cut, Err(Error::Corrupt(_))), "{cut:?}");
            })
            .unwrap();
    }
    // A table that leads to itself would be freed twice, which is noticed.
    let itself = u32::try_from(table).unwrap();
    let damaged = with_pointers(&world.settled(), table, &[itself; 128]);
    damaged
        .run(async move |fs| {
            let cut = fs.unlink(Ino::ROOT, b"file").await;
            assert!(matches!(cut, Err(Error::Corrupt(_))), "{cut:?}");
        })
        .unwrap();
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    let levels = blocks_of_all_levels_are_written_read_cut_and_freed;
    crate::common::assert_noticed(manylogs_plant::Bug::Ext4TableKept, levels);
}
