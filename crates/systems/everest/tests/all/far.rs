//! A client whose stores are behind links that can be cut.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, Request, RequestKind,
    Sectors, Signal,
};
use manylogs_everest::{
    Answer, Ask, Call, CircularStore, KeptStore, Lender, LenderError, Lending, Load, OffloadError,
    OffloadOptions, Offloaded, Opening, Policy, Reply, Session, StoreId, StoreOptions, Version,
};
use manylogs_filters::{Delay, Faults, Rule};
use manylogs_logstore::Space;
use manylogs_sim::{Sim, TaskOrder};

const LOG: Sectors = Sectors(128);
const THERE: Nanos = Nanos::from_millis(1);
/// A link that is silent for so long is given up: that of `crates/servers/serve`, looked at each 0.1 s.
const TIMEOUT: Nanos = Nanos::from_millis(1600);

/// A store at the other end of a link.
#[derive(Clone)]
pub(crate) struct Far {
    pub(crate) runtime: Handle,
    pub(crate) store: Lending,
    pub(crate) link: Rc<Link>,
}

/// A link that can be cut. Each call and each answer passes if the link is whole at that time.
#[derive(Default)]
pub(crate) struct Link {
    cut: Cell<bool>,
    /// Calls that nobody answered.
    lost: Cell<u64>,
    /// Notified when the link is cut or whole again, and when a call is answered.
    progress: Signal,
    /// The store that answers now, if it was started anew.
    pub(crate) swapped: RefCell<Option<Lending>>,
}

impl Far {
    fn lost(&self) -> manylogs_block::Sleep {
        self.link.lost.set(self.link.lost.get() + 1);
        self.runtime.sleep(TIMEOUT)
    }

    pub(crate) fn set_cut(&self, cut: bool) {
        self.link.cut.set(cut);
        self.link.progress.notify();
    }
}

impl Lender for Far {
    fn id(&self) -> StoreId {
        self.store.id()
    }

    fn longest_write(&self) -> Sectors {
        Lender::longest_write(&self.store)
    }

    /// The call takes time to the store, and the answer takes time back. A call that arrived is
    /// done, whether or not its answer arrives.
    fn call(&self, call: Call) -> Answer<Reply> {
        let far = self.clone();
        Box::pin(async move {
            far.runtime.sleep(THERE).await;
            if far.link.cut.get() {
                far.lost().await;
                return Err(LenderError::Unreachable);
            }
            let swapped = far.link.swapped.borrow().clone();
            let answer = swapped.as_ref().unwrap_or(&far.store).call(call).await;
            far.runtime.sleep(THERE).await;
            if far.link.cut.get() {
                far.lost().await;
                return Err(LenderError::Unreachable);
            }
            far.link.progress.notify();
            answer
        })
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn progress(&self) -> &Signal {
        &self.link.progress
    }
}

pub(crate) fn block(number: u64) -> Extent {
    Extent::new(number * 8, 8)
}

pub(crate) async fn put(volume: &Offloaded, number: u64, tag: u64) -> Result<Payload, IoError> {
    volume.submit(Request::write_fua(block(number), Payload::tags(tag, Sectors(8)))).await
}

pub(crate) async fn get(volume: &Offloaded, number: u64) -> Result<Payload, IoError> {
    volume.submit(Request::Read { extent: block(number) }).await
}

pub(crate) fn options(policy: Policy) -> OffloadOptions {
    OffloadOptions {
        policy,
        patience: Nanos::from_secs(3),
        reclaim_every: Nanos::from_millis(50),
        ..OffloadOptions::default()
    }
}

/// Options without reclaiming in the background.
pub(crate) fn staying(policy: Policy) -> OffloadOptions {
    OffloadOptions { reclaim_every: Nanos(1 << 60), ..options(policy) }
}

async fn far_store(runtime: &Handle) -> Far {
    let disk: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(64 + 9 * 128 + 16)));
    let made = CircularStore::create(
        runtime.clone(),
        vec![disk],
        StoreOptions { log: LOG, table: Sectors(0) },
    );
    let store = Lending::open(made.await.unwrap(), None).await.unwrap();
    Far { runtime: runtime.clone(), store, link: Rc::default() }
}

