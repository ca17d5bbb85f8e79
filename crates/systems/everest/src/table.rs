//! The table of a client: which ranges are off-loaded, and what each store may hold.

use manylogs_block::{Extent, Sectors};
use manylogs_logstore::{DataSequence, ExtentMap, MapValue, Mapped};
use manylogs_plant::{self as plant, Bug};

use crate::versions::{Range, Stored, Version};

/// The copies of the newest version of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    /// The stores that have it durably, a bit for each.
    pub(crate) stores: u32,
    /// Whether home has this version, or a newer one, durably.
    pub(crate) clean: bool,
}

impl Copies {
    /// Whether stores alone have this version.
    pub(crate) const fn is_away(self) -> bool {
        self.stores != 0 && !self.clean
    }

    /// Whether nobody has this version any more.
    pub(crate) const fn is_lost(self) -> bool {
        self.stores == 0 && !self.clean
    }
}

impl MapValue for Copies {
    fn advance(self, _: Sectors) -> Self {
        self
    }

    fn pack(self) -> [u64; 2] {
        [self.stores.into(), self.clean.into()]
    }

    fn unpack([stores, clean]: [u64; 2]) -> Self {
        Self { stores: manylogs_block::narrow(stores), clean: clean != 0 }
    }
}

/// A version that a store may hold of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    /// Whether the store has the newest version, or a newer one of a failed write. A store without
    /// it may hold something older than the version it was sent last.
    pub(crate) has_newest: bool,
    pub(crate) version: Version,
    pub(crate) store: usize,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Holder {
    pub(crate) const fn extent(&self) -> Extent {
        Extent::new(self.start, self.len)
    }

    /// The range that the store may hold, up to this version.
    pub(crate) const fn range(&self) -> Range {
        Range { extent: self.extent(), version: self.version }
    }
}

/// A range to reclaim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) range: Range,
    pub(crate) copies: u32,
    /// Whether the newest version is not home yet.
    pub(crate) dirty: bool,
    /// Whether stores may hold versions of failed writes, or versions are on their way to them.
    pub(crate) left_over: bool,
}

/// The table of a client.
#[derive(Debug)]
pub(crate) struct Table {
    /// The newest acknowledged version of each range that a store has.
    newest: ExtentMap<Copies>,
    /// For each store, the newest version that was sent to it and that it may still hold.
    held: Vec<ExtentMap<Stored>>,
}

const fn mapped<V>(version: Version, value: V) -> Mapped<V> {
    Mapped { sequence: DataSequence(version.0), value }
}

impl Table {
    pub(crate) fn new(stores: usize) -> Self {
        let held = (0..stores).map(|_| ExtentMap::new()).collect();
        Self { newest: ExtentMap::new(), held }
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.newest.bytes() + self.held.iter().map(ExtentMap::bytes).sum::<usize>()
    }

    /// One more store has come, which holds nothing that counts.
    pub(crate) fn one_more(&mut self) {
        self.held.push(ExtentMap::new());
    }

    /// The table at an opening, made of the stores' answers.
    pub(crate) fn opened(stores: usize, held: &[(usize, Vec<Range>)], lost: &[Range]) -> Self {
        let mut table = Self::new(stores);
        // They hide older versions, which stores may still hold.
        if !plant::is(Bug::LossNotBelieved) {
            lost.iter().for_each(|range| table.lost(*range));
        }
        for (store, ranges) in held {
            for range in ranges {
                table.sent(*store, *range);
            }
        }
        for (store, ranges) in held {
            for &Range { extent, version } in ranges {
                let parts: Vec<_> = table.newest.lookup(extent).collect();
                for (part, known) in parts {
                    let same = known.filter(|known| known.sequence.0 == version.0);
                    let others = same.map_or(0, |same| same.value.stores);
                    let copies = Copies { stores: others | 1 << store, clean: false };
                    let replaces = |old: &Mapped<Copies>| old.sequence <= DataSequence(version.0);
                    table.newest.insert_where(part, mapped(version, copies), replaces, |_, _| ());
                }
            }
        }
        table
    }

