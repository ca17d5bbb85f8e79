//! Where profiles are found: the user's own folder, the built-in ones, the catalogue, and files.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Profile, ProfileError, catalogued, find};

/// Environment variable that names the folder of own profiles.
const FOLDER: &str = "MANYLOGS_DRIVES";
/// The machine's folder, which is also root's own.
const MACHINE: &str = "/etc/manylogs/drives";

/// Folders of own profiles.
#[derive(Clone, Debug)]
pub struct Library {
    folders: Vec<PathBuf>,
}

/// A profile of the user's own.
#[derive(Clone, Debug)]
pub struct Own {
    /// The file.
    pub path: PathBuf,
    /// The profile in the file.
    pub profile: Profile,
}

/// Whether `name` may name an own profile: letters, digits, dots, hyphens and underscores.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(plain)
}

impl Library {
    /// The folder of this user, then that of the machine. The user's is `$MANYLOGS_DRIVES` (which
    /// replaces both), for root `/etc/manylogs/drives`, for others
    /// `$XDG_CONFIG_HOME/manylogs/drives`, with `~/.config` if that is not set.
    #[must_use]
    pub fn of_user() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(folder) = variable(FOLDER) {
            return Self { folders: vec![folder.into()] };
        }
        if rustix::process::geteuid().is_root() {
            return Self { folders: vec![MACHINE.into()] };
        }
        let home = variable("HOME").map(|home| Path::new(&home).join(".config"));
        let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).or(home);
        let own = config.map(|config| config.join("manylogs/drives"));
        Self { folders: own.into_iter().chain([MACHINE.into()]).collect() }
    }

    /// A library with these folders.
    #[must_use]
    pub const fn of(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// The folder that new profiles go to.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folders.first().map_or(Path::new(MACHINE), PathBuf::as_path)
    }

    /// The drive called `name`: an own profile, a built-in one, or one of the catalogue; none if
    /// there is no such drive.
    ///
    /// # Errors
    /// When the profile is refused or cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<Profile>, ProfileError> {
        if let Some(path) = self.path(name) {
            return Profile::load(&path).map(Some);
        }
        match find(name)? {
            Some(found) => Ok(Some(found)),
            None => catalogued(name),
        }
    }

    /// As [`Library::find`]; else reads the profile from the file `name`, if that ends in `.toml`
    /// or exists.
    ///
    /// # Errors
    /// As [`Library::find`].
    pub fn find_or_load(&self, name: &str) -> Result<Option<Profile>, ProfileError> {
        if let Some(found) = self.find(name)? {
            return Ok(Some(found));
        }
        let path = Path::new(name);
        let is_file = path.extension().is_some_and(|extension| extension == "toml");
        (is_file || path.exists()).then(|| Profile::load(path)).transpose()
    }

    /// The file of the own profile `name`.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let file = is_name(name).then(|| format!("{name}.toml"))?;
        self.folders.iter().map(|folder| folder.join(&file)).find(|path| path.is_file())
    }

    /// Files of own profiles, by name. If a name occurs twice, the first folder's file is taken.
    #[must_use]
    pub fn files(&self) -> Vec<(String, PathBuf)> {
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        for folder in &self.folders {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths {
                let is_toml = path.extension().is_some_and(|extension| extension == "toml");
                let name = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
                let Some(name) = name.filter(|name| is_toml && is_name(name)) else { continue };
                if found.iter().all(|(other, _)| *other != name) {
                    found.push((name, path));
                }
            }
        }
        found
    }

    /// The own profile of the disk with this serial number.
    ///
    /// # Errors
    /// When two profiles name the serial number. A profile that cannot be read is no error, because
    /// another may be the disk's; `drive list` reports it.
    pub fn of_serial(&self, serial: &str) -> Result<Option<Own>, ProfileError> {
        let mut found: Option<Own> = None;
        let serial = serial.trim();
        for (_, path) in self.files() {
            let Ok(profile) = Profile::load(&path) else { continue };
            if serial.is_empty() || !profile.serials.iter().any(|own| own.trim() == serial) {
                continue;
            }
            if let Some(first) = found {
                let serial = serial.to_owned();
                return Err(ProfileError::Twice { serial, first: first.path, second: path });
            }
            found = Some(Own { path, profile });
        }
        Ok(found)
    }
}
