//! The SSD of a chain's tail cache, which stops answering.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{World, holds, write};
use manylogs_block::{
    BlockDevice, Capabilities, Completer, Completion, Nanos, Request, Sectors, completion,
};
use manylogs_gecko::{CacheError, CacheOptions, Chain, ChainSettings};
use manylogs_sim::CrashDisk;

const PER_DRIVE: u64 = 8;
const PIECES: u64 = 30;
const TAG: u64 = 1 << 20;
/// The longest that a read may take while the SSD is silent.
const PATIENCE: Nanos = Nanos::from_millis(1_100);

/// A device that may stop answering.
struct Silent {
    below: CrashDisk,
    is_silent: Cell<bool>,
    /// Requests that are never answered.
    kept: RefCell<Vec<Completer>>,
}

impl BlockDevice for Silent {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        if !self.is_silent.get() {
            return self.below.submit(request);
        }
        let (completer, answer) = completion();
        self.kept.borrow_mut().push(completer);
        answer
    }
}

fn ssd(world: &World) -> Rc<Silent> {
    let (below, is_silent) = (world.disks[4].clone(), Cell::new(false));
    Rc::new(Silent { below, is_silent, kept: RefCell::default() })
}

/// A chain that has written pieces, most of which are on the SSD now.
async fn filled(world: &World, ssd: &Rc<Silent>) -> Chain {
    let chain = world.create(3, false, PIECES).await;
    let device = Rc::clone(ssd) as Rc<dyn BlockDevice>;
    chain.format_cache(&device, CacheOptions { stripe: Sectors(128) }).await.unwrap();
    chain.attach_cache(device).await.unwrap();
    for piece in 0..PIECES {
        write(&chain, piece, TAG).await;
        world.user.sleep(Nanos::from_millis(10)).await;
    }
    chain
}

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    let settings = ChainSettings { cache: Sectors(64), ..ChainSettings::default() };
    crate::common::in_virtual_time(PER_DRIVE, settings, test)
}

fn reads_go_to_the_drives_when_the_ssd_is_silent() {
    in_virtual_time(|world| async move {
        let ssd = ssd(&world);
        let chain = filled(&world, &ssd).await;
        assert!(holds(&chain, 0, TAG).await);
        assert_eq!(chain.flash().unwrap().hits, 1);
        ssd.is_silent.set(true);
        let from = world.user.now();
        assert!(holds(&chain, 1, TAG).await);
        assert!(world.user.now().since(from) < PATIENCE, "the read waited for the SSD");
        let flash = chain.flash().unwrap();
        assert!(flash.is_given_up && flash.is_silent);
        let from = world.user.now();
        for piece in 0..PIECES {
            write(&chain, piece, 2 * TAG).await;
            assert!(holds(&chain, piece, 2 * TAG).await);
        }
        assert!(world.user.now().since(from) < PATIENCE);
        chain.close().await.unwrap();
    });
}

#[test]
fn an_ssd_that_never_answers_holds_no_read() {
    reads_go_to_the_drives_when_the_ssd_is_silent();
}

/// Writes of stripes alone notice it, too, and an opening does not wait for it.
#[test]
fn an_ssd_that_never_answers_holds_neither_writes_nor_an_opening() {
    in_virtual_time(|world| async move {
        let ssd = ssd(&world);
        let chain = filled(&world, &ssd).await;
        ssd.is_silent.set(true);
        let from = world.user.now();
        for piece in 0..PIECES {
            write(&chain, piece, 2 * TAG).await;
        }
        assert!(world.user.now().since(from) < PATIENCE);
        world.user.sleep(PATIENCE).await;
        assert!(chain.flash().unwrap().is_silent);
        chain.close().await.unwrap();
        let chain = world.open(&[0, 1, 2]).await.unwrap();
        let attached = chain.attach_cache(ssd).await;
        assert_eq!(attached, Err(CacheError::Silent));
        assert!(holds(&chain, 0, 2 * TAG).await);
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::{Bug, plant};

    plant(Some(Bug::SilentSsdAwaited));
    let held = std::panic::catch_unwind(reads_go_to_the_drives_when_the_ssd_is_silent);
    plant(None);
    assert!(held.is_err(), "SilentSsdAwaited is not noticed");
}