    /// Whether any store may hold versions of `extent`, or held them and lost them.
    pub(crate) fn is_held(&self, extent: Extent) -> bool {
        let seen = match plant::is(Bug::OverlapSeenAtStart) {
            true => Extent::new(extent.start.0, 1),
            false => extent,
        };
        let is_sent = self.held.iter().any(|held| held.overlaps(seen));
        is_sent && !plant::is(Bug::InFlightNotHeld) || self.newest.overlaps(seen)
    }

    /// Whether anything is known of the newest version of a part of `extent`.
    pub(crate) fn is_offloaded(&self, extent: Extent) -> bool {
        self.newest.overlaps(extent)
    }

    /// Whether this store may hold versions of `extent`.
    pub(crate) fn is_held_by(&self, store: usize, extent: Extent) -> bool {
        self.held[store].overlaps(extent)
    }

    /// How much of `extent` this store may hold.
    pub(crate) fn held_sectors(&self, store: usize, extent: Extent) -> Sectors {
        let found = self.held[store].lookup(extent).filter(|(_, found)| found.is_some());
        Sectors(found.map(|(part, _)| part.len.0).sum())
    }

    /// Whether a store may hold anything.
    pub(crate) fn is_used(&self, store: usize) -> bool {
        !self.held[store].is_empty()
    }

    /// Whether stores hold nothing that counts.
    pub(crate) fn is_empty(&self) -> bool {
        let nothing = self.newest().all(|(_, copies)| copies.is_lost());
        nothing && self.held.iter().all(ExtentMap::is_empty)
    }

    /// Notes that a version is sent to a store.
    pub(crate) fn sent(&mut self, store: usize, Range { extent, version }: Range) {
        self.held[store].insert(extent, mapped(version, Stored), |_, _| ());
    }

    /// Whether the store may still hold the version that was sent to it, i.e. it is not void.
    pub(crate) fn is_sent(&self, store: usize, Range { extent, version }: Range) -> bool {
        let has = |found: Option<Mapped<Stored>>| found.is_some_and(|f| f.sequence.0 >= version.0);
        self.held[store].lookup(extent).all(|(_, found)| has(found))
    }

    /// Notes that a write has succeeded: `stores` have its version durably.
    pub(crate) fn kept(&mut self, Range { extent, version }: Range, stores: u32) {
        self.newest.insert(extent, mapped(version, Copies { stores, clean: false }), |_, _| ());
    }

    /// Notes that the newest version of a range is lost.
    pub(crate) fn lost(&mut self, Range { extent, version }: Range) {
        let nowhere = Copies { stores: 0, clean: false };
        self.newest.insert(extent, mapped(version, nowhere), |_, _| ());
    }

    /// The parts of `extent`, with version and copies of those that were off-loaded.
    pub(crate) fn lookup(&self, extent: Extent) -> Vec<(Extent, Option<(Version, Copies)>)> {
        let known = |found: Mapped<Copies>| (Version(found.sequence.0), found.value);
        self.newest.lookup(extent).map(|(part, found)| (part, found.map(known))).collect()
    }

    /// Notes that home has this version of the range, or a newer one.
    pub(crate) fn cleaned(&mut self, Range { extent, version }: Range) {
        let mut parts = Vec::new();
        let older = DataSequence(version.0.saturating_add(1));
        self.newest.remove_older(extent, older, |part, old| parts.push((part, old)));
        for (part, old) in parts {
            let value = Copies { clean: true, ..old.value };
            self.newest.insert(part, Mapped { value, ..old }, |_, _| ());
        }
    }

