//! FUSE: the protocol by which the Linux kernel has file systems served by programs.
//!
//! Facts are from the kernel's public header `linux/fuse.h`, protocol 7.31 (Linux 5.4) to 7.45
//! (Linux 6.18), and from the observed behaviour of kernels. Requests are decoded from bytes
//! ([`Request::decode`]) and answers encoded ([`Answer`]) without any input or output; a
//! [`Session`] reads requests and hands them to a [`Filesystem`], and each [`Reply`] writes one
//! answer. Decoding does not panic, whatever the bytes are.
//!
//! A [`PolledSession`] also gets requests through an io_uring, where the kernel has that: there
//! the headers and what follows them lie in two pieces, and the answer takes their place.
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
mod polled;
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
pub use polled::{PolledSession, ring_queues};
pub use reply::{Notifier, Reply};
pub use request::{Context, Request};
pub use rustix::io::Errno;
pub use session::{BackgroundSession, Ended, MountGuard, Session, Turn};
pub use tally::Tally;
pub use values::{
    Attributes, Device, FileHandle, InitFlags, NewTime, NodeId, NodeKind, OpenFlags, OpenedFlags,
    RenameFlags, Time, XattrFlags,
};
