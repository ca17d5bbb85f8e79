//! Trees of directories on MLFS, in virtual time, in each mode of the journal: made, listed and
//! removed (*Evolving Ext4 for Shingled Disks*, section 4.2). Nothing else uses the disk.

mod case;
mod results;
mod run;
mod walk;

pub use case::{BYTES_PER_INODE, PhaseKind, TreesCase};
pub use results::{PhaseFigures, TreesFigures, TreesResult, text};
pub use run::{measure_one, run_all};
