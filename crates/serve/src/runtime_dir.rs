//! Where servers keep their sockets and mount points: private to the user.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory, made if it is not there.
///
/// # Errors
/// If there is none for this user, or it cannot be made.
pub(crate) fn runtime_dir() -> io::Result<PathBuf> {
    let found = manylogs_storage::runtime_dir().map_err(io::Error::other)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&found)?;
    Ok(found)
}

/// Where the export of the device at `path` appears as a file.
///
/// # Errors
/// If there is no such device, or no directory for this user.
pub fn mount_point(path: &Path) -> io::Result<PathBuf> {
    Ok(runtime_dir()?.join(format!("{}.export", name_of(path)?)))
}

/// A name for whatever is at `path`, the same under all its names: the volume itself need not be
/// read to find its server.
///
/// # Errors
/// If nothing is there.
pub(crate) fn name_of(path: &Path) -> io::Result<String> {
    let metadata = path.metadata()?;
    Ok(if metadata.file_type().is_block_device() {
        format!("disk-{:x}", metadata.rdev())
    } else {
        format!("file-{:x}-{:x}", metadata.dev(), metadata.ino())
    })
}
