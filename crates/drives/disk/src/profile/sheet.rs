//! A drive as its data sheet describes it: a few figures, and defaults for the others.
//!
//! ```toml
//! name = "backup-1"
//! capacity = "18T"
//! rpm = 7200
//! outer_mb_s = 270
//! inner_mb_s = 130
//! seek_ms = 8.5
//! cache = "256M"
//! ```
//!
//! [`Sheet::complete`] adds a default for each missing figure, with a range where the default is a
//! guess. [`Sheet::profile`] makes the drive. `docs/drive-model.md` has the table of defaults.

mod defaults;
mod expand;
mod figures;
mod invert;
mod parse;
mod quantity;
mod sane;
mod vary;
mod write;

use std::collections::BTreeMap;

pub use expand::idema_sectors;
pub use figures::{FigureKind, Key};
pub use quantity::Quantity;

use crate::link::LinkKind;

/// The version of the form that this program writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The maker published it.
    DataSheet,
    /// It was measured on the drive, or on one like it.
    Measurement,
    /// A value that is usual for the class of drives, or one that makes no difference.
    Default,
    /// A guess: the value is not known.
    Guess,
}

impl Origin {
    /// The origin that the text of a source states. A text that begins with none of the known words
    /// means a data sheet.
    #[must_use]
    pub fn of(source: &str) -> Self {
        let begins = |words: &[&str]| words.iter().any(|word| source.starts_with(word));
        if begins(&["guess", "assumed", "recalled", "chosen"]) {
            Self::Guess
        } else if begins(&["measure", "DIXtrac", "fitted"]) {
            Self::Measurement
        } else if begins(&["default"]) {
            Self::Default
        } else {
            Self::DataSheet
        }
    }

    /// The word with which the text of a source begins.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::DataSheet => "data sheet",
            Self::Measurement => "measurement",
            Self::Default => "default",
            Self::Guess => "guess",
        }
    }
}

/// A number with its origin, and its range if it is a guess.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// In the unit of its [`Key`].
    pub value: f64,
    /// Its origin in words; they begin as [`Origin::of`] expects.
    pub source: String,
    /// Least and greatest value that the figure may have.
    pub range: Option<(f64, f64)>,
}

impl Figure {
    /// A number that a source states.
    #[must_use]
    pub fn stated(value: f64, source: &str) -> Self {
        Self { value, source: source.to_owned(), range: None }
    }

    /// The origin of the figure.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin::of(&self.source)
    }
}

/// Figures and features of a drive, as far as they are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// Short name by which commands choose the drive.
    pub name: String,
    /// Vendor, model, size; empty if not known.
    pub model: String,
    /// Model numbers as the drive reports them, or their beginnings.
    pub models: Vec<String>,
    /// Serial numbers of the drives that this is a profile of.
    pub serials: Vec<String>,
    /// The drive whose figures replace those missing here.
    pub like: Option<String>,
    /// The figures.
    pub figures: BTreeMap<Key, Figure>,
    /// The kind of link, if known.
    pub link: Option<LinkKind>,
    /// Whether the host knows that the drive takes forced unit access, if known.
    pub fua: Option<bool>,
    /// Whether the write cache is on when the drive starts, if known.
    pub write_cache: Option<bool>,
    /// Whether the drive has shingled tracks that it manages itself.
    pub shingled: bool,
    /// Traits of the drive that the model lacks, and their consequences.
    pub not_modelled: Vec<String>,
    /// Figures that the modelled drive is compared with.
    pub bars: super::Bars,
    /// Power and starts of the spindle, if known.
    pub power: Option<super::PowerTable>,
    /// Sources of entries that are no figures: link, shingled, bars.
    pub other_sources: super::Sources,
}

impl Sheet {
    /// A sheet with a name and no figures.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            model: String::new(),
            models: Vec::new(),
            serials: Vec::new(),
            like: None,
            figures: BTreeMap::new(),
            link: None,
            fua: None,
            write_cache: None,
            shingled: false,
            not_modelled: Vec::new(),
            bars: super::Bars::default(),
            power: None,
            other_sources: super::Sources::new(),
        }
    }

    /// The value of `key`, if it is known.
    #[must_use]
    pub fn value(&self, key: Key) -> Option<f64> {
        self.figures.get(&key).map(|figure| figure.value)
    }

    /// Sets a figure to `value`.
    pub fn state(&mut self, key: Key, value: f64, source: &str) {
        self.figures.insert(key, Figure::stated(value, source));
    }

    /// The uncertain figures, with their ranges.
    pub fn ranges(&self) -> impl Iterator<Item = (Key, (f64, f64))> + '_ {
        self.figures.iter().filter_map(|(key, figure)| {
            #[cfg(test)]
            if crate::planted::is(crate::planted::Bug::RangeOnMeasured) {
                let around = (figure.value * 0.75, figure.value * 1.25);
                return Some((*key, figure.range.unwrap_or(around)));
            }
            figure.range.map(|range| (*key, range))
        })
    }

    /// Takes from `other` the figures that are missing here.
    pub fn take_missing_of(&mut self, other: &Self) {
        for (key, figure) in &other.figures {
            let taken = || Figure {
                source: match figure.origin() {
                    Origin::Guess => figure.source.clone(),
                    _ => format!("default: as {}", other.name),
                },
                ..figure.clone()
            };
            self.figures.entry(*key).or_insert_with(taken);
        }
        self.link = self.link.or(other.link);
        self.fua = self.fua.or(other.fua);
        self.write_cache = self.write_cache.or(other.write_cache);
        self.power = self.power.take().or_else(|| other.power.clone());
    }
}

#[cfg(test)]
mod tests;
