//! Recognises a volume by the first bytes of its device.

use crate::error::VolumeError;
use crate::ondisk::superblock::{self, Superblock};

/// Bytes that [`probe`] needs.
pub const HEAD_BYTES: usize = superblock::HEAD_BYTES;

/// The names of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// Id of the volume.
    pub id: [u8; 16],
    /// The name that the owner gave; may be empty.
    pub label: String,
    /// The version of its format.
    pub version: u32,
}

/// Reads the head of the first superblock. The rest of the volume may be damaged.
///
/// # Errors
/// [`VolumeError::NotAVolume`], or if the head is damaged or of another version.
pub fn probe(head: &[u8]) -> Result<Probed, VolumeError> {
    let (id, label) = Superblock::named(head)?;
    Ok(Probed { id, label, version: superblock::VERSION })
}
