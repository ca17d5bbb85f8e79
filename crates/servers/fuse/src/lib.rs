//! FUSE: the protocol by which the Linux kernel has file systems served by programs.
//!
//! Facts are from the kernel's public header `linux/fuse.h`, protocol 7.31 (Linux 5.4) to 7.45
//! (Linux 6.18), and from what kernels were seen to do. Requests are decoded from bytes
//! ([`Request::decode`]) and answers encoded ([`Answer`]) without any input or output; a
//! [`Session`] reads, hands to a [`Filesystem`], and each [`Reply`] writes. Whatever the bytes are,
//! decoding does not panic.
//!
//! Mounting goes in two steps: [`Superblock::create`] has the kernel claim the disk,
//! [`Superblock::attach`] shows the file system once the server is ready.

mod answer;
mod decode;
mod dispatch;
mod filesystem;
mod helper;
mod mount;
mod negotiate;
mod reply;
pub mod request;
mod session;
mod tally;
mod values;
mod wire;

pub use answer::{
    Answer, Created, Entry, Found, IoctlDone, Known, KnownFromBirth, Names, Opened, Usage, Written,
};
pub use decode::{DecodeError, Dialect};
pub use filesystem::Filesystem;
pub use mount::{MountFlags, MountOptions, Source, Superblock, unmount_from};
pub use negotiate::{Agreed, InitError, Wanted};
pub use reply::{Notifier, Reply};
pub use request::{Context, Request};
pub use rustix::io::Errno;
pub use session::{BackgroundSession, Ended, PolledSession, Session, Turn};
pub use tally::Tally;
pub use values::{
    Attributes, Device, FileHandle, InitFlags, Kind, NewTime, NodeId, OpenFlags, OpenedFlags,
    RenameFlags, Time, XattrFlags,
};