pub(crate) async fn opened(
    runtime: &Handle,
    base: &Rc<dyn BlockDevice>,
    stores: &[&Far],
    options: OffloadOptions,
) -> Result<Offloaded, OffloadError> {
    let lender = |far: &&Far| -> Rc<dyn Lender> { Rc::new((*far).clone()) };
    let stores = stores.iter().map(lender).collect();
    Offloaded::open(runtime.clone(), Rc::clone(base), stores, options).await
}

pub(crate) fn in_virtual_time<F: Future<Output = ()> + 'static>(test: impl FnOnce(Handle) -> F) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    sim.block_on(node, test(sim.handle(node)));
}

pub(crate) async fn a_base(runtime: &Handle) -> Rc<dyn BlockDevice> {
    let base: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(256 + 800)));
    Offloaded::create(runtime, Rc::clone(&base)).await.unwrap();
    base
}

/// A base whose header is in its first 256 sectors, and that can be made to fail.
async fn a_failing_base(runtime: &Handle) -> (Rc<Faults<MemoryDevice>>, Rc<dyn BlockDevice>) {
    let faults = Rc::new(Faults::new(MemoryDevice::new(Sectors(256 + 800))));
    let base = Rc::clone(&faults) as Rc<dyn BlockDevice>;
    Offloaded::create(runtime, Rc::clone(&base)).await.unwrap();
    (faults, base)
}

fn writes_fail(within: Extent) -> Rule {
    Rule::new(&[RequestKind::Write], |extent| IoError::Transient { extent }).within(within)
}

pub(crate) fn tags(tag: u64) -> Payload {
    Payload::tags(tag, Sectors(8))
}

/// A client with one store, which cannot be reached for a while and holds data.
#[test]
fn a_store_that_cannot_be_reached_has_not_failed() {
    in_virtual_time(|runtime| async move {
        let (base, far) = (a_base(&runtime).await, far_store(&runtime).await);
        let never = staying(Policy::Always);
        let volume = opened(&runtime, &base, &[&far], never).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        for number in 0..20 {
            put(&volume, number, 100 * number + 1).await.unwrap();
        }
        volume.close().await;
        far.set_cut(true);
        let unreached = opened(&runtime, &base, &[&far], never).await;
        let (store, source) = (far.id(), LenderError::Unreachable);
        assert_eq!(unreached.err(), Some(OffloadError::Store { store, source }));
        assert!(matches!(
            opened(&runtime, &base, &[], never).await,
            Err(OffloadError::MissingStore { .. })
        ));
        far.set_cut(false);
        let volume = opened(&runtime, &base, &[&far], options(Policy::Always)).await.unwrap();
        far.set_cut(true);
        // Writes go on, also over ranges that the store holds; only reads of these wait, and fail.
        put(&volume, 50, 7).await.unwrap();
        put(&volume, 4, 8).await.unwrap();
        let from = runtime.now();
        assert_eq!(get(&volume, 3).await.err(), Some(IoError::Transient { extent: block(3) }));
        let waited = runtime.now().since(from);
        assert!((Nanos::from_secs(3)..Nanos::from_secs(5)).contains(&waited), "{waited:?}");
        for (number, tag) in [(50, 7), (4, 8), (60, 0)] {
            let content = if tag == 0 { Payload::zeroes(Sectors(8)) } else { tags(tag) };
            assert_eq!(get(&volume, number).await.unwrap(), content);
        }
        far.set_cut(false);
        for number in (0..20).filter(|number| *number != 4) {
            assert_eq!(get(&volume, number).await.unwrap(), tags(100 * number + 1));
        }
        put(&volume, 50, 9).await.unwrap();
        // Reclaiming goes on by itself.
        runtime.sleep(Nanos::from_secs(30)).await;
        assert_eq!(volume.figures().held, Sectors(0), "everything went home");
        let home = base.submit(Request::Read { extent: Extent::new(256 + 19 * 8, 8) }).await;
        assert_eq!(home.unwrap(), tags(1901));
        assert_eq!(get(&volume, 50).await.unwrap(), tags(9));
        volume.close().await;
        // Nothing is in any store, so that none is asked for.
        let alone = opened(&runtime, &base, &[], options(Policy::Never)).await.unwrap();
        assert_eq!(get(&alone, 4).await.unwrap(), tags(8));
    });
}

