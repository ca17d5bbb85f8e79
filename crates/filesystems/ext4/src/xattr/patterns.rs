//! Patterns for names of files that need durability and no place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use thiserror::Error;

use crate::units::Ino;

/// Most names of directories in memory.
const NAMED_MOST: usize = 4096;

/// Patterns of names, such as `pg_wal/*`. A file gets the property of
/// [`DURABLE_XATTR`](crate::DURABLE_XATTR) when it is created or renamed with a name that fits one
/// of them. `*` is any part of one name, `?` any byte of it. The part before a slash is the name of
/// the directory that the file is in; the directories above may have any names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurableNames(Vec<Vec<Vec<u8>>>);

/// Why a text is no pattern of [`DurableNames`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("pattern {pattern:?}: {why}")]
pub struct PatternError {
    /// The text as it was given.
    pub pattern: String,
    /// The reason.
    pub why: &'static str,
}

/// Whether the names known so far fit a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Yes,
    No,
    /// The directory above decides.
    Open,
}

impl DurableNames {
    /// Parses a list of patterns, separated by `between`.
    ///
    /// # Errors
    /// The first pattern that is empty, has an empty name, `.` or `..` in it, begins at the root,
    /// has special characters of other programs' patterns, or fits every file.
    pub fn of_list(list: &str, between: char) -> Result<Self, PatternError> {
        list.split(between).map(pattern).collect::<Result<_, _>>().map(Self)
    }

