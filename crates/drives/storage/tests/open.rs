//! Checks which devices are refused, and what the errors say.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

mod common;

use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use common::{Loop, Mount, image, try_run};
use manylogs_block::Sectors;
use manylogs_storage::{
    FileDevice, ImageError, OpenError, OpenMode, OpenOptions, Reactor, VolumeLock, VolumeLockError,
    create_image,
};

const O_EXCL: i32 = 0o200;

fn open(path: &Path, mode: OpenMode) -> Result<(Reactor, FileDevice), OpenError> {
    let reactor = Reactor::new().unwrap();
    let device = FileDevice::open(&reactor, path, &OpenOptions::new(mode))?;
    Ok((reactor, device))
}

/// Tries to open `path` for writing. Returns the error and its text.
fn refused(path: &Path) -> (OpenError, String) {
    let error = open(path, OpenMode::Exclusive).unwrap_err();
    let words = error.to_string();
    println!("{words}");
    (error, words)
}

#[test]
fn what_is_not_there_or_no_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(refused(&dir.path().join("none")).0, OpenError::NotFound { .. }));
    for (path, found) in [(dir.path(), "a directory"), (Path::new("/dev/null"), "a character")] {
        let (error, words) = refused(path);
        assert!(matches!(error, OpenError::WrongKind { .. }) && words.contains(found));
    }
}

#[test]
fn odd_sectors_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let physical_sector = Some(Sectors(3));
    let options = OpenOptions { physical_sector, ..OpenOptions::new(OpenMode::ReadOnly) };
    let reactor = Reactor::new().unwrap();
    let error = FileDevice::open(&reactor, &image(dir.path(), 8), &options).unwrap_err();
    assert!(matches!(error, OpenError::PhysicalSector { sectors: 3 }));
}

#[test]
fn one_who_writes_excludes_all_others_and_those_who_read_share() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 64);
    let writer = open(&path, OpenMode::Exclusive).unwrap();
    for mode in [OpenMode::Exclusive, OpenMode::ReadOnly] {
        assert!(matches!(open(&path, mode).unwrap_err(), OpenError::Locked { .. }));
    }
    drop(writer);
    let reader = open(&path, OpenMode::ReadOnly).unwrap();
    open(&path, OpenMode::ReadOnly).unwrap();
    assert!(matches!(refused(&path).0, OpenError::Locked { .. }));
    drop(reader);
    open(&path, OpenMode::Exclusive).unwrap();
}

#[test]
fn a_file_behind_a_loop_device_is_refused_and_so_is_a_busy_or_read_only_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4096);
    let Some(disk) = Loop::attach(&path, &[]) else { return };
    let (error, words) = refused(&path);
    assert!(matches!(error, OpenError::LoopBacking { .. }) && words.contains(&disk.0), "{words}");

    let mut options = std::fs::OpenOptions::new();
    let owner = options.read(true).custom_flags(O_EXCL).open(disk.path()).unwrap();
    assert!(matches!(refused(disk.path()).0, OpenError::Busy { .. }));
    drop(owner);
    // A process that another test starts has a copy of our file until it runs another program.
    let free = (0..200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        open(disk.path(), OpenMode::Exclusive).ok()
    });
    assert!(free.is_some());
    drop((free, disk));

    let Some(disk) = Loop::attach(&path, &["--read-only"]) else { return };
    assert!(matches!(refused(disk.path()).0, OpenError::ReadOnly { .. }));
    open(disk.path(), OpenMode::ReadOnly).unwrap();
}

/// The cache mode outlives detaching: it also applies to the next file attached to the device.
#[test]
fn a_loop_device_to_which_the_kernel_drops_flushes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4096);
    let Some(disk) = Loop::attach(&path, &[]) else { return };
    disk.set_write_cache("write through");
    let (error, words) = refused(disk.path());
    assert!(matches!(error, OpenError::FlushesDropped { .. }), "{error:?}");
    let name = disk.path().file_name().unwrap().to_str().unwrap();
    let cure = format!("echo 'write back' > /sys/class/block/{name}/queue/write_cache");
    assert!(words.contains(&cure), "{words}");
    open(disk.path(), OpenMode::ReadOnly).unwrap();
    disk.set_write_cache("write back");
    open(disk.path(), OpenMode::Exclusive).unwrap();
}

