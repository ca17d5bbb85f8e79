//! Transformations of a trace before it is replayed. Each is a source over sources.

mod adjust;
pub(crate) mod busiest;
mod fit;
mod mix;
mod repeat;
mod window;

pub use adjust::{Limit, Rerate, WithDevice};
pub use busiest::{BusiestWindow, BusiestWindows, busiest_windows};
pub use fit::{Fit, FitPlan, FitRule};
pub use mix::{Mix, Tenant};
pub use repeat::Repeat;
pub use window::{Cut, Window, random_windows};
