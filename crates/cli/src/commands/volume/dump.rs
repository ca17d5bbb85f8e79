//! `manylogs dump`.

use std::fmt::Write;

use manylogs::{Inspection, MappedExtent, OpenOptions, inspect_log, inspect_with};
use manylogs_logstore::{Entry, EntryKind, LogId, Record, Scanned, SequenceLimit};
use manylogs_operate::status::ArrayStatus;
use manylogs_storage::OpenMode;
use serde_json::{Value, json};

use super::status::{array, left_text};
use super::{Session, human, id_text};
use crate::args::volume::DumpArgs;
use crate::commands::{everest, gecko};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &DumpArgs) -> Result<(), Failure> {
    if args.log.is_none() && gecko::check::dump(&args.volume.device, args.json)? {
        return Ok(());
    }
    if args.log.is_none() && everest::check::dump(&args.volume, args.json)? {
        return Ok(());
    }
    let session = Session::open(&args.volume, OpenMode::ReadOnly)?;
    let device = session.reads();
    if let Some(log) = args.log {
        let scanned = session.run(async move { inspect_log(&device, LogId(log)).await });
        let scanned = scanned.map_err(|error| session.failure(&error))?;
        return if args.json { print_json(&log_json(log, &scanned)) } else { log_text(&scanned) };
    }
    let options = OpenOptions { ignore_snapshot: args.ignore_snapshot, ..session.options() };
    let found = session.run(async move { inspect_with(&device, &options).await });
    let found = found.map_err(|error| session.failure(&error))?;
    let array = array(&session, &found.layout);
    if args.json { print_json(&volume_json(&found, array)) } else { volume_text(&found, array) }
}

fn print_json(value: &Value) -> Result<(), Failure> {
    print(&(serde_json::to_string_pretty(value).unwrap_or_default() + "\n"))
}

/// A sequence number in words: the number of its reserved batch, and its place in the batch.
fn sequence(number: u64) -> String {
    format!("{}.{}", number / SequenceLimit::STEP, number % SequenceLimit::STEP)
}

fn kind(entry: &Entry) -> &'static str {
    match entry.kind {
        EntryKind::Data => "data",
        EntryKind::Zeroes => "zeroes",
        EntryKind::Supersede => "supersede",
        EntryKind::Lost => "lost",
    }
}

fn what(mapped: &MappedExtent) -> &'static str {
    match (mapped.lost, mapped.zeroes) {
        (true, _) => "lost",
        (_, true) => "zeroes",
        _ => "data",
    }
}

fn volume_text(found: &Inspection, array: Option<ArrayStatus>) -> Result<(), Failure> {
    let mut out = format!(
        "superblock  volume {} {:?}, generation {}\n\
         \u{20}           {} sectors, physical sector {}, exports {} sectors\n\
         root        generation {}, incarnation {}, floor {}, {}\n\
         \u{20}           snapshot of {} bytes, {} logs opened since, {} retired\n",
        id_text(&found.volume),
        found.label,
        found.superblock_generation,
        found.layout.device().0,
        found.physical.bytes(),
        found.layout.capacity().0,
        found.root_generation,
        found.incarnation,
        sequence(found.floor),
        left_text(found.left),
        found.snapshot_bytes.unwrap_or(0),
        found.opened_logs,
        found.retired.len(),
    );
    if let Some(array) = array {
        let _ = writeln!(out, "array       {}", array.words());
    }
    for log in &found.logs {
        let _ = writeln!(
            out,
            "log {:>6}  at {}, epoch {}, {} used, {} live, {} supersedes{}",
            log.log.0,
            log.region.start.0,
            sequence(log.epoch),
            human(log.used.bytes()),
            human(log.live.bytes()),
            log.supersedes,
            if log.retired { ", retired" } else { "" }
        );
    }
    for mapped in &found.table {
        let (extent, version) = (mapped.extent, sequence(mapped.sequence.0));
        let kind = what(mapped);
        let _ = writeln!(out, "{:>12}+{:<6} {kind} {version}", extent.start.0, extent.len.0);
    }
    print(&out)
}

fn volume_json(found: &Inspection, array: Option<ArrayStatus>) -> Value {
    json!({
        "volume": id_text(&found.volume),
        "label": found.label,
        "superblock_generation": found.superblock_generation,
        "device_sectors": found.layout.device().0,
        "exported_sectors": found.layout.capacity().0,
        "physical_sector_bytes": found.physical.bytes(),
        "array": array,
        "root_generation": found.root_generation,
        "incarnation": found.incarnation,
        "floor": found.floor,
        "snapshot_bytes": found.snapshot_bytes,
        "opened_logs": found.opened_logs,
        "retired_logs": found.retired.iter().map(|log| log.0).collect::<Vec<_>>(),
        "logs": found.logs.iter().map(|log| json!({
            "log": log.log.0,
            "sector": log.region.start.0,
            "sectors": log.region.len.0,
            "epoch": log.epoch,
            "used_sectors": log.used.0,
            "live_sectors": log.live.0,
            "supersedes": log.supersedes,
            "retired": log.retired,
        })).collect::<Vec<_>>(),
        "table": found.table.iter().map(|mapped| json!({
            "sector": mapped.extent.start.0,
            "sectors": mapped.extent.len.0,
            "sequence": mapped.sequence.0,
            "kind": what(mapped),
        })).collect::<Vec<_>>(),
    })
}

fn log_text(scanned: &Scanned) -> Result<(), Failure> {
    let mut out = String::new();
    for record in &scanned.records {
        let header = &record.header;
        let _ = writeln!(
            out,
            "record {} at {}+{}, epoch {}, checksum {:08x} after {:08x}, durable before {}",
            sequence(header.record_sequence.0),
            header.offset.0,
            record.record_sectors.0,
            sequence(header.epoch.0),
            record.checksum,
            header.previous_checksum,
            header.durable_tail.0
        );
        for entry in &record.entries {
            let (extent, version) = (entry.extent, sequence(entry.data_sequence.0));
            let kind = kind(entry);
            let _ = writeln!(out, "  {:>12}+{:<6} {kind} {version}", extent.start.0, extent.len.0);
        }
    }
    for damage in &scanned.damage {
        let _ = writeln!(out, "DAMAGE at {}+{}", damage.offset.0, damage.sectors.0);
    }
    let end = scanned.end.map_or_else(|| "the log is full".to_owned(), |end| end.to_string());
    let _ = writeln!(out, "end: {end}");
    print(&out)
}

fn log_json(log: u32, scanned: &Scanned) -> Value {
    json!({
        "log": log,
        "records": scanned.records.iter().map(record_json).collect::<Vec<_>>(),
        "damage": scanned.damage.iter().map(|damage| json!({
            "offset": damage.offset.0,
            "sectors": damage.sectors.0,
            "known": damage.known,
        })).collect::<Vec<_>>(),
        "end": scanned.end.map(|end| end.to_string()),
    })
}

fn record_json(record: &Record) -> Value {
    let header = &record.header;
    json!({
        "record_sequence": header.record_sequence.0,
        "epoch": header.epoch.0,
        "offset": header.offset.0,
        "sectors": record.record_sectors.0,
        "floor": header.floor.0,
        "durable_tail": header.durable_tail.0,
        "checksum": record.checksum,
        "previous_checksum": header.previous_checksum,
        "entries": record.entries.iter().map(|entry| json!({
            "sector": entry.extent.start.0,
            "sectors": entry.extent.len.0,
            "data_sequence": entry.data_sequence.0,
            "kind": kind(entry),
        })).collect::<Vec<_>>(),
    })
}
