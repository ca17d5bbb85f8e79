//! The data file of a database: pages that transactions change at random, and that are written home
//! later, in the order of the file.

use std::cell::RefCell;
use std::collections::BTreeSet;

use manylogs_block::{Handle, Nanos, Rng};

use super::{FileId, Files};

/// A data file and its changed pages.
#[derive(Debug)]
pub(super) struct Pages {
    file: FileId,
    page_bytes: u64,
    count: u64,
    changed: RefCell<BTreeSet<u64>>,
}

impl Pages {
    /// A file of `file_bytes`, in pages of `page_bytes`, of which none is changed.
    pub(super) fn new(file: FileId, page_bytes: u64, file_bytes: u64) -> Self {
        Self { file, page_bytes, count: file_bytes / page_bytes, changed: RefCell::default() }
    }

    /// Changes a random page. Returns whether this is its first change since it was written.
    pub(super) fn touch(&self, rng: &mut Rng) -> bool {
        let page = rng.below(self.count.max(1));
        self.changed.borrow_mut().insert(page)
    }

    /// Writes up to `most` changed pages within `spread`, and makes them durable.
    pub(super) async fn write<F: Files>(
        &self,
        runtime: &Handle,
        files: &F,
        most: usize,
        spread: Nanos,
    ) -> Result<(), F::Error> {
        let pages: Vec<u64> = self.changed.borrow().iter().copied().take(most).collect();
        let apart = Nanos(spread.0 / (pages.len() as u64).max(1));
        for page in &pages {
            if !files.goes_on() {
                break;
            }
            self.changed.borrow_mut().remove(page);
            files.write(self.file, page * self.page_bytes, self.page_bytes).await?;
            if apart > Nanos(0) {
                runtime.sleep(apart).await;
            }
        }
        if pages.is_empty() { Ok(()) } else { files.sync(self.file).await }
    }
}
