//! A set of processors, with the interface of the crate `bitmaps` that libublk calls.
//!
//! This project does not link that crate because of its licence (MPL-2.0). `Cargo.toml` puts this
//! crate in its place; it has only what libublk calls. libublk keeps in such a set the processors
//! on which the kernel wants a queue's thread to run. We do not ask the kernel for them: the thread
//! runs anywhere.

/// Numbers that a set has room for: libublk uses no other size.
const BITS: usize = 1024;
const BYTES: usize = BITS / 8;

/// A set of numbers below `SIZE`, which is 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bitmap<const SIZE: usize>([u8; BYTES]);

impl<const SIZE: usize> Bitmap<SIZE> {
    const SIZE_IS_KNOWN: () = assert!(SIZE == BITS, "sets of other sizes are not there");

    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        () = Self::SIZE_IS_KNOWN;
        Self([0; BYTES])
    }

    /// The set as the kernel has it: number `n` is bit `n % 8` of byte `n / 8`.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Puts `number` in if `there`, else takes it out; returns whether it was in the set before.
    ///
    /// # Panics
    /// If `number` is `SIZE` or more.
    pub const fn set(&mut self, number: usize, there: bool) -> bool {
        let (byte, bit) = (&mut self.0[number / 8], 1 << (number % 8));
        let was = *byte & bit != 0;
        if there {
            *byte |= bit;
        } else {
            *byte &= !bit;
        }
        was
    }
}

impl<const SIZE: usize> Default for Bitmap<SIZE> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, const SIZE: usize> IntoIterator for &'a Bitmap<SIZE> {
    type Item = usize;
    type IntoIter = Numbers<'a>;

    fn into_iter(self) -> Numbers<'a> {
        Numbers { bytes: &self.0, next: 0 }
    }
}

/// The numbers of a set, in order.
#[derive(Clone, Debug)]
pub struct Numbers<'a> {
    bytes: &'a [u8; BYTES],
    next: usize,
}

impl Iterator for Numbers<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bytes = self.bytes;
        let found = (self.next..BITS).find(|n| bytes[n / 8] & 1 << (n % 8) != 0);
        self.next = found.map_or(BITS, |number| number + 1);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_as_the_kernel_has_them() {
        let mut set = Bitmap::<1024>::new();
        assert!(!set.set(3, true) && !set.set(8, true) && !set.set(1023, true));
        assert!(set.set(3, true));
        assert_eq!((&set).into_iter().collect::<Vec<_>>(), [3, 8, 1023]);
        assert_eq!((set.as_bytes()[0], set.as_bytes()[1], set.as_bytes()[127]), (8, 1, 128));
        assert!(set.set(8, false));
        assert_eq!((&set).into_iter().collect::<Vec<_>>(), [3, 1023]);
        assert_eq!((&Bitmap::<1024>::default()).into_iter().next(), None);
    }
}
