//! Hashes of names, by which an index finds them.

use crate::error::{Error, Result};
use crate::geometry::Geometry;

/// The initial state of hashes, if the file system has no seed.
const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// A hash that marks the end of a directory, and is not given to names.
const END: u32 = 0xffff_fffe;

/// How names of a directory are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash {
    function: Function,
    seed: [u32; 4],
    /// Whether bytes of names count as signed numbers.
    signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    /// The hash of the first indexes, which has no seed.
    Legacy,
    HalfMd4,
    Tea,
}

/// A hash of a name that spreads new directories over the groups, whether or not their parent has
/// an index.
pub(crate) fn spread(geometry: &Geometry, name: &[u8]) -> u32 {
    let hash = Hash { function: Function::HalfMd4, seed: seed_of(geometry), signed: false };
    // The lowest bit is always clear.
    hash.of(name) >> 1
}

fn seed_of(geometry: &Geometry) -> [u32; 4] {
    let is_given = geometry.hash_seed.iter().any(|word| *word != 0);
    if is_given { geometry.hash_seed } else { INITIAL }
}

impl Hash {
    /// The hash of a directory whose index has this version.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for hashes of features that are not supported.
    pub(super) fn new(version: u8, geometry: &Geometry) -> Result<Self> {
        let function = match version {
            0 => Function::Legacy,
            1 => Function::HalfMd4,
            2 => Function::Tea,
            _ => return Err(Error::Unsupported("an index with another hash of names")),
        };
        let seed = seed_of(geometry);
        Ok(Self { function, seed, signed: !geometry.hashes_unsigned })
    }

    /// A hash for tests.
    #[cfg(test)]
    pub(super) const fn unseeded() -> Self {
        Self { function: Function::HalfMd4, seed: INITIAL, signed: true }
    }

    /// The hash of a name; its lowest bit is clear.
    pub(super) fn of(self, name: &[u8]) -> u32 {
        let hash = match self.function {
            Function::Legacy => self.legacy(name),
            Function::HalfMd4 => self.half_md4(name)[1],
            Function::Tea => {
                let mut state = self.seed;
                self.each(name, |words| tea(&mut state, words));
                state[0]
            }
        } & !1;
        if hash == END { END - 2 } else { hash }
    }

    /// The hash of a name, and a second one that tells names with equal hashes apart. It is that of
    /// MD4 whatever the first is: names can be made to have all of TEA's in common.
    pub(super) fn both(self, name: &[u8]) -> (u32, u32) {
        (self.of(name), self.half_md4(name)[2])
    }

    fn half_md4(self, name: &[u8]) -> [u32; 4] {
        let mut state = self.seed;
        self.each(name, |words| half_md4(&mut state, words));
        state
    }

    /// Passes a name to `step` in pieces of N words.
    fn each<const N: usize>(self, name: &[u8], mut step: impl FnMut(&[u32; N])) {
        let mut rest = name;
        while !rest.is_empty() {
            step(&self.words(rest));
            rest = rest.get(4 * N..).unwrap_or(&[]);
        }
    }

    /// Each number depends on the two before it.
    fn legacy(self, name: &[u8]) -> u32 {
        let (mut earlier, mut last) = (0x37ab_e8f9_u32, 0x12a3_fe2d_u32);
        for byte in name {
            let sum = earlier.wrapping_add(last ^ self.number(*byte).wrapping_mul(7_152_373));
            // Modulo 2^31 - 1, reduced once.
            let next = if sum >> 31 == 0 { sum } else { sum.wrapping_sub(0x7fff_ffff) };
            (earlier, last) = (last, next);
        }
        last << 1
    }

    fn number(self, byte: u8) -> u32 {
        if self.signed { i32::from(byte.cast_signed()).cast_unsigned() } else { u32::from(byte) }
    }

    /// The first bytes of `rest` as big-endian words, filled up with its length.
    fn words<const N: usize>(self, rest: &[u8]) -> [u32; N] {
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let pad = (len | len << 8) | (len | len << 8) << 16;
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            for byte in bytes {
                *word = (*word << 8).wrapping_add(self.number(*byte));
            }
        }
        words
    }
}

/// The compression function of MD4 with eight words and half of the steps.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5a82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let mut now = *state;
    for (mix, constant, order, shifts) in rounds {
        for (number, word) in order.into_iter().enumerate() {
            // The four parts rotate: the last comes first in the next step.
            let [a, b, c, d] = now;
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]);
            let turned = sum.wrapping_add(constant).rotate_left(shifts[number % 4]);
            now = [d, turned, b, c];
        }
    }
    for (part, more) in state.iter_mut().zip(now) {
        *part = part.wrapping_add(more);
    }
}

/// The Tiny Encryption Algorithm of Wheeler and Needham, sixteen cycles.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut left, mut right, mut sum) = (state[0], state[1], 0_u32);
    let mix = |from: u32, sum: u32, first: u32, second: u32| {
        (from << 4).wrapping_add(first) ^ from.wrapping_add(sum) ^ (from >> 5).wrapping_add(second)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        left = left.wrapping_add(mix(right, sum, key[0], key[1]));
        right = right.wrapping_add(mix(left, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of `dx_hash -h` of debugfs, without a seed.
    #[test]
    fn hashes_are_those_of_debugfs() {
        let hash = |function, name: &str| {
            Hash { function, seed: INITIAL, signed: true }.of(name.as_bytes())
        };
        let long = "a name that is so long that it takes more than one step";
        for (function, name, expected) in [
            (Function::Legacy, "hello", 0x3225_2546),
            (Function::Legacy, long, 0x0323_a148),
            (Function::HalfMd4, "hello", HELLO[0]),
            (Function::HalfMd4, long, LONG[0]),
            (Function::Tea, "hello", HELLO[1]),
            (Function::Tea, long, LONG[1]),
        ] {
            assert_eq!(hash(function, name), expected, "{function:?} {name}");
        }
    }

    const HELLO: [u32; 2] = [0x1746_da32, 0x6f5b_b1a8];
    const LONG: [u32; 2] = [0xca72_f794, 0x084a_f554];
}
