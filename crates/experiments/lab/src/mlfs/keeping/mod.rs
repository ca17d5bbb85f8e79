//! Durable-only files in the logs (`O_DUR` of the Manylogs paper, section IV-D), in virtual time,
//! compared with the promises. Beside each load 1 MiB/s of small durable writes go to other files,
//! and a checkpoint runs every minute, where logs are 1 GiB.

mod gate;
mod load;
mod plain;
mod read;
mod results;
mod run;

pub use gate::Gate;
pub use plain::write_plain;
pub use results::{KeepingFigures, KeepingResult, text};
pub use run::{KeepingCase, run_all};
