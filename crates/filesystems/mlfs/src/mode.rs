//! Modes: the places of a file system's journal.

/// The place of the journal, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalMode {
    /// Ext4's own journal holds metadata. Content is durable before metadata refers to it.
    Ordered,
    /// Ext4's own journal holds metadata, and keeps it: metadata goes home only when the journal
    /// needs the room (*Evolving Ext4 for Shingled Disks*).
    Lazy,
    /// Ext4's own journal holds content as well.
    Data,
    /// Each transaction is a record in the log nearest the head (the Manylogs paper, section III).
    /// The file system is adopted.
    Manylogs,
    /// As [`JournalMode::Manylogs`], and metadata stays in the logs and is read from there.
    ManylogsLazy,
    /// Each transaction is a record in the logs in the middle of the device: the Manylogs paper's
    /// version of Prabhakaran's adaptive journaling. The file system is adopted.
    Adaptive,
    /// Ext4's own journal holds metadata and the content of small writes: the adaptive journaling
    /// of the Manylogs paper (section IV-B). The other modes are measured against it; no mount
    /// option selects it.
    AdaptiveJbd2,
}

impl JournalMode {
    /// All modes.
    pub const ALL: [Self; 7] = [
        Self::Ordered,
        Self::Lazy,
        Self::Data,
        Self::AdaptiveJbd2,
        Self::Adaptive,
        Self::Manylogs,
        Self::ManylogsLazy,
    ];

    /// The mode of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether it is a mode of adopted file systems: the journal is in the volume of logs.
    #[must_use]
    pub const fn is_near(self) -> bool {
        matches!(self, Self::Manylogs | Self::ManylogsLazy | Self::Adaptive)
    }

    /// The name in `--mode` and `-o mode=`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Lazy => "lazy",
            Self::Data => "data",
            Self::Manylogs => "manylogs",
            Self::ManylogsLazy => "manylogs+lazy",
            Self::Adaptive => "adaptive",
            Self::AdaptiveJbd2 => "adaptive-jbd2",
        }
    }
}

impl std::fmt::Display for JournalMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
