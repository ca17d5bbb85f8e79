use std::task::Waker;

use manylogs_block::{
    Extent, Hint, IoError, LocalTask, Media, MemoryDevice, Nanos, Payload, RequestKind, Rng,
    Runtime, Time, TimeOfDay, to_usize,
};
use manylogs_filters::{Delay, Faults, Reported, Rule, Trace};
use manylogs_sim::{NodeId, Sim, TaskOrder};
use manylogs_storage::{FileDevice, OpenMode, OpenOptions, Reactor, create_image};

use super::*;
use crate::profile::find;

fn cheetah() -> Profile {
    find("cheetah-15k5").unwrap().unwrap()
}

fn world() -> (Sim, NodeId) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    (sim, node)
}

fn random_extent(rng: &mut Rng, capacity: u64) -> Extent {
    let len = 1 + rng.below(64);
    Extent::new(rng.below(capacity - len), len)
}

fn random_request(rng: &mut Rng, tag: u64, capacity: u64) -> Request {
    let (extent, fua) = (random_extent(rng, capacity), rng.one_in(2));
    match rng.below(8) {
        0 => Request::Flush,
        1 => Request::write_zeroes(extent, fua),
        2..5 => {
            let payload = Payload::tags(tag << 8, extent.len);
            Request::Write { extent, payload, fua, hint: Hint::None }
        }
        _ => Request::Read { extent },
    }
}

/// Returns the answer times of many requests, submitted at random times: up to a dozen together,
/// and then more than the drive's queue holds.
fn times(device: impl FnOnce(Handle) -> Rc<dyn BlockDevice>) -> Vec<Time> {
    let (sim, node) = world();
    let runtime = sim.handle(node);
    let device = device(runtime.clone());
    let answered = Rc::new(RefCell::new(vec![Time(0); 300]));
    let (trail, clock) = (Rc::clone(&answered), runtime.clone());
    let waits: Vec<_> = sim.block_on(node, async move {
        let mut rng = Rng::new(3);
        let mut waits = Vec::new();
        for index in 0..300 {
            let pause = if index < 200 { rng.below(2 * 5_000_000) } else { 0 };
            runtime.sleep(Nanos(pause)).await;
            let request = random_request(&mut rng, index, 200_000_000);
            let completion = device.submit(request);
            let (trail, clock) = (Rc::clone(&trail), clock.clone());
            let done = manylogs_block::Signal::default();
            waits.push(done.wait());
            runtime.spawn(async move {
                completion.await.unwrap();
                trail.borrow_mut()[to_usize(index)] = clock.now();
                done.notify();
            });
        }
        waits
    });
    sim.block_on(node, async move {
        for wait in waits {
            wait.await;
        }
    });
    answered.take()
}

#[test]
fn in_virtual_time_it_takes_the_times_of_the_model() {
    let profile = cheetah();
    for write_cache in [false, true] {
        let options = Options { write_cache, ..Options::of(&profile) };
        let bare = times(|runtime| Rc::new(ModelledDrive::new(runtime, &profile, &options)));
        let mut drive = None;
        let emulated = times(|runtime| {
            let content = Rc::new(MemoryDevice::new(Sectors(200_000_000)));
            let made = EmulatedDrive::new(runtime, &profile, &options, content).unwrap();
            Rc::new(drive.insert(made).clone())
        });
        assert_eq!(bare, emulated);
        let report = drive.unwrap().lateness();
        assert_eq!((report.all.requests, report.all.max), (300, Nanos(0)), "{report}");
    }
}

/// Checks random requests, one after the other, against a simple store with the same requests.
async fn agrees_with_reference(device: Rc<dyn BlockDevice>, seed: u64, requests: u64) {
    // Few sectors, so that most requests hit sectors that others wrote.
    let (mut rng, mut media) = (Rng::new(seed), Media::default());
    for index in 0..requests {
        let extent = random_extent(&mut rng, 400);
        let bytes = vec![u8::try_from(index % 251).unwrap(); to_usize(extent.len.bytes())];
        let payload = Payload::bytes(bytes);
        let request = match rng.below(4) {
            0 => Request::write_zeroes(extent, false),
            1 => Request::write_fua(extent, payload.clone()),
            2 => Request::Flush,
            _ => Request::Read { extent },
        };
        let answer = device.submit(request.clone()).await.unwrap();
        match request {
            Request::WriteZeroes { .. } => media.zero(extent),
            Request::Write { .. } => media.write(extent, &payload),
            Request::Read { .. } => {
                assert_eq!(answer.to_bytes(), media.read(extent).to_bytes(), "{extent}");
            }
            _ => assert!(answer.is_empty()),
        }
    }
}

