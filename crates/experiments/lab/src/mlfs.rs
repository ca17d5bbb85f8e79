//! MLFS on modelled drives, in virtual time: small durable writes beside a stream, in each mode of
//! the journal (the Manylogs paper, Fig. 2 and Table II). See [`run_all`].

pub mod applications;
mod case;
pub mod cleaner;
mod disk;
mod drives;
pub mod keeping;
mod load;
mod postmark;
pub mod programs;
mod results;
mod run;
mod sources;
mod table;
pub mod trees;

pub use case::{DiskCase, INODE_BYTES, JOURNAL, MlfsCase, WRITES_PER_SYNC};
pub use disk::MlfsError;
pub use results::{MlfsFigures, MlfsResult, Speedup};
pub use run::{Disks, Figures, measure_one, run_all};
pub use table::text;
