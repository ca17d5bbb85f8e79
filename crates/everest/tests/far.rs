//! A client whose store is behind a link that can be cut.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, Request, Sectors, Signal,
};
use manylogs_everest::{
    Answer, CircularStore, Found, Lender, LenderError, OffloadOptions, Offloaded, Range,
    StoreOptions, Version,
};
use manylogs_logstore::Space;
use manylogs_sim::{Order, Sim};

const BASE: Space = Space(3);
const THERE: Nanos = Nanos::from_millis(1);
const TIMEOUT: Nanos = Nanos::from_millis(500);

/// A store at the other end of a link.
#[derive(Clone)]
struct Far {
    runtime: Handle,
    store: CircularStore,
    link: Rc<Link>,
}

/// Requests pass, and answers, if the link is whole when they do.
#[derive(Default)]
struct Link {
    cut: Cell<bool>,
    /// Calls that nobody answered.
    lost: Cell<u64>,
    /// The link is whole again, or the store told of progress.
    progress: Signal,
}

impl Far {
    /// Asks after the way there, and answers after the way back. What arrived is done, whether or
    /// not its answer arrives.
    fn ask<T: 'static>(
        &self,
        call: impl FnOnce(&CircularStore) -> Answer<T> + 'static,
    ) -> Answer<T> {
        let far = self.clone();
        Box::pin(async move {
            let lost = |far: &Self| {
                far.link.lost.set(far.link.lost.get() + 1);
                far.runtime.sleep(TIMEOUT)
            };
            far.runtime.sleep(THERE).await;
            if far.link.cut.get() {
                lost(&far).await;
                return Err(LenderError::Unreachable);
            }
            let answer = call(&far.store).await;
            far.runtime.sleep(THERE).await;
            if far.link.cut.get() {
                lost(&far).await;
                return Err(LenderError::Unreachable);
            }
            far.link.progress.notify();
            answer
        })
    }

    fn set_cut(&self, cut: bool) {
        self.link.cut.set(cut);
        self.link.progress.notify();
    }
}

impl Lender for Far {
    fn longest_write(&self) -> Sectors {
        self.store.longest_write()
    }

    fn write(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
        content: Option<Payload>,
    ) -> Answer<()> {
        self.ask(move |store| Lender::write(store, base, extent, version, content))
    }

    fn delete(&self, base: Space, extent: Extent, version: Version) -> Answer<()> {
        self.ask(move |store| Lender::delete(store, base, extent, version))
    }

    fn read(&self, base: Space, extent: Extent) -> Answer<Vec<Found>> {
        self.ask(move |store| Lender::read(store, base, extent))
    }

    fn oldest(&self, base: Space, most: usize) -> Answer<Vec<Range>> {
        self.ask(move |store| Lender::oldest(store, base, most))
    }

    fn is_crowded(&self) -> bool {
        false
    }

    fn progress(&self) -> &Signal {
        &self.link.progress
    }
}

fn block(number: u64) -> Extent {
    Extent::new(number * 8, 8)
}

async fn put(volume: &Offloaded, number: u64, tag: u64) -> Result<Payload, IoError> {
    volume.submit(Request::write_fua(block(number), Payload::tags(tag, Sectors(8)))).await
}

async fn get(volume: &Offloaded, number: u64) -> Result<Payload, IoError> {
    volume.submit(Request::Read { extent: block(number) }).await
}

#[test]
fn a_store_that_cannot_be_reached_has_not_failed() {
    let sim = Sim::new(1, Order::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    sim.block_on(node, async move {
        let disk: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(64 + 9 * 128 + 16)));
        let options = StoreOptions { log: Sectors(128) };
        let store = CircularStore::create(runtime.clone(), vec![disk], options).await.unwrap();
        let far = Far { runtime: runtime.clone(), store, link: Rc::default() };
        let base: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(800)));
        let options = OffloadOptions { base: BASE, reclaim_every: Nanos::from_millis(50) };
        far.set_cut(true);
        let lender = || -> Rc<dyn Lender> { Rc::new(far.clone()) };
        let unreached = Offloaded::open(runtime.clone(), Rc::clone(&base), lender(), options).await;
        assert_eq!(unreached.err(), Some(LenderError::Unreachable));
        far.set_cut(false);
        let opened = Offloaded::open(runtime.clone(), Rc::clone(&base), lender(), options).await;
        let volume = opened.unwrap();
        for number in 0..20 {
            put(&volume, number, 100 * number + 1).await.unwrap();
        }
        far.set_cut(true);
        let written = put(&volume, 50, 7).await;
        assert_eq!(written.err(), Some(IoError::Transient { extent: block(50) }));
        assert_eq!(get(&volume, 3).await.err(), Some(IoError::Transient { extent: block(3) }));
        // Reclaiming meets the cut link as well.
        runtime.sleep(Nanos::from_secs(5)).await;
        let lost = far.link.lost.get();
        assert!(lost > 2, "{lost} calls were lost");
        far.set_cut(false);
        for number in 0..20 {
            let content = Payload::tags(100 * number + 1, Sectors(8));
            assert_eq!(get(&volume, number).await.unwrap(), content);
        }
        put(&volume, 50, 9).await.unwrap();
        // Reclaiming goes on by itself.
        runtime.sleep(Nanos::from_secs(30)).await;
        assert_eq!(far.store.ranges(BASE), [], "everything went home");
        let home = base.submit(Request::Read { extent: block(19) }).await.unwrap();
        assert_eq!(home, Payload::tags(1901, Sectors(8)));
        assert_eq!(get(&volume, 50).await.unwrap(), Payload::tags(9, Sectors(8)));
        volume.close();
    });
}
