//! The files of an instance: which exist, and which a thread uses at the moment.

use std::cell::RefCell;

use manylogs_block::{Rng, to_usize};

use super::{FileId, Initial};

/// Lengths of files have the gamma distribution of this shape, as Filebench draws them.
const SHAPE: f64 = 1.5;

/// A set of files.
#[derive(Debug)]
pub(super) struct Pool {
    /// Existing files that no thread uses, with their lengths.
    idle: RefCell<Vec<Initial>>,
    absent: RefCell<Vec<FileId>>,
}

impl Pool {
    /// `count` files, of which `initial` exist.
    pub(super) fn new(count: u32, initial: &[Initial]) -> Self {
        let is_there = |file: &FileId| initial.binary_search_by_key(file, |(id, _)| *id).is_ok();
        let absent = (0..count).map(FileId).filter(|file| !is_there(file)).collect();
        Self { idle: RefCell::new(initial.to_vec()), absent: RefCell::new(absent) }
    }

    /// Takes a random existing file for one thread alone.
    pub(super) fn take(&self, rng: &mut Rng) -> Option<Initial> {
        take(&mut self.idle.borrow_mut(), rng)
    }

    /// Takes the name of a random file that does not exist.
    pub(super) fn take_absent(&self, rng: &mut Rng) -> Option<FileId> {
        take(&mut self.absent.borrow_mut(), rng)
    }

    /// Gives a file back after use; it has this length.
    pub(super) fn put(&self, file: FileId, bytes: u64) {
        self.idle.borrow_mut().push((file, bytes));
    }

    /// Gives the name of a removed file back.
    pub(super) fn put_absent(&self, file: FileId) {
        self.absent.borrow_mut().push(file);
    }
}

fn take<T>(from: &mut Vec<T>, rng: &mut Rng) -> Option<T> {
    let at = to_usize(rng.below(from.len() as u64));
    (at < from.len()).then(|| from.swap_remove(at))
}

/// The existing 80 % of `count` files, with random lengths of this mean.
pub(super) fn initial(count: u32, mean_bytes: u64, rng: &mut Rng) -> Vec<Initial> {
    (0..count / 5 * 4).map(|file| (FileId(file), length(mean_bytes, rng))).collect()
}

/// A random length of a file, at least one byte.
pub(super) fn length(mean_bytes: u64, rng: &mut Rng) -> u64 {
    // The sum of gamma variables of shape 1 and 1/2.
    let (exponential, bell) = (-(1.0 - rng.unit()).ln(), rng.bell());
    let drawn = (exponential + bell * bell / 2.0) * mean_bytes as f64 / SHAPE;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
    let bytes = drawn as u64;
    bytes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_mean_and_differ() {
        let mut rng = Rng::new(1);
        let lengths: Vec<u64> = (0..20_000).map(|_| length(16_384, &mut rng)).collect();
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        assert!((15_500.0..17_300.0).contains(&mean), "{mean}");
        assert!(lengths.iter().any(|len| *len < 1000) && lengths.iter().any(|len| *len > 60_000));
    }

    #[test]
    fn a_file_is_used_by_one_thread_at_a_time() {
        let mut rng = Rng::new(1);
        let pool = Pool::new(5, &initial(5, 100, &mut rng));
        let taken: Vec<Initial> = (0..4).map(|_| pool.take(&mut rng).unwrap()).collect();
        assert_eq!(pool.take(&mut rng), None);
        assert_eq!(pool.take_absent(&mut rng), Some(FileId(4)));
        assert_eq!(pool.take_absent(&mut rng), None);
        pool.put(taken[0].0, 7);
        assert_eq!(pool.take(&mut rng), Some((taken[0].0, 7)));
    }
}
