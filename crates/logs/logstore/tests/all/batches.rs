//! Batches: a crash keeps or loses each as a whole, and keeps the order within a stream.

use std::collections::BTreeSet;

use manylogs_block::{Extent, Payload, Rng, Sectors};
use manylogs_logstore::ondisk::root::Root;
use manylogs_logstore::store::{Batch, Choice, Logs, NewEntry, Placement, Store, Stream, Versions};
use manylogs_logstore::{AppendSlot, Class, EntryKind, Floors, LogId, RecordSequence, RecordShape};
#[cfg(feature = "plant")]
use manylogs_plant::{self as plant, Bug};

const LOGS: u64 = 6;
const LOG: u64 = 200;
const RECORD: Sectors = Sectors(32);
const STREAMS: u64 = 3;
const BATCHES: u64 = 60;

/// Chooses another log each time, which must not change the order of streams.
struct Anywhere(u64);

impl Placement for Anywhere {
    fn choose(&self, logs: &Logs, needed: Sectors, ready: &dyn Fn(LogId) -> bool) -> Option<LogId> {
        let from = u32::try_from(self.0 % LOGS).unwrap();
        let fits = |id: &LogId| logs.takes(*id, needed) && ready(*id);
        (from..from + 6).map(|id| LogId(id % 6)).find(fits)
    }
}

/// A record that was sent to the device, and whether it arrived.
struct Sent {
    log: LogId,
    sequence: RecordSequence,
    slot: AppendSlot,
    arrived: bool,
}

struct World {
    rng: Rng,
    store: Store,
    sent: Vec<Sent>,
    /// Stream and number of entries of each batch.
    batches: Vec<(Option<Stream>, u64)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let regions: Vec<Extent> = (0..LOGS).map(|i| Extent::new(i * 1000, LOG)).collect();
        let shape = RecordShape::in_log(Sectors(1));
        let logs = Logs::new(&regions, RECORD, shape);
        let mut root = Root::first(regions.len());
        logs.ids().for_each(|log| root.open_around(log, regions.len()));
        let store = Store::new(*b"0123456789abcdef", logs, root, 0);
        Self { rng: Rng::new(seed), store, sent: Vec::new(), batches: Vec::new() }
    }

    /// Puts a batch. Its entries carry the number of the batch as their version.
    fn put(&mut self) {
        let number = self.batches.len() as u64;
        let count = 1 + self.rng.below(5);
        let stream = Stream(u32::try_from(self.rng.below(STREAMS)).unwrap());
        let after = (!self.rng.one_in(4)).then_some(stream);
        let entries = (0..count).map(|i| NewEntry {
            extent: Extent::new(8 * self.rng.below(40), 1 + i % 3),
            kind: EntryKind::Data,
            class: Class::Metadata,
            version: number,
            payload: Some(Payload::tags(100 * number, Sectors(1 + i % 3))),
        });
        let batch = Batch { entries: entries.collect(), after };
        let room = self.store.room_of(&batch);
        if !self.store.fits(room) {
            return;
        }
        self.store.put(batch, room, None);
        self.batches.push((after, count));
    }

    fn send(&mut self) {
        match self.store.choose_log(&Anywhere(self.rng.next_u64())) {
            Some(Choice::Log { log, .. }) => {
                let slots = self.store.gather(log, RECORD);
                let (sequence, slot) = self.store.append(log, slots);
                self.sent.push(Sent { log, sequence, slot, arrived: false });
            }
            Some(Choice::Wait) | None => {}
            other => panic!("{other:?}"),
        }
    }

    /// Lets one record under way arrive; the drive chooses which.
    fn arrive(&mut self) {
        let away: Vec<usize> = (0..self.sent.len()).filter(|i| !self.sent[*i].arrived).collect();
        if away.is_empty() {
            return;
        }
        let index = away[usize::try_from(self.rng.below(away.len() as u64)).unwrap()];
        let sent = &mut self.sent[index];
        sent.arrived = true;
        let (log, sequence) = (sent.log, sent.sequence);
        self.store.record_written(log, sequence);
    }

    /// Found and expected entries of each batch after a power cut now. Records under way may have
    /// arrived. In each log the records count up to the first that did not arrive.
    fn believed(&mut self) -> Vec<(u64, u64)> {
        let arrived: Vec<bool> =
            self.sent.iter().map(|sent| sent.arrived || self.rng.one_in(2)).collect();
        let mut versions = Versions::new(self.store.logs().blank());
        let mut torn = BTreeSet::new();
        let mut found = vec![0; self.batches.len()];
        for (sent, arrived) in self.sent.iter().zip(arrived) {
            if !arrived {
                torn.insert(sent.log);
            }
            if torn.contains(&sent.log) {
                continue;
            }
            versions.take_record(sent.log, &sent.slot.record, Floors::default(), true);
            for entry in &sent.slot.record.entries {
                found[usize::try_from(entry.version).unwrap()] += 1;
            }
        }
        found.into_iter().zip(&self.batches).map(|(found, (_, count))| (found, *count)).collect()
    }

    fn check(&mut self) -> Result<(), String> {
        let believed = self.believed();
        let mut ended = BTreeSet::new();
        for (number, (found, count)) in believed.into_iter().enumerate() {
            if found != 0 && found != count {
                return Err(format!("batch {number}: {found} of {count} entries are believed"));
            }
            let Some(stream) = self.batches[number].0 else { continue };
            if found == 0 {
                ended.insert(stream);
            } else if ended.contains(&stream) {
                return Err(format!("batch {number} of {stream:?} is there without one before"));
            }
        }
        Ok(())
    }
}

fn batches_are_whole_and_in_order(seeds: std::ops::Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..BATCHES {
            match world.rng.below(4) {
                0..2 => world.put(),
                2 => world.send(),
                _ => world.arrive(),
            }
            world.check().map_err(|wrong| format!("seed {seed}: {wrong}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_crash_keeps_batches_whole_and_streams_in_order() {
    batches_are_whole_and_in_order(0..400).unwrap();
}

#[cfg(feature = "plant")]
#[test]
fn that_batches_are_split_or_streams_overtaken_is_noticed() {
    for bug in [Bug::BatchSplit, Bug::StreamSwitchesLog] {
        plant::plant(Some(bug));
        let noticed = batches_are_whole_and_in_order(0..400).is_err();
        plant::plant(None);
        assert!(noticed, "{bug:?}");
    }
}

#[test]
fn all_batches_are_durable_when_all_records_arrived() {
    let mut world = World::new(7);
    for _ in 0..20 {
        world.put();
    }
    while !world.store.entries().pending.is_empty() || !world.store.entries().records.is_empty() {
        world.send();
        world.arrive();
    }
    assert_eq!(world.store.entries().slots.len(), 0);
    assert_eq!(world.store.entries().volatile_sectors, 0);
    assert!(world.believed().iter().all(|(found, count)| found == count));
}

#[test]
fn a_record_that_fails_takes_its_batches_to_another_log_as_they_were() {
    let mut world = World::new(3);
    for _ in 0..10 {
        world.put();
    }
    let waiting = world.store.entries().pending.len();
    world.send();
    let sent = world.sent.pop().unwrap();
    world.store.record_failed(sent.log, sent.sequence);
    assert_eq!(world.store.entries().pending.len(), waiting);
    while !world.store.entries().pending.is_empty() || !world.store.entries().records.is_empty() {
        world.send();
        world.arrive();
    }
    assert!(world.sent.iter().all(|other| other.log != sent.log));
    assert!(world.believed().iter().all(|(found, count)| found == count));
}