#[test]
fn what_was_written_or_zeroed_is_read() {
    let (sim, node) = world();
    let content = Rc::new(MemoryDevice::new(Sectors(400)));
    let profile = cheetah();
    let options = Options::of(&profile);
    let drive = EmulatedDrive::new(sim.handle(node), &profile, &options, content).unwrap();
    sim.block_on(node, agrees_with_reference(Rc::new(drive), 7, 500));
}

/// A content that answers late and records the requests it gets; sector 13 cannot be read.
type Slow = Trace<Delay<Faults<Reported<MemoryDevice>>>>;

fn slow(runtime: &Handle, takes: Nanos, volatile_cache: bool) -> Rc<Slow> {
    let claims = |told| Capabilities { volatile_cache, ..told };
    let content = Faults::new(Reported::new(MemoryDevice::new(Sectors(400)), claims));
    let error = |extent| IoError::Medium { extent };
    content.add(Rule::new(&[RequestKind::Read], error).within(Extent::new(13, 1)));
    Rc::new(Trace::new(Delay::new(runtime.clone(), content, takes)))
}

#[test]
fn a_content_slower_than_the_drive_is_told_and_voids_the_run() {
    let (sim, node) = world();
    let runtime = sim.handle(node);
    let content = slow(&runtime, Nanos::from_millis(100), false);
    let profile = cheetah();
    let drive = EmulatedDrive::new(runtime, &profile, &Options::bare(&profile), content).unwrap();
    let device = drive.clone();
    let errors = sim.block_on(node, async move {
        let read = |start| device.submit(Request::Read { extent: Extent::new(start, 1) });
        (read(12).await.err(), read(13).await.err(), read(14).await.err())
    });
    assert_eq!(errors, (None, Some(IoError::Medium { extent: Extent::new(13, 1) }), None));
    let report = drive.lateness();
    assert_eq!((report.by_content.requests, report.by_timer.requests), (3, 0));
    assert!(report.is_void() && report.all.p50 > Nanos::from_millis(85), "{report}");
    drive.forget_lateness();
    assert_eq!(drive.lateness(), LatenessReport::default());
}

#[test]
fn without_a_write_cache_the_content_makes_writes_durable() {
    let profile = cheetah();
    for (write_cache, durable) in [(false, true), (true, false)] {
        let (sim, node) = world();
        let content = slow(&sim.handle(node), Nanos(0), true);
        let options = Options { write_cache, ..Options::of(&profile) };
        let below = Rc::clone(&content) as Rc<dyn BlockDevice>;
        let drive = EmulatedDrive::new(sim.handle(node), &profile, &options, below).unwrap();
        let told = drive.capabilities();
        assert_eq!(
            (told.volatile_cache, told.discard, told.rotational),
            (write_cache, false, true)
        );
        let extent = Extent::new(0, 8);
        sim.block_on(node, async move {
            drive.submit(Request::write_zeroes(extent, false)).await.unwrap();
            drive.submit(Request::Discard { extent, fua: false }).await.unwrap();
        });
        let expected =
            [Request::write_zeroes(extent, durable), Request::Discard { extent, fua: durable }];
        assert_eq!(content.requests(), expected);
    }
}

#[test]
fn a_content_larger_than_the_drive_is_refused() {
    let (sim, node) = world();
    let profile = cheetah();
    let content = Rc::new(MemoryDevice::new(Sectors(300_000_000)));
    let options = Options::of(&profile);
    let made = EmulatedDrive::new(sim.handle(node), &profile, &options, content);
    assert_eq!(made.unwrap_err().content, Sectors(300_000_000));
}

/// A runtime whose timers are late, as on a busy machine.
struct Late {
    on_time: Handle,
    by: Nanos,
}

