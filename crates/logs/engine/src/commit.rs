//! Group commit: entries that wait together share a record.

use std::rc::Rc;

use manylogs_block::{
    Extent, Handle, Hint, IoError, IoResult, Payload, Request, Sectors, Watchers,
};
use manylogs_logstore::store::Choice;
use manylogs_logstore::{AppendSlot, EntryKind, LogId, PHYSICAL_MOST, RecordSequence};
use manylogs_plant::{self as plant, Bug};

use crate::engine::RecordUnderWay;
use crate::member::{Member, Reader};
use crate::phase::Phase;
use crate::root::lose_member;
use crate::system::{Shared, System};

/// Tasks that are kept for later records: seldom are more in flight.
const RECORD_WATCHERS_KEPT: usize = 2;

/// Makes records take effect when the device has answered.
pub(crate) fn record_watchers<S: System>(runtime: &Handle) -> Watchers<RecordUnderWay<S>> {
    Watchers::new(runtime.clone(), RECORD_WATCHERS_KEPT, |record: RecordUnderWay<S>, result| {
        record_ended(&record, result);
    })
}

/// Writes records for as long as the system is open.
pub async fn run_committer<S: System>(system: Rc<S>) {
    let engine = system.engine();
    loop {
        let signal = engine.commit.wait();
        while commit_one(&system) {}
        system.committer_rests();
        if engine.is_closed() {
            return;
        }
        signal.await;
    }
}

/// Submits a record; false if there is nothing to do, or nothing that may be done now.
fn commit_one<S: System>(system: &Rc<S>) -> bool {
    let mut state = system.engine().state.borrow_mut();
    if !system.is_due(&mut state) {
        return false;
    }
    let Some(log) = choose_log(&**system, &mut state) else { return false };
    let store = state.store_mut();
    let slots = store.gather(log, system.longest_record());
    let (sequence, slot) = store.append(log, slots);
    system.appended(&mut state, log);
    drop(state);
    submit_record(system, Phase::Append, log, sequence, slot);
    true
}

/// The log for the next record. While a record is under way the next goes behind it, because the
/// drive then writes both in one pass, wherever its queue moves the head in between.
fn choose_log<S: System>(system: &S, state: &mut S::State) -> Option<LogId> {
    if let Some(log) = state.store().log_in_use().filter(|_| system.follows()) {
        return Some(log);
    }
    let (log, unopened) = match system.place(state)? {
        Choice::Log { log, unopened } => (Some(log), unopened),
        Choice::Open(log) => (None, Some(log)),
        Choice::Wait => (None, None),
        Choice::Nowhere => {
            // Room is reserved before an entry is queued, so only failed logs lead here.
            state.store_mut().fail("no log accepts records any more");
            system.engine().progress.notify();
            (None, None)
        }
    };
    if let Some(unopened) = unopened
        && system.may_open(state, log.is_some())
    {
        system.engine().open_log(unopened);
    }
    log
}

/// Begins an epoch in `log` if its begin must be durable before entries follow. Resolves when they
/// may follow. A device that must be reset before it is written again is reset there first. False
/// if there was nothing to write; another caller's record may be under way.
pub async fn begin_epoch<S: System>(system: &S, log: LogId) -> bool {
    let engine = system.engine();
    if engine.with_store(|store| store.is_held(log)) && !system.releases(log).await {
        return false;
    }
    let begun = engine.with_store(|store| store.begin_epoch(log));
    let Some((sequence, slot)) = begun else { return false };
    let (device, region) =
        engine.with_store(|store| (store.logs().device(log), store.logs().region(log)));
    let member = engine.members.of(device);
    let payload = untorn(member, slot.target, slot.payload).await;
    let write = Request::write_fua(slot.target, payload);
    let begun = match member.reset(region).await {
        Ok(()) => member.submit(Phase::Reset, write).await,
        Err(error) => Err(error),
    };
    match begun {
        Ok(_) => engine.with_store(|store| store.record_written(log, sequence)),
        Err(error) => record_failed(system, log, sequence, &error),
    }
    // Whoever closes the system waits for what is under way.
    if engine.is_closed() {
        engine.progress.notify();
    }
    true
}

