//! A mounted image whose journal is near the head: used through the kernel, recovered, drained.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use manylogs::{Anchors, OpenOptions};
use manylogs_block::BlockDevice;
use manylogs_mlfs::{MountOptions, NearJournal, serve};
use manylogs_near::{Near, NearOptions};
use manylogs_storage::{FileDevice, OpenMode, Reactor};
use manylogs_torture::ext4::{SMALL_MIB, Templates, e2fsck, has_program, options, save};

fn can_run() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let programs = ["mkfs.ext4", "debugfs", "e2fsck"].into_iter().all(has_program);
    if root && programs && Path::new("/dev/fuse").exists() {
        return true;
    }
    eprintln!("skipped: needs root, /dev/fuse, mkfs.ext4, debugfs and e2fsck");
    false
}

/// Mounts the image, calls `work` with its root, and unmounts it.
fn mounted(image: &Path, root: &Path, near: NearJournal, work: impl FnOnce(&Path)) {
    let mut options = MountOptions::default();
    options.near = Some(near);
    let (tell, told) = mpsc::channel();
    let (source, target) = (image.to_owned(), root.to_owned());
    let server = thread::spawn(move || serve(&source, &target, options, || tell.send(()).unwrap()));
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    // It is mounted when its root is another device.
    while fs::metadata(root).unwrap().dev() == fs::metadata(image).unwrap().dev() {
        thread::yield_now();
    }
    work(root);
    assert!(Command::new("umount").arg(root).status().unwrap().success());
    server.join().unwrap().unwrap();
}

fn drain(image: &Path, anchors: Anchors) {
    let reactor = Reactor::new().unwrap();
    let open = manylogs_storage::OpenOptions::new(OpenMode::Exclusive);
    let device: Rc<dyn BlockDevice> = Rc::new(FileDevice::open(&reactor, image, &open).unwrap());
    let runtime = reactor.handle();
    let open = OpenOptions { anchors: Some(anchors), ..OpenOptions::default() };
    let near = NearOptions { open, ..NearOptions::default() };
    let report = reactor.block_on(async move {
        let mounted = Near::mount(runtime.clone(), device, &near, options(runtime)).await;
        mounted.unwrap().0.drain().await.unwrap()
    });
    assert!(report.home_bytes > 0, "something was logged");
}

#[test]
fn programs_find_what_they_wrote_and_a_drained_image_is_plain_ext4() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, root) = (dir.path().join("image"), dir.path().join("mnt"));
    fs::create_dir(&root).unwrap();
    let images = Templates::make().unwrap().images().unwrap();
    let (disk, anchors) = images.near(0);
    save(disk, SMALL_MIB, &image).unwrap();
    let manylogs = NearJournal { anchors, logs_near: None };
    mounted(&image, &root, manylogs, |root| {
        fs::create_dir(root.join("dir")).unwrap();
        let mut file = File::create(root.join("dir/file")).unwrap();
        for byte in 0..20 {
            file.write_all(&[byte; 4096]).unwrap();
            file.sync_all().unwrap();
        }
        file.write_all_at(&[99; 4096], 8192).unwrap();
        file.sync_data().unwrap();
        fs::write(root.join("long"), vec![7; 500_000]).unwrap();
        File::open(root.join("long")).unwrap().sync_all().unwrap();
    });
    let check = |root: &Path| {
        let found = fs::read(root.join("dir/file")).unwrap();
        for (byte, page) in (0..20).zip(found.chunks(4096)) {
            assert_eq!(page, [if byte == 2 { 99 } else { byte }; 4096]);
        }
        assert_eq!(fs::read(root.join("long")).unwrap(), vec![7; 500_000]);
    };
    let middle = Some(anchors.last.start);
    mounted(&image, &root, NearJournal { anchors, logs_near: middle }, |root| {
        check(root);
        fs::remove_file(root.join("long")).unwrap();
        fs::write(root.join("long"), vec![7; 500_000]).unwrap();
    });
    drain(&image, anchors);
    let said = e2fsck(&["-fn"], &image);
    assert_eq!(said.code, 0, "{said}");
    // Without its logs: by ext4's own journal.
    let (source, target) = (image.clone(), root.clone());
    let (tell, told) = mpsc::channel();
    let mut plain = MountOptions::default();
    plain.add("ro").unwrap();
    let server = thread::spawn(move || serve(&source, &target, plain, || tell.send(()).unwrap()));
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    while fs::metadata(&root).unwrap().dev() == fs::metadata(&image).unwrap().dev() {
        thread::yield_now();
    }
    check(&root);
    assert!(Command::new("umount").arg(&root).status().unwrap().success());
    server.join().unwrap().unwrap();
}
