//! Rows of an array with parity after a crash.
//!
//! What a crash leaves of writes in flight may not fit the parity of their rows. If a member is
//! missing, too, what it held in such a row is wrong. For homes that is the array's write hole,
//! which `docs/semantics.md` tells; so here the rows of homes are brought in step before a member
//! goes. The rows of logs and structures are not: there nothing may be lost. If the volume closes
//! the write hole, only those stripes are brought in step that a client was writing.

use std::rc::Rc;

use manylogs_array::{Rotation, completed, parity_of};
use manylogs_block::{Extent, Geometry, Lba, PAGE, Payload, Rng, Sectors, to_usize};

use crate::volume::disks::DiskImages;

/// A crash in this number leaves rows that were all brought in step before the volume is opened.
const IN_STEP: u64 = 3;

/// The members of an array with parity; `None` of any other.
pub(crate) fn rotation(array: Option<Geometry>) -> Option<Rotation> {
    let array = array.filter(|array| array.parity > 0)?;
    Some(Rotation { members: array.columns + array.parity, parity: array.parity })
}

impl DiskImages {
    /// The content that a user of an array with parity reads. What a missing member held is
    /// computed from the others.
    pub(crate) fn read_rows(&self, array: Geometry, extent: Extent) -> Payload {
        let mut content = Payload::default();
        for chunk in array.chunks(extent) {
            let place = Extent { start: chunk.at, ..chunk.extent };
            content.append(self.columns_of_stripe(array, place).swap_remove(chunk.column.into()));
        }
        content
    }

    /// The data of each column at a place within one stripe.
    fn columns_of_stripe(&self, array: Geometry, place: Extent) -> Vec<Payload> {
        let Some(rotation) = rotation(Some(array)) else { return Vec::new() };
        let stripe = place.start.0 / array.chunk.0;
        let read = |member: u16| {
            let member = usize::from(member);
            self.counts(member).then(|| self.each[member].read(place))
        };
        let data = (0..array.columns).map(|column| read(rotation.of_data(stripe, column)));
        let data: Vec<Option<Payload>> = data.collect();
        if data.iter().all(Option::is_some) {
            return data.into_iter().flatten().collect();
        }
        let parities = (0..array.parity).map(|which| read(rotation.of_parity(stripe, which)));
        let all = completed(data, &parities.collect::<Vec<_>>(), place.len);
        all.unwrap_or_else(|| vec![Payload::absent(place.len); array.columns.into()])
    }

    /// What the array does of its resync before the volume is opened again: all rows get the parity
    /// of their data, or those of homes.
    pub(crate) fn resync_rows(mut self, array: Geometry, rng: &mut Rng) -> Self {
        self.settle();
        let homes = self.homes.clone().filter(|_| !rng.one_in(IN_STEP));
        self.apart = homes.is_some();
        match homes {
            Some(_) => self.fit_what_is_told(array),
            None => self.fit_parity(array, self.all(array)),
        }
        if self.is_short() && !self.begin_filling(rng) && rng.one_in(2) {
            self.replace_missing(array);
        }
        self
    }

    /// This content without some members that are there now: at least one, and as many as the level
    /// bears at most. `None` if it bears no more. Homes are in step.
    pub(crate) fn without_some_members(mut self, array: Geometry, rng: &mut Rng) -> Option<Self> {
        self.settle();
        self.homes.as_ref()?;
        self.fit_what_is_told(array);
        self.apart = true;
        let gone = (0..self.each.len()).filter(|member| !self.counts(*member)).count();
        let bears = usize::from(array.parity).checked_sub(gone).filter(|more| *more > 0)?;
        for _ in 0..=rng.below(bears as u64) {
            let live: Vec<usize> = (0..self.each.len()).filter(|at| self.counts(*at)).collect();
            self.lost[live[to_usize(rng.below(live.len() as u64))]] = true;
        }
        Some(self)
    }

    /// Brings in step what a crash with a missing member may cost: rows of homes.
    fn fit_what_is_told(&mut self, array: Geometry) {
        for extent in self.told_places().iter() {
            self.fit_parity(array, *extent);
        }
    }

    /// See [`DiskImages::fit_what_is_told`].
    fn told_places(&self) -> Rc<[Extent]> {
        self.written.clone().or_else(|| self.homes.clone()).unwrap_or_default()
    }

