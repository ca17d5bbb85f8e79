//! Filebench's `fileserver`: a server of home directories.

use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng};

use super::pace::Pace;
use super::pool::{self, Pool};
use super::{Files, Initial, Operation, spawn};

/// A file server. Each thread repeats: write a new file, append to a file, read one, delete one,
/// and get the attributes of one. Nothing is synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileServer {
    /// Threads.
    pub threads: u32,
    /// Files, of which 80 % exist at the beginning.
    pub files: u32,
    /// Mean length of a file.
    pub file_bytes: u64,
    /// Longest append; the mean is half of it.
    pub append_bytes: u64,
    /// Operations a second of all threads together.
    pub per_second: f64,
}

impl Default for FileServer {
    /// The parameters of the Manylogs paper, section V-A.3.
    fn default() -> Self {
        Self {
            threads: 50,
            files: 10_000,
            file_bytes: 128 << 10,
            append_bytes: 16 << 10,
            per_second: 20.0,
        }
    }
}

impl FileServer {
    pub(super) fn initial(&self, rng: &mut Rng) -> Vec<Initial> {
        pool::initial(self.files, self.file_bytes, rng)
    }

    pub(super) fn start<F: Files>(
        self,
        runtime: &Handle,
        files: &Rc<F>,
        initial: &[Initial],
        rng: &mut Rng,
    ) -> usize {
        let pool = Rc::new(Pool::new(self.files, initial));
        let pace = Rc::new(Pace::new(self.per_second, runtime.now()));
        for _ in 0..self.threads {
            let thread = Thread {
                program: self,
                runtime: runtime.clone(),
                files: Rc::clone(files),
                pool: Rc::clone(&pool),
                pace: Rc::clone(&pace),
                rng: rng.split(),
            };
            spawn(runtime, files, thread.run());
        }
        manylogs_block::to_usize(self.threads.into())
    }
}

struct Thread<F> {
    program: FileServer,
    runtime: Handle,
    files: Rc<F>,
    pool: Rc<Pool>,
    pace: Rc<Pace>,
    rng: Rng,
}

impl<F: Files> Thread<F> {
    async fn run(mut self) -> Result<(), F::Error> {
        while self.files.goes_on() {
            self.write_new().await?;
            self.append_to_one().await?;
            self.read_one().await?;
            self.delete_one().await?;
            self.stat_one().await?;
        }
        Ok(())
    }

    async fn turn(&self) {
        self.pace.turn(&self.runtime).await;
        self.files.done(Operation::Other, Nanos(0));
    }

    /// Writes, and reports the time taken.
    async fn write(&self, file: super::FileId, offset: u64, bytes: u64) -> Result<(), F::Error> {
        self.turn().await;
        self.files.admitted().await;
        let began = self.runtime.now();
        self.files.write(file, offset, bytes).await?;
        self.files.done(Operation::Request, self.runtime.now().since(began));
        Ok(())
    }

    async fn write_new(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        let Some(file) = self.pool.take_absent(&mut self.rng) else { return Ok(()) };
        self.files.create(file).await?;
        let bytes = pool::length(self.program.file_bytes, &mut self.rng);
        self.write(file, 0, bytes).await?;
        self.turn().await;
        self.pool.put(file, bytes);
        Ok(())
    }

    async fn append_to_one(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        let Some((file, bytes)) = self.pool.take(&mut self.rng) else { return Ok(()) };
        let added = 1 + self.rng.below(self.program.append_bytes);
        self.write(file, bytes, added).await?;
        self.turn().await;
        self.pool.put(file, bytes + added);
        Ok(())
    }

    async fn read_one(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        let Some((file, bytes)) = self.pool.take(&mut self.rng) else { return Ok(()) };
        self.turn().await;
        self.files.read(file, bytes).await?;
        self.turn().await;
        self.pool.put(file, bytes);
        Ok(())
    }

    async fn delete_one(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        if let Some((file, _)) = self.pool.take(&mut self.rng) {
            self.files.delete(file).await?;
            self.pool.put_absent(file);
        }
        Ok(())
    }

    async fn stat_one(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        if let Some((file, bytes)) = self.pool.take(&mut self.rng) {
            self.files.stat(file).await?;
            self.pool.put(file, bytes);
        }
        Ok(())
    }
}
