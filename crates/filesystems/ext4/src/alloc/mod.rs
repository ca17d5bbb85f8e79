//! Allocation of blocks and inodes.
//!
//! A block may be picked if its bit is clear, it is not claimed, and the transaction that freed it
//! is durable. Blocks for data are first claimed, then written, and then marked as in use by the
//! handle that maps them. A crash before that finds them free, and nothing refers to them.

mod blocks;
mod groups;
mod inodes;
mod space;

pub(crate) use inodes::NewKind;
pub(crate) use space::{Claim, ClaimedFor, Space};
