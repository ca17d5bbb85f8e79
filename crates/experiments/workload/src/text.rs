//! Parses fields and extents from byte slices, without strings or allocation.

mod number;

use manylogs_block::{Extent, SECTOR_BYTES};

use crate::error::{Fault, fault};
use crate::request::TraceOp;

pub use number::TimeUnit;
pub(crate) use number::{hexadecimal, leading_number, number, number_u32, take_number, time};

/// Addresses from here on are malformed: byte addresses must fit 64 bits with room to add.
pub(crate) const MAX_SECTOR: u64 = 1 << 52;
/// No data request is longer (4 GiB): the kernel counts a request's bytes in 32 bits.
const MAX_DATA_SECTORS: u64 = 1 << 23;

/// The extent of `len` sectors from `start`, if its addresses are sane.
pub(crate) fn sector_extent(start: u64, len: u64) -> Result<Extent, Fault> {
    if start >= MAX_SECTOR || len >= MAX_SECTOR {
        let found = format!("sector {start} + {len}");
        return Err(fault("an address below 2^52 sectors", found.as_bytes()));
    }
    Ok(Extent::new(start, len))
}

/// `extent`, if a request of this kind may be as long; only discards and zeroing may exceed 4 GiB.
pub(crate) fn checked(op: TraceOp, extent: Extent) -> Result<Extent, Fault> {
    if op.moves_data() && extent.len.0 > MAX_DATA_SECTORS {
        return Err(fault("a read or write of at most 4 GiB", extent.to_string().as_bytes()));
    }
    Ok(extent)
}

/// The smallest extent of whole sectors that holds `len` bytes from byte `offset`.
pub(crate) fn byte_extent(offset: u64, len: u64) -> Result<Extent, Fault> {
    let start = offset / SECTOR_BYTES;
    let end = offset.saturating_add(len).div_ceil(SECTOR_BYTES);
    sector_extent(start, if len == 0 { 0 } else { end - start })
}

/// `field` without blanks, tabs and carriage returns at both ends.
pub(crate) fn trim(field: &[u8]) -> &[u8] {
    // Nearly every field has nothing to trim.
    match (field.first(), field.last()) {
        (Some(b'!'..), Some(b'!'..)) => field,
        _ => field.trim_ascii(),
    }
}

/// The fields of a line between single separators, trimmed.
#[derive(Clone)]
pub(crate) struct Separated<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

/// The comma-separated fields of `line`.
pub(crate) fn commas(line: &[u8]) -> Separated<'_> {
    Separated { rest: Some(line), separator: b',' }
}

impl<'a> Separated<'a> {
    /// The next field, or the fault that `expected` is missing.
    pub(crate) fn field(&mut self, expected: &'static str) -> Result<&'a [u8], Fault> {
        self.next().ok_or_else(|| fault(expected, b""))
    }
}

impl Separated<'_> {
    /// The next field as a decimal number.
    pub(crate) fn number(&mut self, expected: &'static str) -> Result<u64, Fault> {
        match self.plain_number() {
            Some(value) => Ok(value),
            None => number(self.field(expected)?, expected),
        }
    }

    /// The next field as a decimal number that fits 32 bits.
    pub(crate) fn number_u32(&mut self, expected: &'static str) -> Result<u32, Fault> {
        let value = self.number(expected)?;
        u32::try_from(value).map_err(|_| fault(expected, value.to_string().as_bytes()))
    }

    /// The next field as a time in `unit`, in nanoseconds.
    pub(crate) fn time(&mut self, unit: TimeUnit, expected: &'static str) -> Result<u64, Fault> {
        match self.plain_number().map(|value| value.checked_mul(unit.nanos())) {
            Some(Some(nanos)) => Ok(nanos),
            Some(None) => Err(fault(expected, b"a number too large")),
            None => time(self.field(expected)?, unit, expected),
        }
    }

    /// Takes a field of digits alone, without looking for its end first: nearly every number.
    fn plain_number(&mut self) -> Option<u64> {
        let (value, after) = leading_number(self.rest?)?;
        match after.split_first() {
            None => self.rest = None,
            Some((byte, behind)) if *byte == self.separator => self.rest = Some(behind),
            Some(_) => return None,
        }
        Some(value)
    }

    /// Takes a field of the one letter R or W.
    pub(crate) fn plain_op(&mut self) -> Option<TraceOp> {
        let (op, behind) = match self.rest? {
            [b'R', separator, behind @ ..] if *separator == self.separator => {
                (TraceOp::Read, behind)
            }
            [b'W', separator, behind @ ..] if *separator == self.separator => {
                (TraceOp::Write, behind)
            }
            _ => return None,
        };
        self.rest = Some(behind);
        Some(op)
    }
}

impl<'a> Iterator for Separated<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        if rest.first() == Some(&b'"') {
            return Some(self.quoted(rest));
        }
        let end = rest.iter().position(|&byte| byte == self.separator);
        self.rest = end.map(|end| &rest[end + 1..]);
        Some(trim(&rest[..end.unwrap_or(rest.len())]))
    }
}

impl<'a> Separated<'a> {
    /// A field in quotes, which may hold separators.
    fn quoted(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let inner = &rest[1..];
        let close = memchr::memchr(b'"', inner).unwrap_or(inner.len());
        let after = inner.get(close + 1..).unwrap_or(b"");
        self.rest = memchr::memchr(self.separator, after).map(|comma| &after[comma + 1..]);
        &inner[..close]
    }
}

/// The fields of a line between runs of blanks and tabs.
#[derive(Clone)]
pub(crate) struct Blanks<'a> {
    rest: &'a [u8],
}

/// The blank-separated fields of `line`.
pub(crate) fn blanks(line: &[u8]) -> Blanks<'_> {
    Blanks { rest: line }
}

impl<'a> Blanks<'a> {
    /// The next field, or the fault that `expected` is missing.
    pub(crate) fn field(&mut self, expected: &'static str) -> Result<&'a [u8], Fault> {
        self.next().ok_or_else(|| fault(expected, b""))
    }
}

impl<'a> Iterator for Blanks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let rest = &self.rest[start..];
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.rest = &rest[end..];
        Some(&rest[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_ranges_cover_whole_sectors() {
        assert_eq!(byte_extent(1023, 2).ok(), Some(Extent::new(1, 2)));
        assert_eq!(byte_extent(1024, 512).ok(), Some(Extent::new(2, 1)));
        assert_eq!(byte_extent(1024, 0).ok(), Some(Extent::new(2, 0)));
        assert!(byte_extent(u64::MAX, u64::MAX).is_err());
    }

    #[test]
    fn quotes_hold_separators() {
        let fields: Vec<&[u8]> = commas(br#"a, "b,c" ,"d,e",f"#).collect();
        assert_eq!(fields, [&b"a"[..], b"\"b", b"c\"", b"d,e", b"f"]);
        assert_eq!(commas(b"a,,").count(), 3);
        assert_eq!(blanks(b"  a \t b ").count(), 2);
    }
}
