//! Orders to a journal that keeps its metadata (mode `lazy`), and its status.

use manylogs_block::Handle;
use manylogs_ext4::{Ext4, IdleArranged, KeptInLog, LastScrub, Scrubbed};
use manylogs_operate::control::{Answer, OrderError};
use manylogs_operate::status::{
    ArrangeStatus, CheckpointStatus, IdleArrangeStatus, JournalStatus, LostBlock, ScrubStatus,
};

/// The status of the journal, if it keeps its metadata.
pub(crate) fn journal_status(fs: &Ext4) -> Option<JournalStatus> {
    let (kept, oldest_s) = fs.kept_in_journal()?;
    let KeptInLog { size_bytes, used_bytes, live_bytes, .. } = kept;
    let scrubbed_blocks = fs.scrubbed_blocks();
    let scrub = fs.last_scrub().map(|LastScrub { ended_ago, found }| ScrubStatus {
        ended_ago_s: ended_ago.0 / 1_000_000_000,
        ..scrub_status(&found)
    });
    let idle_arranged = fs.idle_arranged().map(|done| {
        let IdleArranged { looks, passes, blocks, met, apart } = done;
        IdleArrangeStatus { looks, passes, blocks, met, apart }
    });
    Some(JournalStatus {
        size_bytes,
        used_bytes,
        live_bytes,
        oldest_s,
        scrubbed_blocks,
        scrub,
        idle_arranged,
    })
}

/// A scrub that has just ended.
fn scrub_status(found: &Scrubbed) -> ScrubStatus {
    let lost_blocks =
        found.named.iter().map(|(block, holds)| LostBlock { block: block.0, holds: holds.clone() });
    ScrubStatus {
        ended_ago_s: 0,
        blocks: found.blocks,
        renewed: found.renewed,
        brought_home: found.brought_home,
        torn_left: found.torn_left,
        lost: found.lost,
        lost_blocks: lost_blocks.collect(),
        is_cut_short: found.is_cut_short,
        failure: found.failure.as_ref().map(ToString::to_string),
    }
}

/// Scrubs the journal, and reports what was found.
pub(crate) async fn scrub(fs: &Ext4) -> Answer {
    let found = fs.scrub_journal().await.map_err(OrderError::new)?;
    serde_json::to_value(scrub_status(&found)).map_err(OrderError::new)
}

/// Writes home what a lazy journal holds, and reports how much that was.
pub(crate) async fn bring_home(fs: &Ext4, runtime: &Handle) -> Answer {
    let (began, before) = (runtime.now(), fs.journal_stats());
    fs.bring_home().await.map_err(OrderError::new)?;
    let done = fs.journal_stats().since(&before);
    let report = CheckpointStatus {
        home_bytes: done.home_bytes,
        home_writes: done.home_writes,
        seconds: runtime.now().since(began).as_secs_f64(),
        kept_extents: 0,
        lost_extents: 0,
        unread_extents: 0,
    };
    serde_json::to_value(report).map_err(OrderError::new)
}

/// Writes metadata to a lazy journal anew, in the order of a walk.
pub(crate) async fn arrange(fs: &Ext4, runtime: &Handle) -> Answer {
    let began = runtime.now();
    let done = fs.arrange().await.map_err(OrderError::new)?;
    let report = ArrangeStatus {
        directories: done.directories,
        blocks: done.blocks,
        is_whole: done.is_whole,
        seconds: runtime.now().since(began).as_secs_f64(),
    };
    serde_json::to_value(report).map_err(OrderError::new)
}
