//! Postmark beside a reader: one thread, in one directory, at a rate. The model above a page cache
//! takes no time for most of its steps, so without a rate it would do nothing else.

use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng};

use super::pace::Pace;
use super::{FileId, Files, Initial, Operation, Postmark, PostmarkFile, PostmarkRun};
use super::{PostmarkStep, spawn};

/// Postmark that goes on for as long as it is measured. Nothing is synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallFiles {
    /// Its files; its number of transactions does not count.
    pub postmark: Postmark,
    /// Transactions a second, if the file system keeps up.
    pub per_second: f64,
}

impl Default for SmallFiles {
    /// Postmark's own lengths, 2,000 files, and 200 transactions a second.
    fn default() -> Self {
        let postmark = Postmark {
            directories: 1,
            files: 2000,
            transactions: u32::MAX,
            bytes_least: 500,
            bytes_most: 10_000,
        };
        Self { postmark, per_second: 200.0 }
    }
}

impl SmallFiles {
    pub(super) fn initial(&self, rng: &mut Rng) -> Vec<Initial> {
        let mut run = PostmarkRun::new(self.postmark, rng.split());
        let created = (0..self.postmark.files).map(|_| run.create());
        let file = |step| match step {
            PostmarkStep::Create(file, bytes) => Some((FileId(file.number), bytes)),
            _ => None,
        };
        created.filter_map(file).collect()
    }

    pub(super) fn start<F: Files>(
        self,
        runtime: &Handle,
        files: &Rc<F>,
        initial: &[Initial],
        rng: &mut Rng,
    ) -> usize {
        let file =
            |(file, bytes): &Initial| (PostmarkFile { number: file.0, directory: 0 }, *bytes);
        let there = initial.iter().map(file).collect();
        let run = PostmarkRun::with_files(self.postmark, there, rng.split());
        let pace = Pace::new(self.per_second, runtime.now());
        spawn(runtime, files, transactions(runtime.clone(), Rc::clone(files), run, pace));
        1
    }
}

async fn transactions<F: Files>(
    runtime: Handle,
    files: Rc<F>,
    mut run: PostmarkRun,
    pace: Pace,
) -> Result<(), F::Error> {
    while files.goes_on() {
        pace.turn(&runtime).await;
        files.admitted().await;
        let began = runtime.now();
        for step in run.transaction() {
            take(&*files, step).await?;
        }
        files.done(Operation::Request, runtime.now().since(began));
        files.done(Operation::Other, Nanos(0));
    }
    Ok(())
}

async fn take<F: Files>(files: &F, step: PostmarkStep) -> Result<(), F::Error> {
    let id = |file: PostmarkFile| FileId(file.number);
    match step {
        PostmarkStep::Create(file, bytes) => {
            files.create(id(file)).await?;
            files.write(id(file), 0, bytes).await
        }
        PostmarkStep::Read(file, bytes) => files.read(id(file), bytes).await,
        PostmarkStep::Append { file, offset, bytes } => files.write(id(file), offset, bytes).await,
        PostmarkStep::Delete(file) => files.delete(id(file)).await,
    }
}
