//! Logs events that an operator should learn of without asking.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::control;
use crate::log::{Field, Level, line};
use crate::status::{TROUBLES, VolumeStatus};

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_secs(5);
/// An opening that takes longer is logged.
const SLOW: Duration = Duration::from_secs(10);

/// An event between two checks.
struct Event {
    level: Level,
    message: String,
    fields: Vec<Field<'static>>,
}

/// Watches the server of `device`, in a thread of its own, until the process ends.
///
/// # Errors
/// If no thread can be started.
pub fn watch(device: PathBuf) -> io::Result<()> {
    thread::Builder::new().name("watch".to_owned()).spawn(move || run(&device)).map(drop)
}

fn run(device: &Path) {
    wait_for_opening(device);
    let mut before = None;
    loop {
        // A server that is ending gives no status.
        if let Some(now) = control::status(device).ok().and_then(|status| status.volume) {
            for event in events(&before.unwrap_or_else(|| untroubled(&now)), &now) {
                line(event.level, Some(device), &event.message, &event.fields);
            }
            before = Some(now);
        }
        thread::sleep(INTERVAL);
    }
}

/// Waits until the device is open, and logs if that takes long: recovery reads the logs, which
/// takes minutes on a large disk after a crash.
fn wait_for_opening(device: &Path) {
    let (began, mut told) = (Instant::now(), false);
    let fields = |took: Duration| [("seconds", Value::from(took.as_secs()))];
    while control::status(device).is_err() {
        thread::sleep(INTERVAL / 10);
        let took = began.elapsed();
        if took > SLOW && !told {
            let message = "not open yet: recovery reads the logs";
            line(Level::Info, Some(device), message, &fields(took));
            told = true;
        }
    }
    if told {
        let took = began.elapsed();
        let message = format!("open, after {} s", took.as_secs());
        line(Level::Info, Some(device), &message, &fields(took));
    }
}

/// The state that the first check is compared with.
fn untroubled(now: &VolumeStatus) -> VolumeStatus {
    VolumeStatus {
        health: "good".to_owned(),
        starved_writes: 0,
        retired_logs: 0,
        failed_checkpoints: 0,
        kept_extents: 0,
        lost_extents: 0,
        unread_extents: 0,
        ..now.clone()
    }
}

fn events(before: &VolumeStatus, now: &VolumeStatus) -> Vec<Event> {
    let mut events = Vec::new();
    if before.health != now.health {
        let level = match now.health.as_str() {
            "good" => Level::Info,
            "degraded" => Level::Warning,
            _ => Level::Error,
        };
        let why = now.read_only.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        events.push(Event {
            level,
            message: format!("health: {} -> {}{why}", before.health, now.health),
            fields: vec![
                ("before", before.health.clone().into()),
                ("health", now.health.clone().into()),
            ],
        });
    }
    for trouble in TROUBLES {
        let now = (trouble.count)(now);
        let more = now.saturating_sub((trouble.count)(before));
        if more > 0 {
            events.push(Event {
                level: if trouble.is_loss { Level::Error } else { Level::Warning },
                message: format!("{now} {} ({more} more)", trouble.what),
                fields: vec![(trouble.name, now.into()), ("more", more.into())],
            });
        }
    }
    events
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn volume() -> VolumeStatus {
        serde_json::from_value(serde_json::json!({
            "id": "i", "label": "", "health": "good", "read_only": null, "at_risk_bytes": 0,
            "zeroed_bytes": null, "volatile_bytes": 0, "drain_estimate_s": 0.0,
            "logged_writes": 0, "logged_bytes": 0, "bypassed_writes": 0, "records": 0,
            "record_bytes": 0, "starved_writes": 0, "mapped_extents": 0, "table_bytes": 0,
            "log_swaps": 0, "checkpoints": 0, "failed_checkpoints": 0,
            "checkpoint_progress": null, "retired_logs": 0,
            "kept_extents": 0, "lost_extents": 0, "unread_extents": 0, "written": [],
            "occupancy": [],
        }))
        .unwrap()
    }

    #[test]
    fn what_became_worse_is_told_once() {
        let good = volume();
        assert!(events(&untroubled(&good), &good).is_empty());
        let worse = VolumeStatus {
            health: "read-only".to_owned(),
            read_only: Some("a flush failed".to_owned()),
            retired_logs: 3,
            lost_extents: 2,
            ..good.clone()
        };
        let told = events(&untroubled(&worse), &worse);
        let messages: Vec<_> = told.iter().map(|event| event.message.as_str()).collect();
        let expected = [
            "health: good -> read-only: a flush failed",
            "3 logs are out of use after I/O errors (3 more)",
            "2 extents are lost: their logged copy is damaged (2 more)",
        ];
        assert_eq!(messages, expected);
        assert_eq!(told[0].level, Level::Error);
        assert!(events(&worse, &worse).is_empty());
        assert_eq!(events(&worse, &good)[0].message, "health: read-only -> good");
    }
}