#[test]
fn a_mounted_disk_is_refused_and_the_error_names_the_mount_point() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 16 << 11);
    let Some(disk) = Loop::attach(&path, &[]) else { return };
    if try_run("mkfs.ext4", &["-q", &disk.0]).is_none() {
        return;
    }
    let at = dir.path().join("a mount point");
    let Some(mount) = Mount::device(&disk.0, &at) else { return };
    let (error, words) = refused(disk.path());
    assert!(matches!(error, OpenError::Mounted { .. }), "{error:?}");
    assert!(words.contains(&disk.0) && words.contains(at.to_str().unwrap()), "{words}");
    drop(mount);
    open(disk.path(), OpenMode::Exclusive).unwrap();
}

#[test]
fn a_disk_with_a_mounted_partition_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 32 << 11);
    let mut table = [0_u8; 512];
    // One partition of type 0x83 from sector 2048.
    table[450] = 0x83;
    table[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    table[458..462].copy_from_slice(&(30_u32 << 11).to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&table, 0).unwrap();
    assert!(manylogs_storage::survey(&path).unwrap().to_string().contains("partition table"));
    let Some(disk) = Loop::attach(&path, &["--partscan"]) else { return };
    let partition = format!("{}p1", disk.0);
    if try_run("mkfs.ext4", &["-q", &partition]).is_none() {
        return;
    }
    let at = dir.path().join("mnt");
    let Some(_mount) = Mount::device(&partition, &at) else { return };
    let (error, words) = refused(disk.path());
    assert!(matches!(error, OpenError::Mounted { .. }) && words.contains(&partition), "{words}");
}

/// The image, a hard link to it, loop devices over both, and a partition of such a device.
#[test]
fn the_same_bytes_are_opened_once_whatever_they_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 32 << 11);
    let (link, symlink) = (dir.path().join("hard-link"), dir.path().join("symlink"));
    std::fs::hard_link(&path, &link).unwrap();
    std::os::unix::fs::symlink(&path, &symlink).unwrap();
    let file = open(&path, OpenMode::Exclusive).unwrap();
    let own = format!("process {} (", std::process::id());
    for other in [&link, &symlink] {
        let (error, words) = refused(other);
        assert!(matches!(error, OpenError::Locked { .. }) && words.contains(&own), "{words}");
    }
    // The loop device can be made without a check, so opening the loop device is refused.
    let Some(disk) = Loop::attach(&link, &[]) else { return };
    for mode in [OpenMode::Exclusive, OpenMode::Claimed, OpenMode::ReadOnly] {
        let error = open(disk.path(), mode).unwrap_err();
        let words = error.to_string();
        let is_told = words.contains(" lies on ") && words.contains(&own);
        assert!(matches!(error, OpenError::Locked { .. }) && is_told, "{words}");
    }
    drop(file);
    drop(open(disk.path(), OpenMode::Exclusive).unwrap());
    for path in [&path, &link, &symlink] {
        assert!(matches!(refused(path).0, OpenError::LoopBacking { .. }));
    }
    let Some(second) = Loop::attach(&path, &[]) else { return };
    for disk in [&disk, &second] {
        assert!(matches!(refused(disk.path()).0, OpenError::ShownTwice { .. }));
    }
    let first = open(disk.path(), OpenMode::ReadOnly).unwrap();
    open(second.path(), OpenMode::ReadOnly).unwrap();
    drop(first);
}

