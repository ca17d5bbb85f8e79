//! Opening logs ahead of their use, and taking failed ones out of use.

use std::rc::Rc;

use manylogs_logstore::LogId;
use manylogs_plant::{self as plant, Bug};

use crate::commit::begin_epoch;
use crate::phase::Phase;
use crate::root::update_root;
use crate::system::System;

/// Opens logs as long as the system is open. It is a task of its own, because cleaning waits for
/// records, which may wait for a log.
pub async fn run_opener<S: System>(system: Rc<S>) {
    let engine = system.engine();
    loop {
        let log_wanted = engine.log_wanted.wait();
        if engine.is_closed() {
            return;
        }
        engine.opening.set(true);
        open_wanted_log(&*system).await;
        engine.opening.set(false);
        if engine.is_closed() {
            engine.progress.notify();
        }
        log_wanted.await;
    }
}

/// Names the logs around the wanted one as opened in the root, ahead of their use. Then begins an
/// epoch in the wanted log.
async fn open_wanted_log<S: System>(system: &S) {
    note_retired(system).await;
    let engine = system.engine();
    let Some(log) = engine.unopened.take() else { return };
    let (opened, publishing) =
        engine.with_store(|store| (store.is_opened(log), store.is_publishing()));
    if !opened && !plant::is(Bug::OpenedSetLate) {
        // While a snapshot is published its set of opened logs is fixed; placement asks again.
        if publishing {
            return;
        }
        let logs = engine.with_store(|store| store.logs().count());
        let opening = update_root(system, Phase::OpenedSet, |root| root.open_around(log, logs));
        // If the root cannot be written, the system takes no more writes.
        let _ = opening.await;
    }
    let mut changed = !opened;
    if engine.with_store(|store| store.is_opened(log)) || plant::is(Bug::OpenedSetLate) {
        changed |= begin_epoch(system, log).await;
    }
    // While another caller's record begins the epoch, nothing has changed yet, and placement would
    // ask again and again. That caller notifies.
    if changed || engine.with_store(|store| store.has_begun(log)) {
        engine.notify_progress();
    }
}

/// Notes in the root which logs went out of use, so that they stay so.
async fn note_retired<S: System>(system: &S) {
    let engine = system.engine();
    let mut retired: Vec<LogId> = engine.with_store(|store| store.newly_retired());
    // The logs of a member that is gone will be sound when it is back.
    retired.retain(|log| {
        let device = engine.with_store(|store| store.logs().device(*log));
        !engine.members.of(device).is_gone()
    });
    if !retired.is_empty() {
        let noted = update_root(system, Phase::OpenedSet, |root| root.retired.extend(retired));
        // If that failed: a bad log that is used again fails again.
        let _ = noted.await;
    }
}
