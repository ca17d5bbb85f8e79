//! Bounds on the cost of operations, and reserved blocks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, image_dir, load, mkfs, save};
use manylogs_block::{IoError, Request};
use manylogs_ext4::{Allocate, Caller, Change, Error, Ext4, FileKind, Ino, New};

async fn file(fs: &Ext4, name: &[u8]) -> Ino {
    fs.create(Ino::ROOT, name, New::plain(FileKind::File, 0o644)).await.unwrap().ino
}

const USER: Caller = Caller { uid: 1000, gid: 1000 };

#[test]
fn reserved_blocks_are_for_root_and_whom_the_superblock_names() {
    let Some(image) = mkfs(SMALL_MIB, &[SMALL, &["-m", "10"]].concat()) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let left = world.run(async |fs| {
        let ino = file(&fs, b"file").await;
        let shown = fs.usage();
        let reserved = SMALL_MIB * 256 / 10;
        let user = fs.on_behalf_of(USER);
        let mut size = 0;
        while user.write(ino, size, vec![7; 4096]).await.is_ok() {
            size += 4096;
        }
        let full = user.write(ino, size, vec![7; 4096]).await;
        assert_eq!(full, Err(Error::NoSpace));
        // As much could be written as `df` showed, and no more.
        assert_eq!(size / 4096, shown.available_blocks);
        assert_eq!(fs.usage().available_blocks, 0);
        // Existing content can be overwritten and cut.
        user.write(ino, 0, vec![8; 9000]).await.unwrap();
        let directory = New::plain(FileKind::Directory, 0o755);
        assert_eq!(user.create(Ino::ROOT, b"dir", directory.clone()).await, Err(Error::NoSpace));
        let taken = user.allocate(ino, size..size + 4096, Allocate::Blocks, false).await;
        assert_eq!(taken, Err(Error::NoSpace));
        // Data with promised blocks does not fail when it is written back.
        fs.sync_all().await.unwrap();
        let change = Change { size: Some(size - 10), ..Change::default() };
        user.change(ino, change).await.unwrap();
        // Root may have all reserved blocks.
        fs.create(Ino::ROOT, b"dir", directory).await.unwrap();
        let mut more = 0;
        while fs.write(ino, size + more, vec![9; 4096]).await.is_ok() {
            more += 4096;
        }
        assert!(more / 4096 + 4 > reserved && more / 4096 <= reserved, "{more}");
        fs.sync_all().await.unwrap();
        fs.unmount().await
    });
    left.unwrap().unwrap();
    world.check();
}

#[test]
fn a_user_or_a_group_may_have_reserved_blocks() {
    for (options, ours) in [(["-u", "1000"], [true, false]), (["-g", "77"], [false, true])] {
        let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
        let world = World::new(1, SMALL_MIB, image);
        let (_dir, path) = world.saved();
        let mut tune = std::process::Command::new("tune2fs");
        tune.args(options).arg(&path);
        if !tune.output().is_ok_and(|said| said.status.success()) {
            manylogs_testkit::skip("needs tune2fs");
            return;
        }
        let world = World::new(1, SMALL_MIB, load(&path));
        let may = world.run(async |fs| {
            let ino = file(&fs, b"file").await;
            let all = fs.usage().available_blocks;
            fs.allocate(ino, 0..4096 * all, Allocate::Blocks, false).await.unwrap();
            let mut may = Vec::new();
            for caller in [USER, Caller { uid: 5, gid: 77 }] {
                let ino = file(&fs, caller.uid.to_string().as_bytes()).await;
                let written = fs.on_behalf_of(caller).write(ino, 0, vec![1; 4096]).await;
                may.push(written.is_ok());
            }
            may
        });
        assert_eq!(may.unwrap(), ours, "{options:?}");
    }
}

