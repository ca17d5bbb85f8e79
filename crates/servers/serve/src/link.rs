//! A stable name for a device whose own name changes.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A symbolic link to a device; removed when dropped.
#[derive(Debug)]
pub(crate) struct DeviceLink {
    path: PathBuf,
    device: PathBuf,
}

impl DeviceLink {
    /// Makes a link at `path`, and the directories above it. An existing link is replaced
    /// atomically: a program that opens it finds the old device or the new one.
    ///
    /// # Errors
    /// If `path` is another kind of file, or the link cannot be made.
    pub(crate) fn make(path: &Path, device: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        if fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is no link"));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".partial-{}", std::process::id()));
        symlink(device, &partial)?;
        fs::rename(&partial, path).inspect_err(|_| {
            let _ = fs::remove_file(&partial);
        })?;
        Ok(Self { path: path.to_owned(), device: device.to_owned() })
    }
}

impl Drop for DeviceLink {
    fn drop(&mut self) {
        // Another server may have taken the name.
        if fs::read_link(&self.path).is_ok_and(|found| found == self.device) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn links_are_replaced_and_what_is_none_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let old = DeviceLink::make(&path, Path::new("/dev/loop8")).unwrap();
        let new = DeviceLink::make(&path, Path::new("/dev/loop9")).unwrap();
        drop(old);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("/dev/loop9"));
        drop(new);
        assert!(fs::symlink_metadata(&path).is_err());
        fs::write(&path, "data").unwrap();
        assert!(DeviceLink::make(&path, Path::new("/dev/loop9")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