/// With two copies no request fails or waits long when a store is gone, and nothing is lost when it
/// stays away.
#[test]
fn one_of_two_stores_may_go() {
    in_virtual_time(|runtime| async move {
        let base = a_base(&runtime).await;
        let (one, two) = (far_store(&runtime).await, far_store(&runtime).await);
        let two_copies = OffloadOptions { copies: 2, ..options(Policy::Always) };
        let volume = opened(&runtime, &base, &[&one, &two], two_copies).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        for number in 0..20 {
            put(&volume, number, 100 * number + 1).await.unwrap();
        }
        two.set_cut(true);
        let mut longest = Nanos(0);
        for number in 0..30 {
            let from = runtime.now();
            if number < 20 {
                assert_eq!(get(&volume, number).await.unwrap(), tags(100 * number + 1));
            }
            put(&volume, number, 100 * number + 50).await.unwrap();
            let waited = runtime.now().since(from);
            assert!(waited < Nanos::from_secs(2), "{waited:?} for {number}");
            longest = longest.max(waited);
        }
        println!("a store is gone: clients waited at most {longest:?}");
        runtime.sleep(Nanos::from_secs(60)).await;
        volume.close().await;
        // The header says that the versions in the second store are void, so they do not count. (An
        // opening still waits for this store.)
        two.set_cut(false);
        let volume = opened(&runtime, &base, &[&one, &two], two_copies).await.unwrap();
        for number in 0..30 {
            assert_eq!(get(&volume, number).await.unwrap(), tags(100 * number + 50));
        }
        volume.reclaim().await.unwrap();
        runtime.sleep(Nanos::from_secs(2)).await;
        assert_eq!(one.store.store().ranges(Space(0)), []);
        assert_eq!(two.store.store().ranges(Space(0)), []);
    });
}

/// A store is cut off for an hour while it holds data. Clients go on meanwhile, and all is home
/// within a minute of the end.
#[test]
fn after_an_hour_of_partition_all_is_home_within_a_minute() {
    in_virtual_time(|runtime| async move {
        let base = a_base(&runtime).await;
        let (one, two) = (far_store(&runtime).await, far_store(&runtime).await);
        let volume = opened(&runtime, &base, &[&one, &two], options(Policy::Always)).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        // The second store takes writes while the first cannot be reached.
        one.set_cut(true);
        for number in 0..60 {
            put(&volume, number, 100 * number + 1).await.unwrap();
        }
        one.set_cut(false);
        two.set_cut(true);
        let held = volume.figures().held;
        assert!(held >= Sectors(8 * 20), "{held:?} are cut off");
        let mut longest = Nanos(0);
        for minute in 0..60 {
            for number in 60..70 {
                let from = runtime.now();
                put(&volume, number, 1000 * number + 10 * minute).await.unwrap();
                assert_eq!(get(&volume, number).await.unwrap(), tags(1000 * number + 10 * minute));
                longest = longest.max(runtime.now().since(from));
            }
            runtime.sleep(Nanos::from_secs(60)).await;
        }
        assert!(longest < Nanos::from_secs(2), "{longest:?}");
        let waits = volume.figures().held;
        assert!(
            waits > Sectors(0) && waits <= held,
            "what is cut off waits: {waits:?} of {held:?}"
        );
        two.set_cut(false);
        let from = runtime.now();
        while volume.figures().held > Sectors(0) {
            runtime.sleep(Nanos::from_millis(10)).await;
        }
        let took = runtime.now().since(from);
        println!("{waits:?} were cut off; clients waited at most {longest:?}; home after {took:?}");
        assert!(took < Nanos::from_secs(60), "{took:?}");
        for number in 0..60 {
            assert_eq!(get(&volume, number).await.unwrap(), tags(100 * number + 1));
        }
    });
}

