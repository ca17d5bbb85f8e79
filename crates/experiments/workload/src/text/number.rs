//! Parses numbers and times.

use crate::error::{Fault, fault};

/// The unit of a trace's arrival times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimeUnit {
    /// Decimal digits of this unit that make up a nanosecond.
    const fn digits(self) -> u32 {
        match self {
            Self::Seconds => 9,
            Self::Milliseconds => 6,
            Self::Microseconds => 3,
            Self::Nanoseconds => 0,
        }
    }

    /// Nanoseconds in one of this unit.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        POWERS_OF_TEN[self.digits() as usize]
    }
}

const POWERS_OF_TEN: [u64; 10] =
    [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// Parses the whole of `field` as a decimal number.
pub(crate) fn number(field: &[u8], expected: &'static str) -> Result<u64, Fault> {
    match digits(field) {
        (value, used) if used == field.len() && used > 0 && used < 20 => Ok(value),
        _ => Err(fault(expected, field)),
    }
}

/// Parses the whole of `field` as a decimal number that fits 32 bits.
pub(crate) fn number_u32(field: &[u8], expected: &'static str) -> Result<u32, Fault> {
    let value = number(field, expected)?;
    u32::try_from(value).map_err(|_| fault(expected, field))
}

/// The value of the digits that begin `field`, and how many there are; meaningful below 20 digits.
fn digits(field: &[u8]) -> (u64, usize) {
    let mut value = 0_u64;
    let mut rest = field;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let Some(eight) = eight_digits(*chunk) else { break };
        value = value.wrapping_mul(100_000_000).wrapping_add(eight);
        rest = after;
    }
    while let Some((&byte, after)) = rest.split_first() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        rest = after;
    }
    (value, field.len() - rest.len())
}

/// The decimal number at the start of `field`, and the rest of the field.
pub(crate) fn leading_number(field: &[u8]) -> Option<(u64, &[u8])> {
    let (value, used) = digits(field);
    (used > 0 && used < 20).then(|| (value, &field[used..]))
}

/// Takes a decimal number and the comma after it off the front of `rest`, if they are there.
pub(crate) fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let (value, after) = leading_number(rest)?;
    *rest = after.strip_prefix(b",")?;
    Some(value)
}

/// The value of eight digits, worked out side by side in one word; `None` if one is no digit.
fn eight_digits(chunk: [u8; 8]) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROES: u64 = 0x3030_3030_3030_3030;
    const SIXES: u64 = 0x0606_0606_0606_0606;
    let word = u64::from_le_bytes(chunk);
    // '0' to '9' are 0x30 to 0x39: the high half is 3, and still is when 6 is added.
    if word & HIGH != ZEROES || word.wrapping_add(SIXES) & HIGH != ZEROES {
        return None;
    }
    // Neighbours become numbers of two digits, then of four, then of eight.
    let ones = word & !HIGH;
    let twos = (ones.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000 << 32 | 1) >> 32)
}

/// Parses the whole of `field` as a hexadecimal number, with or without `0x`.
pub(crate) fn hexadecimal(field: &[u8], expected: &'static str) -> Result<u64, Fault> {
    let hex = field.strip_prefix(b"0x").or(field.strip_prefix(b"0X")).unwrap_or(field);
    if hex.is_empty() || hex.len() > 16 {
        return Err(fault(expected, field));
    }
    let mut value = 0_u64;
    for &byte in hex {
        let digit = char::from(byte).to_digit(16).ok_or_else(|| fault(expected, field))?;
        value = value << 4 | u64::from(digit);
    }
    Ok(value)
}

