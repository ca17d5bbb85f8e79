//! Volumes, and devices without one, under unmodified applications.
//!
//! ```text
//!   FUSE file + loop     NBD (nbdkit plugin)     ublk          threads of the front ends
//!          \___________________|___________________/
//!                            Port                               from any thread to one
//!                              |
//!      Engine: a thread with a reactor, a volume, a device      and nobody else touches those
//! ```
//!
//! The front ends are thin: they translate requests, and the engine's thread answers them. The
//! operator's requests go the same way, through a socket of the volume's own ([`control`]).

pub mod control;
mod emulation;
mod engine;
mod errno;
mod fuse;
mod hygiene;
mod loop_device;
mod meter;
mod port;
mod range;
mod report;
mod runtime_dir;
mod stack;
pub mod status;

pub use emulation::Emulation;
pub use engine::{About, Engine, EngineOptions, Left, ServeError};
pub use errno::errno;
pub use fuse::{FuseError, FuseFile};
pub use hygiene::{Unprotected, protect};
pub use loop_device::{LoopDevice, LoopError};
pub use port::{Port, content};
pub use range::{sectors_around, sectors_exactly};
pub use runtime_dir::mount_point;
pub use stack::{Stack, StackError, StackOptions};
