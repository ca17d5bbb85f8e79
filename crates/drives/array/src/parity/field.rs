//! Arithmetic of parity: sums of contents, weighted by elements of the field of 256 elements that
//! Linux' RAID-6 uses (H. P. Anvin, "The mathematics of RAID-6").

use manylogs_block::{Payload, SECTOR_BYTES, Sector, Sectors, to_usize};

const BYTES: usize = to_usize(SECTOR_BYTES);
/// The polynomial of the field, without its highest term.
const POLYNOMIAL: u8 = 0x1d;
/// A tagged sector counts as these bytes at its end, with the tag in front of them.
const MARK: [u8; 8] = *b"\x7ftagged\x7f";

/// The generator of the field to the power of `exponent`.
pub(super) fn power(exponent: u16) -> u8 {
    (0..exponent).fold(1, |value, _| double(value))
}

/// The element by which `value` must be multiplied to give 1. Of 0 there is none: the result is 0.
pub(super) fn inverse(value: u8) -> u8 {
    // The group of the other elements has 255 members.
    (0..254).fold(1, |product, _| multiply(product, value))
}

pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut a, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        a = double(a);
        bit += 1;
    }
    product
}

const fn double(value: u8) -> u8 {
    (value << 1) ^ if value & 0x80 == 0 { 0 } else { POLYNOMIAL }
}

/// The sum of the contents `terms`, each multiplied by its weight; all have the length `len`. A
/// sector that is absent from one of them is absent from the sum.
pub(super) fn sum(len: Sectors, terms: &[(u8, &Payload)]) -> Payload {
    let mut each: Vec<_> = terms.iter().map(|(weight, term)| (*weight, term.sectors())).collect();
    let mut out = Payload::default();
    for _ in 0..len.0 {
        let (mut total, mut absent) = (None, false);
        for (weight, sectors) in &mut each {
            match sectors.next().flatten() {
                None => absent = true,
                Some(Sector::Zero) => {}
                Some(sector) => add(total.get_or_insert([0; BYTES]), *weight, &bytes_of(&sector)),
            }
        }
        out.append(match total {
            _ if absent => Payload::absent(Sectors(1)),
            None => Payload::zeroes(Sectors(1)),
            Some(total) => sector_of(&total).into(),
        });
    }
    out
}

fn add(total: &mut [u8; BYTES], weight: u8, bytes: &[u8; BYTES]) {
    if weight == 1 {
        total.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        return;
    }
    let mut products = [0; 256];
    for (value, product) in (0..=u8::MAX).zip(&mut products) {
        *product = multiply(weight, value);
    }
    total.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= products[usize::from(*byte)]);
}

fn bytes_of(sector: &Sector) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    match sector {
        Sector::Zero => {}
        Sector::Tag(tag) => {
            bytes[BYTES - 16..BYTES - 8].copy_from_slice(&tag.to_le_bytes());
            bytes[BYTES - 8..].copy_from_slice(&MARK);
        }
        Sector::Bytes(content) => bytes.copy_from_slice(content),
    }
    bytes
}

fn sector_of(bytes: &[u8; BYTES]) -> Sector {
    let (front, end) = bytes.split_at(BYTES - 16);
    if front.iter().any(|byte| *byte != 0) {
        return Sector::Bytes(bytes.to_vec().into());
    }
    let (tag, mark) = end.split_at(8);
    match tag.try_into().map(u64::from_le_bytes) {
        Ok(tag) if mark == MARK => Sector::Tag(tag),
        Ok(0) if mark == [0; 8] => Sector::Zero,
        _ => Sector::Bytes(bytes.to_vec().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        for value in 1..=u8::MAX {
            assert_eq!(multiply(value, inverse(value)), 1, "{value}");
        }
        assert_eq!((power(0), power(1), power(8)), (1, 2, POLYNOMIAL));
    }

    #[test]
    fn what_is_added_twice_is_gone() {
        let len = Sectors(3);
        let tags = Payload::tags(5, len);
        let mut bytes = Payload::bytes(vec![7; BYTES]);
        bytes.append(Payload::zeroes(Sectors(2)));
        for weight in [1, 2, 77] {
            let both = sum(len, &[(weight, &tags), (1, &bytes)]);
            assert_ne!(both, tags);
            let back = sum(len, &[(1, &both), (1, &bytes)]);
            assert_eq!(sum(len, &[(inverse(weight), &back)]), tags, "{weight}");
        }
        assert_eq!(sum(len, &[(1, &tags), (1, &tags)]), Payload::zeroes(len));
        let absent = Payload::absent(len);
        assert_eq!(sum(len, &[(1, &tags), (1, &absent)]), absent);
    }
}
