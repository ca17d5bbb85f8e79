//! Which blocks and inodes are free, and who gets them.
//!
//! A block may be picked if its bit is clear, nobody has claimed it, and no transaction freed it
//! that is not durable yet. Blocks for data are claimed first, written, and marked as in use by
//! the handle that maps them: until then a crash finds them free, and nothing refers to them.

mod blocks;
mod groups;
mod inodes;
mod space;

pub(crate) use inodes::NewKind;
pub(crate) use space::{Claim, ClaimedFor, Space};
