//! The profiles that come with the program, compiled in so that the binary works alone.

use super::{Profile, ProfileError};

/// Name and text of each built-in profile.
const BUILTIN: [(&str, &str); 6] = [
    ("cheetah-15k5", include_str!("../../../../../profiles/cheetah-15k5.toml")),
    ("constellation-es3", include_str!("../../../../../profiles/constellation-es3.toml")),
    ("exos-x20", include_str!("../../../../../profiles/exos-x20.toml")),
    ("st8000as0002", include_str!("../../../../../profiles/st8000as0002.toml")),
    ("wd40nmzw", include_str!("../../../../../profiles/wd40nmzw.toml")),
    ("wd5000ys", include_str!("../../../../../profiles/wd5000ys.toml")),
];

/// The names of the built-in drives.
#[must_use]
pub fn drives() -> Vec<&'static str> {
    BUILTIN.iter().map(|(name, _)| *name).collect()
}

/// The built-in drive called `name`, if there is one.
///
/// # Errors
/// As [`Profile::parse`]; a test parses every built-in profile, so callers may rely on success.
pub fn find(name: &str) -> Result<Option<Profile>, ProfileError> {
    let entry = BUILTIN.iter().find(|(builtin, _)| *builtin == name);
    entry.map(|(name, text)| Profile::parse(name, text)).transpose()
}
