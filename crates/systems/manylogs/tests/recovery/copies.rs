//! Openings after a crash where several drives hold the same content.

use std::cell::Cell;
use std::rc::Rc;

use manylogs::{DrainOptions, LogPlacement, OpenOptions, Settings, Volume, VolumeConfig};
use manylogs_array::{Members, Mirror};
use manylogs_block::{BlockDevice, Extent, Handle, MemoryDevice, Nanos, Payload, Request, Sectors};
use manylogs_filters::{Delay, Trace};
use manylogs_sim::{Sim, TaskOrder};

use crate::common::{bytes, config, write};

const GROUPS: u64 = 64;
const GROUP: u64 = 4000;
const RECORDS: u64 = 850;
/// The most logs that are opened ahead of their use.
const AHEAD: u64 = 16;
/// Time that a drive takes for a request.
const ANSWER: Nanos = Nanos::from_millis(4);

type Drive = Rc<Trace<Rc<MemoryDevice>>>;

/// A volume with records in many logs, on two drives with the same content, as a crash leaves it.
fn crashed() -> [Drive; 2] {
    let drive = || Rc::new(Trace::new(Rc::new(MemoryDevice::new(Sectors(GROUPS * GROUP)))));
    let drives = [drive(), drive()];
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let members = drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
    sim.block_on(node, async move {
        let mirror = Rc::new(Mirror::new(runtime.clone(), members));
        let volume = Volume::create(runtime.clone(), mirror, &config()).await.unwrap();
        // Each log holds some twenty of them.
        for index in 0..RECORDS {
            volume.submit(write(index * 16, &bytes(7, 16), true)).await.unwrap();
        }
    });
    drives
}

/// Opens the volume on `drives`. Returns the time, and the number of logs that were scanned.
fn opened_on(drives: &[Drive]) -> (Nanos, u64) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let delayed = |drive: &Drive, runtime: &Handle| {
        Rc::new(Delay::new(runtime.clone(), Rc::clone(drive), ANSWER)) as Rc<dyn BlockDevice>
    };
    let members = drives.iter().map(|drive| delayed(drive, &runtime)).collect();
    let took = Rc::new(Cell::default());
    let told = Rc::clone(&took);
    sim.block_on(node, async move {
        let mirror = Rc::new(Mirror::new(runtime.clone(), members));
        let opened = Volume::open(runtime, mirror, &OpenOptions::default()).await;
        let (_, report) = opened.unwrap();
        told.set((report.duration, report.scanned_logs));
    });
    took.get()
}

#[test]
pub(crate) fn what_is_in_doubt_is_written_again_in_many_logs_at_a_time() {
    let drives = crashed();
    let before = drives[0].writes().len();
    let (alone, _) = opened_on(&drives[..1]);
    let written_alone = drives[0].writes().len() - before;
    let (both, logs) = opened_on(&drives);
    assert!(logs > GROUPS / 2, "{logs} logs; {both:?} and {alone:?}");
    let written: Vec<Extent> = drives[0].writes()[before + written_alone..].to_vec();
    // In each log the first record, the last one and the end are in doubt, and so are the root and
    // both superblocks. Logs that were opened ahead of their use get an end, too.
    let settled_places = (written.len() - written_alone) as u64;
    let most = 3 * logs + 3 + AHEAD;
    assert!((3 * logs..=most).contains(&settled_places), "{settled_places} places: {written:?}");
    let settled = Nanos(both.0 - alone.0);
    // Reads and writes of 32 places go together, as do 32 ends. A flush comes after the records,
    // and one after the ends. One after the other they would take eight times as long.
    let rounds = 2 * (2 * logs + 3).div_ceil(32) + (logs + AHEAD).div_ceil(32) + 2;
    assert!(settled <= Nanos(ANSWER.0 * rounds), "{settled:?} for {logs} logs");
}

/// A volume with a single log, of which an epoch of ten records is a small part.
fn one_log() -> VolumeConfig {
    VolumeConfig {
        appends: 2,
        log: Sectors(1600),
        placement: LogPlacement::Single(0.5),
        ..config()
    }
}

