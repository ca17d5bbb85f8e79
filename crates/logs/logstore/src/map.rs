//! The newest version of each block, and its place.

use std::marker::PhantomData;

use manylogs_block::{Extent, Lba, Sectors};
use smallvec::SmallVec;

use crate::DataSequence;
use crate::leaf::{LEN, Row, START};
use crate::tree::{Position, Tree};

/// The value of a mapped extent: the place of its content, or what stands for the content.
pub trait MapValue: Copy + PartialEq {
    /// The value of the part that begins `by` sectors further on.
    #[must_use]
    fn advance(self, by: Sectors) -> Self;

    /// The value as two words. The map stores as many of their bits as differ between
    /// neighbours.
    fn pack(self) -> [u64; 2];

    /// The value that was packed into `words`.
    fn unpack(words: [u64; 2]) -> Self;
}

/// The version that an extent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped<V> {
    /// The data sequence of the write.
    pub sequence: DataSequence,
    /// The place or kind of its content.
    pub value: V,
}

/// An ordered map from extents to versions. Extents do not overlap; a block not mapped is at home.
///
/// Look-ups and updates take time logarithmic in the number of extents, and linear in the number
/// they touch.
#[derive(Clone, Debug)]
pub struct ExtentMap<V> {
    tree: Tree,
    value: PhantomData<V>,
}

impl<V> Default for ExtentMap<V> {
    fn default() -> Self {
        Self { tree: Tree::new(), value: PhantomData }
    }
}

/// Number of runs that one change of a leaf may replace: a small write rarely overlaps more.
const FEW_RUNS: usize = 4;
type FewRuns<V> = SmallVec<[(Extent, Mapped<V>); FEW_RUNS]>;
const SEQUENCE: usize = LEN + 1;
const VALUE: usize = SEQUENCE + 1;

fn pack<V: MapValue>(extent: Extent, mapped: Mapped<V>) -> Row {
    let [value, more] = mapped.value.pack();
    [extent.start.0, extent.len.0, mapped.sequence.0, value, more]
}

fn unpack<V: MapValue>([start, len, sequence, value, more]: Row) -> (Extent, Mapped<V>) {
    let value = V::unpack([value, more]);
    (Extent::new(start, len), Mapped { sequence: DataSequence(sequence), value })
}

