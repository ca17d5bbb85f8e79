//! A store that is gone for good is forgotten: what only it had reads as errors until it is
//! written, and never as something older.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, MemoryDevice, Nanos, Payload, Request, Rng, Sectors,
    Signal,
};
use manylogs_everest::{
    Answer, Call, CircularStore, Lender, LenderError, Lending, Load, OffloadError, OffloadOptions,
    Offloaded, Policy, Reply, StoreId, StoreOptions,
};
use manylogs_sim::{CrashDisk, CrashDiskConfig, DiskImage, Sim, Survival, TaskOrder};

const BASE: CrashDiskConfig = CrashDiskConfig {
    capacity: Sectors(256 + 800),
    physical_sector: Sectors(8),
    volatile_cache: true,
    native_fua: true,
    latency_max: Nanos(1 << 14),
};
const CAPACITY: u64 = 800;

/// A store in memory, which can be cut off.
#[derive(Clone)]
struct Cut {
    store: Lending,
    cut: Rc<Cell<bool>>,
    progress: Rc<Signal>,
}

impl Lender for Cut {
    fn id(&self) -> StoreId {
        self.store.id()
    }

    fn longest_write(&self) -> Sectors {
        Lender::longest_write(&self.store)
    }

    fn call(&self, call: Call) -> Answer<Reply> {
        let cut = self.clone();
        Box::pin(async move {
            match cut.cut.get() {
                true => Err(LenderError::Unreachable),
                false => cut.store.call(call).await,
            }
        })
    }

    fn load(&self) -> Load {
        Load::default()
    }

    fn progress(&self) -> &Signal {
        &self.progress
    }
}

async fn a_store(runtime: &Handle) -> Cut {
    let disk: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(64 + 9 * 128 + 16)));
    let options = StoreOptions { log: Sectors(128), table: Sectors(0) };
    let made = CircularStore::create(runtime.clone(), vec![disk], options).await;
    let store = Lending::open(made.unwrap(), None).await.unwrap();
    Cut { store, cut: Rc::default(), progress: Rc::default() }
}

/// Without reclaiming in the background, unless `homeward`.
fn options(policy: Policy, homeward: bool) -> OffloadOptions {
    let reclaim_every = if homeward { Nanos::from_millis(50) } else { Nanos(1 << 60) };
    let patience = Nanos::from_secs(1);
    OffloadOptions { policy, patience, reclaim_every, ..OffloadOptions::default() }
}

async fn opened(
    runtime: &Handle,
    base: &CrashDisk,
    stores: &[&Cut],
    options: OffloadOptions,
) -> Result<Offloaded, OffloadError> {
    let lender = |store: &&Cut| -> Rc<dyn Lender> { Rc::new((*store).clone()) };
    let stores = stores.iter().map(lender).collect();
    let volume = Offloaded::open(runtime.clone(), Rc::new(base.clone()), stores, options).await?;
    runtime.sleep(Nanos::from_millis(600)).await;
    Ok(volume)
}

const fn block(number: u64) -> Extent {
    Extent::new(number * 8, 8)
}

fn tags(tag: u64) -> Payload {
    Payload::tags(tag, Sectors(8))
}

async fn put(volume: &Offloaded, number: u64, tag: u64) {
    volume.submit(Request::write_fua(block(number), tags(tag))).await.unwrap();
}

/// The content of a block; `None` if it is a read error that says that it is lost.
async fn get(volume: &Offloaded, number: u64) -> Option<Payload> {
    match volume.submit(Request::Read { extent: block(number) }).await {
        Ok(content) => Some(content),
        Err(IoError::Medium { .. }) => None,
        Err(error) => panic!("block {number}: {error}"),
    }
}

fn simulated<T: 'static, F: Future<Output = T> + 'static>(test: impl FnOnce(Handle) -> F) -> T {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    sim.block_on(node, test(sim.handle(node)))
}

