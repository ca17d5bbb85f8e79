//! Reads a sheet from TOML.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Figure, Key, Quantity, Sheet, VERSION};
use crate::link::LinkKind;
use crate::profile::check::Check;
use crate::profile::{Bars, PowerTable, ProfileError, Sources};

/// The form of a sheet's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    /// Checked before: a newer form has other keys.
    #[serde(rename = "version")]
    _version: Option<u32>,
    name: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    serials: Vec<String>,
    like: Option<String>,
    capacity: Quantity,
    rpm: Quantity,
    outer_mb_s: Option<Quantity>,
    inner_mb_s: Option<Quantity>,
    seek_ms: Option<Quantity>,
    track_to_track_ms: Option<Quantity>,
    full_stroke_ms: Option<Quantity>,
    head_switch_ms: Option<Quantity>,
    write_settle_ms: Option<Quantity>,
    cache: Option<Quantity>,
    segments: Option<Quantity>,
    segment: Option<Quantity>,
    write_buffer: Option<Quantity>,
    heads: Option<Quantity>,
    band_cylinders: Option<Quantity>,
    write_retry: Option<Quantity>,
    queue_depth: Option<Quantity>,
    prediction_margin_ms: Option<Quantity>,
    physical_sector: Option<Quantity>,
    persistent_cache: Option<Quantity>,
    band: Option<Quantity>,
    link: Option<LinkKind>,
    fua: Option<bool>,
    write_cache: Option<bool>,
    #[serde(default)]
    shingled: bool,
    #[serde(default)]
    not_modelled: Vec<String>,
    #[serde(default)]
    bars: Bars,
    power: Option<PowerTable>,
    #[serde(default)]
    source: Sources,
    #[serde(default)]
    range: BTreeMap<String, (Quantity, Quantity)>,
}

/// Keys of `[source]` that are not figures.
const OTHER_SOURCES: [&str; 4] = ["link", "fua", "write_cache", "shingled"];

impl Form {
    fn quantities(&self) -> [(Key, Option<&Quantity>); Key::ALL.len()] {
        Key::ALL.map(|key| {
            let quantity = match key {
                Key::Capacity => Some(&self.capacity),
                Key::Rpm => Some(&self.rpm),
                Key::Outer => self.outer_mb_s.as_ref(),
                Key::Inner => self.inner_mb_s.as_ref(),
                Key::Seek => self.seek_ms.as_ref(),
                Key::TrackToTrack => self.track_to_track_ms.as_ref(),
                Key::FullStroke => self.full_stroke_ms.as_ref(),
                Key::HeadSwitch => self.head_switch_ms.as_ref(),
                Key::WriteSettle => self.write_settle_ms.as_ref(),
                Key::Cache => self.cache.as_ref(),
                Key::Segments => self.segments.as_ref(),
                Key::Segment => self.segment.as_ref(),
                Key::WriteBuffer => self.write_buffer.as_ref(),
                Key::Heads => self.heads.as_ref(),
                Key::BandCylinders => self.band_cylinders.as_ref(),
                Key::WriteRetry => self.write_retry.as_ref(),
                Key::QueueDepth => self.queue_depth.as_ref(),
                Key::Margin => self.prediction_margin_ms.as_ref(),
                Key::PhysicalSector => self.physical_sector.as_ref(),
                Key::PersistentCache => self.persistent_cache.as_ref(),
                Key::Band => self.band.as_ref(),
            };
            (key, quantity)
        })
    }
}

impl Sheet {
    /// Reads the figures that `text` gives, without defaults. `origin` names the sheet in errors.
    ///
    /// # Errors
    /// When the text is no sheet, or a figure is impossible.
    pub fn parse(origin: &str, text: &str) -> Result<Self, ProfileError> {
        let table: toml::Table = toml::from_str(text).map_err(|e| syntax(origin, e))?;
        Self::check_version(origin, &table)?;
        let form: Form = toml::from_str(text).map_err(|e| syntax(origin, e))?;
        Self::of_form(origin, form)
    }

    /// Refuses a file that a newer version of the program wrote.
    pub(in crate::profile) fn check_version(
        origin: &str,
        table: &toml::Table,
    ) -> Result<(), ProfileError> {
        match table.get("version").and_then(toml::Value::as_integer) {
            Some(version) if version > i64::from(VERSION) => {
                Err(ProfileError::TooNew { origin: origin.to_owned(), version })
            }
            _ => Ok(()),
        }
    }

    fn of_form(origin: &str, form: Form) -> Result<Self, ProfileError> {
        let check = Check::new(origin);
        let mut sheet = Self::new(&form.name);
        let refused = |key: &str, expected: String| check.that(false, key, &expected);
        for (key, quantity) in form.quantities() {
            let Some(quantity) = quantity else { continue };
            let value = match quantity.value(key.kind()) {
                Ok(value) => value,
                Err(expected) => return refused(key.name(), expected).map(|()| sheet),
            };
            let source = form.source.get(key.name()).map_or("data sheet", String::as_str);
            sheet.state(key, value, source);
        }
        for (name, (low, high)) in &form.range {
            let place = format!("range.{name}");
            let Some(key) = Key::ALL.into_iter().find(|key| key.name() == name) else {
                return refused(&place, "expected the name of a figure".into()).map(|()| sheet);
            };
            let ends = low.value(key.kind()).and_then(|low| Ok((low, high.value(key.kind())?)));
            let ends = match ends {
                Ok(ends) => ends,
                Err(expected) => return refused(&place, expected).map(|()| sheet),
            };
            let Some(figure) = sheet.figures.get_mut(&key) else {
                let expected = format!("expected `{name}`, too: a range is that of a figure");
                return refused(&place, expected).map(|()| sheet);
            };
            figure.range = Some(ends);
        }
        let known = |name: &str| {
            OTHER_SOURCES.contains(&name) || Key::ALL.iter().any(|key| key.name() == name)
        };
        if let Some(other) = form.source.keys().find(|name| !known(name)) {
            let expected = "expected the name of a figure".to_owned();
            return refused(&format!("source.{other}"), expected).map(|()| sheet);
        }
        sheet.other_sources = form.source;
        sheet.other_sources.retain(|name, _| OTHER_SOURCES.contains(&name.as_str()));
        sheet.model = form.model;
        sheet.models = form.models;
        sheet.serials = form.serials;
        sheet.like = form.like;
        sheet.link = form.link;
        sheet.fua = form.fua;
        sheet.write_cache = form.write_cache;
        sheet.shingled = form.shingled;
        sheet.not_modelled = form.not_modelled;
        sheet.bars = form.bars;
        sheet.power = form.power;
        Ok(sheet)
    }
}

fn syntax(origin: &str, source: toml::de::Error) -> ProfileError {
    ProfileError::Syntax { origin: origin.to_owned(), source: Box::new(source) }
}

impl Figure {
    /// Whether the figure may have a range: it is a guess or a default.
    pub(super) fn may_range(&self) -> bool {
        matches!(self.origin(), super::Origin::Guess | super::Origin::Default)
    }
}
