//! Filebench's `varmail`: a mail server that keeps each mail in a file.

use std::rc::Rc;

use manylogs_block::{Handle, Rng};

use super::pace::Pace;
use super::pool::{self, Pool};
use super::{Files, Initial, Operation, spawn};

/// A mail server. Each thread repeats: delete a mail; write one and sync it; read one, append to it
/// and sync it; read one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VarMail {
    /// Threads.
    pub threads: u32,
    /// Files, of which 80 % exist at the beginning.
    pub files: u32,
    /// Mean length of a file; the mean of an append is half of it.
    pub file_bytes: u64,
    /// Operations a second of all threads together.
    pub per_second: f64,
}

impl Default for VarMail {
    /// The parameters of the Manylogs paper, section V-A.3.
    fn default() -> Self {
        Self { threads: 16, files: 1000, file_bytes: 16 << 10, per_second: 20.0 }
    }
}

impl VarMail {
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
    program: VarMail,
    runtime: Handle,
    files: Rc<F>,
    pool: Rc<Pool>,
    pace: Rc<Pace>,
    rng: Rng,
}

impl<F: Files> Thread<F> {
    async fn run(mut self) -> Result<(), F::Error> {
        while self.files.goes_on() {
            self.delete().await?;
            self.write_new().await?;
            self.append_to_one().await?;
            self.read_one().await?;
        }
        Ok(())
    }

    async fn turn(&self) {
        self.pace.turn(&self.runtime).await;
        self.files.done(Operation::Other, manylogs_block::Nanos(0));
    }

    async fn delete(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        if let Some((file, _)) = self.pool.take(&mut self.rng) {
            self.files.delete(file).await?;
            self.pool.put_absent(file);
        }
        Ok(())
    }

    async fn write_new(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        let Some(file) = self.pool.take_absent(&mut self.rng) else { return Ok(()) };
        self.files.create(file).await?;
        let bytes = self.append(file, 0).await?;
        self.turn().await;
        self.pool.put(file, bytes);
        Ok(())
    }

    async fn append_to_one(&mut self) -> Result<(), F::Error> {
        self.turn().await;
        let Some((file, bytes)) = self.pool.take(&mut self.rng) else { return Ok(()) };
        self.turn().await;
        self.files.read(file, bytes).await?;
        let bytes = self.append(file, bytes).await?;
        self.turn().await;
        self.pool.put(file, bytes);
        Ok(())
    }

    /// Appends and syncs; returns the new length.
    async fn append(&mut self, file: super::FileId, bytes: u64) -> Result<u64, F::Error> {
        self.turn().await;
        let added = 1 + self.rng.below(self.program.file_bytes);
        self.files.write(file, bytes, added).await?;
        self.turn().await;
        self.files.admitted().await;
        let began = self.runtime.now();
        self.files.sync(file).await?;
        let took = self.runtime.now().since(began);
        self.files.done(Operation::Flush, took);
        self.files.done(Operation::Request, took);
        Ok(bytes + added)
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
}
