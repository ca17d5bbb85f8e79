//! Ranges of a volume that need durability but no place, as `OFFSET+LENGTH`.

use std::fmt;
use std::str::FromStr;

use manylogs_block::{Extent, bytes_text};

use super::{NONE, sectors};

/// Ranges of the volume's addresses whose writes are kept in the logs, whatever their length. Meant
/// for a partition or a device that is only a log, for example the external journal of a file
/// system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableOnly {
    /// By address, with gaps between them; unused entries at the end are empty.
    ranges: [Extent; Self::MOST],
}

const EXPECTED: &str = "up to eight ranges OFFSET+LENGTH in whole sectors, such as 0+1G or \
                        4G+512M:8G+64M, or none";

impl DurableOnly {
    /// Most ranges.
    pub const MOST: usize = 8;
    /// No range.
    pub const NONE: Self = Self { ranges: [Extent::new(0, 0); Self::MOST] };

    /// The ranges, sorted and merged. `None` if there are too many, or if one is empty or ends
    /// beyond 2^48 sectors.
    #[must_use]
    pub fn of(ranges: &[Extent]) -> Option<Self> {
        let mut sorted = ranges.to_vec();
        sorted.sort_by_key(|range| range.start);
        let mut merged: Vec<Extent> = Vec::new();
        for range in sorted {
            let end = range.start.0.checked_add(range.len.0).filter(|end| *end < 1 << 48);
            if range.is_empty() || end.is_none() {
                return None;
            }
            match merged.last_mut() {
                Some(last) if last.end() >= range.start => {
                    *last = Extent::between(last.start, last.end().max(range.end()));
                }
                _ => merged.push(range),
            }
        }
        let mut durable = Self::NONE;
        durable.ranges.get_mut(..merged.len())?.copy_from_slice(&merged);
        Some(durable)
    }

    /// The ranges, by address.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.ranges.iter().copied().take_while(|range| !range.is_empty())
    }

    /// Whether all of `extent` is in one of the ranges.
    #[must_use]
    pub fn contains(&self, extent: Extent) -> bool {
        self.iter().any(|range| range.contains(extent))
    }
}

impl FromStr for DurableOnly {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text == NONE {
            return Ok(Self::NONE);
        }
        let range = |text: &str| {
            let (offset, len) = text.split_once('+')?;
            Some(Extent::new(sectors(offset)?.0, sectors(len)?.0))
        };
        let ranges: Option<Vec<Extent>> = text.split(':').map(range).collect();
        ranges.and_then(|ranges| Self::of(&ranges)).ok_or(EXPECTED)
    }
}

impl fmt::Display for DurableOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.iter().next().is_none() {
            return f.write_str(NONE);
        }
        for (index, range) in self.iter().enumerate() {
            let between = if index > 0 { ":" } else { "" };
            let start = manylogs_block::Sectors(range.start.0);
            write!(f, "{between}{}+{}", bytes_text(start.bytes()), bytes_text(range.len.bytes()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_back_and_neighbours_are_one() {
        for (text, printed) in [
            ("none", "none"),
            ("0+1M", "0+1M"),
            ("8M+4K:1M+512", "1M+512:8M+4K"),
            ("1M+1M:2M+1M", "1M+2M"),
        ] {
            let ranges: DurableOnly = text.parse().unwrap();
            assert_eq!(ranges.to_string(), printed);
            assert_eq!(printed.parse(), Ok(ranges));
        }
        let ranges: DurableOnly = "1M+1M".parse().unwrap();
        assert!(ranges.contains(Extent::new(2048, 2048)));
        assert!(!ranges.contains(Extent::new(2047, 2)));
    }

    #[test]
    fn mistakes_are_refused() {
        let nine = ["0+512"; 1].iter().cycle().take(9).enumerate();
        let nine: Vec<String> = nine.map(|(i, _)| format!("{i}M+512")).collect();
        for text in ["", "1M", "1M+0", "100+512", "1M+100", "0+1M:", "200P+1M", &nine.join(":")] {
            assert!(text.parse::<DurableOnly>().is_err(), "{text}");
        }
    }
}
