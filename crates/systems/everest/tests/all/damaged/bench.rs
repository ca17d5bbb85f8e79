//! A base volume with a store whose disk can be harmed.

use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, Request,
    RequestKind, Sectors,
};
use manylogs_everest::{
    CircularStore, Lender, Lending, OffloadOptions, Offloaded, Policy, StoreOptions,
};
use manylogs_filters::{Delay, Faults, Reported, Rule};
use manylogs_sim::{Sim, TaskOrder};

pub(crate) const BLOCKS: u64 = 20;
/// The range of 64 sectors that one write has.
pub(crate) const LONG: Extent = Extent { start: manylogs_block::Lba(400), len: Sectors(64) };
/// Length of the header of a base volume, and of what clients see.
pub(crate) const HEADER: Sectors = Sectors(256);
const CAPACITY: Sectors = Sectors(16_000);
/// Length of a store's logs and of its device, and where its records lie there.
const LOG: Sectors = Sectors(512);
const LENT: Sectors = Sectors(64 + LOGS.len.0 + 16);
const LOGS: Extent = Extent { start: manylogs_block::Lba(64), len: Sectors(40 * LOG.0) };

pub(crate) type Device = Rc<Faults<MemoryDevice>>;

pub(crate) struct Bench {
    pub(crate) runtime: Handle,
    pub(crate) base: Rc<dyn BlockDevice>,
    /// Below the base: it fails by rule, and takes its time.
    pub(crate) disk: Rc<Delay<Device>>,
    pub(crate) device: Device,
    /// Before the device: how long it takes for each request.
    pub(crate) slow: Rc<Delay<Device>>,
    pub(crate) store: Lending,
}

pub(crate) fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(Bench) -> F + 'static,
) -> T {
    with_sectors_of(1, test)
}

/// A base volume with physical sectors of so many logical ones.
pub(crate) fn with_sectors_of<T: 'static, F: Future<Output = T> + 'static>(
    physical: u64,
    test: impl FnOnce(Bench) -> F + 'static,
) -> T {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let disk = Rc::new(Faults::new(MemoryDevice::new(HEADER + CAPACITY)));
        let disk = Rc::new(Delay::new(runtime.clone(), disk, Nanos(0)));
        let base: Rc<dyn BlockDevice> = Rc::new(Reported::new(Rc::clone(&disk), move |told| {
            Capabilities { physical_sector: Sectors(physical), ..told }
        }));
        Offloaded::create(&runtime, Rc::clone(&base)).await.unwrap();
        let (slow, store) = lent(&runtime).await;
        let device = Rc::clone(slow.below());
        test(Bench { runtime, base, disk, device, slow, store }).await
    })
}

/// A store on a disk that fails by rule, and takes its time.
pub(crate) async fn lent(runtime: &Handle) -> (Rc<Delay<Device>>, Lending) {
    let device = Rc::new(Faults::new(MemoryDevice::new(LENT)));
    let slow = Rc::new(Delay::new(runtime.clone(), device, Nanos(0)));
    let options = StoreOptions { log: LOG, table: Sectors(0) };
    let disks = vec![Rc::clone(&slow) as Rc<dyn BlockDevice>];
    let made = CircularStore::create(runtime.clone(), disks, options).await.unwrap();
    (slow, Lending::open(made, None).await.unwrap())
}

impl Bench {
    /// A client whose writes go to the store. What is there goes home if `homeward`.
    pub(crate) async fn opened(&self, homeward: bool) -> Offloaded {
        match homeward {
            true => self.opened_with(Policy::Never, Nanos::from_millis(10)).await,
            false => self.opened_with(Policy::Always, Nanos(1 << 60)).await,
        }
    }

    /// A client by this policy, a second after its opening. It looks so often whether something
    /// should go home.
    pub(crate) async fn opened_with(&self, policy: Policy, reclaim_every: Nanos) -> Offloaded {
        let patience = Nanos::from_secs(1);
        let options = OffloadOptions { policy, patience, reclaim_every, ..Default::default() };
        self.opened_as(options).await
    }

