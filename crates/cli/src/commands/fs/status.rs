//! `manylogs fs status`.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use manylogs_ext4::{BLOCK_BYTES, Refusal};
use manylogs_operate::status::DiskStatus;
use serde_json::json;

use super::known::Known;
use super::{durable, marks};
use crate::args::fs::FsStatusArgs;
use crate::commands::live;
use crate::failure::Failure;
use crate::output::print;

pub(super) fn run(args: &FsStatusArgs) -> Result<(), Failure> {
    if let Some(target) = durable::mount_around(&args.place)? {
        return durable::run(args, &target);
    }
    let known = Known::of(&args.place)?;
    let Known { source, state, summary, looked, server } = &known;
    let file_system = server.as_ref().and_then(|status| status.file_system.as_ref());
    let volume = server.as_ref().and_then(|status| status.volume.as_ref());
    let stage = marks::stage(summary.pointer.map(|pointer| pointer.stage));
    let refusal = summary.refusal.as_ref().filter(|refusal| **refusal != Refusal::Adopted);
    let of_logs = looked.as_ref().and_then(|looked| looked.refused.as_ref());
    let refused = refusal.map(ToString::to_string).or_else(|| of_logs.map(ToString::to_string));
    let disk = DiskStatus::at(source);
    if args.json {
        let value = json!({
            "format": 1,
            "source": source,
            "mounted_on": known.mounted_on(),
            "state": state.word(),
            "state_text": state.to_string(),
            "logged_bytes": state.logged_bytes(),
            "uuid": summary.uuid,
            "features": summary.features,
            "refused": refused,
            "blocks": summary.blocks,
            "free_blocks": summary.free_blocks,
            "inodes": summary.inodes,
            "free_inodes": summary.free_inodes,
            "block_bytes": summary.block_bytes,
            "journal_inode": summary.journal.0,
            "orphans": summary.has_orphans,
            "adopted": stage,
            "mlfs": looked.as_ref().map(marks::as_json),
            "mode": file_system.map(|found| &found.mode),
            "fsyncs": file_system.map(|found| found.fsyncs),
            "transactions": file_system.map(|found| found.transactions),
            "records": file_system.map(|found| found.records),
            "flushes": file_system.map(|found| found.flushes),
            "log_bytes": file_system.map(|found| found.log_bytes),
            "bytes_at_risk": file_system.map(|found| found.bytes_at_risk),
            "checkpoint_bytes": file_system.map(|found| found.checkpoint_bytes),
            "o_dur_live_bytes": volume.map(|found| found.o_dur_live_bytes),
            "o_dur_home_bytes": volume.map(|found| found.o_dur_home_bytes),
            "o_dur_moved_bytes": volume.map(|found| found.o_dur_moved_bytes),
            "o_dur_pinned_bytes": volume.map(|found| found.o_dur_pinned_bytes),
            "kept_metadata_bytes": volume.map(|found| found.kept_metadata.live_bytes),
            "kept_metadata_home_bytes": volume.map(|found| found.kept_metadata.home_bytes),
            "kept_metadata_moved_bytes": volume.map(|found| found.kept_metadata.moved_bytes),
            "server": server,
            "disk": disk,
        });
        return print(&format!("{value:#}\n"));
    }
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    row("source", &source.display().to_string());
    row("state", &state.to_string());
    row("uuid", &summary.uuid);
    row("features", &summary.features.join(" "));
    row("blocks", &format!("{} of {} free", summary.free_blocks, summary.blocks));
    row("inodes", &format!("{} of {} free", summary.free_inodes, summary.inodes));
    row("journal", &summary.journal.to_string());
    row("mountable", refused.as_deref().unwrap_or("yes"));
    row("adopted", stage);
    if let Some(looked) = looked {
        row("logs", &marks::state(looked));
        row("marked", &marks::bits(looked));
    }
    if let Some(disk) = disk.filter(|_| server.is_none()) {
        row("disk", &disk.summary());
        disk.notes.iter().for_each(|note| row("", note));
    }
    if let Some(server) = server {
        text += "\n";
        text += &live::text(server);
    }
    print(&text)
}

/// The first 4096 bytes of a disk or image.
pub(super) fn first_block(source: &Path) -> Result<Vec<u8>, Failure> {
    let named = |error: io::Error| Failure::at(source, &error);
    let file = File::open(source).map_err(named)?;
    let mut block = vec![0; BLOCK_BYTES];
    file.read_exact_at(&mut block, 0).map_err(|error| match error.kind() {
        // The user may mean the property of a file that is outside of our mounts.
        io::ErrorKind::UnexpectedEof => Failure::input(format!(
            "{}: too short for a file system, and in none that manylogs has mounted",
            source.display()
        )),
        _ => named(error),
    })?;
    Ok(block)
}
