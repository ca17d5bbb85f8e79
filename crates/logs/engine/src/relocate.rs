//! Emptying a log: its versions move unchanged to another log, or are appended again as the newest.

use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload, Sectors};
use manylogs_logstore::store::{Live, Relocated, Store, Ticket, chunk_len};
use manylogs_logstore::{Epoch, Headers, Log, LogId, ScanOf, scan};
use manylogs_plant::{self as plant, Bug};

use crate::commit::submit_record;
use crate::phase::Phase;
use crate::reads::{Chunk, Chunks, len_of};
use crate::system::{Shared, System};
use crate::wait::wait_done;

/// Result of moving a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The source holds nothing that recovery needs.
    All,
    /// Clients needed the disk, or the target had no more room.
    InPart,
    /// The log holds no live version that can be moved.
    Nothing,
}

/// What an interrupted move found in a log, and the next try goes on with. So a log is searched
/// once for what it held then, however often its move is interrupted.
#[derive(Debug, Default)]
pub struct Unmoved(Option<Found>);

#[derive(Debug)]
struct Found {
    log: LogId,
    /// The end of the log when it was searched.
    end: (Epoch, Sectors),
    live: Vec<Live>,
}

fn end_of(log: &Log) -> (Epoch, Sectors) {
    (log.epoch(), log.used())
}

impl Unmoved {
    /// What is left of what was found in `log`.
    fn take(&mut self, store: &Store, log: LogId) -> Option<Found> {
        let found = self.0.take().filter(|found| found.log == log)?;
        Some(Found { live: store.still_live(&found.live), ..found })
    }
}

/// The versions in `log` that the table still names, in the order of the log. They are found by the
/// log's records, or by what the store remembers of its entries.
///
/// # Errors
/// If the log cannot be read.
pub async fn live_in<S: System>(system: &S, log: LogId) -> Result<Vec<Live>, IoError> {
    let engine = system.engine();
    let found = engine.with_store(|store| {
        let shape = store.logs().shape();
        if !system.reads_to_find()
            && let Some(live) = store.live_by_inverse(log)
        {
            return Err(live);
        }
        if shape.headers == Headers::Apart {
            return Err(live_from_memory(store, log));
        }
        let of = ScanOf {
            volume: store.volume(),
            log,
            region: store.logs().region(log),
            physical: shape.physical,
            floor: store.floors().kept,
            capacity: system.capacity(),
        };
        Ok((of, store.logs().device(log)))
    });
    let (of, device) = match found {
        Ok(found) => found,
        Err(live) => return Ok(live),
    };
    let scanned = scan(engine.members.of(device).device(), of, Payload::default()).await?;
    if scanned.begins_absent {
        // On a modelled drive that keeps no content, the scan takes its time but finds no records.
        return Ok(engine.with_store(|store| live_from_memory(store, log)));
    }
    Ok(engine.with_store(|store| store.live_in(log, &scanned.records)))
}

/// The live versions of a log whose records cannot be read. A search of the whole table for each
/// log takes far longer than to note its entries, so the logs note them from now on.
fn live_from_memory(store: &mut Store, log: LogId) -> Vec<Live> {
    store.keep_inverse();
    store.live_by_inverse(log).unwrap_or_else(|| store.live_by_table(log))
}

/// Copies the entries of `from` that recovery needs to `to`, and points the table at the copies.
/// The caller has set `from` aside. When [`System::may_move`] says so, the move stops without loss:
/// the copies made by then stay, and `unmoved` has what the next try goes on with.
///
/// # Errors
/// If the device fails, or the store stops taking entries.
pub async fn move_log<S: System>(
    system: &Rc<S>,
    (from, to): (LogId, LogId),
    unmoved: &mut Unmoved,
) -> Result<Moved, IoError> {
    let engine = system.engine();
    let rest = match engine.with_store(|store| unmoved.take(store, from)) {
        Some(rest) => rest,
        None => find(&**system, from).await?,
    };
    // A log that is empty is reset at once, so its end must be compared before the move.
    let is_all = |store: &mut Store| store.logs().get(from).map(end_of) == Some(rest.end);
    let is_all = engine.with_store(is_all);
    let moved = move_versions(system, (from, to), &rest.live).await?;
    if moved != Moved::InPart && !is_all {
        // What was appended since is for the next try, which searches the log again.
        return Ok(Moved::InPart);
    }
    unmoved.0 = (moved == Moved::InPart).then_some(rest);
    Ok(moved)
}

