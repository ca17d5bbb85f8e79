//! Parts of modelled drives, stores on them, and the little content that an opening needs.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, MemoryDevice, Payload, Request, Sectors,
};
use manylogs_everest::{CircularStore, DiskLoad, Lending, Meter, Shared, StoreOptions};
use manylogs_filters::Part;

use super::world::EpisodeFailure;

/// What a header of a base volume takes.
pub(crate) const HEADER: Sectors = Sectors(256);
/// A store takes this share of its drive, at its end: 3 per cent.
const STORE: u64 = 33;
/// Length of a store's logs.
pub(crate) const LOG: Sectors = Sectors(16 << 11);

/// Where a drive's store is: its last 3 per cent (the paper, section 4.1).
pub(crate) fn end_of(drive: &dyn BlockDevice) -> Extent {
    let capacity = drive.capabilities().capacity.0;
    let len = capacity / STORE / 8 * 8;
    Extent::new(capacity / 8 * 8 - len, len)
}

/// A store on `extent` of a drive, whose load the drive's meter tells. It has `share` per cent of
/// the drive's time while others wait.
///
/// # Errors
/// If the store cannot be made.
pub(crate) async fn lend(
    runtime: &Handle,
    meter: Meter,
    extent: Extent,
    share: u8,
) -> Result<Lending, EpisodeFailure> {
    let mut device: Rc<dyn BlockDevice> = Rc::new(meter.clone());
    let mut load: Rc<dyn DiskLoad> = Rc::new(meter);
    if share < 100 {
        let shared = Shared::new(runtime.clone(), device, load);
        shared.set_percent(share);
        (device, load) = (Rc::new(shared.clone()), Rc::new(shared));
    }
    let part: Rc<dyn BlockDevice> = Rc::new(Part::new(device, extent));
    let options = StoreOptions { log: LOG, table: Sectors(0) };
    let store = CircularStore::create(runtime.clone(), vec![part], options).await?;
    Ok(Lending::open(store, Some(load)).await?)
}

/// A device whose first sectors have content, although that below keeps none: a header is found
/// there.
pub(crate) struct Beginning {
    below: Rc<dyn BlockDevice>,
    content: MemoryDevice,
    len: Sectors,
}

impl Beginning {
    pub(crate) fn new(below: Rc<dyn BlockDevice>, len: Sectors) -> Self {
        Self { below, content: MemoryDevice::new(len), len }
    }
}

impl BlockDevice for Beginning {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let is_here = request.extent().is_some_and(|extent| extent.end().0 <= self.len.0);
        if !is_here {
            return self.below.submit(request);
        }
        let kept = self.content.submit(request.clone());
        // Reads wait for the device all the same.
        let timed = self.below.submit(request);
        Completion::of_others(async move {
            let content: Payload = kept.await?;
            timed.await?;
            Ok(content)
        })
    }
}