/// Bounds the reads of bitmaps by one write of 1 MiB, if no group has a run of 1 MiB.
#[test]
fn a_search_for_a_long_run_looks_at_few_groups() {
    const MIB: u64 = 160;
    const GROUPS: u64 = MIB * 256 / 256;
    // Without features by which a group could say that its bitmap was never written.
    const OLD: &str = "^flex_bg,^metadata_csum,^uninit_bg,^64bit";
    let Some(image) = mkfs(MIB, &["-g", "256", "-O", OLD, "-N", "2560", "-J", "size=4"]) else {
        return;
    };
    let world = World::new(1, MIB, image);
    let reads = Rc::new(RefCell::new(BTreeSet::new()));
    let noted = Rc::clone(&reads);
    world.disk.fail_requests(Box::new(move |request| {
        if let Request::Read { extent } = request {
            noted.borrow_mut().insert(extent.start.0);
        }
        None
    }));
    let told = Rc::clone(&reads);
    let worst = world.run(async move |fs| {
        let ino = file(&fs, b"file").await;
        let mut worst = 0;
        for part in 0..20_u64 {
            told.borrow_mut().clear();
            fs.write(ino, part << 20, vec![1; 1 << 20]).await.unwrap();
            fs.sync(ino).await.unwrap();
            worst = worst.max(told.borrow().len());
        }
        fs.unmount().await.unwrap();
        worst
    });
    let worst = worst.unwrap();
    println!("{worst} blocks read for 1 MiB at most, of {GROUPS} groups");
    // The write is split into some pieces, each with its own search.
    assert!(worst <= 40, "{worst}");
    world.check();
}

/// Ends of names that have the same hash of the oldest function behind 248 times `x`.
const EQUAL: &str = "\
    aae2eCS aae2eSC aaBrFkP abgJml8 abgJm8l abCvg12 abCvg21 ahnRm7J anN86NS anN86SN aor8Wpc \
    apIWFcD axf2bFP axf2bPF ayKwCmV ayKwCVm azAmru5 azAmr5u aDTFdk0 aFMhtgU aFMhtUg aG0F5xV \
    aG0F5Vx aHbcnWW aHBqJPj aKJkAbA aKJkAAb aOkIGZm aW2U6Z2 aW2U62Z a0AquoF a2sCBBu a36eUm0 \
    a36eUHU a36eUUH a36eU0m a5LE0n5 a5LE0o4 a5LE0KX a5LE0XK a5LE04o a5LE05n a8uxzkH a8uxzHk \
    baDf7YY baIRFHQ bb6sJq6 bc1qfFZ bdiyefh bfLwZoV bg4TghE bg4TgEh bjFbxiB bjFbxBi bj7cBBR \
    bj7cBRB bsBRIa5 bsBRI5a bs8Xm8O buSw70G byUeQpL byUeQLp bC87UtV bC87UVt bIGY9aA bIGY9Aa \
    bKE6eTy bQw0xcT bQw0xAv bUknOoR bYBuWuI bYBuWIu b0cnwQt b2x3KfQ b5Ggxx8 b5Ggx8x b5SnUBq \
    b6l0TmB b6l0TBm b70uPtu b74fEDX b8AlYNA b9QnUyF cdJYUlK cdJYUKl chd5PWY ck5j70K cnb235b \
    coe58cf cpNk8iG cp1SGRa czDuvDg cERYkcg cHyoFCn cJUEna7 cJUEn7a cJ0ErlQ cJ0ErrK cJ0ErKr \
    cJ0ErQl cJ3nyX9 cJ3ny9X cK6LCQ7 cK6LC7Q cNvhr8w cNYI5RC cOcqeU5 cOcqe5U cPb2WJS cQhphQT \
    cV73WOp cWSDn56 cWSDn65 cZpFRdD cZpFRDd c6OfaRX c759Nqu c759Nuq dfy5qZZ dzCyn1B dCqttKO \
    dCqttOK dE0zxl0 dE0zx0l dHEjboj dKzXstZ dKB45xR dLgjmpa dO4lHek dO4lHke dYfeJ0e d2BL5a6 \
    d2BL56a d24MZUD d6gSzz0 d6gSz0z d67MeHf d9Ca2p0 d9Ca20p d9CJIJ4 d9CJI4J eaNVvMV ea4YCwC \
    ea4YCCw eboIJV7 ebEL3jJ ebEL3Jj ecK9oQd ecNkPiO ecNkPOi edaayQT ehPD0pK ehPD0Kp ekph6st \
    esG9nUK eufdSaj eufdSja eAWfVlP eAWfVPl eCuu7yb eDigjKU eDigjUK eFR0d06 eFR0d60 eGdVVDw \
    eJ34cxU eJ34cUx eKDnIdJ eKDnIJd ePxPax7";

/// Bytes of a directory whose index has two nodes below the root: a node leads to at most 511
/// blocks of names.
const SPLIT: u64 = 516 * 4096;

