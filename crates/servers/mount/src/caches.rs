//! Which names, attributes and lists the kernel caches.
//!
//! Only this mount changes the disk, so that the caches stay right: the kernel sees the changes
//! that programs make, and is told of all others ([`crate::teller`]). Options turn each cache off.

use std::time::Duration;

use manylogs_ext4::{AccessTimes, Attributes};
use manylogs_fuse::{Entry, InitFlags, Known};

use crate::convert::to_attributes;

/// How long cached data are valid unless the kernel is told otherwise: some thirty years.
const FOR_GOOD: Duration = Duration::from_secs(1 << 30);

/// What the kernel caches; a field for each option.
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
    /// Targets of symbolic links. Following a link reads it, so they are cached only where no time
    /// of access has to change.
    pub(crate) links: bool,
    /// Lists come with attributes: `readdirplus`.
    pub(crate) plus: bool,
    /// Content of files, also after the last program has closed them: `datacache`.
    pub(crate) content: bool,
    /// That files may be opened. Nothing on a read-only mount has to know of openings: nobody
    /// writes, so nothing is lost, and no file is protected from some of the writers.
    pub(crate) openings: bool,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            attributes: true,
            names: true,
            missing: true,
            lists: true,
            links: true,
            plus: true,
            content: true,
            openings: false,
        }
    }
}

impl Caches {
    /// Applies an option; false if it is none of these.
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
            "datacache" => self.content = true,
            "nodatacache" => self.content = false,
            _ => return false,
        }
        true
    }

    /// What to give instead of an option that [`Caches::add`] does not take; `None` if it is not
    /// about caches or how requests come. Options of libfuse are named, as people try them.
    pub(crate) fn advice(option: &str) -> Option<&'static str> {
        const SWITCHES: [&str; 7] =
            ["attrcache", "dircache", "linkcache", "readdirplus", "datacache", "awake", "uring"];
        let (name, has_value) = match option.split_once('=') {
            Some((name, _)) => (name, true),
            None => (option, false),
        };
        if has_value && SWITCHES.contains(&name.strip_prefix("no").unwrap_or(name)) {
            return Some("it takes no value: noNAME turns it off");
        }
        Some(match name {
            "lookupcache" => "give all, positive or none",
            "attr_timeout" | "ac_attr_timeout" => {
                "attributes stay valid until they change: noattrcache asks for them each time"
            }
            "entry_timeout" | "negative_timeout" => {
                "names stay valid until they change: lookupcache=none asks for them each time, and \
                 lookupcache=positive for missing ones"
            }
            "kernel_cache" | "auto_cache" | "direct_io" => {
                "the kernel keeps content: nodatacache drops it whenever a file is opened"
            }
            "writeback_cache" | "nowriteback_cache" => {
                "the kernel keeps no writes back: leave it out, and use noattrcache, nodatacache \
                 and others for what it does keep"
            }
            _ => return None,
        })
    }

    /// The caches that remain where readings of files and directories must change times of access.
    pub(crate) fn noticing(self, files: AccessTimes, directories: AccessTimes) -> Self {
        Self {
            lists: self.lists && directories != AccessTimes::Strict,
            links: self.links && files == AccessTimes::Off,
            content: self.content && files != AccessTimes::Strict,
            ..self
        }
    }

    /// The caches of a mount that is read-only or not. Where content is not cached, an opening
    /// drops it, so the kernel asks for each opening.
    pub(crate) fn read_only(self, read_only: bool) -> Self {
        Self { openings: read_only && self.content, ..self }
    }

    /// The protocol flags for these caches.
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

    /// How long the kernel may cache that a name is missing; `None` if not at all.
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
        assert_eq!(with(&["nodatacache"]), Caches { content: false, ..all });
        assert_eq!(with(&["nodircache", "dircache", "lookupcache=none", "lookupcache=all"]), all);
        assert!(!Caches::default().add("lookupcache=some"));
    }

    #[test]
    fn wrong_values_and_words_of_libfuse_get_advice() {
        for (option, words) in [
            ("lookupcache=some", "positive or none"),
            ("lookupcache", "positive or none"),
            ("noattrcache=1", "takes no value"),
            ("uring=maybe", "takes no value"),
            ("attr_timeout=0", "noattrcache"),
            ("negative_timeout=3", "lookupcache=positive"),
            ("direct_io", "nodatacache"),
            ("writeback_cache", "leave it out"),
        ] {
            let advice = Caches::advice(option).unwrap();
            assert!(advice.contains(words), "{option}: {advice}");
            assert!(!Caches::default().add(option), "{option}");
        }
        for option in ["noatimes", "cache=none", "no", "", "nodev=1"] {
            assert_eq!(Caches::advice(option), None, "{option}");
        }
    }

    #[test]
    fn what_a_reading_would_change_is_kept_where_nobody_notices() {
        let all = Caches::default();
        let (off, relative, strict) =
            (AccessTimes::Off, AccessTimes::Relative, AccessTimes::Strict);
        assert_eq!(all.noticing(off, off), all);
        assert_eq!(all.noticing(relative, relative), Caches { links: false, ..all });
        assert!(all.noticing(relative, off).read_only(true).openings);
        let asked_anew = Caches { content: false, ..all };
        let noticed = Caches { links: false, ..asked_anew };
        assert_eq!(all.noticing(strict, off).read_only(true), noticed);
        assert_eq!(asked_anew.read_only(true), asked_anew, "openings drop content");
        assert_eq!(all.read_only(false), all);
        let none = Caches { lists: false, ..noticed };
        assert_eq!(all.noticing(strict, strict), none);
        assert!(!none.flags().contains(InitFlags::CACHE_SYMLINKS));
    }
}
