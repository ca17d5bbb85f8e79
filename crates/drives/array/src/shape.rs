//! Arrays by their names on the command line.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Handle, Nanos, Request, Sectors,
    parse_bytes, parse_span,
};
use thiserror::Error;

use crate::mirror::Mirror;
use crate::own_writes::{OwnWrites, SelfWriting, data_of};
use crate::parity::Parity;
use crate::stripe::Stripe;

/// Chunk of a modelled array unless one is given: 64 KiB. (mdadm's default is 512 KiB.)
const CHUNK: Sectors = Sectors(128);
/// The least that a bit of a modelled bitmap stands for: 4 MiB.
const BIT_LEAST: u64 = 4 << 20;
/// The most members that a modelled array may have.
const MEMBERS_MOST: u16 = 64;

/// Levels of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Stripes.
    Raid0,
    /// Members that hold the same content.
    Raid1,
    /// Stripes over pairs of members with the same content (md's layout `near=2`).
    Raid10,
    /// Stripes with one parity (md's layout `left-symmetric`).
    Raid5,
    /// Stripes with two parities.
    Raid6,
}

/// A modelled array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// Number of drives.
    pub members: u16,
    /// Length of a chunk.
    pub chunk: Sectors,
    /// Whether the array reports its geometry. If not, its user takes it for one drive.
    pub known: bool,
    /// What md writes to the members by itself.
    pub own: OwnWrites,
}

/// Why a text names no array.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ShapeError {
    /// An unknown level.
    #[error(
        "unknown array {0:?}; there are: raid0:N, raid1:N, raid10:N, raid5:N, raid6:N, as \
             raid0:4:chunk=64K"
    )]
    Level(String),
    /// A number of members that the level does not have.
    #[error("{level} has {needs}, not {given:?}")]
    Members {
        /// The level.
        level: Level,
        /// What the level needs.
        needs: &'static str,
        /// What was given.
        given: String,
    },
    /// An unknown option.
    #[error(
        "unknown option {0:?} of an array; there are: chunk=SIZE, placement=known|ignored, \
             safe-mode=SPAN, bitmap=SIZE"
    )]
    Option(String),
    /// A chunk size out of range.
    #[error("a chunk is 4K to 1G, in steps of 4K, not {0:?}")]
    Chunk(String),
    /// What md writes by itself, out of range or without a reason.
    #[error(
        "{0:?}: md writes by itself on raid1, 10, 5 and 6: safe-mode=1ms to 1h, and bitmap=4M and \
         more, in steps of 4K"
    )]
    Own(String),
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid10 => "raid10",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
        }
    }

    /// The numbers of members that the level allows.
    const fn needs(self) -> &'static str {
        match self {
            Self::Raid0 | Self::Raid1 => "2 to 64 members",
            Self::Raid10 => "an even number of members, 4 to 64",
            Self::Raid5 => "3 to 64 members",
            Self::Raid6 => "4 to 64 members",
        }
    }

    const fn takes(self, members: u16) -> bool {
        let least = match self {
            Self::Raid0 | Self::Raid1 => 2,
            Self::Raid5 => 3,
            Self::Raid10 | Self::Raid6 => 4,
        };
        let even = !matches!(self, Self::Raid10) || members.is_multiple_of(2);
        least <= members && members <= MEMBERS_MOST && even
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Shape {
    /// An array that reports its geometry, with chunks of 64 KiB, without writes of md's own.
    #[must_use]
    pub fn new(level: Level, members: u16) -> Self {
        Self { level, members, chunk: CHUNK, known: true, own: OwnWrites::default() }
    }

    /// Number of drives that hold the same content: 1 if there is no copy.
    #[must_use]
    pub const fn copies(&self) -> u16 {
        match self.level {
            Level::Raid0 | Level::Raid5 | Level::Raid6 => 1,
            Level::Raid1 => self.members,
            Level::Raid10 => 2,
        }
    }

    /// Number of drives of each stripe that hold parity.
    #[must_use]
    pub const fn parity(&self) -> u16 {
        match self.level {
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
            Level::Raid5 => 1,
            Level::Raid6 => 2,
        }
    }

    /// Number of drives, or of groups of drives with the same content, over which the addresses of
    /// a stripe are dealt out.
    #[must_use]
    pub const fn columns(&self) -> u16 {
        (self.members - self.parity()) / self.copies()
    }

    /// Capacity of an array whose drives have the capacity `each`.
    #[must_use]
    pub fn capacity(&self, each: Sectors) -> Sectors {
        match self.level {
            Level::Raid1 => each,
            _ => Sectors(each.0 / self.chunk.0 * self.chunk.0 * u64::from(self.columns())),
        }
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let levels = [Level::Raid0, Level::Raid1, Level::Raid10, Level::Raid5, Level::Raid6];
        let level = levels.into_iter().find(|level| level.name() == name);
        let level = level.ok_or_else(|| ShapeError::Level(name.to_owned()))?;
        let given = words.next().unwrap_or_default();
        let members = given.parse().ok().filter(|members| level.takes(*members));
        let members = members.ok_or_else(|| ShapeError::Members {
            level,
            needs: level.needs(),
            given: given.to_owned(),
        })?;
        let mut shape = Self::new(level, members);
        for option in words.flat_map(|word| word.split(',')) {
            match option.split_once('=') {
                Some(("chunk", size)) => shape.chunk = chunk(size)?,
                Some(("placement", "known")) => shape.known = true,
                Some(("placement", "ignored")) => shape.known = false,
                Some(("safe-mode" | "bitmap", _)) => shape.own = shape.with_own(option)?,
                _ => return Err(ShapeError::Option(option.to_owned())),
            }
        }
        Ok(shape)
    }
}

impl Shape {
    fn with_own(&self, option: &str) -> Result<OwnWrites, ShapeError> {
        let bad = || ShapeError::Own(option.to_owned());
        let (name, value) = option.split_once('=').ok_or_else(bad)?;
        let mut own = self.own;
        if name == "bitmap" {
            let page = |bytes: &u64| *bytes >= BIT_LEAST && bytes.is_multiple_of(4096);
            let bytes = parse_bytes(value).filter(page).ok_or_else(bad)?;
            own.bitmap = Some(Sectors(bytes / manylogs_block::SECTOR_BYTES));
        } else {
            let within =
                |span: &Nanos| (Nanos::from_millis(1)..=Nanos::from_secs(3600)).contains(span);
            own.safe_mode = Some(parse_span(value).filter(within).ok_or_else(bad)?);
        }
        if self.level == Level::Raid0 { Err(bad()) } else { Ok(own) }
    }
}

fn chunk(text: &str) -> Result<Sectors, ShapeError> {
    let bytes = parse_bytes(text);
    let page = |bytes: &u64| (4096..=1 << 30).contains(bytes) && bytes.is_multiple_of(4096);
    let bytes = bytes.filter(page).ok_or_else(|| ShapeError::Chunk(text.to_owned()))?;
    Ok(Sectors(bytes / manylogs_block::SECTOR_BYTES))
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, members, chunk, known, own } = self;
        write!(f, "{level}:{members}:chunk={}K", chunk.0 / 2)?;
        if !known {
            f.write_str(",placement=ignored")?;
        }
        if let Some(delay) = own.safe_mode {
            write!(f, ",safe-mode={}ms", delay.0 / 1_000_000)?;
        }
        own.bitmap.map_or(Ok(()), |chunk| write!(f, ",bitmap={}K", chunk.0 / 2))
    }
}

