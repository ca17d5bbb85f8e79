//! An ordered sequence of rows in packed leaves.
//!
//! Leaves are held by chunks and chunks by one list, so finding a row takes three binary searches.
//! Chunks and list are short, so an insert seldom moves many leaves.

use std::cell::Cell;

use crate::leaf::{LEN, Leaf, Row, START};

/// Most rows in a leaf. Few in tests, so that leaves split and merge all the time.
const LEAF_ROWS: usize = if cfg!(test) { 8 } else { 128 };
/// Most leaves in a chunk.
const CHUNK_LEAVES: usize = if cfg!(test) { 8 } else { 128 };
/// Number of leaves by which a chunk's memory grows.
const CHUNK_GROWTH: usize = 8;

/// An ordered map of extents in packed leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Start of each chunk's first row.
    firsts: Vec<u64>,
    chunks: Vec<Chunk>,
    rows: usize,
    /// Chunk and leaf that the last search found: the next search often leads there, too.
    last: Cell<(usize, usize)>,
}

/// A run of leaves, never empty.
#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Start of each leaf's first row.
    firsts: Vec<u64>,
    leaves: Vec<Leaf>,
}

/// Position of a row. It is valid until a row is inserted or removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    chunk: usize,
    leaf: usize,
    row: usize,
}

impl Position {
    /// The row that is `rows` behind this one in the same leaf.
    pub(crate) const fn behind(self, rows: usize) -> Self {
        Self { row: self.row + rows, ..self }
    }
}

impl Tree {
    pub(crate) const fn new() -> Self {
        Self { firsts: Vec::new(), chunks: Vec::new(), rows: 0, last: Cell::new((0, 0)) }
    }

    /// Number of rows.
    pub(crate) const fn len(&self) -> usize {
        self.rows
    }

    /// The last row that starts before `end`.
    pub(crate) fn before(&self, end: u64) -> Option<Position> {
        let (chunk, leaf) = match self.last.get() {
            last if self.leaf_has_before(last, end) => last,
            _ => {
                let chunk = self.firsts.partition_point(|first| *first < end).checked_sub(1)?;
                let firsts = &self.chunks[chunk].firsts;
                (chunk, firsts.partition_point(|first| *first < end).checked_sub(1)?)
            }
        };
        self.last.set((chunk, leaf));
        let row = self.chunks[chunk].leaves[leaf].rank(end).checked_sub(1)?;
        Some(Position { chunk, leaf, row })
    }