/// Of two openings of one base the store serves the newer one. Of a base and its copy it serves the
/// one that came first. An old image is refused.
fn refused_openings() -> Vec<bool> {
    let seen = Rc::new(std::cell::RefCell::new(Vec::new()));
    let refused = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let (base, far) = (a_base(&runtime).await, far_store(&runtime).await);
        let whole = Extent::new(0, base.capabilities().capacity.0);
        let image = base.submit(Request::Read { extent: whole }).await.unwrap();
        let copy: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(whole.len));
        copy.submit(Request::write_fua(whole, image.clone())).await.unwrap();
        let never = staying(Policy::Always);
        let first = opened(&runtime, &base, &[&far], never).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&first, 1, 10).await.unwrap();
        // The copy is opened as often as the base was.
        let of_copy = opened(&runtime, &copy, &[&far], never).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        let gone = get(&of_copy, 1).await.err() == Some(IoError::Gone);
        refused.borrow_mut().push(gone);
        let second = opened(&runtime, &base, &[&far], never).await.unwrap();
        assert_eq!(get(&second, 1).await.unwrap(), tags(10));
        // The first opening learns that another one has the base.
        drop(put(&first, 2, 20).await);
        runtime.sleep(Nanos::from_secs(1)).await;
        assert_eq!(put(&first, 2, 20).await.err(), Some(IoError::Gone));
        put(&second, 3, 30).await.unwrap();
        // The old image of the base, with the list of the stores: one opening behind.
        copy.submit(Request::write_fua(whole, image)).await.unwrap();
        let of_old = opened(&runtime, &copy, &[&far], never).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        let gone = get(&of_old, 1).await.err() == Some(IoError::Gone);
        refused.borrow_mut().push(gone);
    });
    seen.take()
}

#[test]
fn a_store_serves_the_newest_opening_only() {
    assert_eq!(refused_openings(), [true, true]);
}

/// Calls that overtake one another, sent straight to a store: whether it refuses an older version.
fn older_version_refused() -> bool {
    let seen = Rc::new(Cell::new(false));
    let refused = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let far = far_store(&runtime).await;
        let opening = Opening { incarnation: 1, token: 5 };
        let session = Session { opening, number: 1 };
        let ask = |number, ask| far.store.call(Call { base: [7; 16], session, number, ask });
        let claimed = ask(0, Ask::Claim { lineage: vec![opening] }).await;
        assert_eq!(claimed, Ok(Reply::Held(Vec::new())));
        let write = |version| {
            let (extent, content) = (block(1), Some(tags(version * 100)));
            Ask::Write { extent, version: Version::new(1, version), content }
        };
        ask(1, write(2)).await.unwrap();
        assert_eq!(ask(1, write(2)).await, Err(LenderError::Repeated));
        refused.set(ask(0, write(1)).await == Err(LenderError::Newer));
    });
    seen.get()
}

#[test]
fn a_store_keeps_the_newer_of_two_versions() {
    assert!(older_version_refused());
}

/// Whether a call that arrives twice is done once: a write that arrives again after its deletion.
fn a_call_is_done_once() -> bool {
    let seen = Rc::new(Cell::new(false));
    let once = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let far = far_store(&runtime).await;
        let opening = Opening { incarnation: 1, token: 5 };
        let session = Session { opening, number: 1 };
        let ask = |number, ask| far.store.call(Call { base: [7; 16], session, number, ask });
        ask(0, Ask::Claim { lineage: vec![opening] }).await.unwrap();
        let (extent, version) = (block(1), Version::new(1, 1));
        let write = Ask::Write { extent, version, content: Some(tags(100)) };
        ask(0, write.clone()).await.unwrap();
        ask(1, Ask::Delete { extent, version }).await.unwrap();
        drop(ask(0, write).await);
        once.set(far.store.held([7; 16]).is_empty());
    });
    seen.get()
}

/// Whether a write of an ended session is refused: its client counts on that.
fn an_ended_session_is_refused() -> bool {
    let seen = Rc::new(Cell::new(false));
    let refused = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let far = far_store(&runtime).await;
        let opening = Opening { incarnation: 1, token: 5 };
        let ask = |session, number, ask| {
            let session = Session { opening, number: session };
            far.store.call(Call { base: [7; 16], session, number, ask })
        };
        for session in 1..3 {
            ask(session, 0, Ask::Claim { lineage: vec![opening] }).await.unwrap();
        }
        let (extent, version) = (block(1), Version::new(1, 1));
        let late = ask(1, 0, Ask::Write { extent, version, content: Some(tags(100)) }).await;
        refused.set(late.is_err() && far.store.held([7; 16]).is_empty());
    });
    seen.get()
}

