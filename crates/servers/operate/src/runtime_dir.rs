//! Where servers keep their sockets and mount points: private to the user.

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
/// Extension of the notes that say which device a server has: one that was killed leaves its note.
pub const NOTE: &str = "device";
/// Extension of the files that servers show through FUSE.
pub const EXPORT: &str = "export";

/// The directory, made if it is not there.
///
/// # Errors
/// If there is none for this user, or it cannot be made.
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

/// Takes away what killed servers have left in `directory`: locks that nobody holds, sockets that
/// nobody listens at, and mount points without a server. What is in use stays.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn sweep(directory: &Path) -> io::Result<()> {
    VolumeLock::sweep(directory)?;
    let _directory = DirectoryLock::take(directory)?;
    for path in read_dir(directory)?.flatten().map(|entry| entry.path()) {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension == Some(NOTE) && !is_heard(&path.with_extension(SOCKET)) {
            // What is left of a device that is no more tells nothing.
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
            // Not by force: a loop device may hold the file, and a file system that. Its own next
            // server takes both away.
            let _ = unmount(&path, UnmountFlags::empty());
        }
        // A file that is mounted on cannot be removed, and need not.
        let _ = remove_file(&path);
    }
    Ok(())
}

/// Whether somebody listens. A busy listener counts.
fn is_heard(socket: &Path) -> bool {
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    !matches!(UnixStream::connect(socket), Err(error) if gone.contains(&error.kind()))
}

/// Whether the server of what is mounted at `path` is no more. The kernel remembers the file's
/// attributes for long: it is the server that is asked.
#[must_use]
pub fn is_dead(path: &Path) -> bool {
    let asked = statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    asked.err() == Some(Errno::NOTCONN)
}

/// Where the server of the device at `path` notes which ublk device it serves: one that was killed
/// leaves it to its successor.
///
/// # Errors
/// If there is no such device, or no directory for this user.
pub fn ublk_note(path: &Path) -> io::Result<PathBuf> {
    Ok(runtime_dir()?.join(format!("{}.ublk", name_of(path)?)))
}

/// Where the lent store at `path` listens if nothing else is asked for.
///
/// # Errors
/// If there is nothing of that name, or no directory for this user.
pub fn store_socket(path: &Path) -> io::Result<PathBuf> {
    Ok(runtime_dir()?.join(format!("{}.store", name_of(path)?)))
}

/// Notes that the server whose socket is at `socket` has the device at `path`.
pub(crate) fn note_device(socket: &Path, path: &Path) -> io::Result<()> {
    let whole = fs::canonicalize(path)?;
    fs::write(socket.with_extension(NOTE), whole.as_os_str().as_bytes())
}

/// The device that `note` names, if its server is no more and it is still the same device.
#[must_use]
pub fn noted_device(note: &Path) -> Option<PathBuf> {
    let device = PathBuf::from(OsString::from_vec(fs::read(note).ok()?));
    let is_it = name_of(&device).is_ok_and(|name| note.file_stem() == Some(name.as_ref()));
    (is_it && !is_heard(&note.with_extension(SOCKET))).then_some(device)
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
