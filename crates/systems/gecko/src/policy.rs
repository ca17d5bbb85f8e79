//! Options of a chain that are chosen each time it is opened.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Nanos, Sectors};

use crate::sleep::SleepSettings;

/// The way in which segments are cleaned: see `docs/gecko.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleaning {
    /// The best that is known: [`Cleaning::Segment`].
    #[default]
    Auto,
    /// Segments of all drives but the tail's are emptied: old segments with little live content
    /// first. The live content goes to separate segments on these drives. The tail may also take
    /// empty segments of a drive that holds live data.
    Segment,
    /// Move-to-tail: live blocks of the drive after the tail's are appended at the tail, until the
    /// drive is empty. Other drives are only read.
    MoveToTail,
    /// Compact-in-body: segments of the drive after the tail's are emptied in step with the tail,
    /// by moving their live blocks within the body. The tail's drive takes what clients write
    /// alone.
    CompactInBody,
}

/// A name that no way of cleaning has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCleaning(String);

impl Cleaning {
    /// All ways of cleaning, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Segment, Self::MoveToTail, Self::CompactInBody];

    /// Name in options and outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Segment => "segment",
            Self::MoveToTail => "mtt",
            Self::CompactInBody => "cib",
        }
    }

    /// Whether live blocks move to segments of the body. Else they are appended at the tail.
    pub(crate) const fn is_by_segment(self) -> bool {
        !matches!(self, Self::MoveToTail)
    }

    /// Whether the drives are cleaned and filled in the order of the chain.
    pub(crate) const fn is_in_order(self) -> bool {
        matches!(self, Self::MoveToTail | Self::CompactInBody)
    }
}

impl fmt::Display for Cleaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cleaning {
    type Err = UnknownCleaning;

    fn from_str(name: &str) -> Result<Self, UnknownCleaning> {
        let found = Self::ALL.into_iter().find(|cleaning| cleaning.name() == name);
        found.ok_or_else(|| UnknownCleaning(name.to_owned()))
    }
}

impl fmt::Display for UnknownCleaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Cleaning::ALL.iter().map(|cleaning| cleaning.name()).collect();
        write!(f, "no way of cleaning is called {:?} (there are: {})", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownCleaning {}

/// Settings of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainSettings {
    /// The way of cleaning.
    pub cleaning: Cleaning,
    /// Most memory for writes that are answered and not durable yet. Further writes wait until a
    /// record makes some durable.
    pub buffer: Sectors,
    /// A write that nobody waits for is sent to the drive after this time at the latest.
    pub buffer_age: Nanos,
    /// Most memory of the tail cache: content that was appended last, for reads of the tail's
    /// drive. Zero for none.
    pub cache: Sectors,
    /// Whether a mirrored link may go on without a half that is missing. The half leaves the link.
    pub degraded: bool,
    /// How halves of pairs sleep; `None` if they do not, or if links are single drives.
    pub sleep: Option<SleepSettings>,
    /// A drive that joins is copied this much between two notes of the copy's progress. A crash
    /// costs at most that.
    pub copy_noted: Sectors,
}

impl ChainSettings {
    /// The settings for links of so many drives each: of single drives none sleeps.
    pub(crate) fn for_links_of(self, halves: usize) -> Self {
        Self { sleep: self.sleep.filter(|_| halves > 1), ..self }
    }
}

impl Default for ChainSettings {
    fn default() -> Self {
        Self {
            cleaning: Cleaning::default(),
            buffer: Sectors::from_bytes_ceil(16 << 20),
            buffer_age: Nanos::from_millis(500),
            cache: Sectors(0),
            degraded: false,
            sleep: None,
            copy_noted: Sectors::from_bytes_ceil(4 << 30),
        }
    }
}