    /// Adds the patterns of `more`.
    pub fn add(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Whether there is no pattern.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the file with this path fits a pattern. The path must name all directories that
    /// patterns need.
    #[must_use]
    pub fn fits_path(&self, path: &[u8]) -> bool {
        let names = || path.rsplit(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let fits = |pattern: &Vec<Vec<u8>>| {
            let mut names = names();
            let is_next = |part: &Vec<u8>| names.next().is_some_and(|name| is_like(part, name));
            pattern.iter().rev().all(is_next)
        };
        self.0.iter().any(fits)
    }

    /// Whether names fit a pattern: those of a file and of the directories above it, the file's
    /// first. With `whole` there are no further directories.
    fn fit(&self, names: &[Vec<u8>], whole: bool) -> Fit {
        let fits = |pattern: &&Vec<Vec<u8>>| {
            pattern.iter().rev().zip(names).all(|(pattern, name)| is_like(pattern, name))
        };
        let mut open = self.0.iter().filter(fits).peekable();
        let is_open = open.peek().is_some() && !whole;
        match open.any(|pattern| pattern.len() <= names.len()) {
            true => Fit::Yes,
            false if is_open => Fit::Open,
            false => Fit::No,
        }
    }
}

fn pattern(text: &str) -> Result<Vec<Vec<u8>>, PatternError> {
    let refused = |why| Err(PatternError { pattern: text.to_owned(), why });
    let names: Vec<Vec<u8>> = text.split('/').map(|name| name.as_bytes().to_vec()).collect();
    if text.starts_with('/') {
        return refused("it fits names in any directory, so it cannot begin at the root");
    }
    if names.iter().any(|name| name.is_empty() || name == b"." || name == b"..") {
        return refused("expected names with slashes between them, such as pg_wal/*");
    }
    if text.contains(['[', ']', '{', '}', '\\', '\0']) {
        return refused("of the signs for parts of names there are only * and ?");
    }
    if names.iter().flatten().all(|byte| *byte == b'*') {
        return refused(
            "it fits every file: name a directory or a part of the name, or set \
             user.manylogs.durable of a directory",
        );
    }
    Ok(names)
}

/// Whether one name matches one part of a pattern.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The place of the last star, and the end of the part of the name that it matches so far.
    let mut star = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((place, taken)) = star else { return false };
                star = Some((place, taken + 1));
                (at, from) = (place + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The patterns of a mount, and the names of directories that were needed to apply them.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    patterns: RefCell<Rc<DurableNames>>,
    /// For each directory, its parent and its name there.
    named: RefCell<BTreeMap<Ino, (Ino, Vec<u8>)>>,
}

impl Judge {
    pub(crate) fn set(&self, patterns: DurableNames) {
        *self.patterns.borrow_mut() = Rc::new(patterns);
    }

    /// Whether there are no patterns.
    pub(crate) fn is_idle(&self) -> bool {
        self.patterns.borrow().is_empty()
    }

    /// Whether a file fits a pattern; `None` if further directories decide. `names` are those of
    /// the file and of directories above it, the file's first; with `whole` there are no further
    /// directories.
    pub(crate) fn fits(&self, names: &[Vec<u8>], whole: bool) -> Option<bool> {
        match self.patterns.borrow().fit(names, whole) {
            Fit::Yes => Some(true),
            Fit::No => Some(false),
            Fit::Open => None,
        }
    }

    /// The parent of a directory and its name there, if known.
    pub(crate) fn name_of(&self, dir: Ino) -> Option<(Ino, Vec<u8>)> {
        self.named.borrow().get(&dir).cloned()
    }

    /// Notes the name of a directory.
    pub(crate) fn note(&self, dir: Ino, above: Ino, name: &[u8]) {
        let mut named = self.named.borrow_mut();
        if named.len() >= NAMED_MOST {
            named.clear();
        }
        named.insert(dir, (above, name.to_vec()));
    }

    /// Forgets the name of a directory that was renamed or removed.
    pub(crate) fn forget(&self, dir: Ino) {
        self.named.borrow_mut().remove(&dir);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn names_are_like_patterns() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("WiredTigerLog.*", "WiredTigerLog.0000000001", true),
            ("WiredTigerLog.*", "WiredTigerTmplog.1", false),
            ("*.db-wal", "a.db-wal", true),
            ("*.db-wal", "a.db-wal2", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("ib_logfile?", "ib_logfile0", true),
            ("ib_logfile?", "ib_logfile", false),
        ] {
            assert_eq!(is_like(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn directories_decide_where_a_pattern_names_them() {
        let names = DurableNames::of_list("data/pg_wal/*,*.log", ',').unwrap();
        let fit = |path: &str, whole| {
            let path: Vec<Vec<u8>> = path.split(' ').map(|name| name.into()).collect();
            names.fit(&path, whole)
        };
        assert_eq!(fit("a.log", false), Fit::Yes);
        assert_eq!(fit("1", false), Fit::Open);
        assert_eq!(fit("1 pg_wal", false), Fit::Open);
        assert_eq!(fit("1 pg_wal", true), Fit::No, "it is in the root");
        assert_eq!(fit("1 pg_wal data", true), Fit::Yes);
        assert_eq!(fit("1 base", false), Fit::No);
        assert_eq!(DurableNames::default().fit(&[b"a".to_vec()], false), Fit::No);
    }

    #[test]
    fn paths_have_the_names_of_directories() {
        let names = DurableNames::of_list("data/pg_wal/*,*.log,*/wal", ',').unwrap();
        for (path, fits) in [
            ("/srv/data/pg_wal/1", true),
            ("data//pg_wal/1", true),
            ("pg_wal/1", false),
            ("/srv/data/pg_wal/1/2", false),
            ("/a.log", true),
            ("/wal", false),
            ("/a/wal", true),
            ("", false),
        ] {
            assert_eq!(names.fits_path(path.as_bytes()), fits, "{path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_by_name() {
        for (list, bad) in [
            ("", ""),
            ("a,,b", ""),
            ("pg_wal/*,/wal/*", "/wal/*"),
            ("wal//*", "wal//*"),
            ("../wal", "../wal"),
            ("wal/", "wal/"),
            ("*", "*"),
            ("*/**", "*/**"),
            ("[0-9]*", "[0-9]*"),
        ] {
            let refused = DurableNames::of_list(list, ',').unwrap_err();
            assert_eq!(refused.pattern, bad, "{list}");
        }
    }
}