#[test]
fn parts_of_a_disk_are_opened_beside_each_other_and_the_whole_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 32 << 11);
    let mut table = [0_u8; 512];
    for (entry, start) in [(446, 2048_u32), (462, 20 << 11)] {
        table[entry + 4] = 0x83;
        table[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        table[entry + 12..entry + 16].copy_from_slice(&(8_u32 << 11).to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&table, 0).unwrap();
    let Some(disk) = Loop::attach(&path, &["--partscan"]) else { return };
    let part = |number| format!("{}p{number}", disk.0);
    if !Path::new(&part(2)).exists() {
        return manylogs_testkit::skip("no nodes for partitions");
    }
    let first = open(part(1).as_ref(), OpenMode::Exclusive).unwrap();
    let second = open(part(2).as_ref(), OpenMode::Exclusive).unwrap();
    let (error, words) = refused(disk.path());
    let own = format!("process {} (", std::process::id());
    assert!(matches!(error, OpenError::Busy { .. }) && words.contains(&own), "{words}");
    drop(first);
    assert!(matches!(refused(disk.path()).0, OpenError::Busy { .. }));
    drop(second);
    let whole = open(disk.path(), OpenMode::Exclusive).unwrap();
    assert!(matches!(refused(part(2).as_ref()).0, OpenError::Busy { .. }));
    drop(whole);
    // A loop device over the disk shows its partitions as well.
    let Some(over) = Loop::attach(disk.path(), &[]) else { return };
    for path in [disk.path(), part(1).as_ref()] {
        let error = refused(path).0;
        let is_meant =
            matches!(error, OpenError::LoopBacking { .. } | OpenError::ShownTwice { .. });
        assert!(is_meant, "{error:?}");
    }
    let over = open(over.path(), OpenMode::Exclusive).map(|open| (open, over)).unwrap();
    assert!(std::fs::File::options().read(true).custom_flags(O_EXCL).open(part(1)).is_err());
    drop(over);
}

#[test]
fn of_many_who_open_at_once_one_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4096);
    for _ in 0..20 {
        let start = std::sync::Barrier::new(8);
        let won: usize = std::thread::scope(|scope| {
            let open_one = || {
                start.wait();
                let opened = open(&path, OpenMode::Exclusive).ok();
                // No thread closes the device before all have tried.
                start.wait();
                usize::from(opened.is_some())
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(open_one)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
    }
}

#[test]
fn an_image_that_is_swap_space_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("swap");
    create_image(&path, Sectors(2048), false).unwrap();
    let name = path.to_str().unwrap();
    if try_run("mkswap", &[name]).is_none() || try_run("swapon", &[name]).is_none() {
        return;
    }
    let (error, words) = refused(&path);
    assert!(try_run("swapoff", &[name]).is_some());
    assert!(matches!(error, OpenError::Held { .. }) && words.contains("swap space"), "{words}");
}

#[test]
fn an_image_is_created_whole_or_not_at_all_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    for sparse in [true, false] {
        create_image(&path, Sectors(2048), sparse).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        let blocks = std::os::unix::fs::MetadataExt::blocks(&metadata);
        assert_eq!((metadata.len(), blocks < 2048), (1 << 20, sparse));
        let again = create_image(&path, Sectors(2048), sparse);
        assert!(matches!(again, Err(ImageError::Exists { .. })));
        std::fs::remove_file(&path).unwrap();
    }
    let Some(_mount) = Mount::tmpfs(&dir.path().join("mnt"), "2m") else { return };
    let path = dir.path().join("mnt/large");
    let error = create_image(&path, Sectors(1 << 20), false).unwrap_err();
    assert!(matches!(error, ImageError::NoSpace { .. }) && !path.exists(), "{error}");
}

#[test]
fn a_volume_is_open_once_whatever_its_device_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let locks = dir.path().join("locks");
    let first = VolumeLock::take_in(&locks, [7; 16], Path::new("/dev/sdx")).unwrap();
    let _other = VolumeLock::take_in(&locks, [8; 16], Path::new("/dev/sdz")).unwrap();
    let error = VolumeLock::take_in(&locks, [7; 16], Path::new("/dev/sdy")).unwrap_err();
    let words = error.to_string();
    assert!(words.contains("/dev/sdx") && words.contains("0707"), "{words}");
    match error {
        VolumeLockError::Taken { pid, .. } => assert_eq!(pid, std::process::id()),
        error => panic!("{error}"),
    }
    drop(first);
    VolumeLock::take_in(&locks, [7; 16], Path::new("/dev/sdy")).unwrap();
    let left = std::fs::read_dir(&locks).unwrap().count();
    assert_eq!(left, 1, "a lock takes its file with it");
}
