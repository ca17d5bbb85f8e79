//! Addresses, lengths and times, each its own type.

use std::fmt;
use std::ops::{Add, AddAssign, Range, Sub};

/// Bytes in a sector, the unit of every address and length (as in the Linux block layer).
pub const SECTOR_BYTES: u64 = 512;

/// `value` as a narrower number, for example for a field of an on-disk structure.
///
/// # Panics
/// If the value does not fit. Values from outside are checked before, so this is a fault of the
/// program. A number cut short would be written where nothing finds it.
#[track_caller]
pub fn narrow<T: TryInto<N> + Copy + fmt::Display, N>(value: T) -> N {
    match value.try_into() {
        Ok(narrow) => narrow,
        Err(_) => panic!("{value} exceeds {} bits", 8 * size_of::<N>()),
    }
}

/// An index into memory. The project is for 64-bit machines only, so no bits are lost.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, as asserted")]
pub const fn to_usize(n: u64) -> usize {
    const { assert!(usize::BITS == 64) };
    n as usize
}

/// The address of a sector on some device, counted from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// A number of 512-byte sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u64);

/// A run of consecutive sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First sector.
    pub start: Lba,
    /// Length; zero makes an empty extent.
    pub len: Sectors,
}

/// A point in time: nanoseconds since the clock's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A time of day in local time: whole seconds since midnight, less than [`TimeOfDay::DAY_S`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay(u32);

impl TimeOfDay {
    /// Seconds of a day.
    pub const DAY_S: u64 = 86_400;

    /// `seconds` after some midnight; whole days are left out.
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        Self(u32::try_from(seconds % Self::DAY_S).unwrap_or_else(|_| unreachable!("of one day")))
    }

    /// Seconds since midnight.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0.into()
    }
}

impl Lba {
    /// The distance in sectors between two addresses, in either order.
    #[must_use]
    pub fn distance(self, other: Self) -> Sectors {
        Sectors(self.0.abs_diff(other.0))
    }
}

impl Sectors {
    /// The whole sectors that hold `bytes`, rounded up.
    #[must_use]
    pub const fn from_bytes_ceil(bytes: u64) -> Self {
        Self(bytes.div_ceil(SECTOR_BYTES))
    }

    /// The length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

impl Extent {
    /// An extent of `sectors` sectors from `start`.
    #[must_use]
    pub const fn new(start: u64, sectors: u64) -> Self {
        Self { start: Lba(start), len: Sectors(sectors) }
    }

    /// The extent from `start` up to, not including, `end`; empty when `end <= start`.
    #[must_use]
    pub fn between(start: Lba, end: Lba) -> Self {
        Self { start, len: Sectors(end.0.saturating_sub(start.0)) }
    }

    /// The first address behind the extent.
    #[must_use]
    pub const fn end(self) -> Lba {
        Lba(self.start.0 + self.len.0)
    }

    /// The whole units that the extent touches. Units are counted from address 0.
    #[must_use]
    pub fn widened_to(self, unit: Sectors) -> Self {
        let start = self.start.0 / unit.0 * unit.0;
        Self::between(Lba(start), Lba(self.end().0.next_multiple_of(unit.0)))
    }

    /// The whole units within the extent; if there are none, an empty extent within it.
    #[must_use]
    pub fn narrowed_to(self, unit: Sectors) -> Self {
        let start = self.start.0.next_multiple_of(unit.0).min(self.end().0);
        Self::between(Lba(start), Lba(self.end().0 / unit.0 * unit.0))
    }

    /// Whether the extent holds no sector.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len.0 == 0
    }

    /// The extent as a range of sector numbers.
    #[must_use]
    pub const fn range(self) -> Range<u64> {
        self.start.0..self.start.0 + self.len.0
    }

    /// Whether the two share at least one sector.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Whether every sector of `other` lies inside.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// The sectors both hold; empty when there are none.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self::between(self.start.max(other.start), self.end().min(other.end()))
    }
}

impl Time {
    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time as seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        Nanos(self.0).as_secs_f64()
    }
}

impl Nanos {
    /// Whole microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// Seconds with a fraction; negative and not-a-number give zero.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// The length in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The length in microseconds.
    #[must_use]
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl Add<Sectors> for Lba {
    type Output = Self;
    fn add(self, rhs: Sectors) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl Add for Sectors {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for Sectors {
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}

impl Sub for Sectors {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}

impl Add<Nanos> for Time {
    type Output = Self;
    fn add(self, rhs: Nanos) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Self) {
        self.0 = self.0.saturating_add(rhs.0);
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LBA {}", self.0)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LBA {}+{}", self.start.0, self.len.0)
    }
}
