//! Directories: names and their inodes.
//!
//! A directory is a file of blocks, each a chain of records. Small directories are searched from
//! the first block. Larger ones may have an index by hash, in blocks that look empty to programs
//! that do not know it, so that reading works without the index. Where there is one, or will be one
//! as soon as names no longer fit into a block, names are listed by hash too.

mod blocks;
mod change;
mod hash;
mod index;
mod list;
mod order;

pub(crate) use blocks::Entry;
pub(crate) use change::{NAME_CREDITS, touch};
pub(crate) use hash::spread;
pub use list::Listed;

use crate::error::{Error, Result};
use crate::ondisk::dirent::NAME_MOST;

/// Checks that a name may be looked up.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MOST {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("a name that is empty, or has a slash or a zero in it"));
    }
    Ok(())
}

/// Checks that a name may be added or removed.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if name == b"." || name == b".." {
        return Err(Error::Invalid("the names . and .. are the directory's own"));
    }
    Ok(())
}
