//! Programs beside a stream on MLFS, in virtual time, in each mode of the journal (the Manylogs
//! paper, Fig. 4 and 5).

mod cached;
mod case;
mod host;
mod judge;
mod results;
mod run;
mod table;

pub use case::{ApplicationCase, BYTES_PER_INODE, MANYLOGS_ODUR};
pub use judge::{Judgement, judge_all, judged_text};
pub use results::{ApplicationFigures, ApplicationResult};
pub use run::{ApplicationDisks, Measured, measure_one, run_all};
pub use table::text;
