//! The on-disk structures of ext4, with the offsets of their fields. Nothing here does I/O.
//!
//! A structure that is changed keeps all its bytes and has a method for each field that this crate
//! knows, so that unknown fields stay as they are. Numbers are little-endian, in the journal
//! big-endian. Decoding checks all that one structure tells. Whether a block number is in a place
//! that files may have is checked by [`crate::geometry::Geometry::is_data`].

pub(crate) mod bitmap;
pub(crate) mod blockmap;
pub(crate) mod bytes;
pub(crate) mod dirent;
pub(crate) mod extent;
pub(crate) mod features;
pub(crate) mod group;
pub(crate) mod htree;
pub(crate) mod inode;
pub(crate) mod jbd2;
pub(crate) mod pointer;
pub(crate) mod superblock;
pub(crate) mod xattr;
