//! Opens a device that nobody else uses.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use manylogs_plant::{self as plant, Bug};
use rustix::fs::{OFlags, SeekFrom};

use crate::in_use::{Use, swap, use_below, use_of};
use crate::levels::Level;
use crate::loops::Object;
pub use crate::open_error::OpenError;
use crate::sysfs::{DeviceNumber, Disk, System};
use crate::{guard, waits};

/// `udev` locks a disk for a moment while it probes the content.
const UDEV_PATIENCE: Duration = Duration::from_secs(1);
/// How long a killed process may take to end. The kernel closes its files when its last requests to
/// the disk are answered; for those of an `io_uring` that is after the process has gone. The kernel
/// gives a disk 30 s to answer.
const ENDING_PATIENCE: Duration = Duration::from_secs(40);
/// The same if no holder of the lock is visible: a container does not see a process that is gone.
const HIDDEN_PATIENCE: Duration = Duration::from_secs(5);
/// The user is told of waits that are longer than this.
const SILENCE: Duration = Duration::from_millis(500);
/// Pause between two attempts at a device that is in use.
const RETRY: Duration = Duration::from_millis(50);

/// Purpose of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To read, beside other readers.
    ReadOnly,
    /// To read and write, while nobody else does.
    Exclusive,
    /// As [`OpenMode::Exclusive`], but the kernel has already claimed the disk for the caller's own
    /// mount.
    Claimed,
}

impl OpenMode {
    pub(crate) const fn is_writing(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }
}

/// An opened file or disk.
pub(crate) struct Opened {
    pub(crate) file: File,
    /// The disk, if it is not a file.
    pub(crate) disk: Option<Disk>,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Files and disks below this one, locked while these are open.
    pub(crate) below: Vec<File>,
}

/// Whether a file or disk could be opened in [`OpenMode::Exclusive`] now. If others use it and may
/// be leaving, tries again until `patience` is over.
///
/// # Errors
/// The reason why not.
pub fn check_unused(path: &Path, patience: Duration) -> Result<(), OpenError> {
    open(path, OpenMode::Exclusive, patience).map(drop)
}

/// Whether a file or disk could be opened in [`OpenMode::ReadOnly`] now.
///
/// # Errors
/// The reason why not.
pub fn check_readable(path: &Path) -> Result<(), OpenError> {
    open(path, OpenMode::ReadOnly, Duration::ZERO).map(drop)
}

/// Opens and locks `path`. Tries again while another process has it.
pub(crate) fn open(path: &Path, mode: OpenMode, patience: Duration) -> Result<Opened, OpenError> {
    let (began, system) = (Instant::now(), System::this());
    let mut is_told = false;
    loop {
        let opened = open_once(&system, path, mode);
        let (is_ending, is_hidden) = match &opened {
            Err(OpenError::Locked { ending, by, .. }) => (*ending, by.is_none()),
            Err(OpenError::Busy { ending, .. }) => (*ending, false),
            _ => return opened,
        };
        let mut patience = if is_hidden { patience.max(HIDDEN_PATIENCE) } else { patience };
        if is_disk(path) {
            patience = patience.max(UDEV_PATIENCE);
        }
        if is_ending && !plant::is(Bug::KilledNotWaitedFor) {
            patience = patience.max(ENDING_PATIENCE);
        }
        if began.elapsed() >= patience {
            return opened;
        }
        if is_ending && !is_told && began.elapsed() >= SILENCE {
            is_told = true;
            waits::tell(path, "waits for the last writes of a process that was killed");
        }
        std::thread::sleep(RETRY);
    }
}