/// The content of a record that begins an epoch, such that a crash leaves the old state of `place`
/// or the new one on any drive. The record is as long as the longest physical sector of a chain or
/// an array, and a drive with a shorter one may write a part of it. Without its first sector, which
/// has the header, the first record of the epoch before would be damaged in front of records that
/// say that it was durable. So the other sectors keep what they hold.
async fn untorn(member: &Member, place: Extent, begin: Payload) -> Payload {
    let at_once = member.capabilities().untorn;
    // A row of an array with parity is written as a whole, and may be torn.
    let is_torn = at_once < place.len && place.len <= PHYSICAL_MOST;
    if !is_torn || member.is_reset_first() || plant::is(Bug::BeginTorn) {
        return begin;
    }
    match member.read(Reader::System, place).await {
        Ok(old) => {
            let mut content = begin.slice(Sectors(0), at_once);
            content.append(old.slice(at_once, place.len - at_once));
            content
        }
        // What cannot be read is not made worse.
        Err(_) => begin,
    }
}

/// Writes the record. Its entries take effect once it and all records before it in the log are
/// durable.
pub fn submit_record<S: System>(
    system: &Rc<S>,
    usually: Phase,
    log: LogId,
    sequence: RecordSequence,
    slot: AppendSlot,
) {
    let engine = system.engine();
    if slot.target.is_empty() {
        // The record consists of its header.
        engine.with_store(|store| store.record_written(log, sequence));
        engine.notify_progress();
        return;
    }
    let phase = phase_of(&**system, usually, &slot);
    let write =
        Request::Write { extent: slot.target, payload: slot.payload, fua: true, hint: Hint::None };
    let device = engine.with_store(|store| store.logs().device(log));
    let written = engine.members.of(device).submit(phase, write);
    let sent = engine.runtime.now();
    let record = RecordUnderWay { system: Rc::clone(system), log, sequence, sent };
    engine.records.watch(written, record);
}

/// The device has answered the write of a record.
fn record_ended<S: System>(record: &RecordUnderWay<S>, result: IoResult) {
    let RecordUnderWay { system, log, sequence, sent } = record;
    let (engine, log, sequence) = (system.engine(), *log, *sequence);
    match result {
        Ok(_) => engine.with_store(|store| store.record_written(log, sequence)),
        Err(error) => record_failed(&**system, log, sequence, &error),
    }
    engine.progress.notify();
    system.record_ended(log, *sent);
}

/// Phase of a record: `usually`, unless its place or its entries call for another.
fn phase_of<S: System>(system: &S, usually: Phase, slot: &AppendSlot) -> Phase {
    let header = &slot.record.header;
    let begins = header.offset.0 == 0;
    let was_reset = || {
        let log = header.log;
        system
            .engine()
            .with_store(|store| store.logs().get(log).is_some_and(|log| log.resets() > 0))
    };
    if begins && was_reset() {
        return Phase::Reset;
    }
    let special = slot.record.entries.iter().find(|entry| entry.kind != EntryKind::Data);
    match (usually, special.map(|entry| entry.kind)) {
        (Phase::Append, Some(EntryKind::Supersede)) => Phase::Supersede,
        (Phase::Append, Some(_)) => Phase::Discard,
        (usually, _) => usually,
    }
}

/// Takes the log out of use. Entries on their way to it are appended elsewhere.
fn record_failed<S: System>(system: &S, log: LogId, sequence: RecordSequence, error: &IoError) {
    let engine = system.engine();
    let device = engine.with_store(|store| {
        store.record_failed(log, sequence);
        store.logs().device(log)
    });
    let goes_on = *error == IoError::Gone
        && (engine.members.of(device).is_gone() || lose_member(system, device));
    let mut state = engine.state.borrow_mut();
    let store = state.store_mut();
    match error {
        // Only this log's sectors are bad, so other logs serve. The root is updated in the
        // background.
        error if error.is_local() => engine.log_wanted.notify(),
        IoError::Gone if goes_on => {}
        error => store.fail_for(error, "records cannot be written"),
    }
    if let Some(reason) = store.read_only() {
        // The entries of this record have no log to go to.
        store.fail(reason);
    }
}