    /// The versions that stores may hold of `extent`. The newest, which hide the others from an
    /// opening, come last.
    pub(crate) fn holders(&self, extent: Extent) -> Vec<Holder> {
        let mut holders = Vec::new();
        for (store, held) in self.held.iter().enumerate() {
            let found = held.lookup(extent).filter_map(|(part, found)| Some((part, found?)));
            for (run, found) in found {
                for (part, newest) in self.newest.lookup(run) {
                    let is_newest = |newest: Mapped<Copies>| {
                        newest.sequence <= found.sequence && newest.value.stores >> store & 1 == 1
                    };
                    holders.push(Holder {
                        has_newest: newest.is_some_and(is_newest),
                        version: Version(found.sequence.0),
                        store,
                        start: part.start.0,
                        len: part.len.0,
                    });
                }
            }
        }
        holders.sort_unstable();
        if plant::is(Bug::HighestDeletedFirst) {
            holders.reverse();
        }
        holders
    }

    /// Notes that a store has forgotten its versions of `extent` up to `version`.
    pub(crate) fn forgotten(&mut self, store: usize, Range { extent, version }: Range) {
        let older = DataSequence(version.0.saturating_add(1));
        self.held[store].remove_older(extent, older, |_, _| ());
        let mut parts = Vec::new();
        let has = |old: &Mapped<Copies>| old.sequence < older && old.value.stores >> store & 1 == 1;
        self.newest.remove_where(extent, has, |part, old| parts.push((part, old)));
        for (part, old) in parts {
            let value = Copies { stores: old.value.stores & !(1 << store), ..old.value };
            self.newest.insert(part, Mapped { value, ..old }, |_, _| ());
        }
    }

    /// Forgets ranges that are home and that no store holds.
    pub(crate) fn tidy(&mut self, extent: Extent) {
        if !self.held.iter().any(|held| held.overlaps(extent)) {
            self.newest.remove_where(extent, |old| old.value.clean, |_, _| ());
        }
    }

    /// Takes a store's answer about what it holds, while no version is on its way to it.
    pub(crate) fn reconcile(&mut self, store: usize, ranges: &[Range]) {
        let mut says = ExtentMap::new();
        for range in ranges {
            says.insert(range.extent, mapped(range.version, Stored), |_, _| ());
        }
        let old = std::mem::replace(&mut self.newest, ExtentMap::new());
        for (extent, known) in old.iter() {
            for (part, found) in says.lookup(extent) {
                let bit = 1 << store;
                // A newer version is of a write that failed or is not answered yet.
                let has = found.is_some_and(|found| found.sequence >= known.sequence);
                let same = found.is_some_and(|found| found.sequence == known.sequence);
                let mut value = known.value;
                if !has && value.stores == bit && plant::is(Bug::RolledBackBelieved) {
                    continue;
                }
                if !has {
                    value.stores &= !bit;
                }
                if same {
                    value.stores |= bit;
                }
                self.newest.insert(part, Mapped { value, ..known }, |_, _| ());
            }
        }
        self.held[store] = says;
    }

