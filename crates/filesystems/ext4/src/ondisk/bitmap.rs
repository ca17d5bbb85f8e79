//! Bitmaps: bit `i` of byte `i / 8`, counted from the least significant, says that `i` is in use.

use std::ops::Range;

/// Whether `index` is in use.
pub(crate) fn is_set(bits: &[u8], index: u32) -> bool {
    bits[index as usize / 8] >> (index % 8) & 1 == 1
}

/// Marks a range as in use, or as free.
pub(crate) fn fill(bits: &mut [u8], range: Range<u32>, used: bool) {
    for index in range {
        let (byte, bit) = (index as usize / 8, 1 << (index % 8));
        if used {
            bits[byte] |= bit;
        } else {
            bits[byte] &= !bit;
        }
    }
}

/// Whether all of a range is in use, or with `used` false, free.
pub(crate) fn is_all(bits: &[u8], mut range: Range<u32>, used: bool) -> bool {
    range.all(|index| is_set(bits, index) == used)
}

/// The first index in `range` that is free.
pub(crate) fn first_free(bits: &[u8], range: Range<u32>) -> Option<u32> {
    free_runs(bits, range).next().map(|run| run.start)
}

/// The free runs in `range`, in order.
pub(crate) fn free_runs(bits: &[u8], range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = next(bits, at, range.end, false)?;
        let end = next(bits, start, range.end, true).unwrap_or(range.end);
        at = end;
        Some(start..end)
    })
}

/// The first index from `at` on that is in use, or free; whole bytes are skipped at once.
fn next(bits: &[u8], mut at: u32, end: u32, used: bool) -> Option<u32> {
    let skip = if used { 0 } else { 0xFF };
    while at < end {
        if at.is_multiple_of(8) && bits[at as usize / 8] == skip {
            at += 8;
        } else if is_set(bits, at) == used {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_runs_are_those_between_what_is_in_use() {
        let mut bits = [0; 8];
        fill(&mut bits, 0..3, true);
        fill(&mut bits, 17..40, true);
        fill(&mut bits, 20..21, false);
        let runs: Vec<_> = free_runs(&bits, 0..50).collect();
        assert_eq!(runs, [3..17, 20..21, 40..50]);
        assert_eq!(first_free(&bits, 17..40), Some(20));
        assert_eq!(first_free(&bits, 0..3), None);
        assert!(is_all(&bits, 3..17, false) && !is_all(&bits, 3..18, false));
    }
}
