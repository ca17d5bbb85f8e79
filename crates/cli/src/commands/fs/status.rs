//! `manylogs fs status`.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use manylogs_ext4::{BLOCK_BYTES, Summary};
use serde_json::json;

use super::marks;
use super::mounted::source_of;
use crate::args::fs::FsStatusArgs;
use crate::failure::Failure;
use crate::output::print;

pub(super) fn run(args: &FsStatusArgs) -> Result<(), Failure> {
    let place = args.place.display();
    let mounted = if args.place.is_dir() {
        let none =
            || Failure::input(format!("{place}: no file system of manylogs is mounted there"));
        Some(source_of(&args.place)?.ok_or_else(none)?)
    } else {
        None
    };
    let source = mounted.as_ref().unwrap_or(&args.place);
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", source.display());
    let mut summary =
        Summary::of(&first_block(source)?).map_err(|error| Failure::input(named(&error)))?;
    let is_looked_at = mounted.is_none() && marks::is_marked(&summary);
    let looked = if is_looked_at { marks::looked(source)? } else { None };
    let stage = marks::stage(summary.pointer.map(|pointer| pointer.stage));
    if mounted.is_some() {
        // What is on the disk is what was free when it was mounted.
        let now = rustix::fs::statvfs(&args.place).map_err(Failure::failed)?;
        (summary.free_blocks, summary.free_inodes) = (now.f_bfree, now.f_ffree);
    }
    let state = match (mounted.is_some(), summary.needs_recovery) {
        _ if summary.has_errors => "errors",
        (true, _) => "mounted",
        (false, true) => "needs replay",
        (false, false) => "clean",
    };
    let refused = summary.refusal.as_ref().map(ToString::to_string);
    if args.json {
        let value = json!({
            "format": 1,
            "source": source,
            "mounted_on": mounted.as_ref().map(|_| &args.place),
            "state": state,
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
        });
        return print(&format!("{value:#}\n"));
    }
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    row("source", &source.display().to_string());
    row("state", state);
    row("uuid", &summary.uuid);
    row("features", &summary.features.join(" "));
    row("blocks", &format!("{} of {} free", summary.free_blocks, summary.blocks));
    row("inodes", &format!("{} of {} free", summary.free_inodes, summary.inodes));
    row("journal", &summary.journal.to_string());
    row("mountable", refused.as_deref().unwrap_or("yes"));
    row("adopted", stage);
    if let Some(looked) = &looked {
        row("logs", &marks::logs(looked));
        row("marked", &marks::bits(looked));
    }
    print(&text)
}

/// The first 4096 bytes of a disk or image.
pub(super) fn first_block(source: &Path) -> Result<Vec<u8>, Failure> {
    let named = |error: std::io::Error| Failure::input(format!("{}: {error}", source.display()));
    let file = File::open(source).map_err(named)?;
    let mut block = vec![0; BLOCK_BYTES];
    file.read_exact_at(&mut block, 0).map_err(named)?;
    Ok(block)
}
