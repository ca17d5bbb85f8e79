//! Checks that the ring, the threads and the path for files in memory ask the kernel for exactly
//! what a request says.

use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::{
    BlockDevice, Capabilities, Extent, Hint, IoError, IoResult, Nvram, Payload, Request, Sectors,
    to_usize,
};

use super::{Behaviour, Witness};
use crate::access::Access;
use crate::device::{Core, Medium};
use crate::driver::DeviceIo;
use crate::{Backend, FileDevice, MappedNvram, OpenError, OpenMode, OpenOptions, Reactor};

const SECTORS: u64 = 4096;
/// A file that accepts the same requests as a disk with sectors of 512 bytes.
const ORDINARY: Behaviour = Behaviour { alignment: 512, longest_write: usize::MAX, cached: false };

/// A device on a witness, with the reactor that its answers come from.
struct Bench {
    device: FileDevice,
    reactor: Reactor,
    witness: Witness,
}

impl Bench {
    fn new(backend: Backend, behaviour: Behaviour) -> Option<Self> {
        let witness = Witness::new(SECTORS, behaviour)?;
        let reactor = Reactor::new().unwrap();
        let options = OpenOptions { backend, ..OpenOptions::new(OpenMode::Exclusive) };
        let device = match FileDevice::open(&reactor, witness.path(), &options) {
            Err(OpenError::NoUring { .. }) if backend == Backend::Uring => return None,
            device => device.unwrap(),
        };
        witness.seen();
        Some(Self { device, reactor, witness })
    }

    /// The operations that arrive for `request`.
    fn arrives(&self, request: Request) -> Vec<String> {
        self.answer(request).unwrap();
        self.witness.seen()
    }

    fn answer(&self, request: Request) -> IoResult {
        self.reactor.block_on(self.device.submit(request))
    }
}

fn write(start: u64, len: u64, fua: bool) -> Request {
    let extent = Extent::new(start, len);
    let payload = Payload::bytes(vec![7; to_usize(extent.len.bytes())]);
    Request::Write { extent, payload, fua, hint: Hint::None }
}

fn zeroes(start: u64, len: u64, fua: bool) -> Request {
    Request::write_zeroes(Extent::new(start, len), fua)
}

/// Checks the operations that every way to the kernel must ask for.
fn asks_for_what_requests_say(backend: Backend) {
    let Some(bench) = Bench::new(backend, ORDINARY) else { return };
    assert!(bench.device.direct() && bench.device.capabilities().volatile_cache);
    assert_eq!(bench.arrives(write(8, 2, false)), ["write 4096+1024"]);
    assert_eq!(bench.arrives(write(8, 2, true)), ["write 4096+1024 durably"]);
    assert_eq!(bench.arrives(Request::Flush), ["sync"]);
    assert_eq!(bench.arrives(zeroes(0, 4, true)), ["write 0+2048 durably"]);
    assert_eq!(bench.arrives(write(0, 160, true)), ["write 0+81920 durably"]);
    // Longer than a registered buffer; FUSE may cut it.
    let long = bench.arrives(write(0, 1024, true));
    assert!(!long.is_empty() && long.iter().all(|write| write.ends_with("durably")), "{long:?}");
    // The kernel has no call for such a range on this file.
    let long = bench.arrives(zeroes(0, 1024, true));
    assert_eq!(long.last().map(String::as_str), Some("sync"), "{long:?}");
    let lazy = bench.arrives(zeroes(0, 1024, false));
    assert_eq!(lazy, long[..long.len() - 1], "without FUA the same, but for the flush");
    drop(bench.device);
    assert_eq!(bench.witness.seen(), [""; 0]);
}

#[test]
fn the_ring_asks_for_what_requests_say() {
    asks_for_what_requests_say(Backend::Uring);
}

#[test]
fn the_threads_ask_for_what_requests_say() {
    asks_for_what_requests_say(Backend::Threads);
}

#[test]
fn after_a_failed_sync_no_flush_succeeds() {
    for backend in [Backend::Uring, Backend::Threads] {
        let Some(bench) = Bench::new(backend, ORDINARY) else { continue };
        bench.witness.fail_next_sync();
        assert_eq!(bench.answer(Request::Flush), Err(IoError::FlushFailed));
        assert_eq!(bench.answer(Request::Flush), Err(IoError::FlushFailed));
        assert_eq!(bench.arrives(write(8, 2, true)), ["sync", "write 4096+1024 durably"]);
    }
}

