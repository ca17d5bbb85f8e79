//! The metrics of base volumes that borrow stores, and of lent parts.

use super::{Page, Row};
use crate::status::{LentStatus, OffloadStatus, StoreStatus};

/// The states of a base volume.
const STATES: [&str; 7] = ["idle", "off-loads", "reclaims", "home", "waits", "alone", "fenced"];
/// The states of a store.
const OF_STORES: [&str; 5] = ["lends", "full", "forgets", "leaves", "away"];

const COUNTERS: [Row<OffloadStatus>; 3] = [
    ("offloaded_writes_total", "Writes that went to stores.", |o| o.offloaded_writes),
    ("offload_home_writes_total", "Writes that went home.", |o| o.home_writes),
    ("offload_reclaimed_total", "Ranges that were brought home.", |o| o.reclaimed_ranges),
];
const GAUGES: [Row<OffloadStatus>; 3] = [
    ("offload_held_bytes", "Newest versions in stores.", |o| o.held_bytes),
    ("offload_only_copy_bytes", "Newest versions of which stores have one copy.", |o| {
        o.only_copy_bytes
    }),
    ("offload_lost_bytes", "Lost with stores: read errors until written.", |o| o.lost_bytes),
];
const STORES: [Row<StoreStatus>; 2] = [
    ("store_held_bytes", "Newest versions in the store.", |store| store.held_bytes),
    ("store_only_copy_bytes", "Newest versions that no other store has.", |store| {
        store.only_copy_bytes
    }),
];
const LENT: [Row<LentStatus>; 5] = [
    ("lent_used_bytes", "What the store holds for base volumes.", |lent| lent.used_bytes),
    ("lent_each_bytes", "Most that it holds for one of them.", |lent| lent.each_bytes),
    ("lent_share_percent", "Its share of the disk's time while others wait.", |lent| {
        lent.share_percent
    }),
    ("lent_clients", "Base volumes for which it holds data.", |lent| lent.clients),
    ("lent_connections", "Connections of clients.", |lent| lent.connections),
];

/// Adds the metrics of a base volume.
pub(super) fn of_base(page: &mut Page, offload: &OffloadStatus) {
    page.family("offload_state", "gauge", "1 for the state that the base volume is in.");
    for state in STATES {
        page.sample("offload_state", &[("state", state)], u8::from(state == offload.state));
    }
    for (kind, rows) in [("counter", &COUNTERS[..]), ("gauge", &GAUGES[..])] {
        for (name, help, value) in rows {
            page.single(name, kind, help, value(offload));
        }
    }
    let help = "How long ago the oldest range was written that only stores have.";
    page.single("offload_oldest_seconds", "gauge", help, offload.oldest_s.unwrap_or(0.0));
    if let Some(most) = offload.held_max_bytes {
        page.single("offload_held_max_bytes", "gauge", "The bound of what stores hold.", most);
    }
    page.family("store_state", "gauge", "1 for the state that a store is in.");
    for store in &offload.stores {
        for state in OF_STORES {
            let labels = [("store", store.name.as_str()), ("state", state)];
            page.sample("store_state", &labels, u8::from(state == store.state));
        }
    }
    for (name, help, value) in STORES {
        page.family(name, "gauge", help);
        for store in &offload.stores {
            page.sample(name, &[("store", &store.name)], value(store));
        }
    }
    page.family("store_wait_seconds", "gauge", "How long a request would wait at the store.");
    for store in &offload.stores {
        page.sample("store_wait_seconds", &[("store", &store.name)], store.wait_ms / 1e3);
    }
    page.family("store_away_seconds", "gauge", "For how long the store could not be reached.");
    for store in &offload.stores {
        page.sample("store_away_seconds", &[("store", &store.name)], store.seen_s);
    }
}

/// Adds the metrics of a lent part.
pub(super) fn of_lent(page: &mut Page, lent: &LentStatus) {
    for (name, help, value) in LENT {
        page.family(name, "gauge", help);
        page.sample(name, &[("store", &lent.store)], value(lent));
    }
    page.family("lent_held_bytes", "gauge", "What the store holds of a base volume.");
    for held in &lent.held_for {
        let labels = [("store", lent.store.as_str()), ("base", &held.base)];
        page.sample("lent_held_bytes", &labels, held.held_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::HeldFor;

    #[test]
    fn stores_are_told_one_by_one() {
        let store = StoreStatus {
            name: "c0".to_owned(),
            state: "away".to_owned(),
            held_bytes: 7,
            seen_s: 1.5,
            ..StoreStatus::default()
        };
        let offload = OffloadStatus {
            state: "waits".to_owned(),
            oldest_s: Some(2.5),
            stores: vec![store],
            ..OffloadStatus::default()
        };
        let held_for = vec![HeldFor { base: "ba".to_owned(), held_bytes: 9 }];
        let lent = LentStatus { store: "1e".to_owned(), held_for, ..LentStatus::default() };
        let mut page = Page { text: String::new(), labels: "device=\"d\"".to_owned() };
        of_base(&mut page, &offload);
        of_lent(&mut page, &lent);
        for sample in [
            "offload_state{device=\"d\",state=\"waits\"} 1",
            "offload_state{device=\"d\",state=\"idle\"} 0",
            "offload_oldest_seconds{device=\"d\"} 2.5",
            "store_state{device=\"d\",store=\"c0\",state=\"away\"} 1",
            "store_held_bytes{device=\"d\",store=\"c0\"} 7",
            "store_away_seconds{device=\"d\",store=\"c0\"} 1.5",
            "lent_held_bytes{device=\"d\",store=\"1e\",base=\"ba\"} 9",
        ] {
            assert!(page.text.contains(&format!("manylogs_{sample}\n")), "{sample}: {}", page.text);
        }
    }
}
