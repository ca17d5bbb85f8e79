//! What the kernel keeps of names, attributes and lists.
//!
//! Nobody else changes a mounted disk, so that all of it stays right: what programs change the
//! kernel sees, and of what changes by itself it is told ([`crate::teller`]). Options turn each
//! off.

use std::time::Duration;

use manylogs_ext4::{AccessTimes, Attributes};
use manylogs_fuse::{Entry, InitFlags, Known};

use crate::convert::to_attributes;

/// Until it is told otherwise: some thirty years.
const FOR_GOOD: Duration = Duration::from_secs(1 << 30);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caches {
    /// Attributes: `attrcache`.
    pub(crate) attributes: bool,
    /// Names: `lookupcache=all` or `positive`.
    pub(crate) names: bool,
    /// That names are missing: `lookupcache=all`.
    pub(crate) missing: bool,
    /// Lists of directories: `dircache`.
    pub(crate) lists: bool,
    /// Where symbolic links lead. Whoever follows a link reads it: kept only where that is not
    /// noticed.
    pub(crate) links: bool,
    /// Lists come with attributes: `readdirplus`.
    pub(crate) plus: bool,
}

impl Default for Caches {
    fn default() -> Self {
        Self { attributes: true, names: true, missing: true, lists: true, links: true, plus: true }
    }
}

impl Caches {
    /// Takes an option, if it is one of these.
    pub(crate) fn add(&mut self, option: &str) -> bool {
        match option {
            "attrcache" => self.attributes = true,
            "noattrcache" => self.attributes = false,
            "lookupcache=all" => (self.names, self.missing) = (true, true),
            "lookupcache=positive" | "lookupcache=pos" => {
                (self.names, self.missing) = (true, false);
            }
            "lookupcache=none" => (self.names, self.missing) = (false, false),
            "dircache" => self.lists = true,
            "nodircache" => self.lists = false,
            "linkcache" => self.links = true,
            "nolinkcache" => self.links = false,
            "readdirplus" => self.plus = true,
            "noreaddirplus" => self.plus = false,
            _ => return false,
        }
        true
    }

    /// As they are where each reading of a file or a directory is to be noticed.
    pub(crate) fn noticing(self, files: AccessTimes, directories: AccessTimes) -> Self {
        Self {
            lists: self.lists && directories != AccessTimes::Strict,
            links: self.links && files == AccessTimes::Off,
            ..self
        }
    }

    /// What is agreed upon with the kernel for these.
    pub(crate) fn flags(self) -> InitFlags {
        let mut flags = InitFlags::empty();
        flags.set(InitFlags::NO_OPENDIR_SUPPORT, self.lists);
        flags.set(InitFlags::CACHE_SYMLINKS, self.links);
        flags.set(InitFlags::READDIRPLUS, self.plus);
        flags
    }

    const fn valid(kept: bool) -> Duration {
        if kept { FOR_GOOD } else { Duration::ZERO }
    }

    /// How long it is right that a name is missing, if that is kept at all.
    pub(crate) fn missing_valid(self) -> Option<Duration> {
        self.missing.then_some(FOR_GOOD)
    }

    pub(crate) fn known(self, known: &Attributes) -> Known {
        Known { attributes: to_attributes(known), valid: Self::valid(self.attributes) }
    }

    /// An inode that the kernel knows from now on.
    pub(crate) fn entry(self, known: &Attributes) -> Entry {
        Entry {
            attributes: to_attributes(known),
            generation: known.generation.into(),
            name_valid: Self::valid(self.names),
            attributes_valid: Self::valid(self.attributes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_turned_off_by_its_option() {
        let with = |options: &[&str]| {
            let mut caches = Caches::default();
            options.iter().for_each(|option| assert!(caches.add(option), "{option}"));
            caches
        };
        let all = Caches::default();
        assert_eq!(with(&["noattrcache"]), Caches { attributes: false, ..all });
        assert_eq!(with(&["lookupcache=positive"]), Caches { missing: false, ..all });
        assert_eq!(with(&["lookupcache=none"]), Caches { names: false, missing: false, ..all });
        assert_eq!(with(&["nodircache"]), Caches { lists: false, ..all });
        assert_eq!(with(&["nolinkcache"]), Caches { links: false, ..all });
        assert_eq!(with(&["noreaddirplus"]), Caches { plus: false, ..all });
        assert_eq!(with(&["nodircache", "dircache", "lookupcache=none", "lookupcache=all"]), all);
        assert!(!Caches::default().add("lookupcache=some"));
    }

    #[test]
    fn what_a_reading_would_change_is_kept_where_nobody_notices() {
        let all = Caches::default();
        let (off, relative, strict) =
            (AccessTimes::Off, AccessTimes::Relative, AccessTimes::Strict);
        assert_eq!(all.noticing(off, off), all);
        assert_eq!(all.noticing(relative, relative), Caches { links: false, ..all });
        let none = Caches { links: false, lists: false, ..all };
        assert_eq!(all.noticing(strict, strict), none);
        assert!(!none.flags().contains(InitFlags::CACHE_SYMLINKS));
    }
}
