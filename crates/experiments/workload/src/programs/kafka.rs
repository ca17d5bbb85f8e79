//! Kafka: producers append batches to partitions. Nothing is synced (`flush.messages` is not set),
//! and what is written is the data that consumers read, so no file is a log that nobody reads.
//!
//! Consumers keep up, so they read from the page cache, and are left out.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{Handle, Nanos, Rng, to_usize};

use super::pace::Pace;
use super::{FileId, Files, Initial, Operation, spawn};

/// A broker and its producers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kafka {
    /// Producers: each has partitions of its own, and sends its next batch when the last one is in
    /// the broker's page cache.
    pub producers: u32,
    /// Partitions; each batch goes to one of the producer's, drawn at random.
    pub partitions: u32,
    /// Length of a batch.
    pub batch_bytes: u64,
    /// Length from which on a partition goes on in a new file.
    pub segment_bytes: u64,
    /// Batches a second of all producers together.
    pub per_second: f64,
}

impl Default for Kafka {
    /// The producer's own 16 KiB (`batch.size`), the broker's own 1 GiB (`log.segment.bytes`), and
    /// 2 MB a second.
    fn default() -> Self {
        Self {
            producers: 8,
            partitions: 12,
            batch_bytes: 16 << 10,
            segment_bytes: 1 << 30,
            per_second: 120.0,
        }
    }
}

/// The file of a partition that is written, and its length.
type End = (FileId, u64);

impl Kafka {
    pub(super) fn initial(&self) -> Vec<Initial> {
        (0..self.partitions).map(|number| (FileId(number), 0)).collect()
    }

    pub(super) fn start<F: Files>(self, runtime: &Handle, files: &Rc<F>, rng: &mut Rng) -> usize {
        let next = Rc::new(Cell::new(self.partitions));
        let pace = Rc::new(Pace::new(self.per_second, runtime.now()));
        let producers = self.producers.min(self.partitions);
        for number in 0..producers {
            let own = (number..self.partitions).step_by(to_usize(producers.into()));
            let producer = Producer {
                program: self,
                runtime: runtime.clone(),
                files: Rc::clone(files),
                ends: own.map(|partition| (FileId(partition), 0)).collect(),
                next: Rc::clone(&next),
                pace: Rc::clone(&pace),
                rng: rng.split(),
            };
            spawn(runtime, files, producer.run());
        }
        to_usize(producers.into())
    }
}

struct Producer<F> {
    program: Kafka,
    runtime: Handle,
    files: Rc<F>,
    /// Its partitions.
    ends: Vec<End>,
    /// The first number that no file had.
    next: Rc<Cell<u32>>,
    pace: Rc<Pace>,
    rng: Rng,
}

impl<F: Files> Producer<F> {
    async fn run(mut self) -> Result<(), F::Error> {
        while self.files.goes_on() {
            self.pace.turn(&self.runtime).await;
            self.files.admitted().await;
            let began = self.runtime.now();
            self.append().await?;
            self.files.done(Operation::Request, self.runtime.now().since(began));
            self.files.done(Operation::Other, Nanos(0));
        }
        Ok(())
    }

    async fn append(&mut self) -> Result<(), F::Error> {
        let Kafka { batch_bytes, segment_bytes, .. } = self.program;
        let partition = to_usize(self.rng.below(self.ends.len() as u64));
        let (file, end) = &mut self.ends[partition];
        if *end + batch_bytes > segment_bytes {
            (*file, *end) = (FileId(self.next.get()), 0);
            self.next.set(self.next.get() + 1);
            self.files.create(*file).await?;
        }
        self.files.write(*file, *end, batch_bytes).await?;
        *end += batch_bytes;
        Ok(())
    }
}
