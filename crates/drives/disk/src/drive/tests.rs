//! Scenarios whose outcome follows from the parameters of a profile, and the bugs they catch.

mod planted;
mod power;
mod scenarios;

use super::*;
use crate::mechanics::RandomTerms;
use crate::profile::find;
use crate::queue::Policy;

/// The drive of that name, with random terms off and `change` applied to its options.
fn drive(name: &str, change: impl FnOnce(&mut Options)) -> Drive {
    let profile = find(name).unwrap().unwrap();
    let mut options = Options { terms: RandomTerms::OFF, ..Options::of(&profile) };
    change(&mut options);
    Drive::new(&profile, &options)
}

fn read(tag: u64, start: u64, len: u64) -> Command {
    Command { tag, kind: CommandKind::Read, extent: Extent::new(start, len) }
}

fn write(tag: u64, start: u64, len: u64) -> Command {
    Command { tag, kind: CommandKind::Write { fua: false }, extent: Extent::new(start, len) }
}

fn fua(tag: u64, start: u64, len: u64) -> Command {
    Command { tag, kind: CommandKind::Write { fua: true }, extent: Extent::new(start, len) }
}

fn flush(tag: u64) -> Command {
    Command { tag, kind: CommandKind::Flush, extent: Extent::default() }
}

/// Lets the drive run until it is idle. Returns all events it reported.
fn finish(drive: &mut Drive) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(at) = drive.next_event() {
        drive.advance(at, &mut |event| events.push(event));
    }
    events
}

/// Hands over `command` at `now` and waits for its completion.
fn serve(drive: &mut Drive, now: Time, command: Command) -> Completion {
    drive.submit(now, command).unwrap();
    let mut found = None;
    while found.is_none() {
        let at = drive.next_event().expect("a command in the queue completes");
        drive.advance(at, &mut |event| {
            if let Event::Completed(completion) = event
                && completion.tag == command.tag
            {
                found = Some(completion);
            }
        });
    }
    found.unwrap()
}

fn completions(events: &[Event]) -> Vec<Completion> {
    let completed = |event: &Event| match event {
        Event::Completed(completion) => Some(*completion),
        Event::OnMedium { .. } => None,
    };
    events.iter().filter_map(completed).collect()
}

/// A client that reads one mebibyte after another loses little: the drive sends while it reads, and
/// reads ahead until the next request comes.
#[test]
fn large_reads_one_by_one_come_close_to_the_media_rate() {
    for (name, media_mb_s) in [("cheetah-15k5", 134.5), ("exos-x20", 285.0)] {
        let (mut drive, mut now, reads) = (drive(name, |_| ()), Time(0), 200);
        for tag in 0..reads {
            now = serve(&mut drive, now, read(tag, tag * 2048, 2048)).at + Nanos(500_000);
        }
        let mb_s = (reads << 20) as f64 / 1e6 / (now.0 as f64 / 1e9);
        assert!(mb_s > 0.9 * media_mb_s, "{name}: {mb_s} MB/s");
    }
}

/// The drive reads a stream in order, into whatever requests it is cut and however many wait: the
/// next one costs no revolution, although its first sector is under the head already.
#[test]
fn a_stream_keeps_its_rate_whatever_waits_in_the_queue() {
    for (name, media_mb_s) in [("cheetah-15k5", 134.5), ("exos-x20", 285.0)] {
        for (sectors, waiting) in [(256, 4), (1024, 2), (1024, 8), (2048, 4)] {
            let (mut drive, mut now) = (drive(name, |_| ()), Time(0));
            let (mut submitted, mut completed, reads) = (0, 0, 400_000 / sectors);
            while completed < reads {
                while submitted < (completed + waiting).min(reads) {
                    drive.submit(now, read(submitted, submitted * sectors, sectors)).unwrap();
                    submitted += 1;
                }
                now = drive.next_event().unwrap();
                drive.advance(now, &mut |_| completed += 1);
            }
            let mb_s = (reads * sectors * 512) as f64 / 1e6 / (now.0 as f64 / 1e9);
            let what = format!("{name}, {waiting} x {sectors}: {mb_s:.1} MB/s");
            assert!(mb_s > 0.97 * media_mb_s, "{what}");
        }
    }
}

