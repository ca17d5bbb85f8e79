//! Where the journal of a file system is.

/// Where the journal is, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalMode {
    /// Ext4's own journal holds metadata; content is durable before what refers to it.
    Ordered,
    /// Ext4's own journal holds metadata, and keeps it: it goes home only where the journal needs
    /// the room (*Evolving Ext4 for Shingled Disks*).
    Lazy,
    /// Ext4's own journal holds content as well.
    Data,
    /// Each transaction is a record in the log nearest the head (the Manylogs paper, section III).
    /// The file system is adopted.
    Manylogs,
    /// Each transaction is a record in the logs in the middle of the device, as the paper has the
    /// adaptive journaling of Prabhakaran. The file system is adopted.
    Adaptive,
    /// Ext4's own journal holds metadata and the content of small writes: the adaptive journaling
    /// of the Manylogs paper (section IV-B). It is what the other modes are measured against, and
    /// no mount option asks for it.
    AdaptiveJbd2,
}

impl JournalMode {
    /// All modes.
    pub const ALL: [Self; 6] =
        [Self::Ordered, Self::Lazy, Self::Data, Self::AdaptiveJbd2, Self::Adaptive, Self::Manylogs];

    /// The mode of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// What `--mode` and `-o mode=` call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Lazy => "lazy",
            Self::Data => "data",
            Self::Manylogs => "manylogs",
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
