//! The bytes of ext4: each structure with the offsets of its fields, and nothing that does I/O.
//!
//! A structure that is changed keeps its bytes and has a method for each field that this crate
//! knows, so that what others keep there stays as it is. Numbers are little-endian, in the journal
//! big-endian. What is decoded is checked here, as far as one structure tells; whether a block
//! number lies where it may is checked by [`crate::geometry::Geometry::data_run`] and its kin.

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