/// A base volume with blocks 0 to 9 home, of which a store that is gone has 2, 3 and 5 in newer
/// versions, and another store 6. The other store has an old version of 3, too.
/// The stores run on `there`.
async fn a_loss(runtime: &Handle, there: &Handle) -> (CrashDisk, Offloaded, Cut, Cut) {
    let base = CrashDisk::new(runtime.clone(), BASE, DiskImage::default());
    Offloaded::create(runtime, Rc::new(base.clone())).await.unwrap();
    let (gone, other) = (a_store(there).await, a_store(there).await);
    let always = options(Policy::Always, false);
    let volume = opened(runtime, &base, &[], options(Policy::Never, false)).await.unwrap();
    for number in 0..10 {
        put(&volume, number, 100 * number + 1).await;
    }
    volume.close().await;
    gone.cut.set(true);
    let volume = opened(runtime, &base, &[&gone, &other], always).await.unwrap();
    put(&volume, 3, 303).await;
    put(&volume, 6, 606).await;
    gone.cut.set(false);
    runtime.sleep(Nanos::from_secs(2)).await;
    other.cut.set(true);
    for number in [2, 3, 5] {
        put(&volume, number, 100 * number + 9).await;
    }
    gone.cut.set(true);
    assert!(volume.submit(Request::Read { extent: block(2) }).await.is_err());
    other.cut.set(false);
    runtime.sleep(Nanos::from_secs(2)).await;
    (base, volume, gone, other)
}

const LOST: [u64; 3] = [2, 3, 5];

/// Whether lost blocks read as errors, and others as they were written last.
async fn is_as_it_should_be(volume: &Offloaded, lost: &[u64]) -> bool {
    for number in (0..10).filter(|number| !lost.contains(number)) {
        let tag = if number == 6 { 606 } else { 100 * number + 1 };
        if !LOST.contains(&number) && get(volume, number).await != Some(tags(tag)) {
            return false;
        }
    }
    for number in lost {
        if get(volume, *number).await.is_some() {
            return false;
        }
    }
    true
}

fn lost_ranges_are_errors() -> bool {
    simulated(|runtime| async move {
        let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
        let id = gone.id();
        let asked = volume.forget(id, false).await.unwrap();
        assert!(!asked.done && asked.lost == [Extent::new(16, 16), block(5)], "{asked:?}");
        assert!(volume.stores().iter().any(|store| store.id == id), "nothing was accepted");
        let forgotten = volume.forget(id, true).await.unwrap();
        assert!(forgotten.done && forgotten.lost == asked.lost);
        assert!(volume.stores().iter().all(|store| store.id != id));
        let mut right = is_as_it_should_be(&volume, &LOST).await;
        volume.close().await;
        // A later opening knows nothing of that store, and does not show what is older.
        let never = options(Policy::Never, false);
        let volume = opened(&runtime, &base, &[&other], never).await.unwrap();
        right &= is_as_it_should_be(&volume, &LOST).await;
        assert_eq!(volume.lost().len(), 2);
        right
    })
}

#[test]
fn what_only_a_forgotten_store_had_reads_as_errors() {
    assert!(lost_ranges_are_errors());
}

/// Whether a written range is there for good, whether it goes home or to a store, and whether the
/// rest of a lost range stays lost.
fn written_ranges_are_lost_no_more() -> bool {
    simulated(|runtime| async move {
        let mut right = true;
        for (cut, homeward) in [(false, false), (true, false), (false, true)] {
            let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
            volume.forget(gone.id(), true).await.unwrap();
            volume.close().await;
            let always = options(Policy::Always, homeward);
            let volume = opened(&runtime, &base, &[&other], always).await.unwrap();
            // Without a store it goes home.
            other.cut.set(cut);
            put(&volume, 3, 333).await;
            put(&volume, 5, 555).await;
            right &= get(&volume, 3).await == Some(tags(333));
            runtime.sleep(Nanos::from_secs(5)).await;
            right &= !homeward || volume.figures().held == Sectors(0);
            volume.close().await;
            other.cut.set(false);
            let never = options(Policy::Never, false);
            let volume = opened(&runtime, &base, &[&other], never).await.unwrap();
            right &= get(&volume, 3).await == Some(tags(333));
            right &= get(&volume, 5).await == Some(tags(555));
            right &= is_as_it_should_be(&volume, &[2]).await;
            right &= !homeward || volume.lost() == [block(2)];
        }
        right
    })
}

#[test]
fn a_lost_range_that_is_written_is_there_for_good() {
    assert!(written_ranges_are_lost_no_more());
}

