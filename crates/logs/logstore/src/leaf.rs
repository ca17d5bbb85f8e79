//! A run of neighbouring entries of a tree, packed into as few bytes as they need.
//!
//! An entry is a row of words. For each word a leaf stores its difference from a base, in as many
//! bytes as the largest difference in this leaf takes: none if all rows agree, eight if they have
//! nothing in common. If a row does not fit, the leaf is packed again, wider.

use manylogs_block::narrow;

/// Words in a row.
pub(crate) const WORDS: usize = 5;
/// The word that rows are ordered by.
pub(crate) const START: usize = 0;
/// The length, the word that follows.
pub(crate) const LEN: usize = 1;

pub(crate) type Row = [u64; WORDS];

/// Number of rows by which a leaf grows when it is full.
const GROWTH: usize = 8;
/// Bytes behind the last row, so that eight bytes can be read at every word.
const PADDING: usize = 8;
const WORD_BYTES: u32 = 8;
/// The largest number with this many bytes.
const MASKS: [u64; 16] = {
    let mut masks = [u64::MAX; 16];
    let mut bytes = 0;
    while bytes < WORD_BYTES {
        masks[bytes as usize] = (1 << (bytes * u8::BITS)) - 1;
        bytes += 1;
    }
    masks
};

/// A packed run of rows, never empty: see the module.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    packed: Vec<u8>,
    base: Row,
    /// Bytes that each word takes in a row, and where they begin.
    width: [u8; WORDS],
    at: [u8; WORDS],
    row_bytes: u8,
    rows: u16,
}

impl Leaf {
    /// A leaf that holds `rows`, which are in order.
    pub(crate) fn pack(rows: &[Row]) -> Self {
        let mut leaf = Self::fitting(rows);
        leaf.rows = narrow(rows.len());
        leaf.packed = vec![0; rows.len() * usize::from(leaf.row_bytes) + PADDING];
        for (index, row) in rows.iter().enumerate() {
            leaf.store_row(index, row);
        }
        leaf
    }

    /// An empty leaf with widths that all of `rows` fit.
    fn fitting(rows: &[Row]) -> Self {
        let (mut least, mut most) = (rows[0], rows[0]);
        for row in rows {
            for word in 0..WORDS {
                least[word] = least[word].min(row[word]);
                most[word] = most[word].max(row[word]);
            }
        }
        let mut leaf = Self {
            packed: Vec::new(),
            base: least,
            width: [0; WORDS],
            at: [0; WORDS],
            row_bytes: 0,
            rows: 0,
        };
        for word in 0..WORDS {
            let range = most[word] - least[word];
            leaf.width[word] = width_of(range);
            leaf.at[word] = leaf.row_bytes;
            leaf.row_bytes += leaf.width[word];
            // Divides the range that the width has to spare between both sides.
            let mask = leaf.mask(word);
            let spare = if mask == u64::MAX { mask } else { (mask - range) / 2 };
            leaf.base[word] = least[word].saturating_sub(spare);
        }
        leaf
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.into()
    }

    /// Number of rows that begin before `end`.
    pub(crate) fn rank(&self, end: u64) -> usize {
        let Some(end) = end.checked_sub(self.base[START]) else { return 0 };
        let (mask, row_bytes) = (self.mask(START), usize::from(self.row_bytes));
        let (mut low, mut len) = (0, self.len());
        while len > 0 {
            let half = len / 2;
            let below = self.eight_bytes((low + half) * row_bytes) & mask < end;
            low = if below { low + half + 1 } else { low };
            len = if below { len - half - 1 } else { half };
        }
        low
    }

    pub(crate) fn row(&self, index: usize) -> Row {
        std::array::from_fn(|word| self.word(index, word))
    }

    pub(crate) fn word(&self, index: usize, word: usize) -> u64 {
        let at = index * usize::from(self.row_bytes) + usize::from(self.at[word]);
        self.base[word] + (self.eight_bytes(at) & self.mask(word))
    }