/// The hash of the oldest function.
fn hash(name: &[u8]) -> u32 {
    let (mut earlier, mut last) = (0x37ab_e8f9_u32, 0x12a3_fe2d_u32);
    for byte in name {
        let sum = earlier.wrapping_add(last ^ u32::from(*byte).wrapping_mul(7_152_373));
        let next = if sum >> 31 == 0 { sum } else { sum.wrapping_sub(0x7fff_ffff) };
        (earlier, last) = (last, next);
    }
    last << 1
}

/// An image whose directories have indexes by the oldest hash function.
fn with_old_hashes(mib: u64) -> Option<manylogs_sim::DiskImage> {
    let image = mkfs(mib, &["-O", "^metadata_csum,^64bit", "-N", "2048"])?;
    let dir = image_dir().unwrap();
    let path = dir.path().join("image");
    save(&image, mib, &path);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0], 1024 + 0xFC).unwrap();
    Some(load(&path))
}

#[test]
fn names_of_one_hash_are_found_across_nodes_of_an_index() {
    let long = |end: &str| [&[b'x'; 248], end.as_bytes()].concat();
    let equal: Vec<Vec<u8>> = EQUAL.split_whitespace().map(long).collect();
    let one = hash(&equal[0]);
    assert!(equal.iter().all(|name| hash(name) == one), "{one:#x}");
    let Some(image) = with_old_hashes(SMALL_MIB) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let names = equal.clone();
    let lost = world.run(async move |fs| {
        let new = New::plain(FileKind::Directory, 0o755);
        let dir = fs.create(Ino::ROOT, b"dir", new).await.unwrap().ino;
        let ino = file(&fs, b"file").await;
        for name in &names {
            fs.link(ino, dir, name).await.unwrap();
        }
        // Adds other names, as many with smaller as with larger hashes, until the index node splits
        // among the equal hashes.
        let mut balance = 0_i64;
        for number in 0..40_000 {
            if number % 64 == 0 && fs.attributes(dir).await.unwrap().size >= SPLIT {
                break;
            }
            let name = format!("{number}{}", "y".repeat(240)).into_bytes();
            let side = if hash(&name) < one { -1 } else { 1 };
            if (balance + side).abs() <= 1 && fs.link(ino, dir, &name).await.is_ok() {
                balance += side;
            }
        }
        let size = fs.attributes(dir).await.unwrap().size;
        assert!(size >= SPLIT, "{size} bytes of names");
        let mut lost = 0;
        for name in &names {
            lost += usize::from(fs.lookup(dir, name).await.is_err());
            let again = fs.link(ino, dir, name).await;
            assert!(lost > 0 || again == Err(Error::Exists), "a second name: {again:?}");
        }
        fs.unmount().await.unwrap();
        lost
    });
    println!("{} of {} names are not found", lost.as_ref().unwrap(), equal.len());
    assert_eq!(lost, Ok(0));
    world.check();
}

