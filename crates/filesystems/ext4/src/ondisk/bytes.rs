//! Numbers at offsets. Offsets are constants within structures of fixed size.

macro_rules! field {
    ($get:ident, $put:ident, $number:ty, $from:ident, $to:ident) => {
        pub(crate) fn $get(bytes: &[u8], at: usize) -> $number {
            let mut number = [0; size_of::<$number>()];
            number.copy_from_slice(&bytes[at..at + size_of::<$number>()]);
            <$number>::$from(number)
        }

        pub(crate) fn $put(bytes: &mut [u8], at: usize, number: $number) {
            bytes[at..at + size_of::<$number>()].copy_from_slice(&number.$to());
        }
    };
}

field!(le16, put_le16, u16, from_le_bytes, to_le_bytes);
field!(le32, put_le32, u32, from_le_bytes, to_le_bytes);
field!(be16, put_be16, u16, from_be_bytes, to_be_bytes);
field!(be32, put_be32, u32, from_be_bytes, to_be_bytes);
field!(be64, put_be64, u64, from_be_bytes, to_be_bytes);

/// The lower 16 bits.
#[expect(clippy::cast_possible_truncation, reason = "that is what is asked for")]
pub(crate) const fn low16(number: u32) -> u16 {
    number as u16
}

/// The upper 16 bits.
pub(crate) const fn high16(number: u32) -> u16 {
    low16(number >> 16)
}

/// The lower 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "that is what is asked for")]
pub(crate) const fn low32(number: u64) -> u32 {
    number as u32
}

/// The upper 32 bits.
pub(crate) const fn high32(number: u64) -> u32 {
    low32(number >> 32)
}

/// A number whose two halves lie apart.
pub(crate) const fn join32(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}