    /// A client with these options, a second after its opening.
    pub(crate) async fn opened_as(&self, options: OffloadOptions) -> Offloaded {
        let stores: Vec<Rc<dyn Lender>> = vec![Rc::new(self.store.clone())];
        let base = Rc::clone(&self.base);
        let opened = Offloaded::open(self.runtime.clone(), base, stores, options).await.unwrap();
        self.runtime.sleep(Nanos::from_secs(1)).await;
        opened
    }

    /// The base volume without any store.
    pub(crate) async fn alone(&self) -> Offloaded {
        let never = OffloadOptions { policy: Policy::Never, ..OffloadOptions::default() };
        let (runtime, base) = (self.runtime.clone(), Rc::clone(&self.base));
        Offloaded::open(runtime, base, Vec::new(), never).await.unwrap()
    }

    /// Off-loads blocks and the long range, and damages in the store what `spoils` says: sectors of
    /// the base volume.
    pub(crate) async fn spoiled(&self, spoils: &[Extent]) -> Offloaded {
        let volume = self.opened(false).await;
        for number in 0..BLOCKS {
            put(&volume, block(number), 100 * number).await;
        }
        put(&volume, LONG, 9_000).await;
        for spoil in spoils {
            // The tags of the content tell where it lies in the log.
            let of = if LONG.overlaps(*spoil) { 9_000 } else { spoil.start.0 / 8 * 100 };
            let within = if LONG.overlaps(*spoil) { spoil.start.0 - LONG.start.0 } else { 0 };
            spoil_tag(&self.device, (of, within), spoil.len).await;
        }
        volume.close().await;
        self.opened(true).await
    }
}

/// Makes sectors of a store's disk unreadable: those that have the tags `tag` of a write, from the
/// sector `within` on.
pub(crate) async fn spoil_tag(device: &Device, (tag, within): (u64, u64), len: Sectors) {
    let sought = Payload::tags(tag, Sectors(within + 1)).slice(Sectors(within), Sectors(1));
    let mut place = Extent { start: LOGS.start, len: Sectors(1) };
    while device.below().submit(Request::Read { extent: place }).await != Ok(sought.clone()) {
        assert!(place.end() < LOGS.end(), "the store has it");
        place.start = place.end();
    }
    let bad = Rule::new(&[RequestKind::Read], |extent| IoError::Medium { extent });
    device.add(bad.within(Extent { len, ..place }));
}

pub(crate) const fn block(number: u64) -> Extent {
    Extent::new(number * 8, 8)
}

pub(crate) async fn put(volume: &Offloaded, extent: Extent, tag: u64) {
    let payload = Payload::tags(tag, extent.len);
    volume.submit(Request::write_fua(extent, payload)).await.unwrap();
}

pub(crate) async fn get(volume: &Offloaded, extent: Extent) -> Result<Payload, IoError> {
    volume.submit(Request::Read { extent }).await
}

/// Whether all is as it was written but for the lost ranges, which are errors.
pub(crate) async fn is_right_beside(volume: &Offloaded, lost: &[Extent]) -> bool {
    let mut right = true;
    let all = (0..BLOCKS).map(|number| (block(number), 100 * number, 0));
    let long = (0..LONG.len.0 / 8).map(|eighth| {
        (Extent { start: LONG.start + Sectors(8 * eighth), len: Sectors(8) }, 9_000, 8 * eighth)
    });
    for (extent, tag, skip) in all.chain(long) {
        let read = get(volume, extent).await;
        let expected = Payload::tags(tag, LONG.len).slice(Sectors(skip), Sectors(8));
        right &= match lost.iter().any(|lost| lost.overlaps(extent)) {
            true => matches!(read, Err(IoError::Medium { .. })),
            false => read == Ok(expected),
        };
    }
    right
}