    /// Puts new members in the place of those that an array with parity does without, and forgets
    /// where homes are until the volume is opened again. Until then a crash leaves rows in step.
    pub(crate) fn make_whole(&mut self) {
        if let Some(array) = self.array.filter(|array| array.parity > 0) {
            self.settle();
            if self.is_short() {
                self.replace_missing(array);
            }
            self.fit_parity(array, self.all(array));
            (self.apart, self.homes, self.written) = (false, None, None);
        }
    }

    /// Puts new members in the place of missing ones, with the content that belongs there.
    fn replace_missing(&mut self, array: Geometry) {
        let Some(rotation) = rotation(Some(array)) else { return };
        for stripe in 0..self.stripes(array) {
            let place = Extent { start: Lba(stripe * array.chunk.0), len: array.chunk };
            let data = self.columns_of_stripe(array, place);
            for (column, content) in (0..).zip(&data) {
                self.put(rotation.of_data(stripe, column), place, content);
            }
            self.put_parities(array, place, &data);
        }
        self.lost.fill(false);
        self.new.fill(false);
    }

    /// Computes the parity of the rows of an extent anew. Rows with missing members stay.
    fn fit_parity(&mut self, array: Geometry, extent: Extent) {
        if self.is_short() {
            return;
        }
        // Rows of a stripe are the same for all of its chunks, and extents are whole stripes.
        let first_column = array.chunks(extent).filter(|chunk| chunk.column == 0);
        for chunk in first_column.collect::<Vec<_>>() {
            let place = Extent { start: chunk.at, ..chunk.extent };
            let data = self.columns_of_stripe(array, place);
            self.put_parities(array, place, &data);
        }
    }

    /// Computes the parity of all rows anew.
    pub(super) fn fit_all_parity(&mut self, array: Geometry) {
        self.fit_parity(array, self.all(array));
    }

    fn put_parities(&mut self, array: Geometry, place: Extent, data: &[Payload]) {
        let Some(rotation) = rotation(Some(array)) else { return };
        let stripe = place.start.0 / array.chunk.0;
        for which in 0..array.parity {
            let parity = parity_of(which, data, place.len);
            self.put(rotation.of_parity(stripe, which), place, &parity);
        }
    }

    fn put(&mut self, member: u16, place: Extent, content: &Payload) {
        let image = &mut self.each[usize::from(member)];
        let own = image.read(place);
        for (at, (new, own)) in place.range().zip(content.sectors().zip(own.sectors())) {
            if new != own {
                image.corrupt(Lba(at), new.unwrap_or_default());
            }
        }
    }

    /// Takes the rows of homes that a crash may cost from `other`, on all members.
    pub(crate) fn take_homes(&mut self, array: Geometry, mut other: Self) {
        let told = self.told_places();
        self.settle();
        other.settle();
        for home in told.iter() {
            let first_column = array.chunks(*home).filter(|chunk| chunk.column == 0);
            for chunk in first_column {
                let place = Extent { start: chunk.at, ..chunk.extent };
                for member in 0..self.each.len() {
                    let content = other.each[member].read(place);
                    self.put(manylogs_block::narrow(member as u64), place, &content);
                }
            }
        }
    }

    /// Checks that the parity of each row fits its data, in the first `reached` sectors of each
    /// member.
    ///
    /// # Errors
    /// The first row where it does not.
    pub(crate) fn check_parity(&self, array: Geometry, reached: Sectors) -> Result<(), String> {
        let Some(rotation) = rotation(Some(array)) else { return Ok(()) };
        if self.lost.contains(&true) {
            return Ok(());
        }
        // New members count as far as they are filled.
        let known = Self { new: vec![false; self.each.len()], ..self.clone() };
        for stripe in 0..self.stripes(array) {
            let place = Extent { start: Lba(stripe * array.chunk.0), len: array.chunk };
            let data = known.columns_of_stripe(array, place);
            for which in 0..array.parity {
                let member = usize::from(rotation.of_parity(stripe, which));
                let (parity, own) =
                    (parity_of(which, &data, place.len), self.each[member].read(place));
                let known = to_usize(reached.0.saturating_sub(place.start.0));
                let mut both = parity.sectors().zip(own.sectors()).take(known);
                if let Some(at) = both.position(|(right, own)| right != own) {
                    let row = at as u64 / PAGE.0;
                    return Err(format!("parity {which} of stripe {stripe} is wrong in row {row}"));
                }
            }
        }
        Ok(())
    }

    fn all(&self, array: Geometry) -> Extent {
        Extent { start: Lba(0), len: Sectors(self.stripes(array) * array.stripe().0) }
    }

    fn stripes(&self, array: Geometry) -> u64 {
        self.member.0 / array.chunk.0
    }
}
