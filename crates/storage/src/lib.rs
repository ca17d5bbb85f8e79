//! Real disks and files under the engine, on the real clock.
//!
//! [`Reactor`] is the runtime; it has one thread. A [`FileDevice`] is a disk, a partition or an
//! ordinary file.

mod buffer;
mod device;
mod driver;
mod engine;
mod event;
mod failure;
mod file_device;
mod in_use;
mod ioctl;
mod open;
mod pool;
mod reactor;
mod ring;
mod slab;
mod sysfs;
mod transfer;

pub use file_device::{Backend, FileDevice, OpenOptions};
pub use open::{OpenError, OpenMode};
pub use reactor::Reactor;