fn is_disk(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn open_once(system: &System, path: &Path, mode: OpenMode) -> Result<Opened, OpenError> {
    let failed = |source| OpenError::io(path, source);
    let metadata = std::fs::metadata(path).map_err(failed)?;
    // The type is checked first, because opening some devices changes them.
    let disk = disk_of(path, &metadata)?;
    let below = disk.as_ref().map(|disk| system.below(disk, disk.bytes())).unwrap_or_default();
    if mode.is_writing() {
        refuse_if_used(system, path, disk.as_ref(), &below)?;
    }
    let opened = open_file(path, mode, disk.is_some()).map_err(failed);
    let file = opened.map_err(|error| guard::named(error, system, disk.as_ref()))?;
    let now = file.metadata().map_err(failed)?;
    if (now.dev(), now.ino()) != (metadata.dev(), metadata.ino()) {
        // Another file took the name meanwhile.
        return Err(OpenError::Busy { path: path.to_owned(), by: None, ending: false });
    }
    guard::lock(system, path, &file, mode)?;
    let below = guard::hold(system, path, &below, mode)?;
    let size = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|errno| failed(errno.into()))?;
    Ok(Opened { file, disk, size, below })
}

fn disk_of(path: &Path, metadata: &Metadata) -> Result<Option<Disk>, OpenError> {
    let kind = metadata.file_type();
    let found = if kind.is_file() {
        return Ok(None);
    } else if kind.is_block_device() {
        return Ok(Some(System::this().disk(DeviceNumber::new(metadata.rdev()))));
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a socket"
    };
    Err(OpenError::WrongKind { path: path.to_owned(), found })
}

fn refuse_if_used(
    system: &System,
    path: &Path,
    disk: Option<&Disk>,
    below: &[Level],
) -> Result<(), OpenError> {
    let top = match disk {
        Some(disk) => Some(Object::Disk(disk.number)),
        None => Object::at(path),
    };
    if let Some(device) = top.and_then(|top| system.shown_beside(top, below))
        && !plant::is(Bug::LoopsBesideAccepted)
    {
        let path = path.to_owned();
        return Err(match below {
            [] => OpenError::LoopBacking { path, device },
            _ => OpenError::ShownTwice { path, device },
        });
    }
    let used = match (disk, top) {
        (Some(disk), _) => use_of(disk).or_else(|| use_below(system, below)),
        (None, Some(file)) => swap(file, &path.display().to_string()),
        (None, None) => None,
    };
    match (used, disk) {
        (Some(Use::Mounted { device, at }), _) => {
            Err(OpenError::Mounted { device, mount_point: at })
        }
        (Some(Use::Held { device, by }), _) => Err(OpenError::Held { device, by }),
        (None, Some(disk)) if disk.is_read_only() => {
            Err(OpenError::ReadOnly { path: path.to_owned() })
        }
        (None, Some(disk)) => refuse_if_flushes_are_dropped(disk),
        (None, None) => Ok(()),
    }
}

/// A loop device always has a volatile cache: the page cache of the file behind it, or that of the
/// file's disk. If the kernel says otherwise, `write_cache` was changed, perhaps for another file
/// long ago: the mode outlives detaching.
fn refuse_if_flushes_are_dropped(disk: &Disk) -> Result<(), OpenError> {
    let dropping = disk.loops_below().into_iter().find(Disk::drops_flushes);
    match dropping.filter(|_| !plant::is(Bug::DroppedFlushesAccepted)) {
        Some(loop_device) => Err(OpenError::FlushesDropped { device: loop_device.name() }),
        None => Ok(()),
    }
}