impl<V: MapValue> ExtentMap<V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { tree: Tree::new(), value: PhantomData }
    }

    /// Number of extents.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether nothing is mapped.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Maps `extent` to `mapped` wherever the mapped version is older or missing. Calls `displaced`
    /// for each part that it replaces.
    pub fn insert(
        &mut self,
        extent: Extent,
        mapped: Mapped<V>,
        displaced: impl FnMut(Extent, Mapped<V>),
    ) {
        self.insert_where(extent, mapped, |old| old.sequence < mapped.sequence, displaced);
    }

    /// As [`ExtentMap::insert`], but `replaces` decides which versions are replaced.
    pub fn insert_where(
        &mut self,
        extent: Extent,
        mapped: Mapped<V>,
        replaces: impl Fn(&Mapped<V>) -> bool,
        mut displaced: impl FnMut(Extent, Mapped<V>),
    ) {
        if extent.is_empty() {
            return;
        }
        // Runs do not overlap, so it is enough to look at the last that begins before the end.
        let last = self.tree.before(extent.end().0);
        match last.map(|last| (last, self.extent(last))) {
            Some((at, old)) if old.end() > extent.start => {
                let (_, version) = self.get(at);
                if old == extent && replaces(&version) {
                    let [_, _, words @ ..] = pack(extent, mapped);
                    self.tree.set(at, SEQUENCE, words);
                    displaced(extent, version);
                    return;
                }
                if let Some(gone) = self.replace_few(at, extent, mapped, &replaces) {
                    gone.into_iter().for_each(|(part, old)| displaced(part, old));
                    return;
                }
            }
            _ => {
                self.tree.insert_behind(last, pack(extent, mapped));
                return;
            }
        }
        let all_gave_way = self.remove_overlapping(extent, replaces, displaced);
        if all_gave_way {
            self.fill(extent, mapped);
            return;
        }
        let gaps: Vec<Extent> =
            self.lookup(extent).filter(|(_, old)| old.is_none()).map(|(gap, _)| gap).collect();
        for gap in gaps {
            let value = mapped.value.advance(Sectors(gap.start.0 - extent.start.0));
            self.fill(gap, Mapped { value, ..mapped });
        }
    }

    /// Maps `extent` by one change of one leaf. The last run that it overlaps is at `last`. Returns
    /// the displaced parts. Returns `None` and changes nothing if a run must stay, if the runs are
    /// many, or if they lie in several leaves.
    fn replace_few(
        &mut self,
        last: Position,
        extent: Extent,
        mapped: Mapped<V>,
        replaces: &impl Fn(&Mapped<V>) -> bool,
    ) -> Option<FewRuns<V>> {
        let (first, count) = self.tree.reaching_beyond(extent.start.0, last)?;
        if count > FEW_RUNS {
            return None;
        }
        let mut displaced = SmallVec::new();
        let mut rows: SmallVec<[Row; 3]> = SmallVec::new();
        let mut behind = None;
        for index in 0..count {
            let (run, old) = self.get(first.behind(index));
            if !replaces(&old) {
                return None;
            }
            let part = |part: Extent| {
                let value = old.value.advance(Sectors(part.start.0 - run.start.0));
                (part, Mapped { value, ..old })
            };
            if run.start < extent.start {
                rows.push(pack(Extent::between(run.start, extent.start), old));
            }
            if run.end() > extent.end() {
                behind = Some(part(Extent::between(extent.end(), run.end())));
            }
            let (start, end) = (run.start.max(extent.start), run.end().min(extent.end()));
            displaced.push(part(Extent::between(start, end)));
        }
        rows.push(pack(extent, mapped));
        rows.extend(behind.map(|(part, old)| pack(part, old)));
        self.tree.replace(first, count, &rows).then_some(displaced)
    }

    /// Unmaps the parts of `extent` whose version is older than `sequence`.
    pub fn remove_older(
        &mut self,
        extent: Extent,
        sequence: DataSequence,
        removed: impl FnMut(Extent, Mapped<V>),
    ) {
        self.remove_where(extent, |old| old.sequence < sequence, removed);
    }

    /// Unmaps the parts of `extent` for which `doomed` holds; true if no part of it stays mapped.
    pub fn remove_where(
        &mut self,
        extent: Extent,
        doomed: impl Fn(&Mapped<V>) -> bool,
        removed: impl FnMut(Extent, Mapped<V>),
    ) -> bool {
        // Usually nothing is mapped there.
        !self.overlaps(extent) || self.remove_overlapping(extent, doomed, removed)
    }

    fn remove_overlapping(
        &mut self,
        extent: Extent,
        doomed: impl Fn(&Mapped<V>) -> bool,
        mut removed: impl FnMut(Extent, Mapped<V>),
    ) -> bool {
        self.split_at(extent.start);
        self.split_at(extent.end());
        let mut next = extent.start;
        let mut nothing_left = true;
        while next < extent.end()
            && let Some(at) = self.tree.at_or_behind(next.0)
        {
            let (part, mapped) = self.get(at);
            if part.start >= extent.end() {
                break;
            }
            next = part.end();
            if doomed(&mapped) {
                self.tree.remove(at);
                removed(part, mapped);
            } else {
                nothing_left = false;
            }
        }
        nothing_left
    }

    /// Whether anything in `extent` is mapped.
    #[must_use]
    #[inline]
    pub fn overlaps(&self, extent: Extent) -> bool {
        !self.is_empty() && self.has_run_in(extent)
    }

    fn has_run_in(&self, extent: Extent) -> bool {
        // Runs do not overlap, so the last that begins before the end reaches farthest.
        let last = self.tree.before(extent.end().0);
        last.is_some_and(|last| self.extent(last).end() > extent.start) && !extent.is_empty()
    }

    /// The parts of `extent` in order: each is mapped, or a gap.
    pub fn lookup(&self, extent: Extent) -> impl Iterator<Item = (Extent, Option<Mapped<V>>)> {
        let before = self.tree.before(extent.start.0.saturating_add(1));
        let mut runs = self
            .tree
            .iter_from(before.or_else(|| self.tree.first()))
            .map(unpack::<V>)
            .skip_while(move |(run, _)| run.end() <= extent.start)
            .peekable();
        let mut next = extent.start;
        std::iter::from_fn(move || {
            if next >= extent.end() {
                return None;
            }
            let Some((run, mapped)) = runs.peek().copied().filter(|(r, _)| r.start < extent.end())
            else {
                let gap = Extent::between(next, extent.end());
                next = extent.end();
                return Some((gap, None));
            };
            if run.start > next {
                let gap = Extent::between(next, run.start);
                next = run.start;
                return Some((gap, None));
            }
            runs.next();
            let part = Extent::between(next, run.end().min(extent.end()));
            let value = mapped.value.advance(Sectors(next.0 - run.start.0));
            next = part.end();
            Some((part, Some(Mapped { value, ..mapped })))
        })
    }

    /// Gives a new value to the runs inside `extent` for which `value_of` returns one. Runs that
    /// cross the edges of `extent` are left alone.
    pub fn update(
        &mut self,
        extent: Extent,
        mut value_of: impl FnMut(Extent, Mapped<V>) -> Option<V>,
    ) {
        let mut next = self.tree.at_or_behind(extent.start.0);
        while let Some(at) = next {
            let (part, mapped) = self.get(at);
            if !extent.contains(part) {
                break;
            }
            if let Some(value) = value_of(part, mapped) {
                self.tree.set(at, VALUE, value.pack());
            }
            next = if part.end() < extent.end() { self.tree.next(at) } else { None };
        }
    }

    /// Unmaps every run for which `keep` does not hold.
    pub fn retain(&mut self, mut keep: impl FnMut(Extent, Mapped<V>) -> bool) {
        self.tree.retain(|row| {
            let (extent, mapped) = unpack(*row);
            keep(extent, mapped)
        });
    }

    /// Every mapped extent by address.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, Mapped<V>)> {
        self.tree.iter_from(self.tree.first()).map(unpack)
    }

    /// Mapped extents from `start` on.
    pub fn iter_from(&self, start: Lba) -> impl Iterator<Item = (Extent, Mapped<V>)> {
        self.tree.iter_from(self.tree.at_or_behind(start.0)).map(unpack)
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tree.bytes()
    }

    fn get(&self, at: Position) -> (Extent, Mapped<V>) {
        unpack(self.tree.get(at))
    }

    fn extent(&self, at: Position) -> Extent {
        Extent::new(self.tree.word(at, START), self.tree.word(at, LEN))
    }

    /// Maps an extent in which nothing is mapped.
    fn fill(&mut self, extent: Extent, mapped: Mapped<V>) {
        self.tree.insert_behind(self.tree.before(extent.start.0), pack(extent, mapped));
    }

    fn split_at(&mut self, at: Lba) {
        let Some(position) = self.tree.before(at.0) else { return };
        let run = self.extent(position);
        if run.end() <= at {
            return;
        }
        let (_, mapped) = self.get(position);
        let value = mapped.value.advance(Sectors(at.0 - run.start.0));
        let tail = Extent::between(at, run.end());
        self.tree.set(position, LEN, [at.0 - run.start.0]);
        self.tree.insert_behind(Some(position), pack(tail, Mapped { value, ..mapped }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylogs_block::to_usize;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct At(u64);

    impl MapValue for At {
        fn advance(self, by: Sectors) -> Self {
            Self(self.0 + by.0)
        }

        fn pack(self) -> [u64; 2] {
            [self.0, 0]
        }

        fn unpack([at, _]: [u64; 2]) -> Self {
            Self(at)
        }
    }

    /// Cells of the reference model.
    const SPACE: u64 = 200;
    /// Sectors that a cell stands for; they lead to leaves with words of one byte up to eight.
    const SCALES: [u64; 4] = [1, 7, 1 << 17, 1 << 36];

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Extent, u64),
        RemoveOlder(Extent, u64),
        Update(Extent, u64),
        Retain(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let short = (0..SPACE - 4, 1..4u64);
        let any = (0..SPACE - 1).prop_flat_map(|start| (Just(start), 1..=SPACE - start));
        let extent = prop_oneof![8 => short, 1 => any];
        (0..40u32, extent, 1..60u64).prop_map(|(kind, (start, len), sequence)| {
            let extent = Extent::new(start, len);
            match kind {
                0 => Op::Retain(sequence),
                1..5 => Op::RemoveOlder(extent, sequence),
                5..9 => Op::Update(extent, sequence),
                _ => Op::Insert(extent, sequence),
            }
        })
    }

    /// Grows with `n`, through several incarnations.
    fn sequence(n: u64) -> DataSequence {
        DataSequence(((n / 8) << 44) + n)
    }

    /// A map, and an array with the version of each cell as its model.
    struct Pair {
        scale: u64,
        map: ExtentMap<At>,
        model: Vec<Option<Mapped<At>>>,
    }

    impl Pair {
        fn apply(&mut self, op: &Op, value: At) -> Result<(), TestCaseError> {
            match *op {
                Op::Insert(cells, n) => self.replace(cells, sequence(n), Some(value)),
                Op::RemoveOlder(cells, n) => self.replace(cells, sequence(n), None),
                Op::Update(cells, n) => self.update(cells, sequence(n)),
                Op::Retain(n) => {
                    self.map.retain(|_, mapped| mapped.sequence > sequence(n));
                    let dead = |cell: &Option<Mapped<At>>| {
                        cell.is_some_and(|mapped| mapped.sequence <= sequence(n))
                    };
                    for cell in self.model.iter_mut().filter(|cell| dead(cell)) {
                        *cell = None;
                    }
                    Ok(())
                }
            }
        }

        fn scaled(&self, cells: Extent) -> Extent {
            Extent::new(cells.start.0 * self.scale, cells.len.0 * self.scale)
        }

        /// The version of each cell of a part.
        fn cells(&self, part: Extent, mapped: Mapped<At>) -> Vec<(u64, Mapped<At>)> {
            assert!(
                part.start.0.is_multiple_of(self.scale) && part.len.0.is_multiple_of(self.scale)
            );
            (0..part.len.0 / self.scale)
                .map(|i| {
                    let value = mapped.value.advance(Sectors(i * self.scale));
                    (part.start.0 / self.scale + i, Mapped { value, ..mapped })
                })
                .collect()
        }

        fn replace(
            &mut self,
            cells: Extent,
            sequence: DataSequence,
            value: Option<At>,
        ) -> Result<(), TestCaseError> {
            let mut displaced = Vec::new();
            let extent = self.scaled(cells);
            let note = |part: Extent, mapped: Mapped<At>| displaced.push((part, mapped));
            match value {
                Some(value) => self.map.insert(extent, Mapped { sequence, value }, note),
                None => self.map.remove_older(extent, sequence, note),
            }
            let mut expected = Vec::new();
            for cell in cells.range() {
                let slot = &mut self.model[to_usize(cell)];
                if slot.is_none_or(|old| old.sequence < sequence) {
                    expected.extend(slot.map(|old| (cell, old)));
                    let skip = Sectors((cell - cells.start.0) * self.scale);
                    *slot = value.map(|value| Mapped { sequence, value: value.advance(skip) });
                }
            }
            let told: Vec<_> = displaced.iter().flat_map(|(e, m)| self.cells(*e, *m)).collect();
            prop_assert_eq!(told, expected);
            Ok(())
        }

        fn update(&mut self, cells: Extent, older: DataSequence) -> Result<(), TestCaseError> {
            let extent = self.scaled(cells);
            let mut updated = Vec::new();
            self.map.update(extent, |part, mapped| {
                assert!(extent.contains(part));
                updated.push((part, mapped));
                (mapped.sequence < older).then_some(At(mapped.value.0 / 2))
            });
            for (part, old) in updated {
                let new = At(old.value.0 / 2);
                let (old, new) =
                    (self.cells(part, old), self.cells(part, Mapped { value: new, ..old }));
                for ((cell, old), (_, new)) in old.into_iter().zip(new) {
                    prop_assert_eq!(self.model[to_usize(cell)], Some(old));
                    if old.sequence < older {
                        self.model[to_usize(cell)] = Some(new);
                    }
                }
            }
            Ok(())
        }

        fn check(&self, cells: Extent) -> Result<(), TestCaseError> {
            let mut found = Vec::new();
            for (part, mapped) in self.map.lookup(self.scaled(cells)) {
                match mapped {
                    Some(mapped) => {
                        let cells = self.cells(part, mapped);
                        found.extend(cells.into_iter().map(|(_, mapped)| Some(mapped)));
                    }
                    None => found.resize(found.len() + to_usize(part.len.0 / self.scale), None),
                }
            }
            let model = &self.model[to_usize(cells.start.0)..to_usize(cells.end().0)];
            prop_assert_eq!(&found, model);
            let mapped = model.iter().any(Option::is_some);
            prop_assert_eq!(self.map.overlaps(self.scaled(cells)), mapped);
            let from = Lba(cells.start.0 * self.scale);
            let all: Vec<_> = self.map.iter().filter(|(part, _)| part.start >= from).collect();
            prop_assert_eq!(self.map.iter_from(from).collect::<Vec<_>>(), all);
            prop_assert_eq!(self.map.len(), self.map.iter().count());
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_array(
            scale in prop::sample::select(&SCALES[..]),
            ops in prop::collection::vec((op(), any::<u64>()), 1..200),
        ) {
            let model = vec![None; to_usize(SPACE)];
            let mut pair = Pair { scale, map: ExtentMap::new(), model };
            for (i, (op, random)) in ops.iter().enumerate() {
                // Values with none to nearly all of their bits, and with room to advance.
                let value = At((*random >> 2) >> (i % 62));
                pair.apply(op, value)?;
                let start = random % (SPACE - 20);
                pair.check(Extent::new(start, 1 + random % 20))?;
            }
            pair.check(Extent::new(0, SPACE))?;
        }
    }

    #[test]
    fn leaves_fill_up_in_whichever_order_and_merge_again() {
        const COUNT: u64 = 2000;
        for step in [1, COUNT - 1, 7, COUNT - 7, 89] {
            let mut map = ExtentMap::new();
            for n in 0..COUNT {
                let at = n * step % COUNT;
                let mapped = Mapped { sequence: sequence(n), value: At(at) };
                map.insert(Extent::new(at * 8, 8), mapped, |_, _| ());
            }
            assert_eq!(map.len(), to_usize(COUNT));
            // A leaf of eight rows consists mostly of its fixed part.
            assert!(map.bytes() < map.len() * 80, "{} bytes, step {step}", map.bytes());
            for at in (0..COUNT).filter(|at| at % 16 > 0) {
                map.remove_older(Extent::new(at * 8, 8), sequence(COUNT), |_, _| ());
            }
            assert!(map.bytes() < map.len() * 400, "{} bytes, step {step}", map.bytes());
        }
    }
}
