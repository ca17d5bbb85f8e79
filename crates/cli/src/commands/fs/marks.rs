//! Output of `manylogs fs status` and `fs check` about MLFS and its logs.

use std::fmt::Write as _;

use manylogs_ext4::{GroupNo, Stage, Summary};
use manylogs_mlfs::adopt::{LogState, Looked};
use serde_json::{Value, json};

use super::adopt::described;

/// Whether the superblock has a mark of MLFS, so that a closer look makes sense.
pub(super) fn is_marked(summary: &Summary) -> bool {
    summary.pointer.is_some() || summary.features.contains(&"mlfs")
}

/// The stage in one word.
pub(super) fn stage(stage: Option<Stage>) -> &'static str {
    match stage {
        None => "no",
        Some(Stage::TakingOver) => "taking over was interrupted",
        Some(Stage::Adopted) => "yes",
        Some(Stage::GivingBack) => "giving back was interrupted",
    }
}

pub(super) fn logs(looked: &Looked) -> String {
    let refused = looked.refused.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    state(looked) + &refused
}

/// Like [`logs`], without the reason why a mount would refuse them.
pub(super) fn state(looked: &Looked) -> String {
    match &looked.logs {
        LogState::None => "none".to_owned(),
        LogState::Drained(logs) => format!("{}, drained", described(logs)),
        LogState::InUse(logs) => format!("{}, with changes that are not at home", described(logs)),
        LogState::Unusable(why) => why.to_string(),
    }
}

pub(super) fn bits(looked: &Looked) -> String {
    let marks = &looked.marks;
    let (with, without) = (marks.backups_with.len(), marks.backups_without.len());
    let primary = if marks.primary { "the first superblock" } else { "not the first superblock" };
    let mut text = format!("{primary}, {with} of {} copies", with + without);
    if !marks.backups_without.is_empty() && with > 0 {
        let missing = numbers(&marks.backups_without);
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let _ = write!(text, " (not in groups {})", missing.join(", "));
    }
    text
}

fn numbers(groups: &[GroupNo]) -> Vec<u32> {
    groups.iter().map(|group| group.0).collect()
}

pub(super) fn as_json(looked: &Looked) -> Value {
    let marks = &looked.marks;
    let (state, logs) = match &looked.logs {
        LogState::None => ("none", None),
        LogState::Drained(logs) => ("drained", Some(logs)),
        LogState::InUse(logs) => ("in use", Some(logs)),
        LogState::Unusable(_) => ("unusable", None),
    };
    let why = match &looked.logs {
        LogState::Unusable(why) => Some(why.to_string()),
        _ => looked.refused.as_ref().map(ToString::to_string),
    };
    json!({
        "logs": logs.map(|logs| logs.runs.len()),
        "log_bytes": logs.map(|logs| logs.blocks() * 4096),
        "log_state": state,
        "problem": why,
        "bit_in_first_superblock": marks.primary,
        "copies_with_bit": numbers(&marks.backups_with),
        "copies_without_bit": numbers(&marks.backups_without),
        "torn": marks.torn,
    })
}
