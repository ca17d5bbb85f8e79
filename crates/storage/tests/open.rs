//! What must not be opened, and what the errors say.

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

/// Opens `path` to write it, and returns the error in words.
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
    // A process that another test starts holds our file too, until it becomes another program.
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

/// The cache mode outlives detaching: who attaches the next file to the device finds it.
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
