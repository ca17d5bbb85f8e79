//! Copies of an array's columns after a crash.

use std::ops::Range;

use manylogs_block::{Extent, Geometry, Lba, Rng, Sectors};

use manylogs_sim::DiskImage;

use crate::volume::disks::DiskImages;

/// A crash in this number leaves copies that were brought in step before the volume is opened.
const IN_STEP: u64 = 3;

/// The members of a column, lost ones included.
pub(crate) fn members_of(array: Option<Geometry>, column: u16) -> Range<usize> {
    let copies = array.map_or(1, |array| usize::from(array.copies));
    let first = usize::from(column) * copies;
    first..first + copies
}

impl DiskImages {
    /// The members with the content of a column, the one that is read first.
    pub(crate) fn copies(&self, column: u16) -> Vec<usize> {
        let all = self.all_copies(column);
        let live: Vec<usize> = all.clone().filter(|member| self.counts(*member)).collect();
        if live.is_empty() { all.collect() } else { live }
    }

    /// This content without the member of each column that was read, if the column has another one.
    /// `None` if no column has.
    pub(crate) fn without_read_members(mut self) -> Option<Self> {
        let mut is_any = false;
        for column in 0..self.columns() {
            let copies = self.copies(column);
            if copies.len() > 1 {
                self.lost[copies[0]] = true;
                is_any = true;
            }
        }
        if is_any && let Some(homes) = self.homes.clone() {
            self.settle();
            homes.iter().for_each(|home| self.copy_home(*home));
        }
        is_any.then_some(self)
    }

    /// Whether what a member holds counts: it is neither lost nor new.
    pub(crate) fn counts(&self, member: usize) -> bool {
        !self.lost[member] && !self.new[member]
    }

    /// Whether the array does without a member, or fills one.
    pub(super) fn is_short(&self) -> bool {
        (0..self.each.len()).any(|member| !self.counts(member))
    }

    /// Draws whether new members take the place of lost ones, to be filled in use, if the array
    /// ever does that. True if they did, or stayed: the array fills them once more from the
    /// beginning.
    pub(super) fn begin_filling(&mut self, rng: &mut Rng) -> bool {
        if !self.life.fills || rng.one_in(3) {
            return false;
        }
        for member in 0..self.each.len() {
            if std::mem::take(&mut self.lost[member]) {
                self.new[member] = true;
                // A member that comes back holds what it held when it left.
                if rng.one_in(2) {
                    self.each[member] = DiskImage::default();
                }
            }
        }
        true
    }

    /// Puts new members in the place of lost ones, with the content of the column. In half of all
    /// crashes the array goes on without the lost ones.
    fn replace_lost(&mut self, rng: &mut Rng) {
        if !self.is_short() || self.begin_filling(rng) || rng.one_in(2) {
            return;
        }
        for column in 0..self.columns() {
            let source = self.copies(column)[0];
            for member in self.all_copies(column) {
                let is_new = std::mem::take(&mut self.new[member]);
                if std::mem::take(&mut self.lost[member]) || is_new {
                    self.each[member] = self.each[source].clone();
                }
            }
        }
    }

    fn all_copies(&self, column: u16) -> Range<usize> {
        members_of(self.array, column)
    }

    fn columns(&self) -> u16 {
        self.array.map_or(1, |array| array.columns)
    }

    /// What the array does of its resync before the volume is opened again. The content of the
    /// first member of each column goes to the others: all of it, or that of the homes. What a
    /// crash leaves of writes in flight to homes is told nobody, so a home may change until its
    /// resync. All else must not.
    pub(crate) fn resync(mut self, rng: &mut Rng) -> Self {
        if self.array.is_none_or(|array| array.copies == 1) {
            return self;
        }
        self.settle();
        self.replace_lost(rng);
        let homes = self.homes.clone().filter(|_| !rng.one_in(IN_STEP));
        self.apart = homes.is_some();
        match homes {
            None => {
                for column in 0..self.columns() {
                    let copies = self.copies(column);
                    for other in &copies[1..] {
                        self.each[*other] = self.each[copies[0]].clone();
                    }
                }
            }
            Some(homes) => homes.iter().for_each(|home| self.copy_home(*home)),
        }
        self
    }

    fn copy_home(&mut self, home: Extent) {
        let Some(array) = self.array else { return };
        for chunk in array.chunks(home) {
            let (copies, place) =
                (self.copies(chunk.column), Extent { start: chunk.at, ..chunk.extent });
            let content = self.each[copies[0]].read(place);
            for other in &copies[1..] {
                let own = self.each[*other].read(place);
                for (at, (right, own)) in place.range().zip(content.sectors().zip(own.sectors())) {
                    if right != own {
                        self.each[*other].corrupt(Lba(at), right.unwrap_or_default());
                    }
                }
            }
        }
    }

    /// Checks that the copies of each column hold the same in its first sectors, as many as
    /// `reached` says.
    ///
    /// # Errors
    /// The first place where they differ.
    pub(crate) fn check_copies(&self, reached: &[Sectors]) -> Result<(), String> {
        for (column, len) in (0..).zip(reached) {
            // New members count as far as they are filled.
            let live = self.all_copies(column).filter(|member| !self.lost[*member]);
            let copies: Vec<usize> = live.collect();
            let all = Extent { start: Lba(0), len: *len };
            let content = self.each[copies[0]].read(all);
            for other in &copies[1..] {
                let own = self.each[*other].read(all);
                let mut both = all.range().zip(content.sectors().zip(own.sectors()));
                if let Some((at, (one, two))) = both.find(|(_, (one, two))| one != two) {
                    return Err(format!(
                        "copies of column {column} differ at sector {at}: {one:?} and {two:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
