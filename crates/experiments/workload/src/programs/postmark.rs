//! Postmark (Katcher, Network Appliance TR3022), as *Evolving Ext4 for Shingled Disks*, section
//! 4.2.2, changed it: small files in many directories, and transactions on them.
//!
//! It is one thread that waits for nothing but its file system, so it is a list of steps.

use manylogs_block::{Rng, to_usize};

/// Postmark with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postmark {
    /// Directories, all in one parent.
    pub directories: u32,
    /// Files that it begins with, each in a directory drawn at random.
    pub files: u32,
    /// Transactions. Each reads a file or appends to it, and makes a file or deletes one.
    pub transactions: u32,
    /// Length of the shortest file.
    pub bytes_least: u64,
    /// Length of the longest file.
    pub bytes_most: u64,
}

impl Default for Postmark {
    /// The parameters of the paper.
    fn default() -> Self {
        Self {
            directories: 25_000,
            files: 10_000,
            transactions: 100_000,
            bytes_least: 512,
            bytes_most: 1 << 20,
        }
    }
}

/// A file of Postmark: numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PostmarkFile {
    /// Its number.
    pub number: u32,
    /// The number of its directory.
    pub directory: u32,
}

/// What Postmark does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostmarkStep {
    /// Make a file of this length.
    Create(PostmarkFile, u64),
    /// Read all of a file of this length.
    Read(PostmarkFile, u64),
    /// Append to a file.
    Append {
        /// The file.
        file: PostmarkFile,
        /// Its length before.
        offset: u64,
        /// What is appended.
        bytes: u64,
    },
    /// Delete a file.
    Delete(PostmarkFile),
}

/// The files that there are, and what is drawn next.
#[derive(Clone, Debug)]
pub struct PostmarkRun {
    program: Postmark,
    files: Vec<(PostmarkFile, u64)>,
    next: u32,
    rng: Rng,
}

impl PostmarkRun {
    /// A run that has no files yet. Everything random follows from `rng`.
    #[must_use]
    pub const fn new(program: Postmark, rng: Rng) -> Self {
        Self { program, files: Vec::new(), next: 0, rng }
    }

    /// A run that goes on with these files and their lengths.
    pub(super) fn with_files(program: Postmark, files: Vec<(PostmarkFile, u64)>, rng: Rng) -> Self {
        let next = files.iter().map(|(file, _)| file.number + 1).max().unwrap_or(0);
        Self { program, files, next, rng }
    }

    /// A new file. All of the working set are made by it before the first transaction.
    pub fn create(&mut self) -> PostmarkStep {
        let Postmark { directories, bytes_least, bytes_most, .. } = self.program;
        let directory = manylogs_block::narrow(self.rng.below(u64::from(directories.max(1))));
        let file = PostmarkFile { number: self.next, directory };
        let span = bytes_most.saturating_sub(bytes_least) + 1;
        let bytes = bytes_least + self.rng.below(span);
        self.next += 1;
        self.files.push((file, bytes));
        PostmarkStep::Create(file, bytes)
    }

    /// The steps of a transaction: one of a file that there is, and one that makes or deletes one.
    pub fn transaction(&mut self) -> Vec<PostmarkStep> {
        let touched = self.touch();
        let changed = if self.coin() { Some(self.create()) } else { self.delete() };
        touched.into_iter().chain(changed).collect()
    }

    fn coin(&mut self) -> bool {
        self.rng.below(2) == 0
    }

    fn draw(&mut self) -> Option<usize> {
        let count = self.files.len() as u64;
        (count > 0).then(|| to_usize(self.rng.below(count)))
    }

    /// Reads a file, or appends to it what makes it no longer than the longest.
    fn touch(&mut self) -> Option<PostmarkStep> {
        let at = self.draw()?;
        let (file, offset) = self.files[at];
        let room = self.program.bytes_most.saturating_sub(offset);
        if room == 0 || self.coin() {
            return Some(PostmarkStep::Read(file, offset));
        }
        let bytes = 1 + self.rng.below(room);
        self.files[at].1 += bytes;
        Some(PostmarkStep::Append { file, offset, bytes })
    }

    fn delete(&mut self) -> Option<PostmarkStep> {
        let at = self.draw()?;
        let (file, _) = self.files.swap_remove(at);
        Some(PostmarkStep::Delete(file))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test may panic")]

    use std::collections::BTreeMap;

    use super::*;

    /// Each step is of a file that there is, and lengths are as they were left.
    #[test]
    fn every_step_is_possible_and_amounts_are_those_of_the_paper() {
        let program = Postmark::default();
        let mut run = PostmarkRun::new(program, Rng::new(7));
        let mut steps: Vec<_> = (0..program.files).map(|_| run.create()).collect();
        for _ in 0..program.transactions {
            steps.extend(run.transaction());
        }
        let (mut there, mut written, mut read) = (BTreeMap::new(), 0, 0);
        for step in steps {
            match step {
                PostmarkStep::Create(file, bytes) => {
                    assert!((512..=1 << 20).contains(&bytes) && file.directory < 25_000);
                    assert_eq!(there.insert(file, bytes), None);
                    written += bytes;
                }
                PostmarkStep::Append { file, offset, bytes } => {
                    assert_eq!(there.insert(file, offset + bytes), Some(offset));
                    assert!(offset + bytes <= 1 << 20);
                    written += bytes;
                }
                PostmarkStep::Read(file, bytes) => {
                    assert_eq!(there.get(&file), Some(&bytes));
                    read += bytes;
                }
                PostmarkStep::Delete(file) => assert!(there.remove(&file).is_some()),
            }
        }
        // The paper: 37.89 GiB are written, and 31.54 GiB read.
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        assert!((34.0..44.0).contains(&gib(written)), "{}", gib(written));
        assert!((28.0..40.0).contains(&gib(read)), "{}", gib(read));
    }
}