impl Runtime for Late {
    fn now(&self) -> Time {
        self.on_time.now()
    }

    fn time_of_day(&self) -> TimeOfDay {
        self.on_time.time_of_day()
    }

    fn wake_at(&self, deadline: Time, waker: &Waker) {
        self.on_time.wake_at(deadline + self.by, waker);
    }

    fn spawn(&self, task: LocalTask) {
        self.on_time.spawn(task);
    }

    fn random(&self) -> u64 {
        self.on_time.random()
    }
}

/// The drive's own completion times of requests that are submitted every `gap`, or all at once.
fn own_times(options: &Options, gap: Nanos, late: Nanos) -> Vec<Time> {
    let (sim, node) = world();
    let on_time = sim.handle(node);
    let runtime = Handle::new(Rc::new(Late { on_time: on_time.clone(), by: late }));
    let drive = ModelledDrive::new(runtime, &cheetah(), options);
    sim.block_on(node, async move {
        // The drive's task runs from the beginning, as in real use.
        on_time.sleep(Nanos(1)).await;
        let mut rng = Rng::new(9);
        let mut asked = Vec::new();
        for tag in 0..100 {
            let due = Rc::new(Cell::default());
            let request = random_request(&mut rng, tag, 200_000_000);
            asked.push((drive.submit_noting(&request, Rc::clone(&due)), due));
            if gap > Nanos(0) {
                on_time.sleep(gap).await;
            }
        }
        let mut times = Vec::new();
        for (completion, due) in asked {
            completion.await.unwrap();
            times.push(due.get());
        }
        times
    })
}

#[test]
fn late_timers_do_not_make_the_drive_slower() {
    let profile = cheetah();
    for options in [
        Options::bare(&profile),
        Options { write_cache: true, ..Options::of(&profile) },
        Options { write_cache: false, ..Options::of(&profile) },
    ] {
        // The gaps are chosen so that no request arrives at the exact time of another event.
        for gap in [Nanos(0), Nanos(1_234_567), Nanos(7_654_321)] {
            let on_time = own_times(&options, gap, Nanos(0));
            for late in [Nanos(40_000), Nanos(3_000_001)] {
                assert_eq!(on_time, own_times(&options, gap, late), "{gap:?} late {late:?}");
            }
        }
    }
}

/// On the real clock, over a file: the test asserts content and order, never speed.
#[test]
fn on_the_real_clock_it_keeps_content_and_never_answers_early() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let profile = cheetah();
    create_image(&path, Sectors(400), true).unwrap();
    let reactor = Reactor::new().unwrap();
    let file = FileDevice::open(&reactor, &path, &OpenOptions::new(OpenMode::Exclusive)).unwrap();
    let options = Options::of(&profile);
    let runtime = reactor.handle();
    let drive = EmulatedDrive::new(runtime.clone(), &profile, &options, Rc::new(file)).unwrap();
    let device = drive.clone();
    reactor.block_on(async move {
        agrees_with_reference(Rc::new(device.clone()), 11, 60).await;
        // Four writes of the same sectors, each sent after the answer to the one before, beside
        // many reads.
        let extent = Extent::new(100, 8);
        for byte in 1..=4_u8 {
            let reads: Vec<_> = (0..20)
                .map(|index| device.submit(Request::Read { extent: Extent::new(index * 16, 8) }))
                .collect();
            let payload = Payload::bytes(vec![byte; 4096]);
            device.submit(Request::write_fua(extent, payload.clone())).await.unwrap();
            let read = device.submit(Request::Read { extent }).await.unwrap();
            assert_eq!(read.to_bytes(), payload.to_bytes());
            for read in reads {
                assert_eq!(read.await.unwrap().len(), Sectors(8));
            }
        }
        // On average the medium needs at least half a revolution.
        let begin = runtime.now();
        for index in 0..10 {
            let payload = Payload::zeroes(Sectors(1));
            let extent = Extent::new(37 * index, 1);
            device.submit(Request::write_fua(extent, payload)).await.unwrap();
        }
        assert!(runtime.now().since(begin) > Nanos::from_millis(5));
    });
    assert!(drive.lateness().all.requests >= 60 + 4 * 22 + 10);
}
