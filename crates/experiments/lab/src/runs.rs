//! Runs that are known by what they are of, so that what was run once is not run again.
//!
//! A [`RunKey`] is the hash of everything that a run's result follows from. [`Kept`] holds the rows
//! of finished runs by key, in a file that outlives the process. Sweeps and figures use both.

mod content;
mod kept;
mod key;

pub use content::{Content, content_of};
pub use kept::{Kept, KeptError};
pub use key::{KeyBuilder, RunKey, program};
