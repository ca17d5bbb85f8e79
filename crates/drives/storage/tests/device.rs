//! Devices on files, loop devices and full file systems, through both backends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use common::{BACKENDS, Loop, Mount, bytes_of, image, open, pattern, read, try_run, write};
use manylogs_block::{
    BlockDevice, Completion, Extent, ExtentKind, Extents, IoError, MemoryDevice, Payload,
    PowerCommand, Request, Rng, Sectors,
};
use manylogs_storage::{Backend, FileDevice, OpenMode, OpenOptions, Reactor};

const SECTORS: u64 = 6 << 11;
const STEPS: u32 = 600;

/// A random request, from one sector to more than the longest operation.
fn random_request(rng: &mut Rng, serial: u64, capacity: u64) -> Request {
    let longest = [1, 3, 8, 64, 300, 2048, 10_000][common::sectors(rng.below(7)) / 512];
    let len = 1 + rng.below(longest.min(capacity));
    let start = rng.below(capacity - len + 1);
    let extent = Extent::new(start, len);
    match rng.below(20) {
        0..9 => Request::Read { extent },
        9..16 => {
            let mut payload = pattern(serial << 20, len - len / 3);
            payload.append(Payload::zeroes(Sectors(len / 3)));
            write(start, payload, rng.one_in(8))
        }
        16 => Request::Flush,
        17 => Request::Discard { extent, fua: rng.one_in(4) },
        _ => Request::WriteZeroes { extent, fua: rng.one_in(4), if_fast: rng.one_in(4) },
    }
}

/// A request under way, with the answer it must get.
struct InFlight {
    extent: Option<Extent>,
    reads: bool,
    completion: Completion,
    expected: Payload,
}

impl InFlight {
    async fn check(self) {
        let found = self.completion.await.unwrap();
        if self.reads {
            let same = bytes_of(&found) == bytes_of(&self.expected);
            assert!(same, "{:?} reads something else than was written", self.extent);
        }
    }
}

/// Runs random requests on the device and on memory. Those in flight together never overlap, so the
/// order in which they take effect does not matter.
async fn compare_with_memory(device: Rc<FileDevice>, seed: u64) {
    let capacity = device.capabilities().capacity;
    let model = MemoryDevice::new(capacity);
    let mut rng = Rng::new(seed);
    let mut in_flight: VecDeque<InFlight> = VecDeque::new();
    for serial in 1..=u64::from(STEPS) {
        let request = random_request(&mut rng, serial, capacity.0);
        let extent = request.extent();
        let collides = |other: &InFlight| {
            extent.zip(other.extent).is_some_and(|(mine, other)| mine.overlaps(other))
        };
        while in_flight.len() > 12 || in_flight.iter().any(collides) {
            in_flight.pop_front().unwrap().check().await;
        }
        let reads = matches!(request, Request::Read { .. });
        let completion = device.submit(request.clone());
        if matches!(request, Request::WriteZeroes { if_fast: true, .. }) {
            match completion.await {
                Ok(_) => drop(model.submit(request).await.unwrap()),
                Err(error) => assert_eq!(error, IoError::Unsupported),
            }
            continue;
        }
        let expected = model.submit(request).await.unwrap();
        in_flight.push_back(InFlight { extent, reads, completion, expected });
    }
    for rest in in_flight {
        rest.check().await;
    }
    zeroes_are_where_it_says(&device, Extent { len: capacity, ..Extent::default() }).await;
    let whole = device.submit(read(0, capacity.0)).await.unwrap();
    let expected = model.submit(read(0, capacity.0)).await.unwrap();
    assert!(bytes_of(&whole) == bytes_of(&expected), "the content at the end");
}

/// Asks for all extents of `whole`, and reads those that are reported to be zeroes. Returns the
/// reported extents.
async fn zeroes_are_where_it_says(device: &FileDevice, whole: Extent) -> Extents {
    let mut all = Extents::default();
    let mut next = whole.start;
    while next < whole.end() {
        let known = device.extents(Extent::between(next, whole.end())).await.unwrap();
        assert_eq!(known.whole().start, next);
        for (extent, kind) in known.iter() {
            all.push(extent, kind);
            let zeroes = kind.reads_as_zeroes();
            let found = device.submit(Request::Read { extent }).await.unwrap();
            assert!(!zeroes || found.is_zero(), "{extent} is said to be zeroes");
        }
        next = known.whole().end();
    }
    assert_eq!(all.whole(), whole);
    all
}

