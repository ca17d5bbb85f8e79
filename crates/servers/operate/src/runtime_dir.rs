//! The directory for sockets and mount points of servers, private to the user.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, read_dir, remove_file};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use manylogs_storage::{DirectoryLock, VolumeLock};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

/// Extension of the sockets of servers.
pub const SOCKET: &str = "sock";
/// Extension of the notes that name a server's device. A killed server leaves its note behind.
pub const NOTE: &str = "device";
/// Extension of the files that servers show through FUSE.
pub const EXPORT: &str = "export";

/// The directory, created if it is missing.
///
/// # Errors
/// If this user has no such directory, or it cannot be created.
pub fn runtime_dir() -> io::Result<PathBuf> {
    let found = manylogs_storage::runtime_dir().map_err(io::Error::other)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&found);
    made.map_err(|error| at(&found, &error))?;
    Ok(found)
}

/// The error with the path that it is about.
#[must_use]
pub fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Where the export of the device at `path` appears as a file.
///
/// # Errors
/// If there is no such device, or no directory for this user.
pub fn mount_point(path: &Path) -> io::Result<PathBuf> {
    Ok(runtime_dir()?.join(name_of(path)?).with_extension(EXPORT))
}

/// Where in `directory` the server of the device at `path` takes orders.
///
/// # Errors
/// If there is no such device.
pub(crate) fn socket_path(directory: &Path, path: &Path) -> io::Result<PathBuf> {
    Ok(directory.join(name_of(path)?).with_extension(SOCKET))
}

/// Removes what killed servers have left in `directory`: locks that no process holds, sockets
/// without a listener, and mount points without a server. Files in use stay.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn sweep(directory: &Path) -> io::Result<()> {
    VolumeLock::sweep(directory)?;
    let _directory = DirectoryLock::take(directory)?;
    for path in read_dir(directory)?.flatten().map(|entry| entry.path()) {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension == Some(NOTE) && !is_heard(&path.with_extension(SOCKET)) {
            // The note is useless if its device no longer exists.
            if noted_device(&path).is_none() {
                let _ = remove_file(&path);
            }
            continue;
        }
        // A server makes its socket before its mount point, and both have the same name.
        if !matches!(extension, Some(SOCKET | EXPORT)) || is_heard(&path.with_extension(SOCKET)) {
            continue;
        }
        if extension == Some(EXPORT) && is_dead(&path) {
            // Not by force: a loop device may hold the file, and a file system may be mounted on
            // the loop device. The next server of the device removes both.
            let _ = unmount(&path, UnmountFlags::empty());
        }
        // A file that is still a mount point cannot be removed, and need not be.
        let _ = remove_file(&path);
    }
    Ok(())
}

/// Whether a server listens at the socket, busy or not.
fn is_heard(socket: &Path) -> bool {
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    !matches!(UnixStream::connect(socket), Err(error) if gone.contains(&error.kind()))
}

/// Whether the server of the file mounted at `path` has ended. The kernel caches the file's
/// attributes for long, so this makes it ask the server.
#[must_use]
pub fn is_dead(path: &Path) -> bool {
    let asked = statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    asked.err() == Some(Errno::NOTCONN)
}

/// The file in which the server of the device at `path` notes which ublk device it serves. A killed
/// server leaves that device to its successor.
///
/// # Errors
/// If there is no such device, or no directory for this user.
pub fn ublk_note(path: &Path) -> io::Result<PathBuf> {
    Ok(runtime_dir()?.join(format!("{}.ublk", name_of(path)?)))
}

/// The default socket of the lent store at `path`.
///
/// # Errors
/// If there is no such device or file, or no directory for this user.
pub fn store_socket(path: &Path) -> io::Result<PathBuf> {
    Ok(runtime_dir()?.join(format!("{}.store", name_of(path)?)))
}

/// Notes that the server whose socket is at `socket` has the device at `path`.
pub(crate) fn note_device(socket: &Path, path: &Path) -> io::Result<()> {
    let whole = fs::canonicalize(path)?;
    fs::write(socket.with_extension(NOTE), whole.as_os_str().as_bytes())
}

/// The device that `note` names, if its server has ended and the path still leads to the same
/// device.
#[must_use]
pub fn noted_device(note: &Path) -> Option<PathBuf> {
    let device = PathBuf::from(OsString::from_vec(fs::read(note).ok()?));
    let is_it = name_of(&device).is_ok_and(|name| note.file_stem() == Some(name.as_ref()));
    (is_it && !is_heard(&note.with_extension(SOCKET))).then_some(device)
}

/// A name for the device or file at `path`, the same for all paths to it. So a server is found
/// without reading the volume.
///
/// # Errors
/// If nothing is at `path`.
pub(crate) fn name_of(path: &Path) -> io::Result<String> {
    let metadata = path.metadata()?;
    Ok(if metadata.file_type().is_block_device() {
        format!("disk-{:x}", metadata.rdev())
    } else {
        format!("file-{:x}-{:x}", metadata.dev(), metadata.ino())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs::{File, write};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_nobody_uses_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        drop(UnixListener::bind(at("file-1-1.sock")).unwrap());
        write(at("file-1-1.export"), "").unwrap();
        let _listens = UnixListener::bind(at("file-1-2.sock")).unwrap();
        write(at("file-1-2.export"), "").unwrap();
        write(at("file-1-3.export"), "").unwrap();
        write(at("notes"), "").unwrap();
        let device = dir.path().join("volume.img");
        File::create(&device).unwrap();
        let killed = at(&name_of(&device).unwrap()).with_extension(SOCKET);
        note_device(&killed, &device).unwrap();
        write(at("file-1-4.device"), "/nowhere").unwrap();
        let _held = VolumeLock::take_in(dir.path(), [7; 16], Path::new("/dev/sdx")).unwrap();
        File::create(at(&"08".repeat(16))).unwrap();
        sweep(dir.path()).unwrap();
        let mut left: Vec<_> = read_dir(dir.path()).unwrap().flatten().collect();
        left.sort_by_key(std::fs::DirEntry::file_name);
        let mut left: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
        let note = killed.with_extension(NOTE);
        left.retain(|name| Some(name.as_os_str()) != note.file_name());
        let held = "07".repeat(16);
        assert_eq!(left, [&*held, "file-1-2.export", "file-1-2.sock", "notes", "volume.img"]);
        assert_eq!(noted_device(&note), Some(device.canonicalize().unwrap()));
    }
}