    /// Whether the last row that starts before `end` is surely in this leaf, if the leaf still
    /// exists. For the last leaf of a chunk the answer is always false.
    fn leaf_has_before(&self, (chunk, leaf): (usize, usize), end: u64) -> bool {
        let firsts = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk.firsts);
        matches!(firsts.get(leaf..), Some([first, next, ..]) if *first < end && end <= *next)
    }

    /// The first row that starts at `start` or behind it.
    pub(crate) fn at_or_behind(&self, start: u64) -> Option<Position> {
        match self.before(start) {
            Some(before) => self.next(before),
            None => self.first(),
        }
    }

    pub(crate) fn first(&self) -> Option<Position> {
        (self.rows > 0).then_some(Position { chunk: 0, leaf: 0, row: 0 })
    }

    pub(crate) fn next(&self, at: Position) -> Option<Position> {
        let row = at.row + 1;
        if row < self.leaf(at).len() {
            return Some(Position { row, ..at });
        }
        self.next_leaf(at)
    }

    fn next_leaf(&self, at: Position) -> Option<Position> {
        let leaf = at.leaf + 1;
        if leaf < self.chunks[at.chunk].leaves.len() {
            return Some(Position { leaf, row: 0, ..at });
        }
        let chunk = at.chunk + 1;
        (chunk < self.chunks.len()).then_some(Position { chunk, leaf: 0, row: 0 })
    }

    pub(crate) fn get(&self, at: Position) -> Row {
        self.leaf(at).row(at.row)
    }

    pub(crate) fn word(&self, at: Position, word: usize) -> u64 {
        self.leaf(at).word(at.row, word)
    }

    /// The rows from a position on.
    pub(crate) fn iter_from(&self, mut at: Option<Position>) -> impl Iterator<Item = Row> {
        std::iter::from_fn(move || {
            let here = at?;
            at = self.next(here);
            Some(self.get(here))
        })
    }

    /// Gives new contents to the words of a row from `first` on. `first` is not [`START`].
    pub(crate) fn set<const N: usize>(&mut self, at: Position, first: usize, words: [u64; N]) {
        self.chunks[at.chunk].leaves[at.leaf].set(at.row, first, words);
    }

    /// Inserts a row behind `before`, the last row that starts before it, or in front of all rows.
    pub(crate) fn insert_behind(&mut self, before: Option<Position>, row: Row) {
        let at = match before {
            Some(before) => Position { row: before.row + 1, ..before },
            None if self.chunks.is_empty() => {
                self.push_rows(&[row]);
                return;
            }
            None => Position { chunk: 0, leaf: 0, row: 0 },
        };
        if self.leaf(at).len() < LEAF_ROWS {
            self.insert_at(at, row);
        } else if at.row < LEAF_ROWS {
            self.split_leaf(at);
            self.insert_behind(self.before(row[START]), row);
        } else {
            self.insert_behind_full_leaf(at, row);
        }
    }

    /// Inserts a row behind a full leaf, without splitting it: ascending writes then fill the next
    /// leaf, too. The leaf behind may have room in front.
    fn insert_behind_full_leaf(&mut self, at: Position, row: Row) {
        match self.next_leaf(at) {
            Some(next) if self.leaf(next).len() < LEAF_ROWS => self.insert_at(next, row),
            _ => {
                self.rows += 1;
                self.insert_leaf(at.chunk, at.leaf + 1, Leaf::pack(&[row]));
            }
        }
    }

    fn insert_at(&mut self, at: Position, row: Row) {
        self.rows += 1;
        self.chunks[at.chunk].leaves[at.leaf].replace(at.row, 0, &[row]);
        if at.row == 0 {
            self.note_first(at);
        }
    }

    pub(crate) fn remove(&mut self, at: Position) {
        self.rows -= 1;
        let leaf = &mut self.chunks[at.chunk].leaves[at.leaf];
        if leaf.len() == 1 {
            self.remove_leaf(at);
            return;
        }
        leaf.replace(at.row, 1, &[]);
        let small = leaf.len() < LEAF_ROWS / 4;
        if at.row == 0 {
            self.note_first(at);
        }
        if small {
            self.merge_leaf(at);
        }
    }

    /// The rows of one leaf, up to and including `last`, that end behind `start`: the first of them
    /// and their number. Rows must not overlap. `None` if rows of other leaves may end behind it,
    /// too.
    pub(crate) fn reaching_beyond(&self, start: u64, last: Position) -> Option<(Position, usize)> {
        let leaf = self.leaf(last);
        let mut row = last.row;
        while leaf.word(row, START) > start {
            let before = row.checked_sub(1)?;
            if leaf.word(before, START) + leaf.word(before, LEN) <= start {
                break;
            }
            row = before;
        }
        Some((Position { row, ..last }, last.row + 1 - row))
    }

    /// Replaces the `gone` rows of a leaf from `at` on by `rows`. Returns false and changes nothing
    /// if the leaf would become too full or too small.
    pub(crate) fn replace(&mut self, at: Position, gone: usize, rows: &[Row]) -> bool {
        let leaf = &mut self.chunks[at.chunk].leaves[at.leaf];
        let count = leaf.len() - gone + rows.len();
        if count > LEAF_ROWS || (rows.len() < gone && count < LEAF_ROWS / 4) {
            return false;
        }
        leaf.replace(at.row, gone, rows);
        self.rows = self.rows - gone + rows.len();
        if at.row == 0 {
            self.note_first(at);
        }
        true
    }

    /// Removes the rows for which `keep` is false, and packs the others tightly.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Row) -> bool) {
        let mut kept = Self::new();
        let mut rows: Vec<Row> = Vec::with_capacity(LEAF_ROWS);
        // Chunk by chunk, so that there are never two whole trees.
        for chunk in std::mem::take(&mut self.chunks) {
            for row in chunk.leaves.iter().flat_map(Leaf::rows) {
                if keep(&row) {
                    rows.push(row);
                }
                if rows.len() == LEAF_ROWS {
                    kept.push_rows(&rows);
                    rows.clear();
                }
            }
        }
        if !rows.is_empty() {
            kept.push_rows(&rows);
        }
        *self = kept;
    }

    /// Adds a leaf of these rows behind all others.
    fn push_rows(&mut self, rows: &[Row]) {
        self.rows += rows.len();
        let leaf = Leaf::pack(rows);
        match self.chunks.last() {
            Some(last) if last.leaves.len() < CHUNK_LEAVES => {
                self.insert_leaf(self.chunks.len() - 1, last.leaves.len(), leaf);
            }
            _ => {
                self.firsts.push(leaf.word(0, START));
                self.chunks.push(Chunk { firsts: vec![leaf.word(0, START)], leaves: vec![leaf] });
            }
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| {
            let leaves: usize = chunk.leaves.iter().map(Leaf::heap_bytes).sum();
            leaves
                + chunk.leaves.capacity() * size_of::<Leaf>()
                + chunk.firsts.capacity() * size_of::<u64>()
        });
        chunks.sum::<usize>()
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.firsts.capacity() * size_of::<u64>()
    }

    fn leaf(&self, at: Position) -> &Leaf {
        &self.chunks[at.chunk].leaves[at.leaf]
    }

    /// Notes the start of the leaf at `at`, which may have changed.
    fn note_first(&mut self, at: Position) {
        let chunk = &mut self.chunks[at.chunk];
        chunk.firsts[at.leaf] = chunk.leaves[at.leaf].word(0, START);
        self.firsts[at.chunk] = chunk.firsts[0];
    }

    fn split_leaf(&mut self, at: Position) {
        let behind = self.chunks[at.chunk].leaves[at.leaf].split_off(LEAF_ROWS / 2);
        self.insert_leaf(at.chunk, at.leaf + 1, behind);
    }

    fn insert_leaf(&mut self, chunk: usize, index: usize, leaf: Leaf) {
        self.chunks[chunk].insert(index, leaf);
        self.firsts[chunk] = self.chunks[chunk].firsts[0];
        if self.chunks[chunk].leaves.len() > CHUNK_LEAVES {
            let behind = self.chunks[chunk].split_off(CHUNK_LEAVES / 2);
            self.firsts.insert(chunk + 1, behind.firsts[0]);
            self.chunks.insert(chunk + 1, behind);
        }
    }

    fn remove_leaf(&mut self, at: Position) {
        let chunk = &mut self.chunks[at.chunk];
        chunk.remove(at.leaf);
        if let Some(first) = chunk.firsts.first() {
            self.firsts[at.chunk] = *first;
            self.merge_chunk(at.chunk);
        } else {
            self.firsts.remove(at.chunk);
            self.chunks.remove(at.chunk);
        }
    }

    /// Joins a small leaf with a neighbour in its chunk, if the joined leaf has some room left.
    fn merge_leaf(&mut self, at: Position) {
        let leaves = &self.chunks[at.chunk].leaves;
        let pairs = [at.leaf.checked_sub(1), Some(at.leaf)];
        let joins = |left: &usize| {
            let right = leaves.get(left + 1);
            right.is_some_and(|right| leaves[*left].len() + right.len() <= LEAF_ROWS * 3 / 4)
        };
        if let Some(left) = pairs.into_iter().flatten().find(joins) {
            let (front, behind) = self.chunks[at.chunk].leaves.split_at_mut(left + 1);
            front[left].append(&behind[0]);
            self.remove_leaf(Position { leaf: left + 1, ..at });
        }
    }

    fn merge_chunk(&mut self, index: usize) {
        let small = self.chunks[index].leaves.len() < CHUNK_LEAVES / 4;
        let behind = self.chunks.get(index + 1).map_or(CHUNK_LEAVES, |chunk| chunk.leaves.len());
        if small && self.chunks[index].leaves.len() + behind <= CHUNK_LEAVES * 3 / 4 {
            let behind = self.chunks.remove(index + 1);
            self.firsts.remove(index + 1);
            self.chunks[index].firsts.extend(behind.firsts);
            self.chunks[index].leaves.extend(behind.leaves);
        }
    }
}

impl Chunk {
    fn insert(&mut self, index: usize, leaf: Leaf) {
        if self.leaves.len() == self.leaves.capacity() {
            self.leaves.reserve_exact(CHUNK_GROWTH);
            self.firsts.reserve_exact(CHUNK_GROWTH);
        }
        self.firsts.insert(index, leaf.word(0, START));
        self.leaves.insert(index, leaf);
    }

    fn remove(&mut self, index: usize) {
        self.firsts.remove(index);
        self.leaves.remove(index);
        if self.leaves.capacity() > self.leaves.len() + 2 * CHUNK_GROWTH {
            self.firsts.shrink_to(self.firsts.len() + CHUNK_GROWTH);
            self.leaves.shrink_to(self.leaves.len() + CHUNK_GROWTH);
        }
    }

    fn split_off(&mut self, index: usize) -> Self {
        let behind =
            Self { firsts: self.firsts.split_off(index), leaves: self.leaves.split_off(index) };
        self.firsts.shrink_to_fit();
        self.leaves.shrink_to_fit();
        behind
    }
}