/// Builds the array that `shape` describes from `members`. An array with parity keeps times only:
/// see [`Parity::timing_only`].
///
/// # Panics
/// If the number of members is not the one that `shape` names.
#[must_use]
pub fn assemble(
    runtime: &Handle,
    shape: &Shape,
    mut members: Vec<Rc<dyn BlockDevice>>,
) -> Rc<dyn BlockDevice> {
    assert_eq!(members.len(), usize::from(shape.members), "members of {shape}");
    if shape.own.is_any() {
        let plain = Shape { own: OwnWrites::default(), ..*shape };
        let below = (assemble(runtime, &plain, data_of(&members)), shape.columns());
        return Rc::new(SelfWriting::new(runtime.clone(), below, members, shape.own));
    }
    let mirror = |members| Rc::new(Mirror::new(runtime.clone(), members)) as Rc<dyn BlockDevice>;
    let stripe = |members| Stripe::new(runtime.clone(), members, shape.chunk, shape.copies());
    let array: Rc<dyn BlockDevice> = match shape.level {
        Level::Raid0 => Rc::new(stripe(members)),
        Level::Raid1 => mirror(members),
        Level::Raid5 | Level::Raid6 => {
            let (parity, chunk) = (shape.parity(), shape.chunk);
            Rc::new(Parity::timing_only(runtime.clone(), members, parity, chunk))
        }
        Level::Raid10 => {
            let mut pairs = Vec::new();
            while !members.is_empty() {
                let rest = members.split_off(2);
                pairs.push(mirror(std::mem::replace(&mut members, rest)));
            }
            Rc::new(stripe(pairs))
        }
    };
    if shape.known { array } else { Rc::new(Unknown(array)) }
}

/// An array that does not report its geometry.
pub struct Unknown(Rc<dyn BlockDevice>);

impl BlockDevice for Unknown {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.0.submit(request)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.0.submit_urgent(request)
    }

    fn has_priorities(&self) -> bool {
        self.0.has_priorities()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.extents(within)
    }
}

impl fmt::Debug for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unknown(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_has_a_name_and_what_is_none_is_told() {
        let shape: Shape = "raid0:4".parse().unwrap();
        assert_eq!((shape.members, shape.chunk, shape.known), (4, CHUNK, true));
        let text = "raid10:6:chunk=512K,placement=ignored";
        let shape: Shape = text.parse().unwrap();
        assert_eq!((shape.columns(), shape.copies()), (3, 2));
        assert_eq!(shape.to_string(), text);
        assert_eq!(shape.capacity(Sectors(5000)), Sectors(3 * 4096));
        let text = "raid5:4:chunk=64K,placement=ignored,safe-mode=200ms,bitmap=65536K";
        assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        let shape: Shape = "raid6:8".parse().unwrap();
        assert_eq!((shape.columns(), shape.copies(), shape.parity()), (6, 1, 2));
        for (bad, expected) in [
            ("raid7:4", "unknown array"),
            ("", "unknown array"),
            ("raid0", "2 to 64 members"),
            ("raid0:1", "2 to 64 members"),
            ("raid10:5", "an even number"),
            ("raid10:2", "an even number"),
            ("raid5:2", "3 to 64 members"),
            ("raid6:3", "4 to 64 members"),
            ("raid0:4:chunk=5000", "a chunk is"),
            ("raid0:4:chunk=0", "a chunk is"),
            ("raid0:4:depth=3", "unknown option"),
            ("raid0:4:", "unknown option"),
            ("raid0:4:safe-mode=200ms", "md writes by itself on"),
            ("raid5:4:safe-mode=0ms", "safe-mode=1ms to 1h"),
            ("raid5:4:bitmap=4097.5K", "in steps of 4K"),
            ("raid5:4:bitmap=64K", "bitmap=4M"),
        ] {
            let error = bad.parse::<Shape>().unwrap_err().to_string();
            assert!(error.contains(expected), "{bad:?}: {error}");
        }
    }
}