#[test]
fn the_holes_of_a_file_are_known_and_zeroing_makes_them_if_it_must_be_fast() {
    with_file(|device| async move {
        let whole = Extent::new(0, 4096);
        let kinds = |known: Extents| known.iter().map(|(_, kind)| kind).collect::<Vec<_>>();
        let known = zeroes_are_where_it_says(&device, whole).await;
        assert_eq!(kinds(known), [ExtentKind::Hole], "a sparse file");
        device.submit(write(0, pattern(1, 4096), true)).await.unwrap();
        assert_eq!(device.extents(whole).await, Ok(Extents::of(whole, ExtentKind::Data)));
        let extent = Extent::new(1024, 2048);
        let fast = Request::WriteZeroes { extent, fua: true, if_fast: true };
        match device.submit(fast).await {
            // The file system punches no holes.
            Err(error) => return assert_eq!(error, IoError::Unsupported),
            Ok(_) => assert!(device.capabilities().fast_zero),
        }
        let known = zeroes_are_where_it_says(&device, whole).await;
        let wanted = [ExtentKind::Data, ExtentKind::Hole, ExtentKind::Data];
        assert_eq!(kinds(known.clone()), wanted, "{known:?}");
        let beyond = device.extents(Extent::new(4095, 2)).await;
        assert!(matches!(beyond, Err(IoError::OutOfRange { .. })));
    });
}

fn compare(path: &Path, backend: Backend, seed: u64) -> Option<bool> {
    let reactor = Reactor::new().unwrap();
    let device = Rc::new(open(&reactor, path, backend)?);
    assert_eq!(device.backend(), backend);
    let direct = device.direct();
    reactor.block_on(compare_with_memory(device, seed));
    Some(direct)
}

#[test]
fn nothing_commands_the_power_of_a_file_and_that_is_no_fault() {
    with_file(|device| async move {
        for command in [PowerCommand::Check, PowerCommand::Standby, PowerCommand::Wake] {
            assert_eq!(device.power(command).await, Err(IoError::Unsupported));
        }
        assert!(device.submit(Request::Flush).await.is_ok());
    });
}

#[test]
fn a_file_behaves_like_memory() {
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        compare(&image(dir.path(), SECTORS), backend, seed as u64);
    }
}

#[test]
fn a_disk_behaves_like_memory() {
    for sector in ["512", "4096"] {
        for (seed, backend) in BACKENDS.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let options = ["--sector-size", sector];
            let Some(disk) = Loop::attach(&image(dir.path(), SECTORS), &options) else { return };
            // Also with parts of larger sectors: requests in flight together share such sectors.
            let direct = compare(disk.path(), backend, 10 + seed as u64);
            assert!(direct.is_none_or(|direct| direct), "{sector}");
        }
    }
}

/// Writes of any sectors bypass the page cache on a disk with logical sectors of 4096 bytes: their
/// data is in the file behind the disk, without a flush.
#[test]
fn a_disk_with_large_sectors_is_written_past_the_page_cache() {
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), SECTORS);
        let options = ["--sector-size", "4096", "--direct-io=on"];
        let Some(disk) = Loop::attach(&path, &options) else { return };
        let reactor = Reactor::new().unwrap();
        let Some(device) = open(&reactor, disk.path(), backend) else { continue };
        assert_eq!((device.direct(), device.logical_sector()), (true, Sectors(8)));
        reactor.block_on(async move {
            for (start, len) in [(0, 2048), (4097, 3), (5007, 18)] {
                device.submit(write(start, pattern(start, len), false)).await.unwrap();
                let content = past_the_page_cache(&path);
                let here = &content[common::sectors(start)..common::sectors(start + len)];
                assert!(here == bytes_of(&pattern(start, len)), "{start}+{len}");
            }
        });
    }
}

/// The content of a file on its disk, read without the page cache.
fn past_the_page_cache(path: &Path) -> Vec<u8> {
    let input = format!("if={}", path.display());
    let dd = std::process::Command::new("dd")
        .args([&*input, "bs=1M", "iflag=direct", "status=none"])
        .output()
        .unwrap();
    assert!(dd.status.success());
    dd.stdout
}

/// A file system on such a disk reports direct I/O in units of 4096 bytes for its files.
#[test]
fn a_file_on_a_disk_with_large_sectors_behaves_like_memory() {
    let dir = tempfile::tempdir().unwrap();
    let disk = image(dir.path(), 64 << 11);
    let Some(disk) = Loop::attach(&disk, &["--sector-size", "4096"]) else { return };
    if try_run("mkfs.ext4", &["-q", &disk.0]).is_none() {
        return;
    }
    let at = dir.path().join("mnt");
    let Some(_mount) = Mount::device(&disk.0, &at) else { return };
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        let path = image(&at, SECTORS);
        let direct = compare(&path, backend, 30 + seed as u64);
        assert!(direct.is_none_or(|direct| direct));
        // The last unit of this file is not whole.
        let direct = compare(&image(&at, SECTORS - 1), backend, 40 + seed as u64);
        assert!(direct.is_none_or(|direct| !direct));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (SECTORS - 1) * 512);
    }
}

#[test]
fn a_file_in_memory_behaves_like_memory() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(&dir.path().join("mnt"), "64m") else { return };
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        compare(&image(&dir.path().join("mnt"), SECTORS), backend, 20 + seed as u64);
    }
}

/// Runs `test` with a device on a new file, once with each backend.
fn with_file<T: Future<Output = ()> + 'static>(test: impl Fn(Rc<FileDevice>) -> T) {
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), 4096);
        let reactor = Reactor::new().unwrap();
        if let Some(device) = open(&reactor, &path, backend) {
            reactor.block_on(test(Rc::new(device)));
        }
    }
}