/// Whether an opening treats a store's version as void if the range was written while the store
/// could not be reached.
fn void_is_believed() -> bool {
    let seen = Rc::new(Cell::new(false));
    let believed = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let (base, far) = (a_base(&runtime).await, far_store(&runtime).await);
        let never = staying(Policy::Always);
        let volume = opened(&runtime, &base, &[&far], never).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&volume, 1, 10).await.unwrap();
        far.set_cut(true);
        put(&volume, 1, 20).await.unwrap();
        volume.close().await;
        far.set_cut(false);
        let volume = opened(&runtime, &base, &[&far], never).await.unwrap();
        believed.set(get(&volume, 1).await == Ok(tags(20)));
    });
    seen.get()
}

#[test]
fn calls_are_done_once_and_void_versions_count_no_more() {
    assert!(a_call_is_done_once() && an_ended_session_is_refused() && void_is_believed());
}

/// Whether an opening knows the store although a copy of the header is damaged.
fn store_known_from_one_copy() -> bool {
    let seen = Rc::new(Cell::new(true));
    let known = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        for copy in [Extent::new(0, 128), Extent::new(128, 128)] {
            let (base, far) = (a_base(&runtime).await, far_store(&runtime).await);
            let never = staying(Policy::Always);
            let volume = opened(&runtime, &base, &[&far], never).await.unwrap();
            runtime.sleep(Nanos::from_secs(1)).await;
            put(&volume, 1, 10).await.unwrap();
            let zeroes = Payload::zeroes(copy.len);
            base.submit(Request::write_fua(copy, zeroes)).await.unwrap();
            let alone = opened(&runtime, &base, &[], never).await;
            let missing = matches!(alone, Err(OffloadError::MissingStore { .. }));
            known.set(known.get() && missing);
        }
    });
    seen.get()
}

#[test]
fn either_copy_of_the_header_names_the_stores() {
    assert!(store_known_from_one_copy());
}

/// Whether a store is sent nothing while the base's header cannot be written to list it.
fn unlisted_store_gets_nothing() -> bool {
    let seen = Rc::new(Cell::new(false));
    let empty = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let far = far_store(&runtime).await;
        let (faults, base) = a_failing_base(&runtime).await;
        let volume = opened(&runtime, &base, &[&far], options(Policy::Always)).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        faults.add(writes_fail(Extent::new(0, 256)));
        // The write goes home, or fails.
        drop(put(&volume, 1, 10).await);
        empty.set(far.store.clients().iter().all(|(_, held)| *held == Sectors(0)));
        faults.clear();
        put(&volume, 1, 11).await.unwrap();
        assert_eq!(get(&volume, 1).await.unwrap(), tags(11));
    });
    seen.get()
}

#[test]
fn a_store_is_listed_before_it_gets_anything() {
    assert!(unlisted_store_gets_nothing());
}

/// Whether a client that is closed during a write of the header does not overwrite a later
/// opening's header.
fn closing_waits_for_the_header() -> bool {
    let seen = Rc::new(Cell::new(false));
    let kept = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let far = far_store(&runtime).await;
        let memory = MemoryDevice::new(Sectors(256 + 800));
        let delay = Rc::new(Delay::new(runtime.clone(), memory, Nanos(0)));
        let base = Rc::clone(&delay) as Rc<dyn BlockDevice>;
        Offloaded::create(&runtime, Rc::clone(&base)).await.unwrap();
        let first = opened(&runtime, &base, &[&far], options(Policy::Always)).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        delay.set(Nanos::from_millis(50));
        let written = first.submit(Request::write_fua(block(1), tags(10)));
        runtime.sleep(Nanos::from_millis(10)).await;
        delay.set(Nanos(0));
        first.close().await;
        let never = staying(Policy::Never);
        let second = opened(&runtime, &base, &[&far], never).await.unwrap();
        runtime.sleep(Nanos::from_millis(200)).await;
        drop((written.await, second));
        let copy = |from| base.submit(Request::Read { extent: Extent::new(from, 128) });
        let (one, other) = (copy(0).await.unwrap(), copy(128).await.unwrap());
        // The number of openings is there, see docs/format.md.
        let openings = one.to_bytes().unwrap()[12..16] == 2_u32.to_le_bytes();
        kept.set(openings && one == other);
    });
    seen.get()
}

#[test]
fn a_closed_client_writes_no_header() {
    assert!(closing_waits_for_the_header());
}

