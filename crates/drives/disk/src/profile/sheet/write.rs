//! Writes a sheet as TOML, which [`Sheet::parse`] reads back.

use std::fmt::Write as _;

use super::{FigureKind, Key, Sheet, VERSION, idema_sectors};

const UNITS: [(f64, &str); 3] = [(1_073_741_824.0, "G"), (1_048_576.0, "M"), (1024.0, "K")];
/// The source that is left out of the file.
const USUAL: &str = "data sheet";

impl Sheet {
    /// The sheet as TOML. A figure without a source in the file comes from a data sheet.
    #[must_use]
    pub fn toml(&self) -> String {
        let mut out = format!("version = {VERSION}\nname = {}\n", quoted(&self.name));
        let texts = [("model", Some(&self.model)), ("like", self.like.as_ref())];
        for (key, text) in texts {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                let _ = writeln!(out, "{key} = {}", quoted(text));
            }
        }
        let lists = [
            ("models", &self.models),
            ("serials", &self.serials),
            ("not_modelled", &self.not_modelled),
        ];
        for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            let items: Vec<String> = list.iter().map(|text| quoted(text)).collect();
            let _ = writeln!(out, "{key} = [{}]", items.join(", "));
        }
        for (key, figure) in &self.figures {
            let _ = writeln!(out, "{} = {}", key.name(), shown(*key, figure.value));
        }
        if let Some(link) = self.link {
            let _ = writeln!(out, "link = \"{link}\"");
        }
        for (key, value) in [("fua", self.fua), ("write_cache", self.write_cache)] {
            value.into_iter().for_each(|value| _ = writeln!(out, "{key} = {value}"));
        }
        if self.shingled {
            out.push_str("shingled = true\n");
        }
        self.write_sources(&mut out);
        self.write_ranges(&mut out);
        self.write_bars(&mut out);
        self.write_power(&mut out);
        out
    }

    fn write_sources(&self, out: &mut String) {
        let figures = self.figures.iter().map(|(key, figure)| (key.name(), &figure.source));
        let others = self.other_sources.iter().map(|(key, source)| (key.as_str(), source));
        let told = figures.chain(others).filter(|(_, source)| *source != USUAL);
        let lines: Vec<String> =
            told.map(|(key, source)| format!("{key} = {}\n", quoted(source))).collect();
        if !lines.is_empty() {
            let _ = write!(out, "\n[source]\n{}", lines.concat());
        }
    }

    fn write_ranges(&self, out: &mut String) {
        let ranged = self.figures.iter().filter_map(|(key, f)| Some((*key, f.range?)));
        let lines: Vec<String> = ranged
            .map(|(key, (low, high))| {
                format!("{} = [{}, {}]\n", key.name(), shown(key, low), shown(key, high))
            })
            .collect();
        if !lines.is_empty() {
            let _ = write!(out, "\n[range]\n{}", lines.concat());
        }
    }

    fn write_bars(&self, out: &mut String) {
        if !self.bars.is_empty() {
            // A table of numbers and texts can always be written.
            let text = toml::to_string(&self.bars).unwrap_or_default();
            let text = text.replace("[source]", "[bars.source]");
            let _ = write!(out, "\n[bars]\n{text}");
        }
    }

    fn write_power(&self, out: &mut String) {
        if let Some(power) = &self.power {
            // A table of numbers and texts can always be written.
            let text = toml::to_string(power).unwrap_or_default();
            let text = text.replace("[source]", "[power.source]");
            let _ = write!(out, "\n[power]\n{text}");
        }
    }
}

/// `text` as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A figure in a form that [`super::Quantity`] reads back.
#[must_use]
pub(super) fn shown(key: Key, value: f64) -> String {
    match key.kind() {
        FigureKind::Bytes => bytes(value).unwrap_or_else(|| value.to_string()),
        FigureKind::Capacity => capacity(value).unwrap_or_else(|| value.to_string()),
        FigureKind::Count | FigureKind::Number | FigureKind::Ms | FigureKind::MbS => {
            value.to_string()
        }
    }
}

fn bytes(value: f64) -> Option<String> {
    let (size, unit) = UNITS.into_iter().find(|(size, _)| value > 0.0 && value % size == 0.0)?;
    Some(format!("\"{}{unit}\"", value / size))
}

/// The size on the drive's label, if there is one for this number of sectors.
fn capacity(sectors: f64) -> Option<String> {
    let gigabytes = (sectors * 512.0 / 1e9).round();
    let named = [gigabytes, (gigabytes / 100.0).round() * 100.0, (gigabytes / 10.0).floor() * 10.0];
    let size =
        named.into_iter().find(|size| idema_sectors(*size).map(|s| s as f64) == Some(sectors))?;
    Some(if size % 1000.0 == 0.0 || (size > 1000.0 && size % 100.0 == 0.0) {
        format!("\"{}T\"", size / 1000.0)
    } else {
        format!("\"{size}G\"")
    })
}
