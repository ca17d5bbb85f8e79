//! The catalogue: models of present-day drives by their data sheets, compiled in.

use std::sync::OnceLock;

use serde::Deserialize;

use super::sheet::Sheet;
use super::{Profile, ProfileError};

const TEXTS: [(&str, &str); 4] = [
    ("seagate", include_str!("../../../../../profiles/catalogue/seagate.toml")),
    ("toshiba", include_str!("../../../../../profiles/catalogue/toshiba.toml")),
    ("wd", include_str!("../../../../../profiles/catalogue/wd.toml")),
    ("sas", include_str!("../../../../../profiles/catalogue/sas.toml")),
];

/// The form of the catalogue's files.
#[derive(Deserialize)]
struct File {
    drive: Vec<toml::Table>,
}

/// All entries, without defaults.
///
/// # Errors
/// None in a program that passed its tests: a test reads every entry.
pub fn catalogue() -> Result<&'static [Sheet], &'static ProfileError> {
    static ENTRIES: OnceLock<Result<Vec<Sheet>, ProfileError>> = OnceLock::new();
    ENTRIES.get_or_init(read).as_ref().map(Vec::as_slice)
}

fn read() -> Result<Vec<Sheet>, ProfileError> {
    let mut entries = Vec::new();
    for (vendor, text) in TEXTS {
        let origin = format!("catalogue of {vendor}");
        let syntax =
            |source| ProfileError::Syntax { origin: origin.clone(), source: Box::new(source) };
        let file: File = toml::from_str(text).map_err(syntax)?;
        for table in file.drive {
            entries.push(Sheet::parse(&origin, &table.to_string())?);
        }
    }
    Ok(entries)
}

/// The drive of the catalogue called `name`, if there is one.
///
/// # Errors
/// As [`catalogue`].
pub fn catalogued(name: &str) -> Result<Option<Profile>, ProfileError> {
    let entries = catalogue().map_err(ProfileError::again)?;
    let entry = entries.iter().find(|sheet| sheet.name == name).cloned();
    entry.map(|sheet| sheet.profile(name)).transpose()
}

/// The entry with a model number that equals `model` or is its beginning. Of several the longest
/// wins.
///
/// # Errors
/// As [`catalogue`].
pub fn catalogued_model(model: &str) -> Result<Option<&'static Sheet>, ProfileError> {
    let model = model.trim();
    let entries = catalogue().map_err(ProfileError::again)?;
    let numbers = entries.iter().flat_map(|sheet| sheet.models.iter().map(move |m| (m, sheet)));
    let fits = numbers.filter(|(number, _)| is_model(model, number));
    Ok(fits.max_by_key(|(number, _)| number.len()).map(|(_, sheet)| sheet))
}

/// Whether `told`, the drive's own report, names the model `number`: alone, after the vendor's
/// name, or with the drive's own suffix after a hyphen, as in `ST18000NM000J-2TV103`.
fn is_model(told: &str, number: &str) -> bool {
    #[cfg(test)]
    if crate::planted::is(crate::planted::Bug::NeighbourModel) {
        let near = number.len().saturating_sub(2);
        return told.split_whitespace().any(|word| word.starts_with(&number[..near]));
    }
    let is = |word: &str| {
        word.strip_prefix(number).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    told.split_whitespace().any(is)
}
