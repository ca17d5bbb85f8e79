//! Changes of an image that are worth trying.

use manylogs_block::{Rng, SECTOR_BYTES, to_usize};

use crate::fuzz::image::{Image, ImageKind, Spot};
use crate::fuzz::seal;

/// The most changes of one image.
const CHANGES: u64 = 5;

/// The source of decisions: a seed, or a fuzzer's bytes.
pub trait Draw {
    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: u64) -> u64;
}

impl Draw for Rng {
    fn below(&mut self, bound: u64) -> u64 {
        Self::below(self, bound)
    }
}

/// Decisions taken from a fuzzer's bytes; zero once these are used up.
#[derive(Debug)]
pub struct FromBytes<'a>(pub &'a [u8]);

impl Draw for FromBytes<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        let len = if bound <= 1 << 8 {
            1
        } else if bound <= 1 << 16 {
            2
        } else {
            8
        };
        let (word, rest) = self.0.split_at(self.0.len().min(len));
        self.0 = rest;
        seal::number(word, 0, word.len()) % bound
    }
}

/// Changes some structures of the image, and mostly corrects their checksums.
pub fn mutate(image: &mut Image, draw: &mut impl Draw) {
    for _ in 0..1 + draw.below(CHANGES) {
        let spot = pick(image, draw);
        change(image, &spot, draw);
    }
    // Both copies are changed alike, because otherwise the intact one is used.
    for kind in [ImageKind::Superblock, ImageKind::Root] {
        if draw.below(2) == 0 {
            twin(image, kind, draw);
        }
    }
    match draw.below(4) {
        0 => {}
        1 => seal::image(image, false),
        _ => seal::image(image, true),
    }
}

/// Picks a structure; each kind is equally likely.
fn pick(image: &Image, draw: &mut impl Draw) -> Spot {
    let kinds = [
        ImageKind::Superblock,
        ImageKind::Root,
        ImageKind::Snapshot,
        ImageKind::Record,
        ImageKind::Record,
    ];
    let kind = kinds[to_usize(draw.below(kinds.len() as u64))];
    let of_kind: Vec<&Spot> = image.spots.iter().filter(|spot| spot.kind == kind).collect();
    let among = if of_kind.is_empty() { image.spots.iter().collect() } else { of_kind };
    among[to_usize(draw.below(among.len() as u64))].clone()
}

fn change(image: &mut Image, spot: &Spot, draw: &mut impl Draw) {
    // Most of the meaningful bytes are at the start.
    let len = spot.range.len();
    let len = if draw.below(4) > 0 { len.min(320) } else { len } as u64;
    let at = spot.range.start + to_usize(draw.below(len));
    match draw.below(10) {
        0 => image.write(at, &[draw.below(256).to_le_bytes()[0]]),
        1 => {
            let old = image.read(at, 1)[0];
            image.write(at, &[old ^ 1 << draw.below(8)]);
        }
        2..=6 => set_number(image, at, draw),
        7 => {
            let from = pick(image, draw).range;
            let skip = to_usize(draw.below(from.len() as u64)) & !3;
            let word = image.read(from.start + skip, 8);
            image.write(at & !3, &word);
        }
        8 => {
            let sectors = 1 + to_usize(draw.below(4));
            let start = at / 512 * 512;
            image.write(start, &vec![0; sectors * to_usize(SECTOR_BYTES)]);
        }
        _ => {
            let from = pick(image, draw).range;
            let content = image.read(from.start, from.len());
            image.write(spot.range.start, &content);
        }
    }
}

/// Replaces a field of 4 or 8 bytes with a number at the edge of a type or a range.
fn set_number(image: &mut Image, at: usize, draw: &mut impl Draw) {
    let len = if draw.below(2) == 0 { 4 } else { 8 };
    let at = at & !3;
    let old = seal::number(&image.read(at, 8), 0, len);
    let device = image.sectors.0;
    let value = match draw.below(12) {
        0 => 0,
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => old.wrapping_mul(2),
        4 => u64::MAX >> draw.below(64),
        5 => 1 << draw.below(64),
        6 => device.wrapping_sub(draw.below(32)),
        7 => draw.below(16),
        8 => draw.below(device),
        9 => old ^ 1 << draw.below(64),
        10 => old.wrapping_add(draw.below(512)),
        _ => draw.below(u64::MAX),
    };
    image.write(at, &value.to_le_bytes()[..len]);
}

/// Copies one of the two copies of a structure over the other.
fn twin(image: &mut Image, kind: ImageKind, draw: &mut impl Draw) {
    let mut places: Vec<Spot> = image.spots.iter().filter(|s| s.kind == kind).cloned().collect();
    if draw.below(2) == 0 {
        places.reverse();
    }
    if let [from, to, ..] = places.as_slice() {
        let content = image.read(from.range.start, from.range.len());
        image.write(to.range.start, &content);
    }
}