    /// Every row in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        (0..self.len()).map(|index| self.row(index))
    }

    /// Gives new contents to the words of a row from `first` on.
    pub(crate) fn set<const N: usize>(&mut self, index: usize, first: usize, words: [u64; N]) {
        let fits = (0..N).all(|i| self.fits(first + i, words[i]));
        if fits {
            for (i, content) in words.into_iter().enumerate() {
                self.store(index, first + i, content);
            }
        } else {
            self.repack(|rows| rows[index][first..first + N].copy_from_slice(&words));
        }
    }

    /// Replaces the `gone` rows from `index` on by `rows`. At least one row must be left.
    #[inline]
    pub(crate) fn replace(&mut self, index: usize, gone: usize, rows: &[Row]) {
        if !rows.iter().all(|row| (0..WORDS).all(|word| self.fits(word, row[word]))) {
            self.repack(|all| drop(all.splice(index..index + gone, rows.iter().copied())));
            return;
        }
        let row_bytes = usize::from(self.row_bytes);
        let before = self.packed.len();
        let after = before - gone * row_bytes + rows.len() * row_bytes;
        if self.packed.capacity() < after {
            self.packed.reserve_exact(after - before + row_bytes * (GROWTH - 1));
        }
        self.packed.resize(before.max(after), 0);
        let (from, to) = ((index + gone) * row_bytes, (index + rows.len()) * row_bytes);
        self.packed.copy_within(from..before, to);
        self.packed.truncate(after);
        self.rows = narrow(self.len() - gone + rows.len());
        for (i, row) in rows.iter().enumerate() {
            self.store_row(index + i, row);
        }
        if self.packed.capacity() > after + 2 * GROWTH * row_bytes {
            self.packed.shrink_to(after + GROWTH * row_bytes);
        }
    }

    /// Splits off the rows from `index` on as a leaf of their own. Both parts must have rows.
    pub(crate) fn split_off(&mut self, index: usize) -> Self {
        let range = |first, last| self.word(last, START) - self.word(first, START);
        let widest = range(0, index - 1).max(range(index, self.len() - 1));
        if width_of(widest) < self.width[START] {
            let rows: Vec<Row> = self.rows().collect();
            *self = Self::pack(&rows[..index]);
            return Self::pack(&rows[index..]);
        }
        // If starts did not become narrower, hardly any word would: this saves packing again.
        let at = index * usize::from(self.row_bytes);
        let behind = Self {
            packed: self.packed[at..].to_vec(),
            rows: self.rows - narrow::<_, u16>(index),
            ..*self
        };
        self.rows -= behind.rows;
        self.packed.truncate(at + PADDING);
        self.packed.shrink_to_fit();
        behind
    }

    /// Adds the rows of the leaf behind this one.
    pub(crate) fn append(&mut self, behind: &Self) {
        self.repack(|rows| rows.extend(behind.rows()));
    }

    /// Bytes of heap memory in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.packed.capacity()
    }

    fn repack(&mut self, change: impl FnOnce(&mut Vec<Row>)) {
        let mut rows = Vec::with_capacity(self.len() + 1);
        rows.extend(self.rows());
        change(&mut rows);
        *self = Self::pack(&rows);
    }

    fn fits(&self, word: usize, content: u64) -> bool {
        content.wrapping_sub(self.base[word]) <= self.mask(word)
    }

    fn store_row(&mut self, index: usize, row: &Row) {
        for (word, content) in row.iter().enumerate() {
            self.store(index, word, *content);
        }
    }

    fn store(&mut self, index: usize, word: usize, content: u64) {
        let at = index * usize::from(self.row_bytes) + usize::from(self.at[word]);
        let mask = self.mask(word);
        if let Some(bytes) = self.packed[at..].first_chunk_mut() {
            let others = u64::from_le_bytes(*bytes) & !mask;
            *bytes = (others | (content - self.base[word])).to_le_bytes();
        }
    }

    fn eight_bytes(&self, at: usize) -> u64 {
        self.packed[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The largest difference that fits the word.
    fn mask(&self, word: usize) -> u64 {
        MASKS[usize::from(self.width[word]) % MASKS.len()]
    }
}

fn width_of(range: u64) -> u8 {
    let bytes = (u64::BITS - range.leading_zeros()).div_ceil(WORD_BYTES);
    u8::try_from(bytes).unwrap_or(u8::MAX)
}
