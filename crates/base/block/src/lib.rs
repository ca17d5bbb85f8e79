//! The block device contract: everything is a [`BlockDevice`] that may wrap block devices.
//!
//! A layer sees only devices, a clock and a task spawner (see [`Runtime`]), so the code that
//! serves a real kernel is the code that runs in virtual time.

mod completion;
mod device;
mod extents;
mod first_of;
mod geometry;
mod mailbox;
mod media;
mod memory;
mod nvram;
mod payload;
mod power;
mod rng;
mod runtime;
mod signal;
mod task_lock;
mod tasks;
mod text;
mod timers;
mod units;
mod watch;

pub use completion::{Completer, Completion, IoResult, Watcher, all_done, completion};
pub use device::{BlockDevice, Capabilities, Copies, Hint, IoError, Request, RequestKind};
pub use extents::{ExtentKind, Extents};
pub use first_of::first_of;
pub use geometry::{Chunk, Geometry, PAGE, Share, Split};
pub use mailbox::{Inbox, Mailbox, mailbox};
pub use media::{Media, Sector};
pub use memory::MemoryDevice;
pub use nvram::{MemoryNvram, Nvram};
pub use payload::{Payload, Piece};
pub use power::{PowerCommand, PowerState, PowerTimes};
pub use rng::Rng;
pub use runtime::{Handle, LocalTask, Runtime, Sleep};
pub use signal::{Signal, Wait, yield_now};
pub use task_lock::{TaskGuard, TaskLock};
pub use tasks::Tasks;
pub use text::{bytes_text, on_off, parse_bytes, parse_share, parse_span, span_text};
pub use units::{Extent, Lba, Nanos, SECTOR_BYTES, Sectors, Time, TimeOfDay, narrow, to_usize};
pub use watch::Watchers;
