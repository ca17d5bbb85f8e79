//! Structures on the disk besides the logs: superblock, root, and the layout that they describe.
//! The bytes are in `docs/format.md`.

pub(crate) mod layout;
pub(crate) mod row_image;
pub(crate) mod settings;
pub(crate) mod superblock;