#[test]
fn the_queue_refuses_more_than_its_depth() {
    let mut drive = drive("cheetah-15k5", |options| options.depth = 2);
    drive.submit(Time(0), read(1, 0, 8)).unwrap();
    drive.submit(Time(0), read(2, 8, 8)).unwrap();
    assert_eq!(drive.submit(Time(0), read(3, 16, 8)), Err(QueueFull(read(3, 16, 8))));
    finish(&mut drive);
    assert!(drive.has_room());
}

#[test]
fn an_elevator_serves_a_sweep_in_address_order() {
    let mut drive = drive("cheetah-15k5", |options| options.policy = Policy::Elevator);
    serve(&mut drive, Time(0), read(0, 100_000_000, 8));
    let now = Time(1_000_000_000);
    drive.submit(now, read(1, 150_000_000, 8)).unwrap();
    drive.advance(now, &mut |_| ());
    for (tag, start) in [(2, 50_000_000), (3, 250_000_000), (4, 200_000_000), (5, 20_000_000)] {
        drive.submit(now, read(tag, start, 8)).unwrap();
    }
    let order: Vec<u64> = completions(&finish(&mut drive)).iter().map(|c| c.tag).collect();
    assert_eq!(order, [1, 4, 3, 2, 5]);
}

#[test]
fn fcfs_serves_in_order_of_arrival() {
    let mut drive = drive("cheetah-15k5", |options| options.policy = Policy::Fcfs);
    for tag in 0..8 {
        drive.submit(Time(tag), read(tag, tag * 35_000_017 % 286_000_000, 8)).unwrap();
    }
    let order: Vec<u64> = completions(&finish(&mut drive)).iter().map(|c| c.tag).collect();
    assert_eq!(order, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_write_waits_for_room_in_a_full_cache() {
    let mut drive = drive("cheetah-15k5", |options| {
        options.write_cache = true;
        options.depth = 32;
    });
    // The buffer holds 13,200 sectors.
    for tag in 0..20 {
        drive.submit(Time(0), write(tag, tag * 10_000_000, 1_000)).unwrap();
    }
    assert!(drive.volatile_sectors().0 <= 13_200);
    let events = finish(&mut drive);
    assert_eq!(completions(&events).len(), 20);
    assert_eq!(events.len(), 40, "each write is acknowledged and later on the medium");
    assert_eq!(drive.volatile_sectors(), Sectors(0));
}

#[test]
fn overlapping_cached_writes_reach_the_medium_as_one() {
    let mut drive = drive("cheetah-15k5", |options| options.write_cache = true);
    for (tag, start) in [(1, 1_000), (2, 1_004), (3, 996)] {
        drive.submit(Time(0), write(tag, start, 8)).unwrap();
    }
    let events = finish(&mut drive);
    let ends: Vec<Time> = events
        .iter()
        .filter_map(|e| if let Event::OnMedium { at, .. } = e { Some(*at) } else { None })
        .collect();
    assert_eq!(ends.len(), 3);
    assert!(ends.iter().all(|at| *at == ends[0]), "no older version can come later: {ends:?}");
    assert_eq!(drive.counters().destages, 1);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let run = |seed| {
        let mut drive = drive("constellation-es3", |options| {
            options.terms = RandomTerms::ON;
            options.seed = seed;
        });
        let mut rng = manylogs_block::Rng::new(9);
        let mut now = Time(0);
        for tag in 0..400 {
            let start = rng.below(1_900_000_000);
            let command = match rng.below(4) {
                0 => read(tag, start, 8),
                1 => write(tag, start, 64),
                2 => fua(tag, start, 8),
                _ => flush(tag),
            };
            now = serve(&mut drive, now, command).at;
        }
        (now, finish(&mut drive))
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).0, run(4).0);
}

#[test]
fn a_pause_takes_the_head_back_to_unverified_writes() {
    let mut drive = drive("cheetah-15k5", |_| ());
    let mut now = serve(&mut drive, Time(0), write(1, 280_000_000, 8)).at;
    now = serve(&mut drive, now, read(2, 1_000, 8)).at;
    serve(&mut drive, now + Nanos::from_millis(100), read(3, 1_000_000, 8));
    assert_eq!(drive.counters().verified, 1);
    let mut without_pause = drive.clone();
    serve(&mut without_pause, now + Nanos::from_millis(200), read(4, 2_000, 8));
    assert_eq!(without_pause.counters().verified, 1, "verified once");
}