/// Whether everything goes home by itself although the base fails for a while.
fn reclaimed_after_an_error() -> bool {
    let seen = Rc::new(Cell::new(false));
    let home = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let far = far_store(&runtime).await;
        let (faults, base) = a_failing_base(&runtime).await;
        let volume = opened(&runtime, &base, &[&far], options(Policy::Always)).await.unwrap();
        faults.add(writes_fail(Extent::new(256, 800)));
        runtime.sleep(Nanos::from_millis(20)).await;
        put(&volume, 1, 10).await.unwrap();
        runtime.sleep(Nanos::from_secs(5)).await;
        assert_eq!(volume.figures().held, Sectors(8), "nothing goes home yet");
        faults.clear();
        runtime.sleep(Nanos::from_secs(5)).await;
        home.set(volume.figures().held == Sectors(0));
    });
    seen.get()
}

#[test]
fn reclaiming_goes_on_after_an_error() {
    assert!(reclaimed_after_an_error());
}

/// Adds a store to an open base volume. Whether an opening, which is told what the header keeps,
/// then finds all that the store holds.
fn added_store_is_kept() -> bool {
    let seen = Rc::new(Cell::new(false));
    let kept = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let (base, far) = (a_base(&runtime).await, far_store(&runtime).await);
        let never = staying(Policy::Always);
        let volume = opened(&runtime, &base, &[], never).await.unwrap();
        put(&volume, 1, 10).await.unwrap();
        assert_eq!(volume.figures().offloaded, 0, "there is no store");
        let added = volume.add(Rc::new(far.clone()), "unix:/run/far#1").await;
        assert_eq!(added, Ok(true));
        // A crash now would not undo it.
        let label = Offloaded::identify(&runtime, Rc::clone(&base)).await.unwrap().unwrap();
        let named = KeptStore { id: far.id(), address: "unix:/run/far#1".to_owned() };
        let is_durable = label.kept == [named.clone()];
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&volume, 2, 20).await.unwrap();
        put(&volume, 1, 11).await.unwrap();
        assert_eq!(volume.figures().offloaded, 2);
        let stores = volume.stores();
        assert!(stores.len() == 1 && stores[0].is_kept && stores[0].is_listed, "{stores:?}");
        volume.close().await;
        let label = Offloaded::identify(&runtime, Rc::clone(&base)).await.unwrap().unwrap();
        kept.set(is_durable && label.kept == [named]);
        let volume = opened(&runtime, &base, &[&far], never).await.unwrap();
        for (number, tag) in [(1, 11), (2, 20)] {
            assert_eq!(get(&volume, number).await.unwrap(), tags(tag));
        }
    });
    seen.get()
}

#[test]
fn a_store_that_is_added_is_kept() {
    assert!(added_store_is_kept());
}

/// A store that is removed takes no more writes, is emptied, and is then forgotten by the base.
#[test]
fn a_store_that_is_removed_goes_home_first() {
    in_virtual_time(|runtime| async move {
        let base = a_base(&runtime).await;
        let (one, two) = (far_store(&runtime).await, far_store(&runtime).await);
        let volume = opened(&runtime, &base, &[], options(Policy::Always)).await.unwrap();
        assert_eq!(volume.add(Rc::new(two.clone()), "unix:/two").await, Ok(true));
        assert_eq!(volume.add(Rc::new(one.clone()), "unix:/one").await, Ok(true));
        runtime.sleep(Nanos::from_secs(1)).await;
        for number in 0..20 {
            put(&volume, number, 100 * number + 1).await.unwrap();
        }
        assert!(volume.stores()[0].held > Sectors(0), "equally idle: the first takes writes");
        // Clients go on meanwhile.
        let writing = volume.clone();
        runtime.spawn(async move {
            for number in 0..200 {
                put(&writing, 20 + number % 40, 7000 + 8 * number).await.unwrap();
            }
        });
        volume.remove(two.id(), false).await.unwrap();
        assert_eq!(two.store.store().ranges(Space(0)), []);
        let label = Offloaded::identify(&runtime, Rc::clone(&base)).await.unwrap().unwrap();
        assert!(label.kept.len() == 1 && label.kept[0].id == one.id(), "{label:?}");
        assert!(!label.stores.contains(&two.id()), "{label:?}");
        assert_eq!(volume.stores().len(), 1);
        two.set_cut(true);
        for number in 0..20 {
            assert_eq!(get(&volume, number).await.unwrap(), tags(100 * number + 1));
        }
        let unknown = OffloadError::Unknown { store: [7; 16] };
        assert_eq!(volume.remove([7; 16], false).await, Err(unknown));
        // It may come again.
        two.set_cut(false);
        assert_eq!(volume.add(Rc::new(two.clone()), "unix:/two").await, Ok(false));
        runtime.sleep(Nanos::from_secs(5)).await;
        for number in 0..40 {
            put(&volume, number, 100 * number + 2).await.unwrap();
        }
        assert!(volume.stores()[0].held > Sectors(0), "{:?}", volume.stores());
    });
}