/// Runs `work` on the drives, of which `lost` is known.
fn on_drives<T: 'static, F: Future<Output = T> + 'static>(
    drives: &[Drive],
    lost: [bool; 2],
    work: impl FnOnce(Handle, Rc<dyn BlockDevice>) -> F,
) -> T {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let members = drives.iter().map(|drive| {
        let (drive, span) = (Rc::clone(drive), ANSWER);
        Rc::new(Delay::new(runtime.clone(), drive, span)) as Rc<dyn BlockDevice>
    });
    let copies = Members::with_copies(&lost, true);
    let mirror = Rc::new(Mirror::with(runtime.clone(), members.collect(), copies));
    sim.block_on(node, work(runtime, mirror))
}

async fn content(device: &dyn BlockDevice, extent: Extent) -> Payload {
    device.submit(Request::Read { extent }).await.unwrap()
}

#[test]
pub(crate) fn an_epoch_that_may_have_ended_on_another_copy_does_not_go_on() {
    let drive = || Rc::new(Trace::new(Rc::new(MemoryDevice::new(Sectors(8000)))));
    let drives = [drive(), drive()];
    // An epoch of ten short records, all of them dead.
    let log = on_drives(&drives, [false; 2], async |runtime, mirror| {
        let volume = Volume::create(runtime, mirror, &one_log()).await.unwrap();
        for index in 0..10 {
            volume.submit(write(index * 8, &bytes(1, 4), true)).await.unwrap();
        }
        volume.drain(&DrainOptions::default()).await.unwrap();
        volume.layout().regions()[0]
    });
    // Two records of the next epoch are in flight together. A crash leaves them on one drive only.
    let first = Rc::clone(&drives[0]);
    let before = on_drives(&drives, [false; 2], async move |runtime, mirror| {
        let before = content(&*first, log).await;
        let options = OpenOptions::default();
        let (volume, _) = Volume::open(runtime.clone(), mirror, &options).await.unwrap();
        let one = volume.submit(write(200, &bytes(2, 10), true));
        while !first.writes().contains(&Extent { len: Sectors(11), ..log }) {
            runtime.sleep(Nanos::from_millis(1)).await;
        }
        let two = volume.submit(write(240, &bytes(3, 10), true));
        one.await.unwrap();
        two.await.unwrap();
        before
    });
    let first = Rc::clone(&drives[0]);
    on_drives(&drives, [false; 2], async move |runtime, mirror| {
        let torn = Request::write_fua(log, before);
        first.submit(torn).await.unwrap();
        let options = OpenOptions::default();
        let (volume, _) = Volume::open(runtime, mirror, &options).await.unwrap();
        volume.submit(write(300, &bytes(4, 4), true)).await.unwrap();
    });
    // The drive that was read fails.
    on_drives(&drives, [true, false], async |runtime, mirror| {
        let options = OpenOptions::default();
        let (volume, _) = Volume::open(runtime, mirror, &options).await.unwrap();
        let found = content(&volume, Extent::new(300, 4)).await;
        assert_eq!(found.to_bytes(), bytes(4, 4).to_bytes());
    });
}

/// A power cut may leave a change of a closed volume on one drive alone. If the other one is read,
/// the volume is as it was, and stays so without the drive that was read.
#[test]
pub(crate) fn a_change_that_reached_one_copy_alone_is_gone_once_the_other_was_read() {
    let drive = || Rc::new(Trace::new(Rc::new(MemoryDevice::new(Sectors(8000)))));
    let drives = [drive(), drive()];
    let options = OpenOptions::default;
    on_drives(&drives, [false; 2], async move |runtime, mirror| {
        let volume = Volume::create(runtime, mirror, &one_log()).await.unwrap();
        volume.drain(&DrainOptions::default()).await.unwrap();
    });
    on_drives(&drives, [true, false], async move |_, mirror| {
        let changed = VolumeConfig { swap: 0.3, ..one_log() };
        Volume::set_closed(mirror, &Settings::of(&changed), &options()).await.unwrap();
    });
    let swap_without = |lost: [bool; 2]| {
        on_drives(&drives, lost, async move |runtime, mirror| {
            let (volume, _) = Volume::open(runtime, mirror, &options()).await.unwrap();
            volume.config().swap
        })
    };
    let read = swap_without([false; 2]);
    assert!((read - 0.3).abs() > 1e-9, "the first drive was read");
    assert!((swap_without([true, false]) - read).abs() < 1e-9);
}
