//! The disk: its cache and the requests in flight.

use manylogs_block::{Extent, Payload, Rng, SECTOR_BYTES, Sector, Sectors, to_usize};
use manylogs_sim::{CrashDiskConfig, DiskImage, PendingFlush, PendingWrite, WriteCache};

/// Bytes in a sector.
const SECTOR: usize = to_usize(SECTOR_BYTES);
/// Above this number of requests in flight, the disk answers one even if others arrive.
const UNDER_WAY_MAX: usize = 12;

/// Answer to a request: the bytes of a read, empty for other requests.
pub(crate) type Reply = Box<dyn FnOnce(Vec<u8>) + Send>;

/// Requests to the disk.
pub(crate) enum Asked {
    Read {
        extent: Extent,
    },
    Write {
        extent: Extent,
        /// The content; without bytes the request writes zeroes.
        bytes: Option<Vec<u8>>,
        /// Whether the data must be durable before the answer.
        fua: bool,
    },
    Flush,
}

enum UnderWay {
    Read(Extent, Reply),
    Write(PendingWrite, bool, Reply),
    Flush(PendingFlush, Reply),
}

/// A disk with a volatile cache, whose requests may overtake one another.
pub(crate) struct Disk {
    cache: WriteCache,
    under_way: Vec<UnderWay>,
    rng: Rng,
}

impl Disk {
    pub(crate) fn new(image: DiskImage, config: CrashDiskConfig, rng: Rng) -> Self {
        let cache = WriteCache::new(image, config.physical_sector, config.volatile_cache);
        Self { cache, under_way: Vec::new(), rng }
    }

    pub(crate) const fn cache(&self) -> &WriteCache {
        &self.cache
    }

    /// Receives a request.
    pub(crate) fn begin(&mut self, asked: Asked, reply: Reply) {
        self.under_way.push(match asked {
            Asked::Read { extent } => UnderWay::Read(extent, reply),
            Asked::Write { extent, bytes, fua } => {
                let payload = bytes.map_or_else(|| Payload::zeroes(extent.len), Payload::bytes);
                UnderWay::Write(self.cache.begin_write(extent, payload), fua, reply)
            }
            Asked::Flush => UnderWay::Flush(self.cache.begin_flush(), reply),
        });
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether a request should be answered although others arrive.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.under_way.len() > UNDER_WAY_MAX || (!self.is_idle() && self.rng.one_in(4))
    }

    /// Answers a random request in flight. The promise of the answer holds before the answer is
    /// given.
    pub(crate) fn answer_one(&mut self) {
        if self.is_idle() {
            return;
        }
        let index = to_usize(self.rng.below(self.under_way.len() as u64));
        match self.under_way.swap_remove(index) {
            UnderWay::Read(extent, reply) => reply(bytes_of(&self.cache.image().read(extent))),
            UnderWay::Write(write, fua, reply) => {
                self.cache.end_write(write, fua);
                reply(Vec::new());
            }
            UnderWay::Flush(flush, reply) => {
                self.cache.end_flush(flush);
                reply(Vec::new());
            }
        }
    }
}

/// The image as bytes. A torn sector holds bytes that no client wrote.
fn bytes_of(content: &Payload) -> Vec<u8> {
    let mut out = Vec::with_capacity(to_usize(content.len().bytes()));
    for sector in content.sectors() {
        match sector {
            Some(Sector::Bytes(bytes)) => out.extend_from_slice(&bytes),
            Some(Sector::Tag(tag)) => {
                out.extend(tag.to_le_bytes().repeat(SECTOR / size_of::<u64>()));
            }
            Some(Sector::Zero) | None => out.resize(out.len() + SECTOR, 0),
        }
    }
    out
}

/// A disk for a small volume, whose logs fill often.
pub(crate) const fn config(physical_sector: Sectors) -> CrashDiskConfig {
    CrashDiskConfig {
        native_fua: true,
        capacity: Sectors(3072),
        physical_sector,
        volatile_cache: true,
        latency_max: manylogs_block::Nanos(1_000_000),
    }
}