/// A time in `unit`, with or without a fraction or an exponent, in nanoseconds.
///
/// Rounds to the nearest nanosecond: files written from floating point hold `.4621539998`.
pub(crate) fn time(field: &[u8], unit: TimeUnit, expected: &'static str) -> Result<u64, Fault> {
    let (whole, used) = digits(field);
    if used == 0 || used >= 20 {
        return Err(fault(expected, field));
    }
    let nanos = whole.checked_mul(unit.nanos()).ok_or_else(|| fault(expected, field))?;
    match field.get(used) {
        None => Ok(nanos),
        Some(b'.') => match fraction(&field[used + 1..], unit) {
            Some(fraction) => nanos.checked_add(fraction).ok_or_else(|| fault(expected, field)),
            None => floating_time(field, unit, expected),
        },
        Some(_) => floating_time(field, unit, expected),
    }
}

/// The nanoseconds of the digits after a decimal point; `None` if a character is not a digit.
fn fraction(field: &[u8], unit: TimeUnit) -> Option<u64> {
    let kept = unit.digits() as usize;
    let (value, used) = digits(&field[..field.len().min(kept)]);
    let rest = &field[used..];
    if used < kept {
        // At most nine digits are kept: the table has them all.
        return rest.is_empty().then(|| value * POWERS_OF_TEN[kept - used]);
    }
    if !rest.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value + u64::from(rest.first().is_some_and(|&byte| byte >= b'5')))
}

/// A time with an exponent, which spreadsheets write.
#[cold]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
fn floating_time(field: &[u8], unit: TimeUnit, expected: &'static str) -> Result<u64, Fault> {
    let text = std::str::from_utf8(field).map_err(|_| fault(expected, field))?;
    let value: f64 = text.parse().map_err(|_| fault(expected, field))?;
    let nanos = value * unit.nanos() as f64;
    if !(0.0..1.8e19).contains(&nanos) {
        return Err(fault(expected, field));
    }
    Ok(nanos.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        time(text.as_bytes(), TimeUnit::Seconds, "a time").ok()
    }

    #[test]
    fn times_are_rounded_to_nanoseconds() {
        assert_eq!(seconds("12"), Some(12_000_000_000));
        assert_eq!(seconds("12."), Some(12_000_000_000));
        assert_eq!(seconds("0.000001"), Some(1000));
        assert_eq!(seconds("1200487.4621539998"), Some(1_200_487_462_154_000));
        assert_eq!(seconds("1.9999999999"), Some(2_000_000_000));
        assert_eq!(seconds("1e3"), Some(1_000_000_000_000));
        assert_eq!(seconds("1.5e0"), Some(1_500_000_000));
        for bad in ["", ".", "-1", "x", "1x", "1.x", "99999999999999999999", "1e99", "nan"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
        let nanos = |text: &str| time(text.as_bytes(), TimeUnit::Nanoseconds, "a time").ok();
        assert_eq!(nanos("26214000"), Some(26_214_000));
        assert_eq!(nanos("1.6"), Some(2));
    }

    #[test]
    fn digits_of_any_number_are_worth_what_they_say() {
        let mut value = 1_u64;
        for step in 0..10_000_u64 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
            let shown = value >> (value % 60) & (u64::MAX >> 1);
            assert_eq!(number(shown.to_string().as_bytes(), "a number").ok(), Some(shown));
        }
        // A byte that is no digit is found at any position.
        for place in 0..12 {
            for byte in (0..=255).filter(|byte: &u8| !byte.is_ascii_digit()) {
                let mut field = *b"123456789012";
                field[place] = byte;
                assert!(number(&field, "a number").is_err(), "{field:?}");
            }
        }
    }

    #[test]
    fn numbers_are_whole_fields() {
        let parse = |text: &str| number(text.as_bytes(), "a number").ok();
        assert_eq!(parse("128166372003061629"), Some(128_166_372_003_061_629));
        for bad in ["", "1 ", "+1", "1.0", "99999999999999999999"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let hex = |text: &str| hexadecimal(text.as_bytes(), "a number").ok();
        assert_eq!(hex("0x1F"), Some(31));
        assert_eq!(hex("ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(hex("0x"), None);
        assert_eq!(hex("11111111111111111"), None);
    }
}
