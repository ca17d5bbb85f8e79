//! The order in which names of a directory with an index are listed.
//!
//! A name's position has the upper 31 bits of its hash above 32 bits of a second hash. It depends
//! on the name alone. Names whose positions are equal stand one behind another, in the order of
//! their bytes: only these move while others of them come and go. The cookie of a position is
//! [`OWN`] more, because the directory's own names come first.

use std::collections::BTreeMap;

use manylogs_plant::{Bug, is};

use super::Listed;
use super::hash::Hash;
use crate::error::{Corruption, Result};
use crate::ondisk::dirent::DirentFormat;
use crate::ondisk::inode::FileKind;
use crate::units::Ino;

/// The cookie behind `.` and `..`.
pub(super) const OWN: u64 = 2;
/// Names with equal positions that have cookies of their own. So many second hashes are not given
/// to names, so that names of one hash stay below those of the next.
const ALIKE: u64 = 1 << 16;
/// Bits of the second hash.
const SECOND: u32 = 32;
/// Behind all positions.
const END: u64 = 1 << 63;
/// Names that are held at a time: more than have one position.
const MOST: usize = 2 << 16;

/// The position of a cookie behind the directory's own names; `None` for one that no name has.
pub(super) fn position_at(cookie: u64) -> Option<u64> {
    let position = cookie.saturating_sub(OWN);
    (position < END).then_some(position)
}

/// The hash of the names at a position.
pub(super) const fn hash_at(position: u64) -> u32 {
    ((position >> SECOND) as u32) << 1
}

/// The first position of names with a hash of at least `hash`.
const fn position_of(hash: u32) -> u64 {
    (hash as u64 >> 1) << SECOND
}

/// The position of a name.
fn position(hash: Hash, name: &[u8]) -> u64 {
    let (first, second) = hash.both(name);
    position_of(first) + u64::from(second).min((1 << SECOND) - ALIKE)
}

/// Names in their order, from a position on.
pub(super) struct Order {
    dir: Ino,
    hash: Hash,
    from: u64,
    names: BTreeMap<(u64, Vec<u8>), (Ino, Option<FileKind>)>,
    /// Whether names were left out, because there are too many.
    cut: bool,
}

impl Order {
    pub(super) const fn new(dir: Ino, hash: Hash, from: u64) -> Self {
        Self { dir, hash, from, names: BTreeMap::new(), cut: false }
    }

    /// The position at which the list begins.
    pub(super) const fn from(&self) -> u64 {
        self.from
    }

    /// Adds the names of a block. A name that is there twice counts once.
    pub(super) fn add(&mut self, layout: DirentFormat, block: &[u8]) {
        // Names with smaller hashes are elsewhere. Those of the same hash may decide the cookies.
        let least = position_of(hash_at(self.from)).max(self.from.saturating_sub(ALIKE));
        for record in layout.records(block).flatten() {
            let own = matches!(record.name, b"." | b"..");
            let Some(ino) = record.ino.filter(|_| !own) else { continue };
            let at = position(self.hash, record.name);
            if at >= least {
                self.add_at(at, record.name, (ino, record.kind));
            }
        }
        while self.names.len() > MOST {
            self.names.pop_last();
            self.cut = true;
        }
    }

    fn add_at(&mut self, at: u64, name: &[u8], leads_to: (Ino, Option<FileKind>)) {
        self.names.insert((at, name.to_vec()), leads_to);
    }

    /// The names whose hashes are below that of the next block of names; all of them if there is no
    /// next block. If the lowest bit of `hash` is set, names of that hash go on in the next block.
    pub(super) fn below(&self, hash: Option<u32>) -> Result<Vec<Listed>> {
        let goes_on = !is(Bug::Ext4ListCutsHash);
        let end = match hash {
            Some(hash) if goes_on => position_of(hash),
            Some(hash) => position_of(hash.saturating_add(hash & 1)),
            None => END,
        };
        let (mut listed, mut free) = (Vec::new(), 0);
        for ((at, name), (ino, kind)) in self.names.range(..(end, Vec::new())) {
            if is(Bug::Ext4ListDropsAlike) && hash_at(*at) == hash_at(free) && free > 0 {
                continue;
            }
            // Not beyond the hash: more names than that can only be given to be alike.
            let last = position_of(hash_at(*at)) + ((1 << SECOND) - 1);
            let own = (*at).max(free).min(last);
            free = own + 1;
            if own >= self.from {
                listed.push(Listed {
                    ino: *ino,
                    kind: *kind,
                    name: name.clone(),
                    next: free + OWN,
                });
            }
        }
        if listed.is_empty() && self.cut {
            let what = "too many names of a directory have one hash";
            return Err(Corruption::inode(self.dir, what).into());
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions behind names, listed from a position on.
    fn listed(names: &[(u64, &str)], from: u64) -> Vec<(String, u64)> {
        let mut order = Order::new(Ino(12), Hash::unseeded(), from);
        names.iter().for_each(|(at, name)| order.add_at(*at, name.as_bytes(), (Ino(13), None)));
        let listed = order.below(None).unwrap().into_iter();
        listed.map(|name| (String::from_utf8(name.name).unwrap(), name.next - OWN)).collect()
    }

    #[test]
    fn names_with_equal_positions_have_cookies_of_their_own() {
        let top = (1 << SECOND) - ALIKE;
        let names = [(7, "b"), (7, "a"), (8, "c"), (9, "d"), (20, "e"), (top, "f"), (top, "g")];
        let all: Vec<_> = [("a", 8), ("b", 9), ("c", 10), ("d", 11), ("e", 21)]
            .into_iter()
            .chain([("f", top + 1), ("g", top + 2)])
            .map(|(name, next)| (name.to_owned(), next))
            .collect();
        assert_eq!(listed(&names, 0), all);
        for (done, (_, next)) in all.iter().enumerate() {
            assert_eq!(listed(&names, *next), all[done + 1..], "from {next}");
        }
    }

    #[test]
    fn positions_of_one_hash_end_below_the_next() {
        let above = u64::from(u32::MAX).min((1 << SECOND) - ALIKE) + ALIKE;
        assert_eq!(above, position_of(2));
        assert_eq!(hash_at(position_of(0xffff_fffc) + 5), 0xffff_fffc);
        assert!(position_at(position_of(0xffff_fffc) + (1 << SECOND) - 1 + OWN).is_some());
        assert_eq!(position_at(u64::MAX), None);
    }

    /// However many names have one position, a list goes on and ends.
    #[test]
    fn more_names_of_one_position_than_cookies_end() {
        let name = |number: u64| format!("{number:08}");
        let mut order = Order::new(Ino(12), Hash::unseeded(), 0);
        let at = (1 << SECOND) - ALIKE;
        for number in 0..ALIKE + 9 {
            order.add_at(at, name(number).as_bytes(), (Ino(13), None));
        }
        let listed = order.below(None).unwrap();
        assert_eq!(listed.len() as u64, ALIKE + 9);
        assert_eq!(listed.last().unwrap().next, position_of(2) + OWN);
    }
}
