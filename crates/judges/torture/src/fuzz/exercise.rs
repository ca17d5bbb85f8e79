//! Runs all code that reads an image of unknown origin.

use std::cell::Cell;
use std::rc::Rc;

use manylogs::{
    DrainOptions, LeftAs, OpenOptions, Volume, VolumeError, check, identify, inspect_log,
};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, Hint, MemoryDevice, Payload, Request,
    Sectors,
};
use manylogs_logstore::LogId;

use crate::fuzz::image::Image;

/// A pass over an image may read and write at most this many times its size.
const TIMES: u64 = 64;
/// Sectors in one read of the volume.
const PIECE: u64 = 700;

/// A device that panics once its I/O budget is spent.
struct Counting {
    capabilities: Capabilities,
    below: MemoryDevice,
    left: Cell<u64>,
}

impl Counting {
    fn new(image: Image, physical: Sectors) -> Rc<Self> {
        let capabilities = Capabilities {
            capacity: image.sectors,
            physical_sector: physical,
            untorn: physical,
            rotational: true,
            volatile_cache: true,
            native_fua: true,
            discard: true,
            fast_zero: true,
        };
        let below = MemoryDevice::holding(image.sectors, image.media);
        let device = Self { capabilities, below, left: Cell::new(0) };
        device.refill();
        Rc::new(device)
    }

    fn refill(&self) {
        self.left.set(TIMES * self.capabilities.capacity.0);
    }
}

impl BlockDevice for Counting {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        if self.capabilities.check(&request).is_ok() {
            // Each request has a cost, even without data.
            let sectors = 1 + request.extent().unwrap_or_default().len.0;
            let left = self.left.get().checked_sub(sectors);
            self.left.set(left.unwrap_or_else(|| panic!("I/O without end: {request:?}")));
        }
        self.below.submit(request)
    }
}

/// Inspects the image in every way. If it can be opened, reads, writes and drains it. Returns
/// whether it could be opened.
///
/// # Panics
/// If the I/O budget of the image is exceeded, or an opened volume breaks a promise.
pub async fn exercise(runtime: Handle, image: Image, physical: Sectors) -> bool {
    let counting = Counting::new(image, physical);
    let device: Rc<dyn BlockDevice> = Rc::<Counting>::clone(&counting);
    let _ = identify(&device).await;
    let checked = check(&device).await;
    if let Ok((found, _)) = &checked {
        assert!(found.layout.device() <= counting.capabilities.capacity);
        let capacity = found.layout.capacity();
        assert!(found.table.iter().all(|mapped| mapped.extent.end().0 <= capacity.0));
        let _ = found.drain_estimate(None);
        for log in (0..).map(LogId).take(found.layout.regions().len()) {
            counting.refill();
            let _ = inspect_log(&device, log).await;
        }
    }
    counting.refill();
    let opened = open(&runtime, &device).await;
    let Ok(volume) = opened else {
        assert!(checked.is_err() || matches!(opened, Err(VolumeError::Worn)), "only opening fails");
        return false;
    };
    assert!(checked.is_ok(), "only the check fails: {:?}", checked.err());
    use_it(&volume, &counting).await;
    counting.refill();
    if volume.drain(&DrainOptions::default()).await.is_ok() {
        counting.refill();
        let left = identify(&device).await.map(|found| found.left);
        assert_eq!(left, Ok(LeftAs::Drained), "drained");
    }
    counting.refill();
    assert!(check(&device).await.is_ok(), "what was closed can be looked at");
    true
}

async fn open(runtime: &Handle, device: &Rc<dyn BlockDevice>) -> Result<Volume, VolumeError> {
    let mut options = OpenOptions::default();
    let first = Volume::open(runtime.clone(), Rc::clone(device), &options).await;
    let opened = match first {
        Err(VolumeError::Damaged { .. }) => {
            options.accept_damage = true;
            Volume::open(runtime.clone(), Rc::clone(device), &options).await
        }
        opened => opened,
    };
    opened.map(|(volume, _)| volume)
}

/// Reads everything, then writes a little and checks that it is there.
async fn use_it(volume: &Volume, counting: &Counting) {
    let capacity = volume.capabilities().capacity.0;
    for start in (0..capacity).step_by(usize::try_from(PIECE).unwrap_or(1)) {
        counting.refill();
        let extent = Extent::new(start, PIECE.min(capacity - start));
        let found = volume.submit(Request::Read { extent }).await;
        assert!(found.is_err() || found.is_ok_and(|found| found.len() == extent.len));
    }
    for (start, len, fua) in
        [(0, 1, true), (40, 9, true), (100, 300, false), (capacity / 2, 8, true)]
    {
        counting.refill();
        let extent = Extent::new(start, len);
        if start + len > capacity {
            continue;
        }
        let payload = Payload::bytes(vec![0x77; usize::try_from(len * 512).unwrap_or(0)]);
        let write = Request::Write { extent, payload: payload.clone(), fua, hint: Hint::None };
        if volume.submit(write).await.is_ok() {
            let found = volume.submit(Request::Read { extent }).await;
            let same = found.as_ref().is_ok_and(|found| found.to_bytes() == payload.to_bytes());
            assert!(same, "{extent} reads otherwise than it was written: {:?}", found.err());
        }
    }
    let _ = volume.submit(Request::Flush).await;
}
