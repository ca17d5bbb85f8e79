//! The host's rules, on modelled drives.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rules;

use manylogs_block::Extent;

use super::*;
use crate::command::CommandKind;
use crate::drive::Options;
use crate::link::{Link, LinkKind};
use crate::planted::{Bug, with};
use crate::profile;

const SATA: Link = Link::usual(LinkKind::Sata);
const SAS: Link = Link::usual(LinkKind::Sas);
const FUA: CommandKind = CommandKind::Write { fua: true };
const WRITE: CommandKind = CommandKind::Write { fua: false };

type Outcome = Result<(), String>;

/// Runs the host until it is idle. Returns all answers, in order.
fn run(host: &mut Host) -> Vec<Completion> {
    let mut answers = Vec::new();
    while let Some(at) = host.next_event() {
        host.advance(at, &mut |completion| answers.push(completion));
    }
    answers
}

fn tags(answers: &[Completion]) -> Vec<u64> {
    answers.iter().map(|answer| answer.tag).collect()
}

fn bare() -> Host {
    let profile = profile::find("cheetah-15k5").unwrap().unwrap();
    Host::new(Drive::new(&profile, &Options::bare(&profile)))
}

/// A host at the end of `link` to a drive that has a write cache.
fn cached(link: Link) -> Host {
    let profile = profile::find("exos-x20").unwrap().unwrap();
    let options = Options { link, write_cache: true, read_ahead: false, ..Options::of(&profile) };
    Host::new(Drive::new(&profile, &options))
}

fn command(tag: u64, kind: CommandKind, start: u64) -> Command {
    let extent = if kind == CommandKind::Flush { Extent::default() } else { Extent::new(start, 8) };
    Command { tag, kind, extent }
}

fn ask(host: &mut Host, asked: &[(u64, CommandKind, u64)]) {
    for &(tag, kind, start) in asked {
        host.submit(Time(0), command(tag, kind, start), false);
    }
}

/// Eight reads spread over the disk.
const READS: [(u64, CommandKind, u64); 8] = {
    let mut reads = [(0, CommandKind::Read, 0); 8];
    let mut tag = 0;
    while tag < 8 {
        reads[tag] = (tag as u64, CommandKind::Read, 4_000_000_000 * tag as u64);
        tag += 1;
    }
    reads
};

#[test]
fn each_of_the_merged_commands_completes() {
    let mut host = bare();
    for tag in 0..9 {
        let kind = CommandKind::Write { fua: tag == 5 };
        host.submit(Time(0), command(tag, kind, tag * 8), false);
    }
    assert_eq!(tags(&run(&mut host)), (0..9).collect::<Vec<_>>());
    assert_eq!(host.drive().counters().writes, 2, "one at once, and the others together");
}

#[test]
fn what_waits_goes_urgent_first_then_by_address() {
    let mut host = bare();
    ask(
        &mut host,
        &[(0, CommandKind::Read, 0), (1, CommandKind::Read, 9_000), (2, CommandKind::Read, 5_000)],
    );
    host.submit(Time(0), command(4, CommandKind::Read, 90_000), true);
    assert_eq!(tags(&run(&mut host)), [0, 4, 2, 1]);
}

#[test]
fn without_a_write_cache_there_is_neither_flush_nor_forced_unit_access() {
    let mut host = bare();
    ask(&mut host, &[(0, FUA, 0), (1, CommandKind::Flush, 0), (2, FUA, 8)]);
    let answers = run(&mut host);
    assert_eq!(tags(&answers), [1, 0, 2], "the flush has nothing to wait for");
    assert_eq!((answers[0].at, answers[0].durable), (Time(0), true));
    let counters = host.drive().counters();
    assert_eq!((counters.flushes, counters.writes), (0, 2));
}

/// On SATA a flush waits for the reads in flight, and one that comes later waits for the flush.
fn a_flush_goes_alone_on_sata() -> Outcome {
    let mut host = cached(SATA);
    ask(&mut host, &READS);
    ask(&mut host, &[(8, CommandKind::Flush, 0), (9, CommandKind::Read, 8)]);
    let answers = run(&mut host);
    let order = tags(&answers);
    let (before, rest) = order.split_at(8);
    if rest != [8, 9] || before.contains(&9) {
        return Err(format!("the flush did not go alone: {order:?}"));
    }
    let flush = answers.iter().find(|answer| answer.tag == 8).unwrap();
    let last_read = answers.iter().filter(|answer| answer.tag < 8).map(|read| read.at).max();
    if last_read < Some(flush.at) { Ok(()) } else { Err("the flush overtook a read".to_owned()) }
}

