//! Which version of each block is the newest, and where it is.

use std::collections::BTreeMap;
use std::ops::Range;

use manylogs_block::{Extent, Lba, Sectors};

use crate::DataSequence;

/// Where, or what, a mapped extent is.
pub trait MapValue: Copy + PartialEq {
    /// The value of the part that begins `by` sectors further on.
    #[must_use]
    fn advance(self, by: Sectors) -> Self;
}

/// The version that an extent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped<V> {
    /// Which write it is from.
    pub sequence: DataSequence,
    /// Where it is.
    pub value: V,
}

#[derive(Clone, Copy, Debug)]
struct Run<V> {
    len: u64,
    mapped: Mapped<V>,
}

/// An ordered map from extents to versions. Extents do not overlap; a block not mapped is at home.
///
/// Look-ups and updates take time logarithmic in the number of extents, and linear in the number
/// they touch.
#[derive(Clone, Debug, Default)]
pub struct ExtentMap<V> {
    runs: BTreeMap<u64, Run<V>>,
    /// No run was ever longer: how far before an extent a run that reaches into it may begin.
    longest: u64,
}

impl<V: MapValue> ExtentMap<V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: BTreeMap::new(), longest: 0 }
    }

    /// Number of extents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing is mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Maps `extent` to `mapped` wherever what is mapped now is older, and tells `displaced` each
    /// part that was replaced.
    pub fn insert(
        &mut self,
        extent: Extent,
        mapped: Mapped<V>,
        displaced: impl FnMut(Extent, Mapped<V>),
    ) {
        self.insert_where(extent, mapped, |old| old.sequence < mapped.sequence, displaced);
    }

    /// As [`ExtentMap::insert`], but `replaces` decides what gives way.
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
        // Runs do not overlap, so the last that begins before the end tells whether there is any.
        self.longest = self.longest.max(extent.len.0);
        let reach = self.reach(extent);
        match self.runs.range_mut(reach).next_back() {
            Some((&start, run)) if start + run.len > extent.start.0 => {
                let same = start == extent.start.0 && run.len == extent.len.0;
                if same && replaces(&run.mapped) {
                    displaced(extent, std::mem::replace(&mut run.mapped, mapped));
                    return;
                }
            }
            _ => {
                self.runs.insert(extent.start.0, Run { len: extent.len.0, mapped });
                return;
            }
        }
        let all_gave_way = self.remove_where(extent, replaces, displaced);
        if all_gave_way {
            self.runs.insert(extent.start.0, Run { len: extent.len.0, mapped });
            return;
        }
        let gaps: Vec<Extent> =
            self.lookup(extent).filter(|(_, old)| old.is_none()).map(|(gap, _)| gap).collect();
        for gap in gaps {
            let value = mapped.value.advance(Sectors(gap.start.0 - extent.start.0));
            let mapped = Mapped { value, ..mapped };
            self.runs.insert(gap.start.0, Run { len: gap.len.0, mapped });
        }
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

    /// Unmaps the parts of `extent` for which `doomed` holds; true if nothing is left in it.
    pub fn remove_where(
        &mut self,
        extent: Extent,
        doomed: impl Fn(&Mapped<V>) -> bool,
        mut removed: impl FnMut(Extent, Mapped<V>),
    ) -> bool {
        // The most usual case: nothing is there.
        if !self.overlaps(extent) {
            return true;
        }
        self.split_at(extent.start);
        self.split_at(extent.end());
        let mut next = extent.start.0;
        let mut nothing_left = true;
        while let Some((&start, run)) = self.runs.range(next..extent.end().0).next() {
            let run = *run;
            next = start + run.len;
            if doomed(&run.mapped) {
                self.runs.remove(&start);
                removed(Extent::new(start, run.len), run.mapped);
            } else {
                nothing_left = false;
            }
        }
        nothing_left
    }

    /// Whether anything in `extent` is mapped.
    #[must_use]
    pub fn overlaps(&self, extent: Extent) -> bool {
        // Runs do not overlap, so the last that begins before the end reaches farthest.
        let last = self.runs.range(self.reach(extent)).next_back();
        last.is_some_and(|(start, run)| start + run.len > extent.start.0) && !extent.is_empty()
    }

    /// The parts of `extent` in order: each is mapped, or a gap.
    pub fn lookup(&self, extent: Extent) -> impl Iterator<Item = (Extent, Option<Mapped<V>>)> {
        let before = self
            .runs
            .range(self.reach(Extent { start: extent.start, ..Extent::default() }))
            .next_back()
            .filter(|(start, run)| **start + run.len > extent.start.0);
        let mut runs = before.into_iter().chain(self.runs.range(extent.range())).peekable();
        let mut next = extent.start;
        std::iter::from_fn(move || {
            if next >= extent.end() {
                return None;
            }
            let Some((&start, run)) = runs.peek().copied() else {
                let gap = Extent::between(next, extent.end());
                next = extent.end();
                return Some((gap, None));
            };
            if start > next.0 {
                let gap = Extent::between(next, Lba(start));
                next = Lba(start);
                return Some((gap, None));
            }
            runs.next();
            let part = Extent::between(next, Lba(start + run.len).min(extent.end()));
            let value = run.mapped.value.advance(Sectors(next.0 - start));
            next = part.end();
            Some((part, Some(Mapped { value, ..run.mapped })))
        })
    }

    /// Gives the runs that lie inside `extent` a new value where `value_of` returns one. Runs that
    /// reach over its edges are left alone.
    pub fn update(
        &mut self,
        extent: Extent,
        mut value_of: impl FnMut(Extent, Mapped<V>) -> Option<V>,
    ) {
        for (&start, run) in self.runs.range_mut(extent.range()) {
            let part = Extent::new(start, run.len);
            if !extent.contains(part) {
                break;
            }
            if let Some(value) = value_of(part, run.mapped) {
                run.mapped.value = value;
            }
        }
    }

    /// Unmaps everything for which `keep` does not hold.
    pub fn retain(&mut self, mut keep: impl FnMut(Extent, Mapped<V>) -> bool) {
        self.runs.retain(|&start, run| keep(Extent::new(start, run.len), run.mapped));
    }

    /// Every mapped extent by address.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, Mapped<V>)> {
        self.runs.iter().map(|(&start, run)| (Extent::new(start, run.len), run.mapped))
    }

    /// Mapped extents from `start` on.
    pub fn iter_from(&self, start: Lba) -> impl Iterator<Item = (Extent, Mapped<V>)> {
        self.runs.range(start.0..).map(|(&start, run)| (Extent::new(start, run.len), run.mapped))
    }

    /// Bytes of memory in use, the tree's own share estimated at a quarter.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.runs.len() * size_of::<(u64, Run<V>)>() * 5 / 4
    }

    /// Where runs that share a sector with `extent` begin. A narrow range is cheaper to find than
    /// one from the start of the map.
    const fn reach(&self, extent: Extent) -> Range<u64> {
        extent.start.0.saturating_sub(self.longest)..extent.end().0
    }

    fn split_at(&mut self, at: Lba) {
        let reach = self.reach(Extent { start: at, ..Extent::default() });
        let Some((&start, run)) = self.runs.range_mut(reach).next_back() else { return };
        let end = start + run.len;
        if end <= at.0 {
            return;
        }
        let value = run.mapped.value.advance(Sectors(at.0 - start));
        let tail = Run { len: end - at.0, mapped: Mapped { value, ..run.mapped } };
        run.len = at.0 - start;
        self.runs.insert(at.0, tail);
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
    }

    const SPACE: u64 = 48;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Extent, u64),
        RemoveOlder(Extent, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let extent = (0..SPACE - 1).prop_flat_map(|s| (Just(s), 1..=SPACE - s));
        (any::<bool>(), extent, 1..40u64).prop_map(|(insert, (start, len), sequence)| {
            let extent = Extent::new(start, len);
            if insert { Op::Insert(extent, sequence) } else { Op::RemoveOlder(extent, sequence) }
        })
    }

    proptest! {
        /// The reference model is an array with one version a sector.
        #[test]
        fn agrees_with_a_plain_array(ops in prop::collection::vec(op(), 1..60)) {
            let mut map = ExtentMap::<At>::new();
            let mut model = vec![None; to_usize(SPACE)];
            for (i, op) in ops.iter().enumerate() {
                let mut displaced = Vec::new();
                let note = |e: Extent, m: Mapped<At>| displaced.push((e, m));
                let mut expected = Vec::new();
                let (extent, sequence, value) = match op {
                    Op::Insert(e, s) => (*e, *s, Some(i as u64 * 1000)),
                    Op::RemoveOlder(e, s) => (*e, *s, None),
                };
                match value {
                    Some(v) => {
                        let mapped = Mapped { sequence: DataSequence(sequence), value: At(v) };
                        map.insert(extent, mapped, note);
                    }
                    None => map.remove_older(extent, DataSequence(sequence), note),
                }
                for lba in extent.range() {
                    let slot: &mut Option<(u64, u64)> = &mut model[to_usize(lba)];
                    if slot.is_none_or(|(old, _)| old < sequence) {
                        if let Some(old) = *slot {
                            expected.push((lba, old));
                        }
                        *slot = value.map(|v| (sequence, v + lba - extent.start.0));
                    }
                }
                let told: Vec<_> = displaced.iter().flat_map(|(e, m)| {
                    e.range().map(move |lba| (lba, (m.sequence.0, m.value.0 + lba - e.start.0)))
                }).collect();
                prop_assert_eq!(told, expected);
                let found: Vec<_> = map.lookup(Extent::new(0, SPACE)).flat_map(|(e, m)| {
                    e.range().map(move |lba| {
                        m.map(|m| (m.sequence.0, m.value.0 + lba - e.start.0))
                    })
                }).collect();
                prop_assert_eq!(&found, &model);
            }
        }
    }
}
