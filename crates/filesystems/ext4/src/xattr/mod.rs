//! Extended attributes: names with values that a file has besides its content.
//!
//! They lie in the inode as far as there is room, then in one block. A block that several inodes
//! share, which the kernel makes, is copied before it is changed. Access control lists are
//! attributes with a different form on the disk.

mod acl;
mod durable;
mod inherit;
mod patterns;
mod store;

pub(crate) use acl::Acl;
pub use durable::DURABLE_XATTR;
pub(crate) use durable::durable_value;
pub(crate) use patterns::Judge;
pub use patterns::{DurableNames, PatternError};
pub(crate) use store::XATTR_CREDITS;

use crate::error::{Error, Result};
use crate::ondisk::xattr::Key;

/// The index of access control lists of files.
pub(crate) const ACL_ACCESS: u8 = 2;
/// The index of default access control lists, for new files in a directory.
pub(crate) const ACL_DEFAULT: u8 = 3;
/// The longest name, without its prefix.
const NAME_MOST: usize = 255;

/// Prefixes of names, and their codes.
const PREFIXES: [(&[u8], u8); 3] = [(b"user.", 1), (b"trusted.", 4), (b"security.", 6)];
/// Names that have a code as a whole.
const WHOLE: [(&[u8], u8); 2] =
    [(b"system.posix_acl_access", ACL_ACCESS), (b"system.posix_acl_default", ACL_DEFAULT)];

impl Key {
    /// The key of an attribute's name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no attribute may have this name.
    pub(crate) fn of(name: &[u8]) -> Result<Self> {
        if let Some((_, index)) = WHOLE.into_iter().find(|(whole, _)| *whole == name) {
            return Ok(Self { index, name: Vec::new() });
        }
        for (prefix, index) in PREFIXES {
            match name.strip_prefix(prefix) {
                Some([]) => return Err(Error::Invalid("the name of the attribute is empty")),
                Some(rest) if rest.len() > NAME_MOST => return Err(Error::NameTooLong),
                Some(rest) => return Ok(Self { index, name: rest.to_vec() }),
                None => {}
            }
        }
        Err(Error::Unsupported("attributes of this name"))
    }

    /// The attribute's name; `None` if the code is not known here.
    fn full_name(&self) -> Option<Vec<u8>> {
        let mut all = PREFIXES.into_iter().chain(WHOLE);
        let (prefix, _) = all.find(|(_, index)| *index == self.index)?;
        Some([prefix, &self.name].concat())
    }
}
