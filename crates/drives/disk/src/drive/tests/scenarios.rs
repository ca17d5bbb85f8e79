//! Each scenario returns its complaint, so that it can also be run against a planted bug.

use super::*;

pub(super) type Outcome = Result<(), String>;

fn expect(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(what()) }
}

fn near(found: f64, expected: f64, share: f64, what: &str) -> Outcome {
    let close = (found / expected - 1.0).abs() <= share;
    expect(close, || format!("{what}: expected {expected:.3}, found {found:.3}"))
}

/// Without a cache each of many consecutive small writes comes too late for its sector, because of
/// the acknowledgement in between, and has to wait a revolution.
pub(super) fn back_to_back_writes_miss_a_revolution() -> Outcome {
    let mut drive = drive("cheetah-15k5", |_| ());
    let mut now = serve(&mut drive, Time(0), write(0, 0, 8)).at;
    let begin = now;
    for tag in 1..=100 {
        now = serve(&mut drive, now, write(tag, tag * 8, 8)).at;
    }
    let revolution = drive.mechanism().spindle().period().0 as f64;
    let each = now.since(begin).0 as f64 / 100.0;
    near(each, revolution * (1.0 + 8.0 / 1200.0), 0.01, "ns between writes")
}

/// Reading a track takes a revolution and the skew that follows it.
pub(super) fn sequential_reads_sustain_the_media_rate() -> Outcome {
    let profile = find("cheetah-15k5").unwrap().unwrap();
    let gates = crate::validate::gates(&profile, 1);
    near(gates.sequential_outer_mb_s, 134.5, 0.01, "MB/s outside")?;
    near(gates.sequential_inner_mb_s, 80.7, 0.01, "MB/s inside")
}

/// LBA 155,900 is on the cylinder of LBA 0, one head further.
pub(super) fn heads_of_one_cylinder_need_no_seek() -> Outcome {
    let mut drive = drive("cheetah-15k5", |_| ());
    let now = serve(&mut drive, Time(0), read(1, 0, 8)).at;
    let seek = serve(&mut drive, now, read(2, 155_900, 8)).access.seek;
    expect(seek <= Nanos(1_000), || format!("a seek of {seek:?} on one cylinder"))
}

/// As above, on a drive whose heads take 0.9 ms to change.
pub(super) fn changing_heads_takes_its_time() -> Outcome {
    let mut drive = drive("constellation-es3", |_| ());
    let now = serve(&mut drive, Time(0), read(1, 0, 8)).at;
    let geometry = drive.mechanism().geometry();
    let spt = u64::from(geometry.sectors_per_track(0));
    let other = (0..200)
        .map(|track| track * spt + 10)
        .find(|lba| {
            let place = geometry.locate(manylogs_block::Lba(*lba));
            place.cylinder == 0 && place.head == 1
        })
        .ok_or("no other head on cylinder 0")?;
    let seek = serve(&mut drive, now, read(2, other, 8)).access.seek;
    expect(seek == Nanos(900_000), || format!("heads changed in {seek:?}"))
}

/// A write after a seek settles longer than a read with the same seek.
pub(super) fn writes_settle_longer_than_reads() -> Outcome {
    let seek = |command: Command| {
        let mut drive = drive("cheetah-15k5", |_| ());
        serve(&mut drive, Time(0), command).access.seek.0
    };
    let more = seek(write(1, 200_000_000, 8)) - seek(read(1, 200_000_000, 8));
    expect(more == 371_000, || format!("writes settle {more} ns longer"))
}

/// A cached write takes the electronics' time; one with forced unit access reaches the medium
/// first.
pub(super) fn forced_unit_access_reaches_the_medium() -> Outcome {
    let mut drive = drive("cheetah-15k5", |options| options.write_cache = true);
    let cached = serve(&mut drive, Time(0), write(1, 100_000_000, 8));
    expect(!cached.durable && cached.at < Time(200_000), || format!("cached: {cached:?}"))?;
    let forced = serve(&mut drive, cached.at, fua(2, 200_000_000, 8));
    let took = forced.at.since(cached.at);
    expect(forced.durable && took > Nanos::from_millis(1), || format!("forced in {took:?}"))
}

/// A flush is acknowledged once all writes that were acknowledged before it are on the medium.
pub(super) fn a_flush_waits_for_cached_writes() -> Outcome {
    let mut drive = drive("cheetah-15k5", |options| {
        options.write_cache = true;
        options.depth = 32;
    });
    let mut now = Time(0);
    for tag in 0..10 {
        now = serve(&mut drive, now, write(tag, tag * 20_000_000, 8)).at;
    }
    drive.submit(now, flush(99)).map_err(|full| full.to_string())?;
    let events = finish(&mut drive);
    let is_flush = |e: &Event| matches!(e, Event::Completed(c) if c.tag == 99);
    let flushed = events.iter().position(is_flush).ok_or("no answer to the flush")?;
    let later = events[flushed..].iter().any(|e| matches!(e, Event::OnMedium { .. }));
    expect(!later && drive.volatile_sectors() == Sectors(0), || "flushed too early".to_owned())
}

/// A stream of near commands may delay a far one by the age limit and one command at most.
pub(super) fn shortest_first_starves_nobody() -> Outcome {
    let mut drive = drive("cheetah-15k5", |options| {
        options.read_ahead = false;
        options.age_limit = Nanos::from_millis(100);
    });
    let mut rng = manylogs_block::Rng::new(4);
    let mut now = Time(0);
    drive.submit(now, read(0, 280_000_000, 8)).map_err(|full| full.to_string())?;
    let mut tag = 1;
    while now < Time(400_000_000) {
        while drive.has_room() {
            let command = read(tag, rng.below(1_000_000), 8);
            drive.submit(now, command).map_err(|full| full.to_string())?;
            tag += 1;
        }
        now = drive.next_event().ok_or("an idle drive with a full queue")?;
        let mut far = None;
        drive.advance(now, &mut |event| {
            if let Event::Completed(completion) = event
                && completion.tag == 0
            {
                far = Some(completion.at);
            }
        });
        if let Some(at) = far {
            return expect(at < Time(125_000_000), || format!("served after {at:?}"));
        }
    }
    Err("the far command starved".to_owned())
}

/// Overwritten sectors are not served from older read-ahead data.
pub(super) fn overwritten_sectors_are_read_again() -> Outcome {
    let mut drive = drive("cheetah-15k5", |_| ());
    let now = serve(&mut drive, Time(0), read(1, 1_000, 8)).at + Nanos::from_millis(3);
    let ahead = serve(&mut drive.clone(), now, read(2, 1_100, 8));
    expect(ahead.buffered, || "nothing was read ahead".to_owned())?;
    let now = serve(&mut drive, now, write(3, 1_100, 8)).at;
    let again = serve(&mut drive, now, read(4, 1_100, 8));
    expect(!again.buffered, || "stale sectors".to_owned())
}