/// Searches `log`, to which nothing is appended meanwhile.
async fn find<S: System>(system: &S, log: LogId) -> Result<Found, IoError> {
    let live = live_in(system, log).await?;
    Ok(system.engine().with_store(|store| {
        let end = store.logs().get(log).map(end_of).unwrap_or_default();
        Found { log, end, live }
    }))
}

async fn move_versions<S: System>(
    system: &Rc<S>,
    (from, to): (LogId, LogId),
    live: &[Live],
) -> Result<Moved, IoError> {
    let buries = |store: &mut Store| store.logs().get(from).is_some_and(Log::buries_kept);
    if live.is_empty() && !system.engine().with_store(buries) {
        return Ok(Moved::Nothing);
    }
    if !move_supersedes(system, from, to).await? {
        return Ok(Moved::InPart);
    }
    let (mut chunks, mut under_way) = (Chunks::new(&**system, from, live), VecDeque::new());
    let moved = move_chunks(system, (from, to), &mut chunks, &mut under_way).await;
    chunks.end().await;
    for last in under_way {
        wait_done(&**system, last).await?;
    }
    moved
}

async fn move_chunks<S: System>(
    system: &Rc<S>,
    (from, to): (LogId, LogId),
    chunks: &mut Chunks<'_, S>,
    under_way: &mut VecDeque<Ticket>,
) -> Result<Moved, IoError> {
    loop {
        if chunks.is_over() {
            return Ok(Moved::All);
        }
        if !system.may_move(from).await {
            return Ok(Moved::InPart);
        }
        for Chunk { live, within, content } in next_turn(&**system, chunks).await? {
            let engine = system.engine();
            let room = engine.with_store(|store| store.room_of_moved(live));
            if !system.may_take(from, room).await {
                return Ok(Moved::InPart);
            }
            let still = system.moves_live_alone();
            let still = still.then(|| engine.with_store(|store| store.still_live(live)));
            let mut rest = still.as_deref().unwrap_or(live);
            while !rest.is_empty() {
                // Parts may be more than one record takes.
                let (now, later) = rest.split_at(chunk_len(rest));
                rest = later;
                let read = (within, &content);
                let moved = engine.with_store(|store| store.relocate((from, to), now, read));
                match moved {
                    Some(moved) => under_way.push_back(submit_moved(system, to, moved)),
                    None => return Ok(Moved::InPart),
                }
            }
            while under_way.len() >= system.moves_in_flight().max(1) {
                let Some(last) = under_way.pop_front() else { break };
                wait_done(&**system, last).await?;
            }
        }
    }
}

/// The chunks that are moved next: the system says how much content is read before a move.
async fn next_turn<'a, S: System>(
    system: &S,
    chunks: &mut Chunks<'a, S>,
) -> Result<Vec<Chunk<'a>>, IoError> {
    let (mut turn, mut content) = (Vec::new(), Sectors(0));
    while let Some(chunk) = chunks.next().await? {
        content += len_of(chunk.live);
        turn.push(chunk);
        if content >= system.moves_at_once() {
            break;
        }
    }
    Ok(turn)
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
        let last = submit_moved(system, to, relocated);
        wait_done(&**system, last).await?;
    }
    engine.with_store(|store| store.clear_supersedes(from));
    Ok(true)
}

/// Writes a record of versions that keep their sequences. The ticket is done when they are durable.
fn submit_moved<S: System>(system: &Rc<S>, to: LogId, moved: Relocated) -> Ticket {
    let Relocated { sequence, slot, last, .. } = moved;
    system.moving(&mut system.engine().state.borrow_mut(), slot.target.len);
    submit_record(system, Phase::Swap, to, sequence, slot);
    last
}

/// Appends the live versions of `log` again as the newest ones; false if there is no room for them
/// now. When the oldest log is renewed, the floor can rise.
///
/// # Errors
/// If the device fails.
pub async fn renew_log<S: System>(system: &S, log: LogId) -> Result<bool, IoError> {
    let live = live_in(system, log).await?;
    let mut chunks = Chunks::new(system, log, &live);
    let renewed = renew_chunks(system, &mut chunks).await;
    chunks.end().await;
    renewed
}

async fn renew_chunks<S: System>(system: &S, chunks: &mut Chunks<'_, S>) -> Result<bool, IoError> {
    while !chunks.is_over() {
        if !system.may_renew().await {
            return Ok(false);
        }
        let Some(Chunk { live, within, content }) = chunks.next().await? else { continue };
        for live in live {
            let room = system.engine().with_store(|store| store.room_of_moved(&[*live]));
            if !system.may_take(chunks.log(), room).await
                || !renew_when_there_is_room(system, live, within, &content).await
            {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Renews a version. False if there is no room for it, and no entry under way will free any.
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
