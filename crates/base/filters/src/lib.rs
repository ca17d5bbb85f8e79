//! Filters: layers that change how the device below them behaves, after those of nbdkit.
//!
//! | filter | what it does |
//! |---|---|
//! | [`Faults`] | requests fail by rule |
//! | [`Delay`] | answers come later |
//! | [`Trace`] | requests are counted, and the last ones kept |
//! | [`Reported`] | the device claims other capabilities: a sector size, a smaller capacity |
//! | [`Overlay`] | changes stay in memory, and the device below is only read |
//! | [`Part`] | the device is a part of the one below |
//! | [`Spindle`] | the device stands in standby, and fails requests until it is started |
//! | [`Stop`] | requests are held back, or the device is gone after so many changes |
//! | [`Zoned`] | zones are written in order, and reset before they are written again |
//!
//! A filter owns the device below it and lends it out again (`below`), so that a test can build a
//! stack and still reach each of its layers: `Trace<Faults<MemoryDevice>>`.

mod delay;
mod faults;
mod overlay;
mod part;
mod reported;
mod spindle;
mod stop;
mod trace;
mod zoned;

pub use delay::Delay;
pub use faults::{Faults, Rule};
pub use overlay::Overlay;
pub use part::Part;
pub use reported::Reported;
pub use spindle::Spindle;
pub use stop::Stop;
pub use trace::{Count, Trace};
pub use zoned::Zoned;
