//! Mounts that the kernel makes, serves, and ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manylogs_fuse::request::Read;
use manylogs_fuse::{
    Attributes, Context, Device, Errno, Filesystem, InitFlags, Known, MountFlags, MountOptions,
    NodeId, NodeKind, Reply, Source, Superblock, Time, Wanted,
};
use tempfile::TempDir;

const CONTENT: &[u8] = b"what the server says";

const WANTED: Wanted = Wanted {
    required: InitFlags::empty(),
    desired: InitFlags::ASYNC_READ,
    max_write: 65_536,
    max_background: 16,
    congestion_threshold: 12,
};

/// A file system whose root is its only file.
struct OneFile;

impl Filesystem for OneFile {
    fn attributes(&self, _: Context, reply: Reply<Known>) {
        let attributes = Attributes {
            node: NodeId::ROOT,
            number: 1,
            size: CONTENT.len() as u64,
            sectors: 8,
            accessed: Time::default(),
            modified: Time { seconds: -5, nanos: 6 },
            changed: Time::default(),
            kind: NodeKind::File,
            permissions: 0o640,
            links: 1,
            uid: 7,
            gid: 8,
            device: Device::default(),
            block_bytes: 4096,
        };
        reply.send(&Known { attributes, valid: Duration::ZERO });
    }

    fn read(&self, _: Context, read: Read, reply: Reply<[u8]>) {
        let from = usize::try_from(read.offset).unwrap_or(usize::MAX).min(CONTENT.len());
        reply.send(&CONTENT[from..(from + read.size as usize).min(CONTENT.len())]);
    }

    fn read_link(&self, _: Context, reply: Reply<[u8]>) {
        reply.error(Errno::INVAL);
    }
}

fn options() -> MountOptions {
    MountOptions {
        source: Source::Named("one file".to_owned()),
        subtype: Some("test"),
        allow_other: false,
        default_permissions: false,
        flags: MountFlags::NO_DEV | MountFlags::NO_SUID | MountFlags::NO_EXEC,
    }
}

/// A file to mount on; prints why and returns `None` where this machine does not let us mount.
fn place() -> Option<(TempDir, PathBuf)> {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root || !Path::new("/dev/fuse").exists() {
        manylogs_testkit::skip("needs root and /dev/fuse");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "below").unwrap();
    Some((dir, path))
}

/// The line of the mount table for `path`.
fn line(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let point = format!(" {} ", path.display());
    table.lines().find(|line| line.contains(&point)).map(str::to_owned)
}

#[test]
fn a_file_system_is_mounted_served_and_unmounted() {
    let Some((_dir, path)) = place() else { return };
    let superblock = Superblock::create(&path, &options()).unwrap();
    assert_eq!(line(&path), None, "nobody sees it before it is served");
    let session = superblock.attach(&WANTED).unwrap();
    assert!(session.agreed().flags.contains(InitFlags::ASYNC_READ));
    let served = session.spawn(OneFile).unwrap();
    let line_now = line(&path).unwrap();
    assert!(
        line_now.starts_with("one\\040file ") && line_now.contains(" fuse.test "),
        "{line_now}"
    );
    assert!(line_now.contains("nosuid,nodev,noexec"), "{line_now}");
    assert_eq!(fs::read(&path).unwrap(), CONTENT);
    let known = fs::metadata(&path).unwrap();
    assert_eq!((known.mode(), known.uid(), known.gid()), (0o100_640, 7, 8));
    assert_eq!((known.mtime(), known.mtime_nsec()), (-5, 6));
    // A request that the server does not offer.
    let refused = File::options().write(true).open(&path).and_then(|file| file.set_len(1));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(Errno::NOSYS.raw_os_error()));
    served.unmount_and_join().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"below");
}

#[test]
fn what_is_in_use_stays_until_it_is_not() {
    let Some((_dir, path)) = place() else { return };
    let session = Superblock::create(&path, &options()).unwrap().attach(&WANTED).unwrap();
    let served = session.spawn(OneFile).unwrap();
    let open = File::open(&path).unwrap();
    let refused = served.unmount_and_join().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    assert_eq!(io::read_to_string(&open).unwrap().as_bytes(), CONTENT);
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(io::read_to_string(File::open(&path).unwrap()).unwrap(), "below");
}

#[test]
fn what_is_given_up_leaves_nothing_behind() {
    let Some((_dir, path)) = place() else { return };
    drop(Superblock::create(&path, &options()).unwrap());
    // A session that nobody serves.
    drop(Superblock::create(&path, &options()).unwrap().attach(&WANTED).unwrap());
    assert_eq!((line(&path), fs::read(&path).unwrap()), (None, b"below".to_vec()));
    // A flag that this kernel does not offer.
    let required = InitFlags::from_bits_retain(1 << 60);
    let refused = Superblock::create(&path, &options()).unwrap();
    let refused = refused.attach(&Wanted { required, ..WANTED }).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert_eq!(line(&path), None);
}

#[test]
fn a_session_without_a_reactor_is_not_served_by_a_ring() {
    let Some((_dir, path)) = place() else { return };
    let wanted = Wanted { desired: InitFlags::OVER_IO_URING, ..WANTED };
    let session = Superblock::create(&path, &options()).unwrap().attach(&wanted).unwrap();
    if !session.agreed().flags.contains(InitFlags::OVER_IO_URING) {
        return manylogs_testkit::skip("needs Linux 6.14 and fuse.enable_uring=Y");
    }
    let refused = session.spawn(OneFile).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert_eq!((line(&path), fs::read(&path).unwrap()), (None, b"below".to_vec()));
}