/// Whether a store loses what it has that is older than a lost range, although it was away when the
/// range was lost: also after a loss of everything, in a later opening.
fn older_versions_go() -> bool {
    simulated(|runtime| async move {
        let mut right = true;
        for is_closed in [false, true] {
            let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
            other.cut.set(true);
            let always = options(Policy::Always, false);
            let (volume, lost) = if is_closed {
                let killed = cut_off(&runtime, &base);
                let lost = forgotten_closed(&runtime, &killed, gone.id()).await;
                volume.close().await;
                other.cut.set(false);
                (opened(&runtime, &killed, &[&other], always).await.unwrap(), lost)
            } else {
                assert!(volume.submit(Request::Read { extent: block(6) }).await.is_err());
                let forgotten = volume.forget(gone.id(), true).await.unwrap();
                other.cut.set(false);
                runtime.sleep(Nanos::from_secs(2)).await;
                (volume, forgotten.lost)
            };
            assert!(!other.store.held(volume.id()).is_empty());
            let home = runtime.within(Nanos::from_secs(60), volume.reclaim()).await;
            right &= home == Some(Ok(())) && other.store.held(volume.id()).is_empty();
            right &= volume.lost() == lost && get(&volume, 3).await.is_none();
        }
        right
    })
}

#[test]
fn what_is_older_than_a_lost_range_goes() {
    assert!(older_versions_go());
}

/// A physical sector of the base goes home as a whole, although a part of it is lost.
#[test]
fn what_shares_a_physical_sector_with_a_loss_goes_home() {
    simulated(|runtime| async move {
        let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
        let half = |nth: u64| Extent::new(16 + 4 * nth, 4);
        let content = Payload::tags(2222, Sectors(4));
        volume.submit(Request::write_fua(half(0), content.clone())).await.unwrap();
        let forgotten = volume.forget(gone.id(), true).await.unwrap();
        assert_eq!(forgotten.lost[0], Extent::new(20, 12));
        let home = runtime.within(Nanos::from_secs(60), volume.reclaim()).await;
        assert_eq!(home, Some(Ok(())));
        assert!(other.store.held(volume.id()).is_empty());
        volume.close().await;
        let never = options(Policy::Never, false);
        let volume = opened(&runtime, &base, &[&other], never).await.unwrap();
        let read = |nth| volume.submit(Request::Read { extent: half(nth) });
        assert_eq!(read(0).await.unwrap(), content);
        assert_eq!(read(1).await.err(), Some(IoError::Medium { extent: half(1) }));
    });
}

/// Whether after a power cut anywhere while a store is forgotten the base still lists it, or the
/// ranges are lost.
fn a_cut_shows_nothing_old() -> bool {
    let mut ends = [0_u32; 2];
    for seed in 0..40 {
        let sim = Sim::new(seed, TaskOrder::Shuffled);
        let (node, there) = (sim.node(), sim.handle(sim.node()));
        let runtime = sim.handle(node);
        let made = async move { a_loss(&runtime, &there).await };
        let (base, volume, gone, other) = sim.block_on(node, made);
        let (id, events) = (gone.id(), base.events());
        let done = Rc::new(Cell::new(false));
        let told = Rc::clone(&done);
        sim.handle(node).spawn(async move {
            volume.forget(id, true).await.unwrap();
            told.set(true);
        });
        let cut = events + seed % 8;
        sim.run_until(|| base.events() >= cut || done.get());
        let was_done = done.get();
        let mut rng = Rng::new(seed);
        let image = base.after_power_cut(Survival::Random, &mut rng);
        sim.kill(node);
        let node = sim.node();
        let runtime = sim.handle(node);
        let right = sim.block_on(node, async move {
            let base = CrashDisk::new(runtime.clone(), BASE, image);
            let never = options(Policy::Never, false);
            match opened(&runtime, &base, &[&other], never).await {
                Ok(volume) => Some(is_as_it_should_be(&volume, &LOST).await),
                Err(OffloadError::MissingStore { store }) if store == id && !was_done => None,
                Err(error) => panic!("{error}"),
            }
        });
        ends[usize::from(right.is_some())] += 1;
        if right == Some(false) {
            return false;
        }
    }
    assert!(ends.iter().all(|count| *count > 3), "cuts before and after: {ends:?}");
    true
}

#[test]
fn a_power_cut_while_a_store_is_forgotten_shows_nothing_old() {
    assert!(a_cut_shows_nothing_old());
}

#[test]
fn a_store_that_answers_is_not_forgotten_and_one_that_returns_holds_nothing() {
    simulated(|runtime| async move {
        let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
        let answers = volume.forget(other.id(), true).await;
        assert_eq!(answers.err(), Some(OffloadError::Answers { store: other.id() }));
        let unknown = volume.forget([7; 16], true).await;
        assert_eq!(unknown.err(), Some(OffloadError::Unknown { store: [7; 16] }));
        volume.forget(gone.id(), true).await.unwrap();
        gone.cut.set(false);
        runtime.sleep(Nanos::from_secs(3)).await;
        assert!(is_as_it_should_be(&volume, &LOST).await, "it is not believed");
        volume.close().await;
        let always = options(Policy::Always, false);
        let volume = opened(&runtime, &base, &[&gone, &other], always).await.unwrap();
        runtime.sleep(Nanos::from_secs(3)).await;
        assert!(is_as_it_should_be(&volume, &LOST).await, "nor by a later opening");
        put(&volume, 2, 222).await;
        assert_eq!(get(&volume, 2).await, Some(tags(222)));
    });
}

