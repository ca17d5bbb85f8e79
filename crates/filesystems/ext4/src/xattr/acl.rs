//! Access control lists (POSIX 1003.1e, draft 17): rights of users and groups besides a file's own.

use bytes::{BufMut, Bytes, BytesMut};

use crate::ondisk::bytes::{le16, le32};

/// Version of a list on the disk.
const DISK_VERSION: u32 = 1;
/// Version of a list in the form of programs.
const XATTR_VERSION: u32 = 2;
/// The id that programs see in an entry without one.
const NO_ID: u32 = u32::MAX;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One entry: what it allows, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    /// Read 4, write 2, execute 1.
    allowed: u16,
    /// The id of a named user or group.
    id: Option<u32>,
}

/// A valid list: one entry each for owner, group and others, and a mask if users or groups are
/// named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

const fn has_id(tag: u16) -> bool {
    tag == USER || tag == NAMED_GROUP
}

impl Acl {
    fn new(entries: Vec<Entry>) -> Option<Self> {
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let is_named = count(USER) + count(NAMED_GROUP) > 0;
        let sound = entries.is_sorted_by_key(|entry| entry.tag)
            && entries.iter().all(|entry| entry.allowed <= 7)
            && [OWNER, GROUP, OTHER].into_iter().all(|tag| count(tag) == 1)
            && count(MASK) <= 1
            && (!is_named || count(MASK) == 1)
            && entries.len() == 3 + count(USER) + count(NAMED_GROUP) + count(MASK);
        sound.then_some(Self(entries))
    }

    /// Decodes a list in the form of programs; `None` if it is not valid.
    pub(crate) fn of_xattr(value: &[u8]) -> Option<Self> {
        let (version, entries) = value.split_at_checked(4)?;
        if le32(version, 0) != XATTR_VERSION || !entries.len().is_multiple_of(8) {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let tag = le16(bytes, 0);
            Entry { tag, allowed: le16(bytes, 2), id: has_id(tag).then(|| le32(bytes, 4)) }
        };
        Self::new(entries.chunks_exact(8).map(entry).collect())
    }

    /// Encodes the list in the form of programs.
    pub(crate) fn to_xattr(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(4 + 8 * self.0.len());
        bytes.put_u32_le(XATTR_VERSION);
        for entry in &self.0 {
            bytes.put_u16_le(entry.tag);
            bytes.put_u16_le(entry.allowed);
            bytes.put_u32_le(entry.id.unwrap_or(NO_ID));
        }
        bytes.freeze()
    }

    /// Decodes a list in its form on the disk; `None` if it is not valid.
    pub(crate) fn of_disk(value: &[u8]) -> Option<Self> {
        let (version, mut rest) = value.split_at_checked(4)?;
        if le32(version, 0) != DISK_VERSION {
            return None;
        }
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (head, behind) = rest.split_at_checked(4)?;
            let (tag, allowed) = (le16(head, 0), le16(head, 2));
            let (id, behind) = behind.split_at_checked(if has_id(tag) { 4 } else { 0 })?;
            entries.push(Entry { tag, allowed, id: has_id(tag).then(|| le32(id, 0)) });
            rest = behind;
        }
        Self::new(entries)
    }

    /// The list as it is on the disk.
    pub(crate) fn to_disk(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(4 + 8 * self.0.len());
        bytes.put_u32_le(DISK_VERSION);
        for entry in &self.0 {
            bytes.put_u16_le(entry.tag);
            bytes.put_u16_le(entry.allowed);
            entry.id.into_iter().for_each(|id| bytes.put_u32_le(id));
        }
        bytes.freeze()
    }

    /// Whether the list says no more than the mode.
    pub(crate) fn is_mode_alone(&self) -> bool {
        self.0.len() == 3
    }

    fn class(&self, tag: u16) -> u16 {
        self.0.iter().find(|entry| entry.tag == tag).map_or(0, |entry| entry.allowed)
    }

    /// The entry that corresponds to the mode's group bits: the mask, if there is one.
    fn group_tag(&self) -> u16 {
        if self.0.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP }
    }

    /// The lower nine bits of the mode of a file with this list.
    pub(crate) fn mode(&self) -> u16 {
        self.class(OWNER) << 6 | self.class(self.group_tag()) << 3 | self.class(OTHER)
    }

    fn change(&mut self, change: impl Fn(u16, u16) -> u16, mode: u16) {
        let group = self.group_tag();
        for entry in &mut self.0 {
            entry.allowed = match entry.tag {
                OWNER => change(entry.allowed, mode >> 6 & 7),
                OTHER => change(entry.allowed, mode & 7),
                tag if tag == group => change(entry.allowed, mode >> 3 & 7),
                _ => entry.allowed,
            };
        }
    }

    /// Follows a change of the file's mode.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.change(|_, new| new, mode);
    }

    /// The list of a new file that is created with `mode`, if this is the default list of its
    /// directory.
    pub(crate) fn inherited(&self, mode: u16) -> Self {
        let mut own = self.clone();
        own.change(|allowed, asked| allowed & asked, mode);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, allowed, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(allowed.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    const NAMED: [(u16, u16, u32); 6] = [
        (OWNER, 7, NO_ID),
        (USER, 6, 1000),
        (GROUP, 5, NO_ID),
        (NAMED_GROUP, 4, 70_000),
        (MASK, 6, NO_ID),
        (OTHER, 1, NO_ID),
    ];

    #[test]
    fn lists_keep_their_meaning_in_both_forms() {
        let given = list(&NAMED);
        let acl = Acl::of_xattr(&given).unwrap();
        assert_eq!(acl.to_xattr(), given);
        assert_eq!(acl.to_disk().len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(Acl::of_disk(&acl.to_disk()).unwrap(), acl);
        assert_eq!((acl.mode(), acl.is_mode_alone()), (0o761, false));
    }

    #[test]
    fn modes_change_the_mask_and_defaults_are_cut() {
        let mut acl = Acl::of_xattr(&list(&NAMED)).unwrap();
        let child = acl.inherited(0o640);
        assert_eq!((child.mode(), child.class(GROUP), child.class(USER)), (0o640, 5, 6));
        acl.set_mode(0o704);
        assert_eq!((acl.mode(), acl.class(MASK), acl.class(GROUP)), (0o704, 0, 5));
    }

    #[test]
    fn lists_without_sense_are_refused() {
        let without = |tag| {
            let rest: Vec<_> = NAMED.into_iter().filter(|(own, ..)| *own != tag).collect();
            list(&rest)
        };
        for tag in [OWNER, GROUP, MASK, OTHER] {
            assert_eq!(Acl::of_xattr(&without(tag)), None, "without {tag:#x}");
        }
        let swapped: Vec<_> = NAMED.into_iter().rev().collect();
        assert_eq!(Acl::of_xattr(&list(&swapped)), None);
        assert_eq!(Acl::of_xattr(&list(&NAMED)[..20]), None);
        assert_eq!(Acl::of_xattr(&[]), None);
        let foreign = [(OWNER, 7, 0), (GROUP, 7, 0), (0x40, 7, 0), (OTHER, 7, 0)];
        assert_eq!(Acl::of_xattr(&list(&foreign)), None);
    }
}
