//! Runs identified by their inputs, so that no run is done twice.
//!
//! A [`RunKey`] is the hash of everything that a run's result depends on. [`Kept`] holds the rows
//! of finished runs by key, in a file that outlives the process. Sweeps and figures use both.

mod content;
mod kept;
mod key;

pub use content::{Content, content_of};
pub use kept::{Kept, KeptError};
pub use key::{KeyBuilder, RunKey, program};