fn open_file(path: &Path, mode: OpenMode, is_disk: bool) -> io::Result<File> {
    // On a disk, O_EXCL requires that nobody else (such as a mount) has claimed it.
    let flags = if mode == OpenMode::Exclusive && is_disk { OFlags::EXCL } else { OFlags::empty() };
    std::fs::OpenOptions::new()
        .read(true)
        .write(mode.is_writing())
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A disk as the kernel shows it.
    fn disk(dir: &Path, name: &str, cache: &str) -> PathBuf {
        let dir = dir.join(name);
        fs::create_dir_all(dir.join("queue")).unwrap();
        fs::create_dir_all(dir.join("slaves")).unwrap();
        fs::write(dir.join("dev"), "7:3\n").unwrap();
        fs::write(dir.join("queue/write_cache"), cache).unwrap();
        dir
    }

    #[test]
    fn loop_devices_that_drop_flushes_are_found() {
        for (cache, refused) in [("write back\n", false), ("write through\n", true)] {
            let dir = tempfile::tempdir().unwrap();
            let looped = disk(dir.path(), "loop3", cache);
            fs::create_dir(looped.join("loop")).unwrap();
            let partition = looped.join("loop3p1");
            fs::create_dir(&partition).unwrap();
            fs::write(partition.join("partition"), "1\n").unwrap();
            fs::write(partition.join("dev"), "259:0\n").unwrap();
            // A mapped device over the partition keeps the mode that it got when it was made.
            let mapped = disk(dir.path(), "dm-0", "write back\n");
            std::os::unix::fs::symlink(&partition, mapped.join("slaves/loop3p1")).unwrap();
            let other = disk(dir.path(), "sda", cache);
            for (dir, refused) in
                [(looped, refused), (partition, refused), (mapped, refused), (other, false)]
            {
                let disk = Disk::in_dir(dir.clone()).unwrap();
                let answer = refuse_if_flushes_are_dropped(&disk);
                assert_eq!(answer.is_err(), refused, "{}: {answer:?}", dir.display());
            }
        }
    }

    #[test]
    fn what_a_loop_device_shows_as_well_is_refused() {
        let machine = crate::levels::tests::Machine::new();
        let (path, _) = machine.file("image");
        let first = machine.looped(("loop3", "7:3"), &path, 0, 1 << 20);
        let refused = |path: &Path, disk: Option<&Disk>| {
            let below = disk.map(|disk| machine.system.below(disk, disk.bytes()));
            refuse_if_used(&machine.system, path, disk, &below.unwrap_or_default())
        };
        let error = refused(&path, None).unwrap_err();
        assert!(matches!(error, OpenError::LoopBacking { .. }), "{error:?}");
        refused(&machine.file("other").0, None).unwrap();
        refused(&path, Some(&first)).unwrap();
        machine.looped(("loop4", "7:4"), &path, 0, 1 << 20);
        let error = refused(&path, Some(&first)).unwrap_err();
        assert!(matches!(error, OpenError::ShownTwice { .. }), "{error:?}");
    }

    const LOCKED: &str = "MANYLOGS_TEST_LOCKED";

    /// Locks a file, sends it into the socket that is its standard input, and ends.
    #[test]
    #[ignore = "a part of the next"]
    fn locks_a_file_and_ends() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let Some(path) = std::env::var_os(LOCKED) else { return };
        let opened = open(Path::new(&path), OpenMode::Exclusive, Duration::ZERO).unwrap();
        let files = [std::os::fd::AsFd::as_fd(&opened.file)];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        assert!(message.push(SendAncillaryMessage::ScmRights(&files)));
        let bytes = [std::io::IoSlice::new(&[0])];
        sendmsg(std::io::stdin(), &bytes, &mut message, SendFlags::empty()).unwrap();
    }

    /// The kernel keeps the operations of a killed process's ring, and with them its locks. Here a
    /// socket keeps the file open.
    #[test]
    fn a_lock_that_outlives_its_process_is_waited_for() {
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixStream;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        fs::write(&path, "").unwrap();
        let (keeps, given) = UnixStream::pair().unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "open::tests::locks_a_file_and_ends", "--ignored"]);
        child.env(LOCKED, &path).env_remove("MANYLOGS_PLANT").stdin(OwnedFd::from(given));
        assert!(child.output().unwrap().status.success());
        let error = open_once(&System::this(), &path, OpenMode::Exclusive).err().unwrap();
        assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
        println!("{error}");
        let waiting =
            std::thread::spawn(move || open(&path, OpenMode::Exclusive, Duration::ZERO).map(drop));
        // Far longer than an opening takes that does not wait.
        std::thread::sleep(Duration::from_millis(300));
        drop(keeps);
        waiting.join().unwrap().unwrap();
    }
}
