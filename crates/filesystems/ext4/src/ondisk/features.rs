//! The three sets of features, and which features this crate can mount.

use crate::error::Refusal;

/// Features that need not be known.
pub(crate) mod compat {
    pub(crate) const HAS_JOURNAL: u32 = 0x4;
    pub(crate) const EXT_ATTR: u32 = 0x8;
    pub(crate) const DIR_INDEX: u32 = 0x20;
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
}

/// Features that must be known to mount at all.
pub(crate) mod incompat {
    pub(crate) const FILETYPE: u32 = 0x2;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const META_BG: u32 = 0x10;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const BITS64: u32 = 0x80;
    pub(crate) const FLEX_BG: u32 = 0x200;
    pub(crate) const CSUM_SEED: u32 = 0x2000;
    /// The newest durable versions may be in logs that only MLFS knows.
    pub(crate) const MLFS: u32 = 0x4000_0000;
}

/// Features that must be known to write.
pub(crate) mod ro_compat {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const LARGE_FILE: u32 = 0x2;
    pub(crate) const GDT_CSUM: u32 = 0x10;
    pub(crate) const DIR_NLINK: u32 = 0x20;
    pub(crate) const METADATA_CSUM: u32 = 0x400;
    pub(crate) const ORPHAN_PRESENT: u32 = 0x10000;
}

/// A known feature: its bit, its name, and what to do if it cannot be mounted.
type Known = (u32, &'static str, Option<&'static str>);

const REMAKE: &str = "copy the files to a file system made without it";
const TUNE: &str = "turn it off with tune2fs -O";

const COMPAT: &[Known] = &[
    (0x1, "dir_prealloc", None),
    (0x2, "imagic_inodes", Some(REMAKE)),
    (compat::HAS_JOURNAL, "has_journal", None),
    (compat::EXT_ATTR, "ext_attr", None),
    (0x10, "resize_inode", None),
    (compat::DIR_INDEX, "dir_index", None),
    (compat::SPARSE_SUPER2, "sparse_super2", None),
    (0x400, "fast_commit", None),
    (0x800, "stable_inodes", None),
    (0x1000, "orphan_file", None),
];

const INCOMPAT: &[Known] = &[
    (0x1, "compression", Some(REMAKE)),
    (incompat::FILETYPE, "filetype", None),
    (incompat::RECOVER, "needs_recovery", None),
    (0x8, "journal_dev", Some("give the device with the files, with an internal journal")),
    (incompat::META_BG, "meta_bg", None),
    (incompat::EXTENTS, "extent", None),
    (incompat::BITS64, "64bit", None),
    (0x100, "mmp", Some(TUNE)),
    (incompat::FLEX_BG, "flex_bg", None),
    (0x400, "ea_inode", Some(REMAKE)),
    (0x1000, "dirdata", Some(REMAKE)),
    (incompat::CSUM_SEED, "metadata_csum_seed", None),
    (0x4000, "large_dir", Some(REMAKE)),
    (0x8000, "inline_data", Some(REMAKE)),
    (0x10000, "encrypt", Some(REMAKE)),
    (0x20000, "casefold", Some(TUNE)),
    (incompat::MLFS, "mlfs", None),
];

const RO_COMPAT: &[Known] = &[
    (ro_compat::SPARSE_SUPER, "sparse_super", None),
    (ro_compat::LARGE_FILE, "large_file", None),
    (0x4, "btree_dir", Some(REMAKE)),
    (0x8, "huge_file", None),
    (ro_compat::GDT_CSUM, "uninit_bg", None),
    (ro_compat::DIR_NLINK, "dir_nlink", None),
    (0x40, "extra_isize", None),
    (0x80, "snapshot", Some(REMAKE)),
    (0x100, "quota", Some(TUNE)),
    (0x200, "bigalloc", Some(REMAKE)),
    (ro_compat::METADATA_CSUM, "metadata_csum", None),
    (0x800, "replica", Some(REMAKE)),
    (0x1000, "read-only", Some(TUNE)),
    (0x2000, "project", Some(TUNE)),
    (0x4000, "shared_blocks", Some(REMAKE)),
    (0x8000, "verity", Some(REMAKE)),
    (ro_compat::ORPHAN_PRESENT, "orphan_present", Some("run e2fsck -p first")),
];

/// The features of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) compat: u32,
    pub(crate) incompat: u32,
    pub(crate) ro_compat: u32,
}

impl Features {
    /// The names of the known features among them.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let sets = [(self.compat, COMPAT), (self.incompat, INCOMPAT), (self.ro_compat, RO_COMPAT)];
        let known = sets.into_iter().flat_map(|(bits, known)| known.iter().map(move |k| (bits, k)));
        known.filter(|(bits, (bit, ..))| bits & bit != 0).map(|(_, (_, name, _))| *name).collect()
    }

    /// Checks that such a file system can be mounted and written.
    pub(crate) fn check(self) -> Result<(), Refusal> {
        check("compatible", self.compat, COMPAT)?;
        check("incompatible", self.incompat, INCOMPAT)?;
        check("read-only compatible", self.ro_compat, RO_COMPAT)?;
        if self.incompat & incompat::MLFS != 0 {
            return Err(Refusal::Adopted);
        }
        let missing = |name, advice| Err(Refusal::Feature { name, advice });
        if self.compat & compat::HAS_JOURNAL == 0 {
            return missing("^has_journal", "add a journal with tune2fs -j");
        }
        if self.incompat & incompat::FILETYPE == 0 {
            return missing("^filetype", "turn it on with tune2fs -O filetype and e2fsck -f");
        }
        Ok(())
    }
}

fn check(set: &'static str, bits: u32, known: &[Known]) -> Result<(), Refusal> {
    for (bit, name, advice) in known {
        if bits & bit != 0
            && let Some(advice) = advice
        {
            return Err(Refusal::Feature { name, advice });
        }
    }
    let bits = known.iter().fold(bits, |left, (bit, ..)| left & !bit);
    if bits == 0 { Ok(()) } else { Err(Refusal::UnknownFeatures { set, bits }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Features = Features { compat: 0x3c, incompat: 0x2c2, ro_compat: 0x46b };

    #[test]
    fn the_defaults_are_accepted_and_others_refused_by_name() {
        assert_eq!(PLAIN.check(), Ok(()));
        let named = |features: Features| match features.check() {
            Err(Refusal::Feature { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(named(Features { ro_compat: PLAIN.ro_compat | 0x200, ..PLAIN }), "bigalloc");
        assert_eq!(named(Features { incompat: PLAIN.incompat | 0x8000, ..PLAIN }), "inline_data");
        assert_eq!(named(Features { compat: 0x38, ..PLAIN }), "^has_journal");
        let adopted = Features { incompat: PLAIN.incompat | 0x4000_0000, ..PLAIN };
        assert_eq!(adopted.check(), Err(Refusal::Adopted));
        let unknown = Features { incompat: PLAIN.incompat | 0x2000_0000, ..PLAIN }.check();
        let set = "incompatible";
        assert_eq!(unknown, Err(Refusal::UnknownFeatures { set, bits: 0x2000_0000 }));
    }
}