/// A base volume has up to 16 stores.
#[test]
fn more_stores_than_a_base_volume_can_have_are_refused() {
    in_virtual_time(|runtime| async move {
        let base = a_base(&runtime).await;
        let volume = opened(&runtime, &base, &[], staying(Policy::Never)).await.unwrap();
        for number in 0..16 {
            let far = far_store(&runtime).await;
            assert_eq!(volume.add(Rc::new(far), &format!("unix:/{number}")).await, Ok(true));
        }
        let far = far_store(&runtime).await;
        let added = volume.add(Rc::new(far.clone()), "unix:/more").await;
        assert_eq!(added, Err(OffloadError::Stores));
        let long = volume.add(Rc::new(far), &"x".repeat(600)).await;
        assert_eq!(long, Err(OffloadError::Address { most: 512 }));
    });
}

/// Adds that overlap keep 16 stores together, and the header stays readable.
#[test]
fn adds_that_overlap_keep_no_more_stores_than_there_may_be() {
    in_virtual_time(|runtime| async move {
        let base = a_base(&runtime).await;
        let volume = opened(&runtime, &base, &[], staying(Policy::Never)).await.unwrap();
        let answers = Rc::new(RefCell::new(Vec::new()));
        for number in 0..18 {
            let far = far_store(&runtime).await;
            let (volume, answers) = (volume.clone(), Rc::clone(&answers));
            runtime.spawn(async move {
                let added = volume.add(Rc::new(far), &format!("unix:/{number}")).await;
                answers.borrow_mut().push(added);
            });
        }
        while answers.borrow().len() < 18 {
            runtime.sleep(Nanos::from_millis(1)).await;
        }
        let is_in = |answer: &&Result<bool, OffloadError>| **answer == Ok(true);
        assert_eq!(answers.borrow().iter().filter(is_in).count(), 16, "{answers:?}");
        volume.close().await;
        let label = Offloaded::identify(&runtime, base).await.unwrap().unwrap();
        assert_eq!(label.kept.len(), 16);
    });
}

/// Whether a store holds no more than two blocks of each of two base volumes, and each client has
/// what is beyond at home.
fn store_bounds_each_client() -> bool {
    let seen = Rc::new(Cell::new(false));
    let bounded = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let far = far_store(&runtime).await;
        far.store.bound_each(Sectors(16));
        let bases = [a_base(&runtime).await, a_base(&runtime).await];
        for base in &bases {
            let never = staying(Policy::Always);
            let volume = opened(&runtime, base, &[&far], never).await.unwrap();
            runtime.sleep(Nanos::from_secs(1)).await;
            // The third is a newer version of what is there, and takes no more of the bound.
            for (number, tag) in [(1, 10), (2, 20), (1, 11), (3, 30), (4, 40)] {
                put(&volume, number, tag).await.unwrap();
            }
            for (number, tag) in [(1, 11), (2, 20), (3, 30), (4, 40)] {
                assert_eq!(get(&volume, number).await.unwrap(), tags(tag));
            }
            volume.close().await;
        }
        let held = far.store.clients();
        bounded.set(held.len() == 2 && held.iter().all(|(_, held)| *held == Sectors(16)));
        let volume = opened(&runtime, &bases[0], &[&far], options(Policy::Always)).await.unwrap();
        runtime.sleep(Nanos::from_secs(5)).await;
        assert_eq!(far.store.held(volume.id()), Vec::new(), "what is home takes nothing");
        put(&volume, 5, 50).await.unwrap();
        assert_eq!(far.store.held(volume.id()).len(), 1, "the bound has room again");
    });
    seen.get()
}

#[test]
fn a_store_holds_a_bounded_part_of_each_client() {
    assert!(store_bounds_each_client());
}

