//! Creates files to keep a volume in.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use manylogs_block::Sectors;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use thiserror::Error;

/// Why an image was not created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The name is taken already.
    #[error("{path} exists already: choose another name, or delete it first")]
    Exists {
        /// The image.
        path: PathBuf,
    },
    /// The file system has no room for the whole image.
    #[error("no room for {bytes} bytes at {path}: free some, or create it sparse")]
    NoSpace {
        /// The image.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file system cannot reserve space.
    #[error("the file system of {path} cannot reserve space: create the image sparse")]
    CannotReserve {
        /// The image.
        path: PathBuf,
    },
    /// Something else went wrong.
    #[error("cannot create {path}: {source}")]
    Io {
        /// The image.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Creates a file of `len` that reads as zeroes, for its owner only. Its space is reserved, so
/// that no write ends for lack of it, unless it is `sparse`.
///
/// # Errors
/// See [`ImageError`]; then there is no file.
pub fn create_image(path: &Path, len: Sectors, sparse: bool) -> Result<(), ImageError> {
    let created = File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    let file = created.map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => ImageError::Exists { path: path.to_owned() },
        _ => ImageError::Io { path: path.to_owned(), source },
    })?;
    fill(&file, path, len.bytes(), sparse).inspect_err(|_| {
        // The error that is returned matters more than one of removing the file.
        let _ = std::fs::remove_file(path);
    })
}

fn fill(file: &File, path: &Path, bytes: u64, sparse: bool) -> Result<(), ImageError> {
    let owned = || path.to_owned();
    let sized = if sparse {
        rustix::fs::ftruncate(file, bytes)
    } else {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)
    };
    sized.map_err(|errno| match errno {
        Errno::NOSPC | Errno::DQUOT => ImageError::NoSpace { path: owned(), bytes },
        Errno::OPNOTSUPP if !sparse => ImageError::CannotReserve { path: owned() },
        errno => ImageError::Io { path: owned(), source: errno.into() },
    })?;
    let synced = file.sync_all().and_then(|()| sync_parent(path));
    synced.map_err(|source| ImageError::Io { path: owned(), source })
}

/// Makes the name of a new file durable.
///
/// # Errors
/// The kernel's.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
