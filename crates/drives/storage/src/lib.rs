//! Real disks and files, on the real clock.
//!
//! [`Reactor`] is the runtime, with one thread. A [`FileDevice`] is a disk, a partition or an
//! ordinary file. [`MappedNvram`] is a mapped file.

mod access;
mod arrays;
mod attached;
mod buffer;
mod connect;
mod device;
mod driver;
mod event;
mod failure;
mod file_device;
mod file_io;
mod gate;
mod guard;
mod holders;
mod holes;
mod identity;
mod image;
mod in_use;
mod ioctl;
mod levels;
mod loops;
mod mapped;
mod mapped_nvram;
mod open;
mod open_error;
mod partial;
#[cfg(all(test, feature = "plant"))]
mod planted;
mod polled;
mod pool;
mod priority;
mod processor;
mod range;
mod reactor;
mod request_ring;
mod ring;
mod safe_mode;
mod said_array;
mod sg;
mod signatures;
mod slab;
mod socket;
mod spindle;
mod survey;
mod sysfs;
mod transfer;
mod uring;
mod volume_lock;
mod waits;
mod wall_clock;
mod watcher;
#[cfg(test)]
mod witness;
mod zones;

pub use attached::{
    Attached, CacheError, CacheSwitch, HeldCache, HoldError, NoSwitch, Noted, Released, Transport,
    noted, settle,
};
pub use buffer::{Buffer, Shelf};
pub use connect::{Connector, Peer};
pub use event::Event;
pub use file_device::{Backend, FileDevice, OpenOptions};
pub use identity::{DiskIdentity, identify, identify_in};
pub use image::{ImageError, create_image, sync_parent};
pub use mapped_nvram::MappedNvram;
pub use open::{OpenError, OpenMode, check_readable, check_unused};
pub use priority::prefer_this_thread;
pub use processor::Follower;
pub use reactor::Reactor;
pub use request_ring::{RequestRing, RingAnswer, RingRequest, RingShape};
pub use safe_mode::{SmallBitmapChunk, small_bitmap_chunks};
pub use said_array::{SaidArray, guessed_array, optimal_io, said_array};
pub use signatures::{BASE_VOLUME, LENT_STORE};
pub use socket::{Listener, SocketStream};
pub use survey::{Contents, read_at, survey, survey_file};
pub use volume_lock::{DirectoryLock, VolumeLock, VolumeLockError, runtime_dir};
pub use waits::tell_waits;
pub use watcher::Watcher;
pub use zones::{Zones, zones};
