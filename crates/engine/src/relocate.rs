//! Emptying a log: what it holds moves as it is to another log, or is renewed at the newest end.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload};
use manylogs_logstore::store::{Live, Relocated, chunk_len, span_of};
use manylogs_logstore::{Headers, LogId, ScanOf, Space, scan};
use manylogs_plant::{self as plant, Bug};

use crate::commit::submit_record;
use crate::member::Reader;
use crate::phase::Phase;
use crate::read::{end_read, read_log};
use crate::system::{Shared, System};
use crate::wait::wait_done;

/// Progress of moving a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The source holds nothing that recovery needs.
    All,
    /// Clients needed the disk, or the target had no more room.
    InPart,
    /// The log holds no live version that can be moved.
    Nothing,
}

/// What the table still has in `log`, in the order of the log: its records tell where to look.
///
/// # Errors
/// If the log cannot be read.
pub async fn live_in<S: System>(system: &S, log: LogId) -> Result<Vec<Live>, IoError> {
    let engine = system.engine();
    let found = engine.with_store(|store| {
        let shape = store.logs().shape();
        if shape.headers == Headers::Apart {
            return Err(store.live_by_table(log));
        }
        let of = ScanOf {
            volume: store.volume(),
            log,
            region: store.logs().region(log),
            physical: shape.physical,
            floor: store.floor(),
            capacity: system.capacity(),
        };
        Ok((of, store.logs().device(log)))
    });
    let (of, device) = match found {
        Ok(found) => found,
        Err(live) => return Ok(live),
    };
    let scanned = scan(engine.members.of(device).device(), of, Payload::default()).await?;
    Ok(engine.with_store(|store| store.live_in(log, &scanned.records)))
}

/// Reads the content of `chunk`, which is in `log`: the part of the log that was read, and what it
/// holds.
async fn read_chunk<S: System>(
    system: &S,
    log: LogId,
    chunk: &[Live],
) -> Result<(Extent, Payload), IoError> {
    let Some(span) = span_of(chunk) else { return Ok(Default::default()) };
    let (read, found) = {
        let mut state = system.engine().state.borrow_mut();
        read_log(system, &mut state, log, span, Reader::System)
    };
    let home = Space::of(chunk[0].extent).1;
    let content = end_read(system, &read, found.await, home)?;
    Ok((read.within, content))
}

/// Copies what recovery needs of `from`, which the caller has set aside, to `to`, and points the
/// table at the copies. Stops, without loss, when [`System::may_move`] says so; what was copied by
/// then stays copied.
///
/// # Errors
/// If the device fails, or the store stops taking entries.
pub async fn move_log<S: System>(system: &Rc<S>, from: LogId, to: LogId) -> Result<Moved, IoError> {
    let live = live_in(&**system, from).await?;
    if live.is_empty() {
        return Ok(Moved::Nothing);
    }
    if !move_supersedes(system, from, to).await? {
        return Ok(Moved::InPart);
    }
    let mut rest = live.as_slice();
    while !rest.is_empty() {
        if !system.may_move().await {
            return Ok(Moved::InPart);
        }
        let (chunk, others) = rest.split_at(chunk_len(rest));
        rest = others;
        let (within, content) = read_chunk(&**system, from, chunk).await?;
        let engine = system.engine();
        let moved =
            engine.with_store(|store| store.relocate((from, to), chunk, (within, &content)));
        match moved {
            Some(moved) => write_moved(system, to, moved).await?,
            None => return Ok(Moved::InPart),
        }
    }
    Ok(Moved::All)
}

async fn move_supersedes<S: System>(
    system: &Rc<S>,
    from: LogId,
    to: LogId,
) -> Result<bool, IoError> {
    let engine = system.engine();
    let count =
        engine.with_store(|store| store.logs().get(from).map_or(0, |log| log.supersedes().len()));
    let mut moved = 0;
    while moved < count && !plant::is(Bug::SwapDropsSupersedes) {
        let relocated = engine.with_store(|store| store.relocate_supersedes(from, to, moved));
        let Some(relocated) = relocated else { return Ok(false) };
        moved += relocated.count;
        write_moved(system, to, relocated).await?;
    }
    engine.with_store(|store| store.clear_supersedes(from));
    Ok(true)
}

/// Writes a record of versions that keep their numbers, and waits until they are durable.
async fn write_moved<S: System>(
    system: &Rc<S>,
    to: LogId,
    moved: Relocated,
) -> Result<(), IoError> {
    let Relocated { sequence, slot, last, .. } = moved;
    system.moving(&mut system.engine().state.borrow_mut(), slot.target.len);
    submit_record(system, Phase::Swap, to, sequence, slot);
    wait_done(&**system, last).await
}

/// Appends the live versions of `log` again as the newest ones; false if there is no room for them
/// now. When the oldest log is renewed, the floor can rise.
///
/// # Errors
/// If the device fails.
pub async fn renew_log<S: System>(system: &S, log: LogId) -> Result<bool, IoError> {
    let live = live_in(system, log).await?;
    let mut rest = live.as_slice();
    while !rest.is_empty() {
        let (chunk, others) = rest.split_at(chunk_len(rest));
        rest = others;
        let (within, content) = read_chunk(system, log, chunk).await?;
        for live in chunk {
            if !renew_when_there_is_room(system, live, within, &content).await {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Renews a version. False if there is no room for it, and none will become free by what is under
/// way.
async fn renew_when_there_is_room<S: System>(
    system: &S,
    live: &Live,
    within: Extent,
    content: &Payload,
) -> bool {
    let engine = system.engine();
    while !renew_one(system, live, within, content) {
        // Entries that share a record need less room than was set aside for them, so room may
        // become free.
        let progress = engine.progress.wait();
        let ends = engine
            .with_store(|store| store.entries().slots.len() == 0 || store.read_only().is_some());
        if ends {
            return false;
        }
        progress.await;
    }
    true
}

/// Appends a version again if it is still live; false if there is no room for it.
fn renew_one<S: System>(system: &S, live: &Live, within: Extent, content: &Payload) -> bool {
    let engine = system.engine();
    let mut state = engine.state.borrow_mut();
    let store = state.store_mut();
    // A version that was overwritten or deleted meanwhile needs no renewal.
    let Some(batch) = store.renewal(live, within, content) else { return true };
    let room = store.room_of(&batch);
    let fits = store.fits(room);
    if fits {
        system.put_renewed(&mut state, batch, room);
        engine.commit.notify();
    }
    fits
}
