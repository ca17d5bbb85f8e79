//! What operators see of running servers, and the orders that servers take.
//!
//! Every server, whatever its front end, has an [`Operated`] on its thread: the operator's view of
//! what it serves. A [`control::ControlSocket`] takes orders from other processes, which find it by
//! the device ([`control::connect`]), and hands them to that thread. A [`status::Status`] comes as
//! JSON or as [`metrics`].

pub mod control;
mod emulation;
pub mod log;
mod meter;
pub mod metrics;
mod operated;
pub mod runtime_dir;
pub mod status;
mod system;
mod under_way;
mod volume_status;
mod watch;

pub use emulation::Emulated;
pub use meter::Asked;
pub use operated::{Counted, Operated, Subject};
pub use system::{Closing, Obeying, ServedSystem};
pub use under_way::{Token, UnderWay};
pub use watch::watch;