#[test]
fn mapped_memory_is_written_and_synced() {
    let Some(witness) = Witness::new(SECTORS, Behaviour { cached: true, ..ORDINARY }) else {
        return;
    };
    let nvram = MappedNvram::open(witness.path()).unwrap();
    nvram.store(5000, b"kept");
    nvram.persist(5000..5004).unwrap();
    assert_eq!(witness.seen(), ["write 4096+4096", "sync"]);
    assert_eq!(&witness.content()[5000..5004], b"kept");
    nvram.store(8190, b"both");
    nvram.persist(8190..8194).unwrap();
    assert_eq!(witness.seen().last().map(String::as_str), Some("sync"));
    assert_eq!(&witness.content()[8190..8194], b"both");
}

#[test]
fn after_a_failed_sync_mapped_memory_is_never_persisted() {
    let Some(witness) = Witness::new(SECTORS, Behaviour { cached: true, ..ORDINARY }) else {
        return;
    };
    let nvram = MappedNvram::open(witness.path()).unwrap();
    nvram.store(5000, b"lost");
    witness.fail_next_sync();
    assert_eq!(nvram.persist(5000..5004), Err(IoError::FlushFailed));
    nvram.store(9000, b"good");
    assert_eq!(nvram.persist(9000..9004), Err(IoError::FlushFailed));
}

#[test]
fn the_path_for_files_in_memory_asks_for_what_requests_say() {
    let Some(witness) = Witness::new(SECTORS, ORDINARY) else { return };
    let reactor = Reactor::new().unwrap();
    let driver = Rc::clone(reactor.driver());
    let core = Rc::new(Core {
        file: Arc::new(File::options().read(true).write(true).open(witness.path()).unwrap()),
        io: Box::new(DeviceIo { driver, by_ring: false, in_memory: true }),
        capabilities: Capabilities {
            capacity: Sectors(SECTORS),
            physical_sector: Sectors(1),
            untorn: Sectors(1),
            rotational: true,
            volatile_cache: true,
            native_fua: false,
            discard: false,
            fast_zero: false,
        },
        medium: Medium::File,
        writable: true,
        access: Access::Cached,
        priorities: false,
        gate: Rc::default(),
        in_flight: 0.into(),
        flush_failed: false.into(),
        spindle: None,
    });
    for (request, arrives) in [
        (write(8, 2, false), "write 4096+1024"),
        (write(8, 2, true), "write 4096+1024 durably"),
        (Request::Flush, "sync"),
    ] {
        reactor.block_on(core.submit(request)).unwrap();
        assert_eq!(witness.seen(), [arrives]);
    }
}

/// The kernel's ring finishes such a write itself, but on a FUSE file at the wrong place.
#[test]
fn a_write_of_which_the_kernel_takes_a_part_is_finished() {
    let short = Behaviour { longest_write: 1536, ..ORDINARY };
    let Some(bench) = Bench::new(Backend::Auto, short) else { return };
    assert_eq!(bench.device.backend(), Backend::Threads);
    let parts = ["write 4096+4096 durably", "write 5632+2560 durably", "write 7168+1024 durably"];
    assert_eq!(bench.arrives(write(8, 8, true)), parts);
    let content = bench.witness.content();
    assert!(content[4096..8192].iter().all(|byte| *byte == 7));
}

/// A file system with blocks of 4096 bytes that does not report its alignment.
#[test]
fn parts_of_large_logical_sectors_keep_their_neighbours() {
    for backend in [Backend::Uring, Backend::Threads] {
        let Some(bench) = Bench::new(backend, Behaviour { alignment: 4096, ..ORDINARY }) else {
            continue;
        };
        assert!(bench.device.direct());
        assert_eq!(bench.device.logical_sector(), Sectors(8));
        for (request, changed, arrives) in [
            (write(8, 8, true), 8..16, "write 4096+4096 durably"),
            (write(9, 2, true), 9..11, "write 4096+4096 durably"),
            (write(7, 2, false), 7..9, "write 0+8192"),
            (write(15, 10, true), 15..25, "write 4096+12288 durably"),
            (write(8, 9, true), 8..17, "write 4096+8192 durably"),
        ] {
            bench.witness.fill(1);
            assert_eq!(bench.arrives(request), [arrives]);
            let content = bench.witness.content();
            let sevens = content.chunks_exact(512).map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
                sector[0] == 7
            });
            let sevens: Vec<u64> =
                (0..).zip(sevens).filter(|(_, is)| *is).map(|(n, _)| n).collect();
            assert_eq!(sevens, changed.collect::<Vec<u64>>(), "{arrives}");
        }
        bench.witness.fill(1);
        bench.answer(zeroes(3, 1030, true)).unwrap();
        let content = bench.witness.content();
        let (first, end) = (3 * 512, 1033 * 512);
        let zeroed = content
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == u8::from(!(first..end).contains(&at)));
        assert!(zeroed);
        let read = bench.answer(Request::Read { extent: Extent::new(2, 3) }).unwrap();
        assert_eq!(read.to_bytes().unwrap(), content[2 * 512..5 * 512]);
    }
}
