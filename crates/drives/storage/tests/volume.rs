//! A whole volume on a real file.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::PathBuf;
use std::rc::Rc;

use common::{BACKENDS, Loop, bytes_of, image, open, pattern, read, write};
use manylogs::{LogPlacement, OpenOptions, Volume, VolumeConfig};
use manylogs_block::{BlockDevice, Request, Rng, Sectors};
use manylogs_storage::{Backend, Contents, Reactor, survey};

const SECTORS: u64 = 64 << 11;
const WRITES: u64 = 300;

fn config() -> VolumeConfig {
    VolumeConfig {
        log: Sectors(2 << 11),
        placement: LogPlacement::EveryGroup(Sectors(16 << 11)),
        threshold: Sectors(64),
        record: Sectors(256),
        ..VolumeConfig::default()
    }
}

/// Places and lengths of the writes; some are logged, some go home.
fn places() -> Vec<(u64, u64)> {
    let mut rng = Rng::new(5);
    (0..WRITES).map(|i| (i * 300, 1 + rng.below(if i % 10 == 0 { 300 } else { 40 }))).collect()
}

/// Formats, writes and closes a volume; `None` if the backend is not available.
fn fill(path: PathBuf, backend: Backend) -> Option<()> {
    let reactor = Reactor::new().unwrap();
    let device = Rc::new(open(&reactor, &path, backend)?);
    let runtime = reactor.handle();
    reactor.block_on(async move {
        let volume = Volume::create(runtime.clone(), device, &config()).await.unwrap();
        for (i, (start, len)) in places().into_iter().enumerate() {
            let i = i as u64;
            volume.submit(write(start, pattern(i << 16, len), i.is_multiple_of(5))).await.unwrap();
        }
        volume.submit(Request::Flush).await.unwrap();
        volume.close().await.unwrap();
    });
    Some(())
}

fn check(path: PathBuf, backend: Backend) {
    let reactor = Reactor::new().unwrap();
    let Some(device) = open(&reactor, &path, backend) else { return };
    let runtime = reactor.handle();
    reactor.block_on(async move {
        let options = OpenOptions::default();
        let (volume, _) = Volume::open(runtime, Rc::new(device), &options).await.unwrap();
        for (i, (start, len)) in places().into_iter().enumerate() {
            let found = volume.submit(read(start, len)).await.unwrap();
            assert!(bytes_of(&found) == bytes_of(&pattern((i as u64) << 16, len)), "write {i}");
        }
        volume.checkpoint().await.unwrap();
        let found = volume.submit(read(300, 1)).await.unwrap();
        assert_eq!(bytes_of(&found), bytes_of(&pattern(1 << 16, 1)));
        volume.close().await.unwrap();
    });
}

#[test]
fn a_volume_keeps_what_it_was_given() {
    for (writer, reader) in BACKENDS.into_iter().zip(BACKENDS.into_iter().rev()) {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), SECTORS);
        if fill(path.clone(), writer).is_some() {
            assert_eq!(survey(&path).unwrap(), Contents::Known(vec!["a Manylogs volume"]));
            check(path.clone(), reader);
            check(path, writer);
        }
    }
}

#[test]
fn a_volume_on_a_disk_with_large_logical_sectors_keeps_what_it_was_given() {
    for (writer, reader) in BACKENDS.into_iter().zip(BACKENDS.into_iter().rev()) {
        let dir = tempfile::tempdir().unwrap();
        let options = ["--sector-size", "4096", "--direct-io=on"];
        let Some(disk) = Loop::attach(&image(dir.path(), SECTORS), &options) else { return };
        if fill(disk.path().to_owned(), writer).is_some() {
            check(disk.path().to_owned(), reader);
            check(disk.path().to_owned(), writer);
        }
    }
}
