//! What is done with a trace before it is replayed: each is a source over sources.

mod adjust;
mod fit;
mod mix;
mod repeat;
pub mod window;

pub use adjust::{Limit, Rerate, WithDevice};
pub use fit::{Fit, FitPlan, FitRule};
pub use mix::{Mix, Tenant};
pub use repeat::Repeat;
pub use window::{Cut, Window};
