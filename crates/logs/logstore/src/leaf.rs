//! A run of neighbouring entries of a tree, packed into as few bytes as they need.
//!
//! An entry is a row of words. For each word a leaf stores its difference from a base, in as many
//! bits as the largest difference in this leaf takes, and one to spare: none if all rows agree.
//! Low bits that all differences have alike are left out. A row takes whole bytes. If one does not
//! fit, the leaf is packed again, wider.

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
/// Bytes behind the last row, so that [`Leaf::bits`] can read at every word.
const PADDING: usize = size_of::<u128>();

/// A packed run of rows, never empty: see the module.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    packed: Vec<u8>,
    base: Row,
    /// Bits that each word takes in a row, and low bits of its difference that are left out.
    width: [u8; WORDS],
    shift: [u8; WORDS],
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
        let (mut least, mut most, mut differ) = (rows[0], rows[0], [0; WORDS]);
        for row in rows {
            for word in 0..WORDS {
                least[word] = least[word].min(row[word]);
                most[word] = most[word].max(row[word]);
                differ[word] |= row[word] ^ rows[0][word];
            }
        }
        let mut leaf = Self {
            packed: Vec::new(),
            base: least,
            width: [0; WORDS],
            shift: [0; WORDS],
            row_bytes: 0,
            rows: 0,
        };
        for word in 0..WORDS {
            leaf.give_width(word, least[word], most[word] - least[word], differ[word]);
        }
        let bits: u16 = leaf.width.iter().map(|width| u16::from(*width)).sum();
        leaf.row_bytes = narrow(bits.div_ceil(8));
        leaf
    }

    /// Chooses how a word is stored, of which rows have `least` and up to `range` more; `differ`
    /// has the bits that they do not have alike.
    fn give_width(&mut self, word: usize, least: u64, range: u64, differ: u64) {
        if range == 0 {
            return;
        }
        let shift = differ.trailing_zeros();
        let needed = u64::BITS - (range >> shift).leading_zeros();
        let width = (needed + 1).min(u64::BITS - shift);
        (self.width[word], self.shift[word]) = (narrow(width), narrow(shift));
        // Divides the range that the width has to spare between both sides.
        let spare = (self.mask(word) - (range >> shift)) / 2;
        let low = least & !(u64::MAX << shift);
        self.base[word] = (least >> shift).saturating_sub(spare) << shift | low;
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.into()
    }

    /// Number of rows that begin before `end`.
    pub(crate) fn rank(&self, end: u64) -> usize {
        let (mut low, mut len) = (0, self.len());
        while len > 0 {
            let half = len / 2;
            let below = self.word(low + half, START) < end;
            low = if below { low + half + 1 } else { low };
            len = if below { len - half - 1 } else { half };
        }
        low
    }

    pub(crate) fn row(&self, index: usize) -> Row {
        std::array::from_fn(|word| self.word(index, word))
    }

    pub(crate) fn word(&self, index: usize, word: usize) -> u64 {
        let (byte, bit) = self.place(index, word);
        #[expect(clippy::cast_possible_truncation, reason = "no word is wider than its mask")]
        let found = (self.bits(byte) >> bit) as u64 & self.mask(word);
        self.base[word] + (found << self.shift[word])
    }

    /// Where a word begins: a byte, and a bit of it.
    fn place(&self, index: usize, word: usize) -> (usize, usize) {
        let before: usize = self.width[..word].iter().map(|width| usize::from(*width)).sum();
        (index * usize::from(self.row_bytes) + before / 8, before % 8)
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
        if widest >> self.shift[START] <= self.mask(START) / 4 {
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
        let (difference, shift) = (content.wrapping_sub(self.base[word]), self.shift[word]);
        content >= self.base[word]
            && difference >> shift << shift == difference
            && difference >> shift <= self.mask(word)
    }

    fn store_row(&mut self, index: usize, row: &Row) {
        for (word, content) in row.iter().enumerate() {
            self.store(index, word, *content);
        }
    }

    fn store(&mut self, index: usize, word: usize, content: u64) {
        let (byte, bit) = self.place(index, word);
        let others = self.bits(byte) & !(u128::from(self.mask(word)) << bit);
        let difference = (content - self.base[word]) >> self.shift[word];
        if let Some(bytes) = self.packed[byte..].first_chunk_mut() {
            *bytes = (others | u128::from(difference) << bit).to_le_bytes();
        }
    }

    fn bits(&self, byte: usize) -> u128 {
        self.packed[byte..].first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
    }

    /// The largest difference that fits the word, without its low bits.
    fn mask(&self, word: usize) -> u64 {
        match self.width[word] {
            0 => 0,
            width => u64::MAX >> (u64::BITS - u32::from(width)),
        }
    }
}
