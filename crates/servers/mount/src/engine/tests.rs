//! How the thread ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use manylogs_ext4::{FileKind, Ino, New};
use manylogs_torture::ext4::{SMALL_MIB, SMALL_OPTIONS, has_program, mkfs, save};

use super::*;

/// Files that one job makes durable, one after the other.
const FILES: u32 = 100;

#[test]
fn an_unmount_waits_for_jobs_under_way() {
    if !has_program("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    save(&mkfs(SMALL_MIB, SMALL_OPTIONS).unwrap(), SMALL_MIB, &image).unwrap();
    let options = MountOptions::default();
    let engine =
        Engine::start(&image, dir.path(), (options, Memory::default()), OpenMode::Exclusive)
            .unwrap();
    let made = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&made);
    engine.queue().push(Box::new(move |served| {
        let fs = served.fs().clone();
        Box::pin(async move {
            for number in 0..FILES {
                let (name, new) = (number.to_string(), New::plain(FileKind::File, 0o600));
                let file = fs.create(Ino::ROOT, name.as_bytes(), new).await.unwrap();
                fs.sync(file.ino).await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })
    }));
    engine.stop().unwrap();
    assert_eq!(made.load(Ordering::Relaxed), FILES);
}