/// The disk of a base volume after a power cut. Whoever has it open goes on with the old one.
fn cut_off(runtime: &Handle, base: &CrashDisk) -> CrashDisk {
    let image = base.after_power_cut(Survival::Random, &mut Rng::new(7));
    CrashDisk::new(runtime.clone(), BASE, image)
}

/// What forgetting a store loses of a base volume that is not open; then it is forgotten.
async fn forgotten_closed(runtime: &Handle, base: &CrashDisk, id: StoreId) -> Vec<Extent> {
    let device = || -> Rc<dyn BlockDevice> { Rc::new(base.clone()) };
    let asked = Offloaded::forget_closed(runtime, device(), id, false).await.unwrap();
    assert!(!asked.done, "{asked:?}");
    let done = Offloaded::forget_closed(runtime, device(), id, true).await.unwrap();
    assert!(done.done && done.lost == asked.lost);
    let again = Offloaded::forget_closed(runtime, device(), id, true).await;
    assert_eq!(again.err(), Some(OffloadError::Unknown { store: id }));
    done.lost
}

/// Longer than a store is away when it is noted what it alone has.
const NOTED: Nanos = Nanos::from_secs(5);

/// The base volume was closed, or its server was killed when the store had been away for a while.
#[test]
fn of_a_closed_base_volume_is_lost_what_was_noted() {
    simulated(|runtime| async move {
        for closes in [true, false] {
            let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
            match closes {
                true => volume.close().await,
                false => runtime.sleep(NOTED).await,
            }
            let base = cut_off(&runtime, &base);
            let lost = forgotten_closed(&runtime, &base, gone.id()).await;
            assert_eq!(lost, [Extent::new(16, 16), block(5)]);
            let never = options(Policy::Never, false);
            let volume = opened(&runtime, &base, &[&other], never).await.unwrap();
            assert!(is_as_it_should_be(&volume, &LOST).await);
        }
    });
}

/// Whether what was written since the note is not lost, wherever it went.
fn written_since_is_not_lost() -> bool {
    simulated(|runtime| async move {
        let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
        runtime.sleep(NOTED).await;
        put(&volume, 5, 555).await;
        other.cut.set(true);
        put(&volume, 2, 222).await;
        other.cut.set(false);
        let base = cut_off(&runtime, &base);
        let lost = forgotten_closed(&runtime, &base, gone.id()).await;
        let never = options(Policy::Never, false);
        let volume = opened(&runtime, &base, &[&other], never).await.unwrap();
        assert_eq!(get(&volume, 3).await, None);
        assert_eq!(get(&volume, 5).await, Some(tags(555)), "another store has a newer version");
        lost == [block(3), block(5)] && get(&volume, 2).await == Some(tags(222))
    })
}

#[test]
fn what_was_written_after_the_note_is_not_lost() {
    assert!(written_since_is_not_lost());
}

/// Whether all is lost if the store has come back since it was noted, and got more.
fn a_note_ends_with_the_next_session() -> bool {
    simulated(|runtime| async move {
        let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
        runtime.sleep(NOTED).await;
        gone.cut.set(false);
        runtime.sleep(Nanos::from_secs(2)).await;
        other.cut.set(true);
        put(&volume, 7, 777).await;
        gone.cut.set(true);
        other.cut.set(false);
        let base = cut_off(&runtime, &base);
        let lost = forgotten_closed(&runtime, &base, gone.id()).await;
        let never = options(Policy::Never, false);
        let volume = opened(&runtime, &base, &[&other], never).await.unwrap();
        let hidden = get(&volume, 7).await;
        assert_eq!(get(&volume, 6).await, None, "even what another store has");
        put(&volume, 6, 666).await;
        assert_eq!(get(&volume, 6).await, Some(tags(666)));
        lost == [Extent::new(0, CAPACITY)] && hidden.is_none()
    })
}

#[test]
fn without_a_note_all_is_lost() {
    assert!(a_note_ends_with_the_next_session());
}

