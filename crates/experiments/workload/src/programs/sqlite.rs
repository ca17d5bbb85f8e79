//! SQLite 3.40 with `journal_mode = WAL` and `synchronous = FULL`: a log that is overwritten from
//! its beginning after each checkpoint, which the writer does itself.

use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng};

use super::pages::Pages;
use super::{DATA, FileId, Files, Initial, Operation, spawn};

const PAGE_BYTES: u64 = 4096;
const WAL: FileId = FileId(1);
/// The header of the log, and of each page in it.
const WAL_HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// One writer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sqlite {
    /// Pages that a transaction changes.
    pub pages: u32,
    /// Pages in the log from which on it is brought home (`wal_autocheckpoint`).
    pub checkpoint: u64,
    /// Length of the database.
    pub data_bytes: u64,
}

impl Default for Sqlite {
    /// One row a transaction, and the library's own 1,000 pages.
    fn default() -> Self {
        Self { pages: 1, checkpoint: 1000, data_bytes: 64 << 20 }
    }
}

/// Length of a log of so many pages.
const fn wal_bytes(frames: u64) -> u64 {
    WAL_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + PAGE_BYTES)
}

impl Sqlite {
    pub(super) fn initial(&self) -> Vec<Initial> {
        vec![(DATA, self.data_bytes), (WAL, 0)]
    }

    pub(super) fn start<F: Files>(self, runtime: &Handle, files: &Rc<F>, rng: &mut Rng) -> usize {
        let pages = Pages::new(DATA, PAGE_BYTES, self.data_bytes);
        let writer = self.write(runtime.clone(), Rc::clone(files), pages, rng.split());
        spawn(runtime, files, writer);
        1
    }

    async fn write<F: Files>(
        self,
        runtime: Handle,
        files: Rc<F>,
        pages: Pages,
        mut rng: Rng,
    ) -> Result<(), F::Error> {
        let mut frames = 0;
        while files.goes_on() {
            files.admitted().await;
            let began = runtime.now();
            for _ in 0..self.pages {
                pages.touch(&mut rng);
            }
            // The header is written with the first page.
            let from = if frames == 0 { 0 } else { wal_bytes(frames) };
            frames += u64::from(self.pages);
            files.write(WAL, from, wal_bytes(frames) - from).await?;
            files.sync(WAL).await?;
            files.done(Operation::Flush, runtime.now().since(began));
            if frames >= self.checkpoint {
                pages.write(&runtime, &*files, usize::MAX, Nanos(0)).await?;
                frames = 0;
            }
            files.done(Operation::Request, runtime.now().since(began));
            files.done(Operation::Other, Nanos(0));
        }
        Ok(())
    }
}
