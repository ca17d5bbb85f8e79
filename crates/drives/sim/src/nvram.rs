//! Non-volatile memory whose user may die, or whose power may be cut, between any two operations.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use manylogs_block::{IoError, Nvram, Rng};

use crate::Survival;
use crate::plane::{hash_of_bytes, mix};

/// Bytes of a word, which is stored or lost as a whole.
const WORD: usize = 8;

type Word = [u8; WORD];

/// Content of a memory that is not in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NvramImage {
    durable: Vec<u8>,
    /// Values that a power cut may lose, by word, oldest first.
    volatile: BTreeMap<usize, Vec<Word>>,
}

/// A simulated non-volatile memory. Clones are the same memory.
#[derive(Clone)]
pub struct CrashNvram(Rc<Memory>);

struct Memory {
    image: RefCell<NvramImage>,
    operations: Cell<u64>,
    watch: RefCell<Option<Box<dyn FnMut()>>>,
}

impl NvramImage {
    /// `size` bytes of zeroes.
    #[must_use]
    pub fn blank(size: usize) -> Self {
        Self { durable: vec![0; size.next_multiple_of(WORD)], volatile: BTreeMap::new() }
    }

    /// Cuts the power: each word holds one of the values that it had since it was last persisted.
    #[must_use]
    pub fn after_power_cut(mut self, survival: Survival, rng: &mut Rng) -> Self {
        for (at, values) in std::mem::take(&mut self.volatile) {
            let kept = match survival {
                Survival::Nothing => 0,
                Survival::Everything => values.len(),
                Survival::Random => manylogs_block::to_usize(rng.below(values.len() as u64 + 1)),
            };
            if let Some(value) = values[..kept].last() {
                self.durable[at..at + WORD].copy_from_slice(value);
            }
        }
        self
    }

    /// A hash, volatile values included: equal contents have equal hashes, and other contents
    /// different ones, except by rare chance.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = hash_of_bytes(&self.durable);
        for (at, values) in &self.volatile {
            for (value, age) in values.iter().zip(1..) {
                let place = mix(*at as u64 | age << 40);
                hash = hash.wrapping_add(mix(u64::from_le_bytes(*value) ^ place));
            }
        }
        hash
    }

    /// Makes all stored values durable.
    pub fn settle(&mut self) {
        self.persist(&(0..self.durable.len()));
    }

    /// Changes the durable value of one byte.
    pub fn corrupt(&mut self, at: usize, value: u8) {
        self.durable[at] = value;
    }

    fn word(&self, at: usize) -> Word {
        let newest = self.volatile.get(&at).and_then(|values| values.last().copied());
        newest.unwrap_or_else(|| {
            let mut word = [0; WORD];
            word.copy_from_slice(&self.durable[at..at + WORD]);
            word
        })
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        let words = at / WORD * WORD..(at + bytes.len()).next_multiple_of(WORD);
        for start in words.step_by(WORD) {
            let old = self.word(start);
            let mut new = old;
            for (i, byte) in new.iter_mut().enumerate() {
                let from = (start + i).checked_sub(at);
                *byte = from.and_then(|from| bytes.get(from)).copied().unwrap_or(*byte);
            }
            if new != old {
                self.volatile.entry(start).or_default().push(new);
            }
        }
    }

    fn persist(&mut self, range: &Range<usize>) {
        let words: Vec<usize> =
            self.volatile.range(range.start / WORD * WORD..range.end).map(|(at, _)| *at).collect();
        for at in words {
            let value = self.volatile.remove(&at).and_then(|mut values| values.pop());
            if let Some(value) = value {
                self.durable[at..at + WORD].copy_from_slice(&value);
            }
        }
    }
}

impl CrashNvram {
    /// A memory that holds `image`.
    #[must_use]
    pub fn new(image: NvramImage) -> Self {
        Self(Rc::new(Memory {
            image: RefCell::new(image),
            operations: Cell::new(0),
            watch: RefCell::default(),
        }))
    }

    /// Counts stores and persists, just as [`crate::CrashDisk::events`] counts the events of a
    /// disk.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.operations.get()
    }

    /// Calls `watch` after every store and every persist, so at every point where a crash may
    /// differ.
    pub fn watch(&self, watch: impl FnMut() + 'static) {
        *self.0.watch.borrow_mut() = Some(Box::new(watch));
    }

    /// Stops calling the closure that [`Self::watch`] was given.
    pub fn unwatch(&self) {
        *self.0.watch.borrow_mut() = None;
    }

    /// Content after the user crashed: all stores, some of them not persisted.
    #[must_use]
    pub fn after_kill(&self) -> NvramImage {
        self.0.image.borrow().clone()
    }

    /// Content after a power cut at this moment.
    #[must_use]
    pub fn after_power_cut(&self, survival: Survival, rng: &mut Rng) -> NvramImage {
        self.after_kill().after_power_cut(survival, rng)
    }

    fn tell(&self) {
        self.0.operations.set(self.0.operations.get() + 1);
        // The watcher is taken out during its call, because it reads the memory.
        let watch = self.0.watch.borrow_mut().take();
        if let Some(mut watch) = watch {
            watch();
            self.0.watch.borrow_mut().get_or_insert(watch);
        }
    }
}

impl Nvram for CrashNvram {
    fn size(&self) -> usize {
        self.0.image.borrow().durable.len()
    }

    fn read(&self, at: usize, out: &mut [u8]) {
        let image = self.0.image.borrow();
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = image.durable[at + i];
        }
        for (&start, values) in image.volatile.range(at / WORD * WORD..at + out.len()) {
            let Some(value) = values.last() else { continue };
            for (i, byte) in value.iter().enumerate() {
                let to = (start + i).checked_sub(at);
                if let Some(target) = to.and_then(|to| out.get_mut(to)) {
                    *target = *byte;
                }
            }
        }
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        self.0.image.borrow_mut().store(at, bytes);
        self.tell();
    }

    fn persist(&self, range: Range<usize>) -> Result<(), IoError> {
        self.0.image.borrow_mut().persist(&range);
        self.tell();
        Ok(())
    }
}

impl fmt::Debug for CrashNvram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CrashNvram({} bytes)", self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(nvram: &CrashNvram, at: usize) -> Vec<u8> {
        let mut out = vec![0; 6];
        nvram.read(at, &mut out);
        out
    }

    #[test]
    fn what_is_not_persisted_may_go_word_by_word() {
        let nvram = CrashNvram::new(NvramImage::blank(64));
        nvram.store(5, &[1; 6]);
        nvram.persist(0..8).unwrap();
        assert_eq!(read(&nvram, 5), [1; 6]);
        let cut = |survival| CrashNvram::new(nvram.after_power_cut(survival, &mut Rng::new(1)));
        assert_eq!(read(&cut(Survival::Everything), 5), [1; 6]);
        assert_eq!(read(&cut(Survival::Nothing), 5), [1, 1, 1, 0, 0, 0]);
        let mut killed = nvram.after_kill();
        assert_eq!(read(&CrashNvram::new(killed.clone()), 5), [1; 6]);
        killed.settle();
        let settled = killed.clone().after_power_cut(Survival::Nothing, &mut Rng::new(1));
        assert_eq!(read(&CrashNvram::new(settled), 5), [1; 6]);
        assert_ne!(killed.fingerprint(), nvram.after_kill().fingerprint());
        nvram.persist(8..16).unwrap();
        assert_eq!(killed.fingerprint(), nvram.after_kill().fingerprint());
        assert_eq!(read(&cut(Survival::Nothing), 5), [1; 6]);
    }
}
