//! The status of a base volume and its stores.

use manylogs_block::Sectors;
use manylogs_everest::{Offloaded, Policy, StoreFigures, StoreState, store_name};
use manylogs_operate::status::{OffloadStatus, StoreStatus};

/// The state of a base volume that borrows stores, with the reason in a sentence.
pub(crate) fn offload_status(volume: &Offloaded) -> OffloadStatus {
    let (stores, figures) = (volume.stores(), volume.figures());
    let (state, mut why) = state_of(volume, &stores);
    let noted: u64 = volume.lost().iter().map(|lost| lost.len.bytes()).sum();
    let unnoted = volume.unnoted_losses().bytes();
    if unnoted > 0 {
        why.push_str(&without_note(unnoted));
    }
    OffloadStatus {
        base: store_name(&volume.id()),
        state: state.to_owned(),
        why,
        held_bytes: figures.held.bytes(),
        held_max_bytes: volume.held_bound().map(Sectors::bytes),
        only_copy_bytes: stores.iter().map(|store| store.only_copy.bytes()).sum(),
        oldest_s: volume.oldest().map(|age| age.0 as f64 / 1e9),
        lost_bytes: noted + unnoted,
        offloaded_writes: figures.offloaded,
        home_writes: figures.home,
        reclaimed_ranges: figures.reclaimed,
        stores: stores.iter().map(store_status).collect(),
    }
}

/// What to do about losses that the base's header has no room for.
fn without_note(bytes: u64) -> String {
    format!(
        "; a store came back with less than it had, and the base has no room to note {bytes} bytes \
         of it: they read as errors as long as this server runs. Put the store's newest disk \
         back, or let them be lost: manylogs stores BASE remove STORE --accept-loss"
    )
}

fn store_status(store: &StoreFigures) -> StoreStatus {
    StoreStatus {
        name: store_name(&store.id),
        address: store.place.clone(),
        state: store.state.name().to_owned(),
        listed: store.is_listed,
        kept: store.is_kept,
        held_bytes: store.held.bytes(),
        only_copy_bytes: store.only_copy.bytes(),
        left_from_bytes: store.left_from.map(Sectors::bytes),
        wait_ms: store.wait.0 as f64 / 1e6,
        seen_s: store.away.0 as f64 / 1e9,
    }
}

fn state_of(volume: &Offloaded, stores: &[StoreFigures]) -> (&'static str, String) {
    let away = |store: &&StoreFigures| store.state == StoreState::Away;
    let needed: Vec<String> = stores
        .iter()
        .filter(|store| away(store) && store.only_copy.0 > 0)
        .map(|store| store_name(&store.id))
        .collect();
    if volume.is_fenced() {
        let why = "another host has opened this base volume: nothing is served here any more";
        return ("fenced", why.to_owned());
    }
    if !needed.is_empty() {
        let why = format!(
            "reads of what only {} has wait for that store, which cannot be reached",
            needed.join(" and ")
        );
        return ("waits", why);
    }
    if stores.is_empty() {
        return ("alone", "no store is given: every write goes home".to_owned());
    }
    let lend = stores.iter().filter(|store| store.state == StoreState::Lends).count();
    let held = volume.figures().held;
    let always = volume.policy() == Policy::Always;
    let (state, why) = match (volume.is_busy(), lend, held.0) {
        (true, 0, _) => ("home", "the base is over its threshold, and no store takes writes"),
        (true, ..) if always => ("off-loads", "every write goes to stores, as it was asked for"),
        (true, ..) => ("off-loads", "the base is over its threshold: writes go to stores"),
        (false, _, 0) => ("idle", "the base is under its threshold: writes go home"),
        (false, ..) => {
            ("reclaims", "the base is under its threshold: what stores hold is on its way home")
        }
    };
    let gone = stores.iter().filter(away).count();
    match gone {
        0 => (state, why.to_owned()),
        1 if stores.len() == 1 => (state, format!("{why}; the only store cannot be reached")),
        gone => (state, format!("{why}; {gone} of {} stores cannot be reached", stores.len())),
    }
}