    /// Ranges to reclaim, in no order. Of lost ranges those that stores hold older versions of, if
    /// any.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        for (extent, known) in self.newest.iter() {
            let (version, copies) = (Version(known.sequence.0), known.value);
            let held = if copies.is_lost() { self.held_of(extent) } else { Vec::new() };
            let parts = if held.is_empty() { vec![extent] } else { held };
            found.extend(parts.into_iter().map(|extent| Candidate {
                range: Range { extent, version },
                copies: copies.stores,
                dirty: !copies.clean,
                left_over: self.has_newer(extent, known.sequence),
            }));
        }
        // Several stores may hold the same range: it is one candidate.
        let mut left = ExtentMap::new();
        for (extent, known) in self.held.iter().flat_map(ExtentMap::iter) {
            for (part, _) in self.newest.lookup(extent).filter(|(_, newest)| newest.is_none()) {
                left.insert(part, known, |_, _| ());
            }
        }
        for (extent, known) in left.iter() {
            let range = Range { extent, version: Version(known.sequence.0) };
            found.push(Candidate { range, copies: 0, dirty: false, left_over: true });
        }
        found
    }

    /// Whether a store may hold a version of a part of `extent` that is newer than this.
    fn has_newer(&self, extent: Extent, than: DataSequence) -> bool {
        let newer = |held: &ExtentMap<Stored>| {
            let mut parts = held.lookup(extent);
            parts.any(|(_, part)| part.is_some_and(|part| part.sequence > than))
        };
        self.held.iter().any(newer)
    }

    /// The parts of `extent` that stores may hold versions of.
    fn held_of(&self, extent: Extent) -> Vec<Extent> {
        let mut all = ExtentMap::new();
        for (part, found) in self.held.iter().flat_map(|held| held.lookup(extent)) {
            if found.is_some() {
                all.insert(part, mapped(Version::default(), Stored), |_, _| ());
            }
        }
        all.iter().map(|(part, _)| part).collect()
    }

    /// Whether all versions of a store may become void: they are home as well, and hide no older
    /// version in another store from an opening.
    pub(crate) fn may_be_void(&self, store: usize) -> bool {
        let is_home = |extent| {
            let mut parts = self.newest.lookup(extent);
            parts.all(|(_, newest)| newest.is_none_or(|newest| newest.value.clean))
        };
        let hides_nothing = |extent| {
            let holders = self.holders(extent);
            let hides = holders.iter().any(|one| one.store == store && one.has_newest);
            !hides || holders.iter().all(|one| one.store == store || one.has_newest)
        };
        self.held[store].iter().all(|(extent, _)| is_home(extent) && hides_nothing(extent))
    }

    /// Sectors whose newest version is in this store, and nowhere else.
    pub(crate) fn only_copies(&self, store: usize) -> Sectors {
        Sectors(self.only_in(store).iter().map(|range| range.extent.len.0).sum())
    }

    /// The ranges whose newest version is in this store, and nowhere else, in order of address.
    pub(crate) fn only_in(&self, store: usize) -> Vec<Range> {
        let only = |copies: Copies| copies.stores == 1 << store && !copies.clean;
        self.newest().filter(|(_, copies)| only(*copies)).map(|(range, _)| range).collect()
    }

    /// Ranges that are home, and of which this store and others have versions. Its version may hide
    /// older ones of the others from an opening.
    pub(crate) fn home_but_held(&self, store: usize) -> Vec<Extent> {
        let mut found = Vec::new();
        for (extent, _) in self.held[store].iter() {
            for (part, newest) in self.newest.lookup(extent) {
                let is_home = newest.is_none_or(|newest| newest.value.clean);
                let mut others = self.held.iter().enumerate().filter(|(other, _)| *other != store);
                if is_home && others.any(|(_, held)| held.overlaps(part)) {
                    found.push(part);
                }
            }
        }
        found
    }

    /// The newest acknowledged versions, in order of address.
    pub(crate) fn newest(&self) -> impl Iterator<Item = (Range, Copies)> + '_ {
        let range = |extent, version: DataSequence| Range { extent, version: Version(version.0) };
        self.newest.iter().map(move |(extent, known)| (range(extent, known.sequence), known.value))
    }

    /// The oldest of the newest versions that stores alone have.
    pub(crate) fn oldest(&self) -> Option<Version> {
        self.newest().filter(|(_, copies)| copies.is_away()).map(|(range, _)| range.version).min()
    }

    /// Sectors of which a store has the newest version, of all stores or of one.
    pub(crate) fn sectors(&self, of: Option<usize>) -> Sectors {
        let counts = |copies: Copies| match of {
            Some(store) => copies.stores >> store & 1 == 1,
            None => copies.stores != 0 || copies.clean,
        };
        let found = self.newest().filter(|(_, copies)| counts(*copies));
        Sectors(found.map(|(range, _)| range.extent.len.0).sum())
    }
}
