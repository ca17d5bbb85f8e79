//! Refuses impossible figures and adds defaults for missing ones.

use super::{Figure, Key, Origin, Sheet, expand};
use crate::profile::check::{Check, values};
use crate::profile::{Profile, ProfileError, catalogued, find};

/// The largest capacity that the model supports.
const SECTORS_MAX: f64 = 1e12;

impl Sheet {
    /// Adds a default for each missing figure: first those of the drive named by `like`, then those
    /// of the class.
    ///
    /// # Errors
    /// When a figure is impossible, or the drive named by `like` is unknown; `origin` names the
    /// sheet.
    pub fn complete(mut self, origin: &str) -> Result<Self, ProfileError> {
        stated(&Check::new(origin), &self)?;
        if let Some(name) = self.like.clone() {
            let like = match find(&name)? {
                Some(found) => Some(found),
                None => catalogued(&name)?,
            };
            let expected = format!(
                "expected a drive that comes with the program (`manylogs drive list`), found \
                 `{name}`"
            );
            let check = Check::new(origin);
            let Some(like) = like else {
                return check.that(false, "like", &expected).map(|()| self);
            };
            self.take_missing_of(&Self::of(&like));
        }
        self.add_defaults();
        together(&Check::new(origin), &self)?;
        Ok(self)
    }

    /// The drive that this sheet describes.
    ///
    /// # Errors
    /// As [`Sheet::complete`].
    pub fn profile(self, origin: &str) -> Result<Profile, ProfileError> {
        let complete = self.complete(origin)?;
        let mut profile = expand::expand(&complete);
        for (bar, key) in
            [(&mut profile.bars.outer_mb_s, Key::Outer), (&mut profile.bars.inner_mb_s, Key::Inner)]
        {
            let told = complete.figures.get(&key).filter(|figure| {
                matches!(figure.origin(), Origin::DataSheet | Origin::Measurement)
            });
            if let Some(figure) = told.filter(|_| bar.is_none()) {
                *bar = Some(figure.value);
                profile.bars.source.insert(key.name().to_owned(), figure.source.clone());
            }
        }
        values(origin, &profile)?;
        profile.sheet = Some(Box::new(complete));
        Ok(profile)
    }
}

/// Checks each figure that the sheet gives on its own.
fn stated(check: &Check<'_>, sheet: &Sheet) -> Result<(), ProfileError> {
    check.that(!sheet.name.trim().is_empty(), "name", "expected a short name")?;
    for (key, figure) in &sheet.figures {
        one(check, *key, figure)?;
    }
    let missing = |key| {
        let expected = "expected it: without capacity and rpm nothing can be said of a drive";
        check.that(sheet.value(key).is_some(), key.name(), expected)
    };
    missing(Key::Capacity)?;
    missing(Key::Rpm)
}

fn one(check: &Check<'_>, key: Key, figure: &Figure) -> Result<(), ProfileError> {
    let (value, name) = (figure.value, key.name());
    if key == Key::Rpm {
        let turns = "expected the revolutions a minute of a disk, found 0: what does not turn (an \
            SSD) has no seeks to save, and no profile";
        check.that(value > 0.0, name, turns)?;
    }
    let (low, high) = match key {
        Key::Capacity => (32_768.0, SECTORS_MAX),
        Key::Rpm => (3_600.0, 20_000.0),
        Key::Outer | Key::Inner => (1.0, 2_000.0),
        Key::Seek | Key::FullStroke | Key::TrackToTrack => (0.01, 999.0),
        Key::HeadSwitch | Key::WriteSettle => (0.0, 100.0),
        Key::Cache => (65_536.0, 68_719_476_736.0),
        Key::Segments => (1.0, 4_096.0),
        Key::Segment | Key::WriteBuffer => (4_096.0, 68_719_476_736.0),
        Key::Heads => (1.0, 64.0),
        Key::BandCylinders => (1.0, 1e6),
        Key::WriteRetry => (0.0, 0.5),
        Key::QueueDepth => (1.0, 32.0),
        Key::Margin => (0.0, 16.0),
        Key::PhysicalSector => (512.0, 4_096.0),
        Key::PersistentCache => (1e8, 1e13),
        Key::Band => (1e6, 1e9),
    };
    check.within(value, low, high, name)?;
    let Some(range) = figure.range else { return Ok(()) };
    let place = format!("range.{name}");
    let word = figure.origin().word();
    let expected = format!(
        "expected none: `{name}` comes from a {word}; a range is that of a guess or a default \
         (source.{name} = \"guess: ...\")"
    );
    check.that(figure.may_range(), &place, &expected)?;
    let expected = format!("expected least and greatest with {value} between them");
    check.that(range.0 <= value && value <= range.1, &place, &expected)?;
    check.within(range.0, low, high, &place)?;
    check.within(range.1, low, high, &place)
}

/// Checks the figures against each other.
fn together(check: &Check<'_>, sheet: &Sheet) -> Result<(), ProfileError> {
    let value = |key| sheet.value(key).unwrap_or(0.0);
    let (outer, inner) = (value(Key::Outer), value(Key::Inner));
    let expected = format!("expected at most the outer rate of {outer} MB/s, found {inner}");
    check.that(inner <= outer, Key::Inner.name(), &expected)?;
    let revolution_ms = 60e3 / value(Key::Rpm);
    let seek = value(Key::Seek);
    let expected = format!(
        "expected milliseconds, at most two revolutions ({:.1} ms at {} rpm), found {seek}",
        2.0 * revolution_ms,
        value(Key::Rpm)
    );
    check.that(seek <= 2.0 * revolution_ms, Key::Seek.name(), &expected)?;
    let (next, full) = (value(Key::TrackToTrack), value(Key::FullStroke));
    let expected = format!("expected at most the average seek of {seek} ms, found {next}");
    check.that(next <= seek, Key::TrackToTrack.name(), &expected)?;
    let expected =
        format!("expected between 1.3 and 3 times the average seek of {seek} ms, found {full}");
    check.that((1.3..=3.0).contains(&(full / seek)), Key::FullStroke.name(), &expected)
}
