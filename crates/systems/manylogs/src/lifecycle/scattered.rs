//! Recognises a drive-managed shingled drive by its speed of scattered writes.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Completion, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, Sectors,
};

/// Number of places that are read and written ...
const PLACES: u64 = 128;
/// ... and the length at each: 4 KiB.
const LEN: Sectors = Sectors(8);
/// Number of first reads that tell whether the device has heads to move.
const FIRST: usize = 8;
/// Requests in the device together, so that it can order them.
const AT_ONCE: usize = 16;
/// Least mean time of a read that needs a seek.
const MOVEMENT: Nanos = Nanos::from_millis(2);
/// A shingled drive takes scattered writes at least this many times as fast as scattered reads,
/// because it writes them one behind the other.
const TIMES: u64 = 4;

/// Times of reads at scattered places, and of writes of the same content there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatteredTimes {
    /// Time of all reads.
    pub reads: Nanos,
    /// Time of all writes, including the flush that made them durable.
    pub writes: Nanos,
}

impl ScatteredTimes {
    /// Whether the times are those of a drive-managed shingled drive whose persistent cache has
    /// room (Aghayev and Desnoyers, "Skylight", FAST 2015: random writes are fast until it is
    /// full). A controller's write cache that survives power cuts looks the same.
    #[must_use]
    pub const fn looks_shingled(&self) -> bool {
        self.writes.0 * TIMES < self.reads.0
    }
}

/// Reads `device` at scattered places and writes the same content there again. So nothing changes,
/// even if a crash interrupts it. Takes 2 or 3 seconds on a disk. `None` if the device has no
/// moving heads, or is too small.
///
/// # Errors
/// If the device fails. A read error means that the sector was bad before.
pub async fn measure_scattered(
    runtime: &Handle,
    device: &Rc<dyn BlockDevice>,
) -> Result<Option<ScatteredTimes>, IoError> {
    let capacity = device.capabilities().capacity;
    let each = capacity.0 / PLACES / LEN.0 * LEN.0;
    if each == 0 {
        return Ok(None);
    }
    let mut rng = Rng::new(capacity.0);
    let mut places: Vec<Extent> = (0..PLACES)
        .map(|part| Extent::new(part * each + rng.below(each / LEN.0) * LEN.0, LEN.0))
        .collect();
    rng.shuffle(&mut places);
    let began = runtime.now();
    let read = |extent: Extent| device.submit(Request::Read { extent });
    let (first, rest) = places.split_at(FIRST);
    let mut contents = some_at_once(first.iter().map(|place| read(*place))).await?;
    if runtime.now().since(began).0 < MOVEMENT.0 * FIRST as u64 {
        return Ok(None);
    }
    contents.extend(some_at_once(rest.iter().map(|place| read(*place))).await?);
    let read_by = runtime.now();
    let writes = places.iter().zip(contents).map(|(extent, payload)| {
        device.submit(Request::Write { extent: *extent, payload, fua: false, hint: Hint::None })
    });
    some_at_once(writes).await?;
    device.submit(Request::Flush).await?;
    let (reads, writes) = (read_by.since(began), runtime.now().since(read_by));
    Ok(Some(ScatteredTimes { reads, writes }))
}

/// Awaits all requests, with only some of them in the device together. Returns the answers.
async fn some_at_once(requests: impl Iterator<Item = Completion>) -> Result<Vec<Payload>, IoError> {
    let mut requests = requests.fuse();
    let (mut under_way, mut answers) = (VecDeque::new(), Vec::new());
    loop {
        while under_way.len() < AT_ONCE
            && let Some(request) = requests.next()
        {
            under_way.push_back(request);
        }
        let Some(next) = under_way.pop_front() else { return Ok(answers) };
        answers.push(next.await?);
    }
}