/// A place of the device that cannot be written.
#[test]
fn what_cannot_be_written_is_given_up_and_told_once() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    let bad: Rc<RefCell<BTreeSet<u64>>> = Rc::default();
    let (fails, failed) = (Rc::clone(&bad), Rc::new(Cell::new(0)));
    let (counted, place) = (Rc::clone(&failed), Rc::new(Cell::new(0)));
    let (noted, sixth) = (Rc::clone(&place), content(1, 6 * 4096)[5 * 4096..].to_vec());
    world.disk.fail_requests(Box::new(move |request| {
        let Request::Write { extent, payload, .. } = request else { return None };
        let bytes = payload.to_bytes()?;
        if let Some(at) = bytes.chunks(4096).position(|block| block == sixth) {
            noted.set(extent.start.0 + 8 * at as u64);
        }
        let hit = fails.borrow().range(extent.range()).next().is_some();
        counted.set(counted.get() + u64::from(hit));
        hit.then_some(IoError::Medium { extent: *extent })
    }));
    let runtime = world.runtime();
    let wait = move |seconds| runtime.sleep(manylogs_block::Nanos::from_secs(seconds));
    let ended = world.run(async move |fs| {
        let ino = file(&fs, b"bad").await;
        fs.write(ino, 0, content(1, 16 * 4096)).await.unwrap();
        fs.sync(ino).await.unwrap();
        // From here on one block in the middle cannot be written.
        bad.borrow_mut().insert(place.get());
        let (one, two) = (Some(fs.new_descriptor()), Some(fs.new_descriptor()));
        fs.write(ino, 0, content(2, 16 * 4096)).await.unwrap();
        let io = |done: Result<(), Error>| matches!(done, Err(Error::Io(_)));
        assert!(io(fs.sync_opened(ino, one, false).await));
        wait(60).await;
        let tries = failed.get();
        assert!((3..=6).contains(&tries), "{tries}");
        assert_eq!(fs.losses(), 1);
        // The file's other pages are new. The page that could not be written is old or new.
        let (old, new) = (content(1, 16 * 4096), content(2, 16 * 4096));
        let found = fs.read(ino, 0, 1 << 20).await.unwrap();
        let pages = found.chunks(4096).zip(old.chunks(4096).zip(new.chunks(4096)));
        for (number, (found, (old, new))) in pages.enumerate() {
            assert!(found == new || number == 5 && found == old, "page {number}");
        }
        for opened in [one, two] {
            assert!(io(fs.sync_opened(ino, opened, true).await));
            assert_eq!(fs.sync_opened(ino, opened, false).await, Ok(()));
        }
        assert_eq!(fs.sync_opened(ino, Some(fs.new_descriptor()), false).await, Ok(()));
        assert!(io(fs.sync_all().await));
        assert_eq!(fs.sync_all().await, Ok(()));
        // The page is not tried again, and can be written when the place is sound again.
        wait(60).await;
        assert_eq!(failed.get(), tries);
        bad.borrow_mut().clear();
        fs.write(ino, 0, content(3, 16 * 4096)).await.unwrap();
        fs.sync(ino).await.unwrap();
        assert!(fs.read(ino, 0, 1 << 20).await.unwrap() == content(3, 16 * 4096));
        fs.unmount().await
    });
    assert_eq!(ended, Ok(Ok(())));
    world.check();
}

/// One file cannot be written at all, and is larger than the memory for dirty pages.
#[test]
fn writers_of_other_files_go_on() {
    const MIB: u64 = 256;
    let Some(image) = mkfs(MIB, &["-N", "2048"]) else { return };
    let world = World::new(1, MIB, image);
    let armed = Rc::new(Cell::new(false));
    let fails = Rc::clone(&armed);
    world.disk.fail_requests(Box::new(move |request| match request {
        // Pages of that file begin and end with this byte.
        Request::Write { extent, payload, .. } if fails.get() => {
            let bytes = payload.to_bytes()?;
            (bytes[0] == 0xBA && bytes[4095] == 0xBA).then_some(IoError::Medium { extent: *extent })
        }
        _ => None,
    }));
    let runtime = world.runtime();
    let took = world.run(async move |fs| {
        let (bad, good) = (file(&fs, b"bad").await, file(&fs, b"good").await);
        armed.set(true);
        let mut refused = 0;
        for part in 0..90_u64 {
            refused += u64::from(fs.write(bad, part << 20, vec![0xBA; 1 << 20]).await.is_err());
        }
        assert!(refused > 0, "nobody hears of it");
        let before = runtime.now();
        for part in 0..30_u64 {
            fs.write(good, part << 20, vec![0x60; 1 << 20]).await.unwrap();
            fs.sync(good).await.unwrap();
        }
        let took = (runtime.now().0 - before.0) / 1_000_000_000;
        runtime.sleep(manylogs_block::Nanos::from_secs(60)).await;
        // The memory is free again.
        let pages = fs.dirty_pages();
        let unmounted = fs.unmount().await;
        (took, pages, matches!(unmounted, Err(Error::Io(_))))
    });
    // The unmount reports the losses that nobody was told of.
    let (seconds, pages, told) = took.unwrap();
    assert!(seconds < 5, "{seconds} s");
    assert_eq!((pages, told), (0, true));
    world.check();
}

#[cfg(feature = "plant")]
#[test]
fn bugs_of_limits_are_noticed() {
    use manylogs_plant::Bug;
    for (bug, test) in [
        (
            Bug::Ext4ReservedForAll,
            reserved_blocks_are_for_root_and_whom_the_superblock_names as fn(),
        ),
        (Bug::Ext4SearchEverywhere, a_search_for_a_long_run_looks_at_few_groups),
        (Bug::Ext4EqualHashesCut, names_of_one_hash_are_found_across_nodes_of_an_index),
        (Bug::Ext4RetriedForEver, what_cannot_be_written_is_given_up_and_told_once),
    ] {
        crate::common::assert_noticed(bug, test);
    }
}
