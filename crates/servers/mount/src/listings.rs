//! Lists of directories that the kernel is building in its cache.
//!
//! The kernel caches a list when one reader, or several in turn, have read a directory to its end.
//! It asks for a new list if the directory was changed since the list was begun, but checks that at
//! the first name only. A reader beyond the first name goes on in a list that another reader began
//! before the change, and misses new names. So if a directory was changed while its list was built,
//! the kernel must forget the list before it hears that the list is complete. While it waits for
//! that answer it locks the directory: no program can list it or change its names meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manylogs_ext4::{Ino, Memory, Part, Permit};
use manylogs_plant::{Bug, is};

/// Bytes of memory for a directory that was listed.
const COST: u64 = 96;
/// Readers of one directory at a time that are told apart.
const READERS: usize = 8;

/// The directories of which the kernel may have lists. Clones share one table.
#[derive(Clone)]
pub(crate) struct Listings(Arc<Mutex<Table>>);

struct Table {
    listed: HashMap<Ino, Listing>,
    held: Permit,
}

/// A directory of which the kernel may have a list, or a part of one.
#[derive(Debug, Default)]
struct Listing {
    /// Processes that began to read it and have not come to the end.
    readers: Vec<u32>,
    /// There were more readers than are told apart: some of them may never reach the end.
    crowded: bool,
    /// The directory was changed since a list was begun that a reader may continue.
    changed: bool,
}

impl Listing {
    fn begin(&mut self, reader: u32) {
        if self.readers.is_empty() && !self.crowded {
            // No reader has a part of an older list.
            self.changed = false;
        }
        if self.readers.len() < READERS {
            self.readers.push(reader);
        } else {
            self.crowded = true;
        }
    }

    /// A reader comes to the end: returns whether the kernel must forget the list.
    fn end(&mut self, reader: u32) -> bool {
        if let Some(at) = self.readers.iter().position(|other| *other == reader) {
            self.readers.swap_remove(at);
        }
        let forgotten = std::mem::take(&mut self.changed);
        if forgotten {
            // The kernel forgets the list: no reader has a part of it, not even those that stopped
            // halfway.
            self.readers.clear();
            self.crowded = false;
        }
        forgotten
    }
}

impl Listings {
    pub(crate) fn new(memory: &Memory) -> Self {
        let held = memory.hold(Part::Inodes, 0);
        Self(Arc::new(Mutex::new(Table { listed: HashMap::new(), held })))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that may panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process begins to read a directory.
    pub(crate) fn begin(&self, dir: Ino, reader: u32) {
        let mut table = self.table();
        table.listed.entry(dir).or_default().begin(reader);
        table.count();
    }

    /// The process comes to the end. Returns whether the kernel must forget the list before it gets
    /// the answer.
    #[must_use]
    pub(crate) fn end(&self, dir: Ino, reader: u32) -> bool {
        self.table().listed.get_mut(&dir).is_some_and(|listing| listing.end(reader))
    }

    /// Notes that names of the directory are about to change.
    pub(crate) fn changes(&self, dir: Ino) {
        if is(Bug::MlfsListStale) {
            return;
        }
        if let Some(listing) = self.table().listed.get_mut(&dir) {
            listing.changed = true;
        }
    }

    /// Drops the directory, because the kernel has forgotten it.
    pub(crate) fn forget(&self, dir: Ino) {
        let mut table = self.table();
        if table.listed.remove(&dir).is_some() {
            table.count();
        }
    }
}

impl Table {
    fn count(&mut self) {
        self.held.set(self.listed.len() as u64 * COST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(11);

    #[test]
    fn a_list_that_another_began_before_a_change_is_forgotten() {
        let listings = Listings::new(&Memory::default());
        listings.begin(DIR, 1);
        listings.changes(DIR);
        listings.begin(DIR, 2);
        assert!(listings.end(DIR, 1), "2 would go on in it");
        assert!(!listings.end(DIR, 2), "nothing of the older list is left");
        listings.begin(DIR, 3);
        assert!(!listings.end(DIR, 3));
    }

    #[test]
    fn a_change_between_two_lists_is_seen_by_the_kernel() {
        let listings = Listings::new(&Memory::default());
        listings.changes(DIR);
        listings.begin(DIR, 1);
        assert!(!listings.end(DIR, 1));
        listings.changes(DIR);
        listings.begin(DIR, 1);
        assert!(!listings.end(DIR, 1));
    }

    #[test]
    fn readers_that_stop_or_are_many_cost_lists_and_nothing_else() {
        let memory = Memory::default();
        let listings = Listings::new(&memory);
        (0..20).for_each(|reader| listings.begin(DIR, reader));
        (0..20).for_each(|reader| assert!(!listings.end(DIR, reader)));
        listings.changes(DIR);
        listings.begin(DIR, 1);
        assert!(listings.end(DIR, 1), "somebody may have begun before");
        listings.changes(DIR);
        listings.begin(DIR, 2);
        assert!(!listings.end(DIR, 2), "those who stopped have nothing of what was forgotten");
        assert_eq!(memory.used(Part::Inodes), COST);
        listings.forget(DIR);
        assert_eq!(memory.used(Part::Inodes), 0);
    }
}
