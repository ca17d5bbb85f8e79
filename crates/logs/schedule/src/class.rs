//! Classes of requests, which decide when a request goes to the device.

/// The classes, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A record or a flush that a client waits for.
    Record,
    /// A client's small read.
    Small,
    /// A client's large read or write.
    Stream,
    /// The volume's own work: checkpoint, swap, scrub.
    Background,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Record, Self::Small, Self::Stream, Self::Background];

    /// Whether the requests are a client's own.
    #[must_use]
    pub const fn is_client(self) -> bool {
        matches!(self, Self::Small | Self::Stream)
    }

    /// Name of the class in outputs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Small => "small",
            Self::Stream => "stream",
            Self::Background => "background",
        }
    }
}
