//! Devices on files, loop devices and full file systems, through both backends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use common::{BACKENDS, Loop, Mount, bytes_of, image, open, pattern, read, write};
use manylogs_block::{
    BlockDevice, Completion, Extent, IoError, MemoryDevice, Payload, Request, Rng, Sectors,
};
use manylogs_storage::{Backend, FileDevice, Reactor};

const SECTORS: u64 = 6 << 11;
const STEPS: u32 = 600;

/// A random request; lengths from one sector to more than the longest operation.
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
        17 => Request::Discard { extent },
        _ => Request::WriteZeroes { extent, fua: rng.one_in(4) },
    }
}

/// Requests that are under way and what they must answer.
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

/// Runs random requests on the device and on memory. Those in flight together never overlap, so
/// that one order is as good as another.
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
        let expected = model.submit(request).await.unwrap();
        in_flight.push_back(InFlight { extent, reads, completion, expected });
    }
    for rest in in_flight {
        rest.check().await;
    }
    let whole = device.submit(read(0, capacity.0)).await.unwrap();
    let expected = model.submit(read(0, capacity.0)).await.unwrap();
    assert!(bytes_of(&whole) == bytes_of(&expected), "the content at the end");
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
fn a_file_behaves_like_memory() {
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        compare(&image(dir.path(), SECTORS), backend, seed as u64);
    }
}