/// Commands that come while a flush waits or runs share the next one.
fn waiters_share_a_flush() -> Outcome {
    let mut host = cached(SATA);
    ask(&mut host, &[(0, CommandKind::Read, 0), (1, WRITE, 1 << 30), (2, CommandKind::Flush, 0)]);
    ask(
        &mut host,
        &[(3, CommandKind::Flush, 0), (4, CommandKind::Flush, 0), (5, CommandKind::Flush, 0)],
    );
    let order = tags(&run(&mut host));
    let flushes = host.drive().counters().flushes;
    let all = order.len() == 6 && order.ends_with(&[2, 3, 4, 5]);
    if all && flushes == 2 { Ok(()) } else { Err(format!("{flushes} flushes: {order:?}")) }
}

/// A FUA write is on the medium when it is answered, after a flush, even if the host does not know
/// that the drive takes FUA.
fn emulated_forced_unit_access_is_durable() -> Outcome {
    let mut host = cached(SATA);
    ask(&mut host, &[(0, FUA, 1 << 30), (1, FUA, 1 << 33)]);
    let mut answers = Vec::new();
    while let Some(at) = host.next_event() {
        let had = answers.len();
        host.advance(at, &mut |completion| answers.push(completion));
        let volatile = host.drive().volatile_sectors();
        if answers.len() > had && volatile.0 > 0 {
            return Err(format!("answered with {} sectors in the cache", volatile.0));
        }
    }
    let counters = host.drive().counters();
    let shared = (counters.flushes, counters.cached_writes) == (1, 2);
    let durable = answers.iter().all(|answer| answer.durable);
    if shared && durable { Ok(()) } else { Err(format!("{counters:?} {answers:?}")) }
}

const CAUGHT_BY: [(Bug, fn() -> Outcome); 3] = [
    (Bug::FlushOvertakes, a_flush_goes_alone_on_sata),
    (Bug::FlushNotShared, waiters_share_a_flush),
    (Bug::FuaWithoutFlush, emulated_forced_unit_access_is_durable),
];

#[test]
fn the_rules_hold_and_planted_bugs_are_caught() {
    for (bug, scenario) in CAUGHT_BY {
        assert_eq!(scenario(), Ok(()));
        assert!(with(bug, scenario).is_err(), "{bug:?} went unnoticed");
    }
}

#[test]
fn on_sas_a_flush_is_queued_and_the_queue_goes_on() {
    let mut host = cached(SAS);
    let writes: Vec<_> = (0..20).map(|n| (100 + n, WRITE, 1_500_000_000 * n)).collect();
    ask(&mut host, &writes);
    ask(&mut host, &[(8, CommandKind::Flush, 0)]);
    ask(&mut host, &READS);
    assert_eq!(host.drive().outstanding(), 29, "nothing waits in front of the drive");
    let answers = run(&mut host);
    let order = tags(&answers);
    let flush = order.iter().position(|tag| *tag == 8).unwrap();
    let reads = order[..flush].iter().filter(|tag| **tag < 8).count();
    assert!(reads >= 6, "reads go beside the flush: {order:?}");
    assert_eq!(host.drive().counters().flushes, 1);
}

#[test]
fn forced_unit_access_of_which_the_host_is_told_is_queued_as_a_read_is() {
    for kind in LinkKind::ALL {
        let mut host = cached(Link { kind, fua: true });
        ask(&mut host, &READS);
        ask(&mut host, &[(8, FUA, 8), (9, FUA, 16)]);
        assert_eq!(host.drive().outstanding(), 10);
        let answers = run(&mut host);
        assert!(answers.iter().all(|answer| answer.durable && !answer.buffered));
        let counters = host.drive().counters();
        assert_eq!((counters.flushes, counters.cached_writes, counters.writes), (0, 0, 2));
    }
}