/// What stores hold of a base volume has a bound: beyond it ranges go home, and what is held takes
/// newer versions.
#[test]
fn a_base_bounds_what_it_borrows() {
    in_virtual_time(|runtime| async move {
        let (far, base) = (far_store(&runtime).await, a_base(&runtime).await);
        let bounded = |held_max| OffloadOptions { held_max, ..staying(Policy::Always) };
        let volume = opened(&runtime, &base, &[&far], bounded(Sectors(16))).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        for (number, tag) in [(1, 10), (2, 20), (3, 30), (1, 11)] {
            put(&volume, number, tag).await.unwrap();
        }
        let held = far.store.held(volume.id());
        let mut blocks: Vec<_> = held.iter().map(|range| range.extent).collect();
        blocks.sort_by_key(|extent| extent.start);
        assert_eq!(blocks, [block(1), block(2)], "the third went home");
        for (number, tag) in [(1, 11), (2, 20), (3, 30)] {
            assert_eq!(get(&volume, number).await.unwrap(), tags(tag));
        }
    });
}

/// Whether a store that had no room is used again, once there is some, without a new session.
fn full_store_is_asked_again() -> bool {
    let seen = Rc::new(Cell::new(false));
    let again = Rc::clone(&seen);
    in_virtual_time(|runtime| async move {
        let (far, base) = (far_store(&runtime).await, a_base(&runtime).await);
        far.store.bound_each(Sectors(8));
        let volume = opened(&runtime, &base, &[&far], staying(Policy::Always)).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&volume, 1, 10).await.unwrap();
        put(&volume, 2, 20).await.unwrap();
        far.store.bound_each(Sectors(800));
        put(&volume, 3, 30).await.unwrap();
        assert_eq!(far.store.held(volume.id()).len(), 1, "it is left alone for a while");
        runtime.sleep(Nanos::from_secs(2)).await;
        put(&volume, 4, 40).await.unwrap();
        put(&volume, 5, 50).await.unwrap();
        again.set(far.store.held(volume.id()).len() == 3);
    });
    seen.get()
}

#[test]
fn a_store_that_was_full_is_asked_again() {
    assert!(full_store_is_asked_again());
}

/// A store that may hold nothing more of a client keeps what it has, and takes newer versions.
#[test]
fn a_smaller_bound_drops_nothing() {
    in_virtual_time(|runtime| async move {
        let (far, base) = (far_store(&runtime).await, a_base(&runtime).await);
        let never = staying(Policy::Always);
        let volume = opened(&runtime, &base, &[&far], never).await.unwrap();
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&volume, 1, 10).await.unwrap();
        far.store.bound_each(Sectors(0));
        put(&volume, 1, 11).await.unwrap();
        assert_eq!(far.store.store().held(Space(0)), Sectors(8));
        put(&volume, 2, 20).await.unwrap();
        assert_eq!(far.store.store().held(Space(0)), Sectors(8), "this one went home");
        assert_eq!(get(&volume, 1).await.unwrap(), tags(11));
        assert_eq!(get(&volume, 2).await.unwrap(), tags(20));
    });
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::Bug;

    use crate::noticed::assert_noticed;
    assert_noticed(Bug::TokenIgnored, || refused_openings()[0]);
    assert_noticed(Bug::OlderClaimAccepted, || refused_openings()[1]);
    assert_noticed(Bug::OlderVersionTaken, older_version_refused);
    assert_noticed(Bug::ClosedBeforeTasksEnd, closing_waits_for_the_header);
    assert_noticed(Bug::ListedAfterWrite, unlisted_store_gets_nothing);
    assert_noticed(Bug::OldSessionServed, an_ended_session_is_refused);
    assert_noticed(Bug::CallDoneTwice, a_call_is_done_once);
    assert_noticed(Bug::VoidForgotten, void_is_believed);
    assert_noticed(Bug::HeaderInOneCopy, store_known_from_one_copy);
    assert_noticed(Bug::ReclaimEndsAtError, reclaimed_after_an_error);
    assert_noticed(Bug::KeptInMemory, added_store_is_kept);
    assert_noticed(Bug::ClientUnbounded, store_bounds_each_client);
    assert_noticed(Bug::FullForEver, full_store_is_asked_again);
    assert_noticed(Bug::HeldMaxIgnored, || {
        a_base_bounds_what_it_borrows();
        true
    });
}
