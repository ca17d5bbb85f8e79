//! Numbers with units, as data sheets write them.

use serde::Deserialize;

use super::FigureKind;

/// A number, or a text with a number and its unit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    /// A number in the unit of the key.
    Number(f64),
    /// Such as `256M`, `8.5 ms`, `262 MiB/s`.
    Text(String),
}

impl Quantity {
    /// The value in the unit of `kind`.
    ///
    /// # Errors
    /// What was expected, if the number or its unit does not fit `kind`.
    pub fn value(&self, kind: FigureKind) -> Result<f64, String> {
        let value = match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => parse(text, kind)?,
        };
        let value = value.filter(|value| value.is_finite());
        let whole = !matches!(kind, FigureKind::Count | FigureKind::Bytes | FigureKind::Capacity);
        let value = value.filter(|value| whole || value.fract() == 0.0);
        value.ok_or_else(|| format!("expected {}, found {}", expected(kind), self.shown()))
    }

    fn shown(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => format!("{text:?}"),
        }
    }
}

const fn expected(kind: FigureKind) -> &'static str {
    match kind {
        FigureKind::Count => "a whole number",
        FigureKind::Number => "a number",
        FigureKind::Ms => "milliseconds, as 8.5 or \"8.5 ms\"",
        FigureKind::MbS => "MB/s (10^6 bytes), as 270 or \"262 MiB/s\"",
        FigureKind::Bytes => "a size as \"256M\", in powers of 1024",
        FigureKind::Capacity => {
            "a capacity as \"18T\" (10^12 bytes, as data sheets have it), or sectors"
        }
    }
}

/// The value of `text`; none if it is not a number with a unit of `kind`.
fn parse(text: &str, kind: FigureKind) -> Result<Option<f64>, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let Ok(number) = number.replace('_', "").parse::<f64>() else { return Ok(None) };
    if kind == FigureKind::Capacity {
        return capacity(text, number, unit.trim());
    }
    Ok(factor(kind, unit.trim()).map(|factor| rounded(number * factor, kind)))
}

/// Rounds sizes such as 1.5M to whole bytes.
fn rounded(value: f64, kind: FigureKind) -> f64 {
    if kind == FigureKind::Bytes { value.round() } else { value }
}

fn factor(kind: FigureKind, unit: &str) -> Option<f64> {
    #[cfg(test)]
    if crate::planted::is(crate::planted::Bug::UnitTakenForAnother) {
        match unit {
            "MiB/s" | "us" => return Some(1.0),
            _ => {}
        }
    }
    match (kind, unit) {
        (_, "")
        | (FigureKind::Ms, "ms")
        | (FigureKind::MbS, "MB/s" | "MB")
        | (FigureKind::Bytes, "B") => Some(1.0),
        (FigureKind::Ms, "us") => Some(1e-3),
        (FigureKind::Ms, "s") => Some(1e3),
        (FigureKind::MbS, "MiB/s" | "MiB") => Some(1.048_576),
        (FigureKind::Bytes, "K" | "KB" | "KiB") => Some(1024.0),
        (FigureKind::Bytes, "M" | "MB" | "MiB") => Some(1_048_576.0),
        (FigureKind::Bytes, "G" | "GB" | "GiB") => Some(1_073_741_824.0),
        _ => None,
    }
}

/// A capacity as sectors of 512 bytes.
fn capacity(text: &str, number: f64, unit: &str) -> Result<Option<f64>, String> {
    let gigabytes = match unit {
        "T" | "TB" => number * 1e3,
        "G" | "GB" => number,
        "TiB" | "GiB" | "Ti" | "Gi" => {
            return Err(format!(
                "expected the capacity as the data sheet names it, in TB or GB (powers of 1000): \
                 \"18T\"; found {text:?}: give TB, or the exact number of sectors of 512 bytes"
            ));
        }
        "sectors" | "" if number >= 1e6 => return Ok(Some(number)),
        "" => {
            return Err(format!(
                "expected {}; {text:?} has no unit, and no drive is that small",
                expected(FigureKind::Capacity)
            ));
        }
        _ => return Ok(None),
    };
    Ok(super::idema_sectors(gigabytes).map(|sectors| sectors as f64))
}
