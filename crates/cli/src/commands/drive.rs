//! `manylogs drive`: the profiles and how true they are.

use std::fmt::Write as _;

use manylogs_disk::LinkSettings;
use manylogs_disk::profile::{self, Profile, ShingledTable, Sources};
use manylogs_lab::table::bytes;

use crate::args::lab::DEFAULT_DRIVE;
use crate::args::{DriveArgs, DriveCommand};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &DriveArgs) -> Result<(), Failure> {
    match &args.command {
        DriveCommand::List => list(),
        DriveCommand::Show { drive } => show(drive),
        DriveCommand::Exercise(args) => super::exercise::run(args),
        DriveCommand::Validate { drive, trace, json } => super::validate::run(drive, trace, *json),
    }
}

fn list() -> Result<(), Failure> {
    let mut out = String::new();
    for name in profile::drives() {
        let profile = super::drive(name)?;
        let default = if name == DEFAULT_DRIVE { " (default)" } else { "" };
        let _ = writeln!(out, "{name:<20} {}{default}", summary(&profile));
    }
    print(&out)
}

fn capacity(profile: &Profile) -> u64 {
    profile.capacity().bytes()
}

fn summary(profile: &Profile) -> String {
    format!("{}, {}, {:.0} rpm", profile.model, bytes(capacity(profile)), profile.rpm())
}

/// A section of the listing: each figure with where it comes from.
struct Section<'a> {
    out: &'a mut String,
    sources: &'a Sources,
}

impl Section<'_> {
    fn row(&mut self, key: &str, value: impl std::fmt::Display) {
        let source = self.sources.get(key).map_or("", String::as_str);
        let _ = writeln!(self.out, "  {key:<26} {value:<14} {source}");
    }
}

fn show(name: &str) -> Result<(), Failure> {
    let profile = super::drive(name)?;
    let mut out = format!("{}: {}\n", profile.name, summary(&profile));
    mechanics(&profile, &mut out);
    electronics(&profile, &mut out);
    if let Some(table) = &profile.shingled {
        shingled(table, &mut out);
    }
    print(&out)
}

fn mechanics(profile: &Profile, out: &mut String) {
    let spindle = &profile.spindle;
    out.push_str("\nspindle\n");
    Section { out, sources: &spindle.source }.row("revolution_us", spindle.revolution_us);
    let geometry = &profile.geometry;
    out.push_str("\ngeometry\n");
    let mut section = Section { out, sources: &geometry.source };
    section.row("capacity_sectors", geometry.capacity_sectors);
    section.row("physical_sector_bytes", geometry.physical_sector_bytes);
    section.row("heads", geometry.heads);
    section.row("cylinders", geometry.cylinders);
    section.row("band_cylinders", geometry.band_cylinders);
    section.row("track_skew_rev", geometry.track_skew_rev);
    section.row("head_skew_rev", geometry.head_skew_rev);
    section.row("band_skew_rev", geometry.band_skew_rev);
    let tracks: Vec<u32> = geometry.zones.iter().map(|zone| zone.1).collect();
    let span = |values: &[u32]| match (values.first(), values.last()) {
        (Some(first), Some(last)) => format!("{first} .. {last}"),
        _ => "none".to_owned(),
    };
    section.row("zones", format!("{}: {}", geometry.zones.len(), span(&tracks)));
    let seek = &profile.seek;
    out.push_str("\nseek\n");
    let mut section = Section { out, sources: &seek.source };
    let figures = [
        ("track_to_track_ms", seek.track_to_track_ms),
        ("average_ms", seek.average_ms),
        ("full_stroke_ms", seek.full_stroke_ms),
    ];
    for (key, value) in figures {
        value.into_iter().for_each(|value| section.row(key, value));
    }
    if !seek.knots_ms.is_empty() {
        section.row("knots_ms", format!("{} measured", seek.knots_ms.len()));
    }
    section.row("head_switch_ms", seek.head_switch_ms);
    section.row("write_settle_ms", seek.write_settle_ms);
    section.row("jitter_ms", seek.jitter_ms);
    let retry = &profile.retry;
    out.push_str("\nretry\n");
    let mut section = Section { out, sources: &retry.source };
    section.row("read_probability", retry.read_probability);
    section.row("write_probability", retry.write_probability);
}

fn electronics(profile: &Profile, out: &mut String) {
    let controller = &profile.controller;
    out.push_str("\ncontroller\n");
    let mut section = Section { out, sources: &controller.source };
    section.row("read_start_us", controller.read_start_us);
    section.row("write_start_us", controller.write_start_us);
    section.row("write_end_us", controller.write_end_us);
    section.row("buffer_hit_us", controller.buffer_hit_us);
    section.row("interface_mb_s", controller.interface_mb_s);
    link(profile, out);
    let queue = &profile.queue;
    out.push_str("\nqueue\n");
    let mut section = Section { out, sources: &queue.source };
    section.row("depth", queue.depth);
    section.row("policy", &queue.policy);
    section.row("age_limit_ms", queue.age_limit_ms);
    let cache = &profile.cache;
    out.push_str("\ncache\n");
    let mut section = Section { out, sources: &cache.source };
    section.row("segments", cache.segments);
    section.row("segment_sectors", cache.segment_sectors);
    section.row("write_cache", cache.write_cache);
    section.row("write_buffer_sectors", cache.write_buffer_sectors);
}

fn link(profile: &Profile, out: &mut String) {
    out.push_str("\nlink\n");
    let Some(table) = &profile.link else {
        for note in profile.link_notes(LinkSettings::default(), true) {
            let _ = writeln!(out, "  {note}");
        }
        return;
    };
    let mut section = Section { out, sources: &table.source };
    section.row("kind", table.kind);
    section.row("fua", table.fua);
}

fn shingled(table: &ShingledTable, out: &mut String) {
    out.push_str("\nshingled\n");
    let mut section = Section { out, sources: &table.source };
    section.row("capacity_sectors", table.capacity_sectors);
    section.row("band_sectors", table.band_sectors);
    section.row("guard_sectors", table.guard_sectors);
    section.row("spare_bands", table.spare_bands);
    section.row("mapping", word(table.mapping));
    section.row("cleaning", word(table.cleaning));
    section.row("idle_after_ms", table.idle_after_ms);
    section.row("cache_sectors", table.cache_sectors);
    section.row("cache_extents_max", table.cache_extents_max);
    section.row("stream_sectors", table.stream_sectors);
    section.row("stream_hold_ms", table.stream_hold_ms);
    section.row("log_sectors", table.log_sectors);
    section.row("near_logs", table.near_logs);
}

/// The word of a profile.
fn word(value: impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}