#[test]
fn a_full_file_system_is_an_error_that_says_so_and_passes() {
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let Some(_mount) = Mount::tmpfs(&dir.path().join("mnt"), "2m") else { return };
        let path = image(&dir.path().join("mnt"), 32 << 11);
        let reactor = Reactor::new().unwrap();
        let Some(device) = open(&reactor, &path, backend) else { continue };
        reactor.block_on(async move {
            assert_eq!(device.submit(write(0, pattern(1, 8), false)).await, Ok(Payload::default()));
            let large = device.submit(write(0, pattern(1, 16 << 11), false)).await;
            assert!(matches!(large, Err(IoError::NoSpace { .. })), "{large:?}");
            let small = device.submit(write(31 << 11, pattern(1, 1), true)).await;
            assert!(matches!(small, Err(IoError::NoSpace { .. })), "{small:?}");
            let kept = device.submit(read(0, 8)).await.unwrap();
            assert_eq!(bytes_of(&kept), bytes_of(&pattern(1, 8)));
        });
    }
}

#[test]
fn a_file_that_is_truncated_in_use_fails_and_nothing_panics() {
    with_file(|device| async move {
        let file = std::fs::OpenOptions::new().write(true).open(device.path()).unwrap();
        // The file is cut in the middle of a sector.
        file.set_len(1000 * 512 + 100).unwrap();
        let found = device.submit(read(990, 100)).await;
        assert_eq!(found, Err(IoError::Shrunk { extent: Extent::new(1000, 90) }));
        let found = device.submit(read(2000, 1)).await;
        assert_eq!(found, Err(IoError::Shrunk { extent: Extent::new(2000, 1) }));
        let flushed = device.submit(Request::Flush).await;
        assert_eq!(flushed, Err(IoError::Shrunk { extent: Extent::new(0, 4096) }));
        let zeroes = Request::write_zeroes(Extent::new(0, 4096), true);
        assert!(device.submit(zeroes).await.is_err(), "there is nothing to be durable");
        assert!(device.submit(read(0, 990)).await.is_ok());
    });
}

#[test]
fn content_without_bytes_is_refused() {
    with_file(|device| async move {
        for payload in [Payload::tags(7, Sectors(8)), Payload::absent(Sectors(8))] {
            let answer = device.submit(write(0, payload, false)).await;
            assert_eq!(answer, Err(IoError::Unsupported));
        }
        let beyond = device.submit(read(4095, 2)).await;
        assert!(matches!(beyond, Err(IoError::OutOfRange { .. })));
    });
}

#[test]
fn a_device_opened_for_reading_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 64);
    let reactor = Reactor::new().unwrap();
    let options = OpenOptions::new(OpenMode::ReadOnly);
    let device = FileDevice::open(&reactor, &path, &options).unwrap();
    reactor.block_on(async move {
        let written = device.submit(write(0, pattern(1, 1), false)).await;
        assert!(matches!(written, Err(IoError::ReadOnly { .. })), "{written:?}");
        assert!(device.submit(read(0, 64)).await.is_ok());
        assert!(device.submit(Request::Flush).await.is_ok());
    });
}

#[test]
fn dropped_completions_and_devices_do_not_stop_what_was_begun() {
    for backend in BACKENDS {
        for reactor_first in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = image(dir.path(), 1 << 15);
            let reactor = Reactor::new().unwrap();
            let Some(device) = open(&reactor, &path, backend) else { continue };
            for i in 0..40 {
                drop(device.submit(write(i * 300, pattern(i, 300), i % 7 == 0)));
            }
            // Longer than one operation: its other parts follow after the drop.
            drop(device.submit(write(12_000, pattern(1, 20_000), false)));
            if reactor_first {
                drop(reactor);
                drop(device);
            } else {
                drop(device);
                drop(reactor);
            }
            let content = std::fs::read(&path).unwrap();
            for i in 0..40 {
                let here = &content[common::sectors(i * 300)..common::sectors((i + 1) * 300)];
                assert!(here == &bytes_of(&pattern(i, 300))[..], "{i}");
            }
            let long = &content[common::sectors(12_000)..common::sectors(32_000)];
            assert!(long == &bytes_of(&pattern(1, 20_000))[..]);
        }
    }
}

#[test]
fn a_device_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 64);
    let reactor = Reactor::new().unwrap();
    let options = OpenOptions {
        physical_sector: Some(Sectors(8)),
        discard: false,
        ..OpenOptions::new(OpenMode::Exclusive)
    };
    let device = FileDevice::open(&reactor, &path, &options).unwrap();
    let told = device.capabilities();
    assert_eq!((told.capacity, told.physical_sector), (Sectors(64), Sectors(8)));
    assert!(told.rotational && told.volatile_cache && !told.native_fua && !told.discard);
    drop(device);
    let Some(disk) = Loop::attach(&path, &["--sector-size", "4096"]) else { return };
    let device = FileDevice::open(&reactor, disk.path(), &common::options(Backend::Auto)).unwrap();
    let told = device.capabilities();
    assert_eq!((told.capacity, told.physical_sector), (Sectors(64), Sectors(8)));
    assert!(device.is_disk() && told.volatile_cache && !told.native_fua);
}