/// An opening that fails, because a store is away, leaves the note; one that succeeds does not.
#[test]
fn an_opening_that_fails_leaves_the_note() {
    simulated(|runtime| async move {
        let (base, volume, gone, other) = a_loss(&runtime, &runtime).await;
        volume.close().await;
        let never = || options(Policy::Never, false);
        let away = opened(&runtime, &base, &[&gone, &other], never()).await;
        assert!(matches!(away, Err(OffloadError::Store { .. })), "{away:?}");
        gone.cut.set(false);
        let volume = opened(&runtime, &base, &[&gone, &other], never()).await.unwrap();
        gone.cut.set(true);
        let killed = cut_off(&runtime, &base);
        volume.close().await;
        let lost = forgotten_closed(&runtime, &killed, gone.id()).await;
        assert_eq!(lost, [Extent::new(0, CAPACITY)]);
        let away = opened(&runtime, &base, &[&gone, &other], never()).await;
        assert!(matches!(away, Err(OffloadError::Store { .. })), "{away:?}");
        let lost = forgotten_closed(&runtime, &base, gone.id()).await;
        assert_eq!(lost, [Extent::new(16, 16), block(5)]);
    });
}

/// How a store goes out of use.
#[derive(Clone, Copy)]
enum Goes {
    /// It is forgotten while its base volume is open.
    Forgotten,
    /// It is forgotten when the base volume is not open any more.
    ForgottenClosed,
}

/// Whether an older version does not show up again: another store has it, which is away, and the
/// store that goes has a newer one, which is home.
fn what_it_hid_stays_hidden(goes: Goes) -> bool {
    simulated(move |runtime| async move {
        let base = CrashDisk::new(runtime.clone(), BASE, DiskImage::default());
        Offloaded::create(&runtime, Rc::new(base.clone())).await.unwrap();
        let (gone, other) = (a_store(&runtime).await, a_store(&runtime).await);
        // No store is given up meanwhile.
        let patience = Nanos::from_secs(60);
        let always = OffloadOptions { patience, ..options(Policy::Always, true) };
        let volume = opened(&runtime, &base, &[&gone, &other], always).await.unwrap();
        gone.cut.set(true);
        put(&volume, 1, 10).await;
        gone.cut.set(false);
        other.cut.set(true);
        runtime.sleep(Nanos::from_secs(1)).await;
        put(&volume, 1, 20).await;
        runtime.sleep(Nanos::from_secs(1)).await;
        assert!(!gone.store.held(volume.id()).is_empty(), "it hides the older version");
        assert!(!other.store.held(volume.id()).is_empty(), "which is still there");
        gone.cut.set(true);
        // Now the client learns of it.
        put(&volume, 2, 22).await;
        if let Goes::Forgotten = goes {
            let forgotten = volume.forget(gone.id(), true).await.unwrap();
            assert!(forgotten.done && forgotten.lost.is_empty(), "{forgotten:?}");
        } else {
            runtime.sleep(Nanos::from_secs(5)).await;
        }
        let killed = cut_off(&runtime, &base);
        let lost = match goes {
            Goes::ForgottenClosed => forgotten_closed(&runtime, &killed, gone.id()).await,
            Goes::Forgotten => Vec::new(),
        };
        volume.close().await;
        other.cut.set(false);
        let never = options(Policy::Never, false);
        let volume = opened(&runtime, &killed, &[&other], never).await.unwrap();
        let is_lost = lost.iter().any(|lost| lost.overlaps(block(1)));
        get(&volume, 1).await == (!is_lost).then(|| tags(20))
    })
}

#[test]
fn what_a_store_hid_stays_hidden_when_it_goes() {
    for goes in [Goes::Forgotten, Goes::ForgottenClosed] {
        assert!(what_it_hid_stays_hidden(goes));
    }
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use manylogs_plant::Bug;

    use crate::noticed::assert_noticed;
    assert_noticed(Bug::LossNotBelieved, lost_ranges_are_errors);
    assert_noticed(Bug::LossOutlived, older_versions_go);
    assert_noticed(Bug::LossKept, written_ranges_are_lost_no_more);
    assert_noticed(Bug::LossAfterDrop, a_cut_shows_nothing_old);
    assert_noticed(Bug::NoteWithoutVoids, written_since_is_not_lost);
    assert_noticed(Bug::NotesKept, a_note_ends_with_the_next_session);
    assert_noticed(Bug::ForgottenUncovers, || what_it_hid_stays_hidden(Goes::Forgotten));
    assert_noticed(Bug::NoteUncovers, || what_it_hid_stays_hidden(Goes::ForgottenClosed));
}
