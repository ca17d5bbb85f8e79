//! An adopted image whose journal is near the head: used through the kernel, and given back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use common::{Mount, sh};
use manylogs_mlfs::adopt::{AdoptError, LogLayout, Site, Volumes, adopt, release};
use manylogs_mlfs::{JournalMode, MountError};
use manylogs_mount::{MountOptions, MountServerError, serve};
use manylogs_storage::{FileDevice, OpenMode, OpenOptions, Reactor};

/// Runs `what` on an image that is not in use.
fn at<F: Future<Output = Result<(), AdoptError>> + 'static>(
    image: &Path,
    what: impl FnOnce(Site) -> F,
) {
    let reactor = Reactor::new().unwrap();
    let open = OpenOptions::new(OpenMode::Exclusive);
    let device = FileDevice::open(&reactor, image, &open).unwrap();
    let site = Site::new(Rc::new(device), reactor.handle());
    reactor.block_on(what(site)).unwrap();
}

fn take_over(image: &Path) {
    at(image, async |site| adopt(&site, &LogLayout::default(), &Volumes).await.map(drop));
}

fn give_back(image: &Path) {
    at(image, async |site| release(&site, &Volumes).await);
}

/// Unmounts the image. Its logs still hold versions, so that only MLFS can read it.
fn unmount(mount: &mut Mount) {
    assert!(Command::new("umount").arg(mount.root()).status().unwrap().success());
    mount.server.take().unwrap().join().unwrap().unwrap();
    let checked = Command::new("e2fsck").arg("-fn").arg(mount.image()).output().unwrap();
    assert!(!checked.status.success());
}

fn check_files(root: &Path) {
    let found = fs::read(root.join("dir/file")).unwrap();
    for (byte, page) in (0..20).zip(found.chunks(4096)) {
        assert_eq!(page, [if byte == 2 { 99 } else { byte }; 4096]);
    }
    assert_eq!(fs::read(root.join("long")).unwrap(), vec![7; 500_000]);
}

#[test]
fn programs_find_what_they_wrote_and_a_released_image_is_plain_ext4() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    take_over(&mount.image());
    let root = mount.root();
    mount.start();
    fs::create_dir(root.join("dir")).unwrap();
    let mut file = File::create(root.join("dir/file")).unwrap();
    for byte in 0..20 {
        file.write_all(&[byte; 4096]).unwrap();
        file.sync_all().unwrap();
    }
    file.write_all_at(&[99; 4096], 8192).unwrap();
    file.sync_data().unwrap();
    drop(file);
    fs::write(root.join("long"), vec![7; 500_000]).unwrap();
    File::open(root.join("long")).unwrap().sync_all().unwrap();
    unmount(&mut mount);
    mount.start_with("mode=adaptive");
    check_files(&root);
    fs::remove_file(root.join("long")).unwrap();
    fs::write(root.join("long"), vec![7; 500_000]).unwrap();
    unmount(&mut mount);
    give_back(&mount.image());
    // Mounts it with ext4's own journal.
    mount.start_with("mode=ordered");
    check_files(&root);
    mount.stop();
}

#[test]
fn the_log_file_is_not_seen_and_its_name_is_taken() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    take_over(&mount.image());
    mount.start_with("mode=manylogs");
    let root = mount.root();
    let log = root.join(".manylogs");
    let names = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["lost+found"]);
    let kinds = [
        fs::metadata(&log).map(drop),
        File::open(&log).map(drop),
        fs::remove_file(&log),
        fs::remove_dir(&log),
        fs::rename(&log, root.join("other")),
        fs::hard_link(&log, root.join("other")),
    ];
    let kinds = kinds.map(|done| done.unwrap_err().kind());
    assert_eq!(kinds, [ErrorKind::NotFound; 6]);
    fs::write(root.join("file"), "x").unwrap();
    let errors = [
        File::create(&log).map(drop),
        fs::create_dir(&log),
        symlink("file", &log),
        fs::hard_link(root.join("file"), &log),
        fs::rename(root.join("file"), &log),
    ];
    let errors = errors.map(|done| done.unwrap_err().raw_os_error());
    assert_eq!(errors, [Some(1); 5], "EPERM");
    // In other directories the name is an ordinary one.
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/.manylogs"), "x").unwrap();
    assert_eq!(sh(&mount, "ls -A dir"), ".manylogs\n");
    assert!(sh(&mount, "mkfifo .manylogs || :").contains("not permitted"));
    unmount(&mut mount);
    give_back(&mount.image());
    mount.start();
    assert!(!log.exists());
    fs::write(&log, "x").unwrap();
    mount.stop();
}

#[test]
fn a_mode_that_does_not_fit_the_file_system_is_refused() {
    let Some(mount) = Mount::new(&["-b", "4096"]) else { return };
    let refused = |list: &str| {
        let mut options = MountOptions::default();
        options.add(list).unwrap();
        serve(&mount.image(), &mount.root(), options, || ()).unwrap_err()
    };
    for (list, mode) in
        [("mode=manylogs", JournalMode::Manylogs), ("mode=adaptive", JournalMode::Adaptive)]
    {
        let error = refused(list);
        assert!(
            matches!(error, MountServerError::FileSystem(MountError::NotAdopted(of)) if of == mode),
            "{error}"
        );
        assert!(error.to_string().contains("manylogs fs adopt"));
    }
    take_over(&mount.image());
    let before = fs::read(mount.image()).unwrap();
    for (list, mode) in [("data=ordered", JournalMode::Ordered), ("mode=data", JournalMode::Data)] {
        let error = refused(list);
        assert!(
            matches!(error, MountServerError::FileSystem(MountError::Adopted(of)) if of == mode),
            "{error}"
        );
    }
    assert!(fs::read(mount.image()).unwrap() == before, "a refusal changes nothing");
}
