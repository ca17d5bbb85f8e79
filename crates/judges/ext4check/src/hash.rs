//! Hashes of names, as the index of a directory orders them.

/// Initial chain, if the file system has no seed: that of MD4.
const CHAIN: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
/// A hash that is reserved for the end of a directory.
const END: u32 = 0xFFFF_FFFE;

/// The functions that an index may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

impl Function {
    pub(crate) const fn of(version: u8) -> Option<Self> {
        match version {
            0 | 3 => Some(Self::Legacy),
            1 | 4 => Some(Self::HalfMd4),
            2 | 5 => Some(Self::Tea),
            _ => None,
        }
    }

    /// The hash of a name; its lowest bit is clear.
    pub(crate) fn hash(self, name: &[u8], seed: [u32; 4], unsigned: bool) -> u32 {
        let mut chain = if seed == [0; 4] { CHAIN } else { seed };
        let value = match self {
            Self::Legacy => legacy(name, unsigned),
            Self::HalfMd4 => {
                for (at, _) in name.iter().enumerate().step_by(32) {
                    half_md4(&mut chain, words::<8>(&name[at..], unsigned));
                }
                chain[1]
            }
            Self::Tea => {
                for (at, _) in name.iter().enumerate().step_by(16) {
                    tea(&mut chain, words::<4>(&name[at..], unsigned));
                }
                chain[0]
            }
        };
        match value & !1 {
            END => END - 2,
            value => value,
        }
    }
}

fn widened(byte: u8, unsigned: bool) -> u32 {
    if unsigned { byte.into() } else { i32::from(byte.cast_signed()).cast_unsigned() }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
    for byte in name {
        let product = widened(*byte, unsigned).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(last ^ product);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7FFF_FFFF);
        }
        (before, last) = (last, next);
    }
    last << 1
}

/// Big-endian words of a name. Missing bytes are filled with the length of the present ones.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let pad = u32::try_from(rest.len()).unwrap_or(0) * 0x0101_0101;
    let mut out = [pad; N];
    for (at, byte) in rest.iter().take(4 * N).enumerate() {
        let word = &mut out[at / 4];
        *word = (*word << 8).wrapping_add(widened(*byte, unsigned));
    }
    out
}

fn half_md4(chain: &mut [u32; 4], words: [u32; 8]) {
    let [mut a, mut b, mut c, mut d] = *chain;
    let mut step = |mixed: fn(u32, u32, u32) -> u32, word: u32, turn: u32| {
        let sum = a.wrapping_add(mixed(b, c, d)).wrapping_add(word).rotate_left(turn);
        (a, b, c, d) = (d, sum, b, c);
    };
    for at in 0..8 {
        step(|x, y, z| x & y | !x & z, words[at], [3, 7, 11, 19][at % 4]);
    }
    for (at, word) in [1, 3, 5, 7, 0, 2, 4, 6].into_iter().enumerate() {
        let word = words[word].wrapping_add(0x5A82_7999);
        step(|x, y, z| x & y | x & z | y & z, word, [3, 5, 9, 13][at % 4]);
    }
    for (at, word) in [3, 7, 2, 6, 1, 5, 0, 4].into_iter().enumerate() {
        let word = words[word].wrapping_add(0x6ED9_EBA1);
        step(|x, y, z| x ^ y ^ z, word, [3, 9, 11, 15][at % 4]);
    }
    for (part, more) in chain.iter_mut().zip([a, b, c, d]) {
        *part = part.wrapping_add(more);
    }
}

fn tea(chain: &mut [u32; 4], key: [u32; 4]) {
    let (mut x, mut y, mut sum) = (chain[0], chain[1], 0_u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let first = (y << 4).wrapping_add(key[0]);
        x = x.wrapping_add(first ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(key[1]));
        let second = (x << 4).wrapping_add(key[2]);
        y = y.wrapping_add(second ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(key[3]));
    }
    chain[0] = chain[0].wrapping_add(x);
    chain[1] = chain[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hashes are those that `dx_hash` of debugfs prints, without a seed.
    #[test]
    fn hashes_are_those_of_debugfs() {
        let long = b"a name that is so long that it takes more than one step";
        for (function, name, expected) in [
            (Function::Legacy, &b"hello"[..], 0x3225_2546),
            (Function::Legacy, long, 0x0323_a148),
            (Function::HalfMd4, b"hello", 0x1746_da32),
            (Function::Tea, b"hello", 0x6f5b_b1a8),
            (Function::HalfMd4, long, 0xca72_f794),
            (Function::Tea, long, 0x084a_f554),
        ] {
            assert_eq!(function.hash(name, [0; 4], false), expected, "{function:?}");
        }
    }
}
