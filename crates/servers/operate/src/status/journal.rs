//! The status of a journal that keeps its metadata.

use serde::{Deserialize, Serialize};

/// A journal that keeps its metadata (mode `lazy`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Its length.
    pub size_bytes: u64,
    /// What its transactions take.
    pub used_bytes: u64,
    /// Of these, what is newer than at home.
    pub live_bytes: u64,
    /// For how long the oldest home is old: other programs see the disk as it was then.
    pub oldest_s: u64,
    /// Live blocks of 4096 bytes that scrubs have read since the mount, one under way included.
    #[serde(default)]
    pub scrubbed_blocks: u64,
    /// The last scrub since the mount that has ended.
    #[serde(default)]
    pub scrub: Option<ScrubStatus>,
    /// What arranging in idle time has done, where that is done.
    #[serde(default)]
    pub idle_arranged: Option<IdleArrangeStatus>,
}

/// What arranging a journal in idle time has done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleArrangeStatus {
    /// Walks that looked at the order.
    pub looks: u64,
    /// Passes that wrote all that they met in the order of a walk.
    pub passes: u64,
    /// Blocks of 4096 bytes that passes wrote anew.
    pub blocks: u64,
    /// Blocks in the journal that the last look met.
    pub met: u64,
    /// Of these, how many lay apart from what a walk meets before.
    pub apart: u64,
}

impl IdleArrangeStatus {
    /// What was done, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { looks, passes, blocks, met, apart } = self;
        match looks {
            0 => "not since the mount".to_owned(),
            _ => format!(
                "{passes} times in idle time, {blocks} blocks; at the last look {apart} of {met} \
                 blocks lay apart"
            ),
        }
    }
}

/// What a scrub of a journal that keeps its metadata found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// For how long it has been over, in seconds.
    pub ended_ago_s: u64,
    /// Live blocks of 4096 bytes that it read.
    pub blocks: u64,
    /// Damaged blocks that it wrote anew, durably.
    pub renewed: u64,
    /// Parts of the journal that it brought home, because a replay by a kernel would end there.
    pub brought_home: u64,
    /// Parts where a replay by a kernel would still end.
    pub torn_left: u64,
    /// Damaged blocks whose content nobody has.
    pub lost: u64,
    /// The first of these.
    pub lost_blocks: Vec<LostBlock>,
    /// Whether it stopped before its end.
    pub is_cut_short: bool,
    /// The error that ended it, if one did.
    #[serde(default)]
    pub failure: Option<String>,
}

impl ScrubStatus {
    /// What it did, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Self { blocks, renewed, brought_home, torn_left, lost, .. } = self;
        let mut text = format!("{blocks} blocks read, {renewed} damaged ones written anew");
        if *brought_home > 0 {
            text += &format!(", {brought_home} parts with a damaged descriptor brought home");
        }
        if *torn_left > 0 {
            text += &format!(", {torn_left} parts with a damaged descriptor left");
        }
        text += &format!(", {lost} lost");
        if self.is_cut_short {
            text += "; it ended early";
        }
        self.failure.iter().fold(text, |text, failure| text + ": " + failure)
    }
}

/// A block of metadata of which the only copy is damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBlock {
    /// Its number in the file system.
    pub block: u64,
    /// What it holds, in words.
    pub holds: String,
}

impl JournalStatus {
    /// Bytes that a hard disk reads in a second, for an estimate.
    const STREAM: u64 = 100_000_000;
    /// Blocks that a hard disk writes in a second if they lie anywhere, for an estimate.
    const ANYWHERE: u64 = 200;

    /// About how many seconds a kernel's replay takes on a hard disk, at most: it reads the
    /// journal and writes each block home.
    #[must_use]
    pub const fn replay_s(&self) -> u64 {
        self.used_bytes.div_ceil(Self::STREAM) + (self.live_bytes / 4096).div_ceil(Self::ANYWHERE)
    }
}
