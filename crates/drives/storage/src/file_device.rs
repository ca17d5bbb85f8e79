//! A disk, a partition or a file, open as a block device.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, ExtentKind, Extents, Geometry, PowerCommand,
    PowerState, Request, SECTOR_BYTES, Sectors,
};
use manylogs_plant::{self as plant, Bug};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::access::{Access, FUSE, bypass_cache, is_in_memory, lies_in};
use crate::attached::may_change;
use crate::device::{Core, Medium};
use crate::driver::DeviceIo;
use crate::holes;
use crate::open::{self, OpenError, OpenMode};
use crate::priority::may_prefer_io;
use crate::reactor::Reactor;
use crate::safe_mode::LongDelays;
use crate::sysfs::{Disk, System};

/// Backend through which requests reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Through `io_uring`. Through threads if the system forbids that, and for a file of FUSE.
    #[default]
    Auto,
    /// Through `io_uring`.
    Uring,
    /// As blocking calls on a few threads.
    Threads,
}

/// Options for opening a [`FileDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Purpose of the opening.
    pub mode: OpenMode,
    /// Backend through which requests reach the kernel.
    pub backend: Backend,
    /// Physical sector, if the device does not report it (a file reports one sector) or reports it
    /// wrongly.
    pub physical_sector: Option<Sectors>,
    /// Whether discards reach the device. If not, an image keeps its allocated space.
    pub discard: bool,
    /// How long to retry while another process has the device open or locked: the kernel may take a
    /// moment to close what a killed process had under way.
    pub patience: Duration,
}

impl OpenOptions {
    /// The ordinary way to open a device in `mode`.
    #[must_use]
    pub const fn new(mode: OpenMode) -> Self {
        Self {
            mode,
            backend: Backend::Auto,
            physical_sector: None,
            discard: true,
            patience: Duration::ZERO,
        }
    }
}

/// An open disk, partition or file. Dropping it waits for I/O in flight, then closes it.
///
/// A flush is `fdatasync`, a durable write is `RWF_DSYNC`. After either has failed, every later
/// flush fails with [`manylogs_block::IoError::FlushFailed`]: the kernel reports a failure once and
/// then forgets the data. A later durable write that succeeds is still durable.
///
/// The length is the one at opening. If a file is truncated below it, reads and flushes fail with
/// [`manylogs_block::IoError::Shrunk`]. If a write then makes the file longer again, other requests
/// do not notice.
pub struct FileDevice {
    core: Rc<Core>,
    path: PathBuf,
    backend: Backend,
    /// The array that the device is or lies on.
    geometry: Option<Geometry>,
    /// Whether an array below holds each sector on more than one drive.
    has_copies: bool,
    /// What arrays of md's below do otherwise while this device may be written.
    _delays: Option<LongDelays>,
    /// Locks that keep others from the devices and files that this one lies on.
    _below: Vec<File>,
}

impl FileDevice {
    /// Opens and locks the device at `path`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(reactor: &Reactor, path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let sector = options.physical_sector.filter(|sector| !sector.0.is_power_of_two());
        if let Some(sector) = sector {
            return Err(OpenError::PhysicalSector { sectors: sector.0 });
        }
        let backend = choose(reactor, options.backend)?;
        let mut opened = open::open(path, options.mode, options.patience)?;
        let failed = |source: Errno| OpenError::io(path, source.into());
        let access =
            bypass_cache(&opened.file, opened.disk.is_some(), opened.size).map_err(failed)?;
        let writable = options.mode.is_writing();
        let capabilities = capabilities(&opened, options, access).map_err(failed)?;
        let medium = match &opened.disk {
            Some(disk) => {
                Medium::Disk { discards: options.discard && disk.limit("discard_max_bytes") > 0 }
            }
            None => Medium::File,
        };
        let automatic = options.backend == Backend::Auto;
        // If a FUSE server takes a part of a write, the kernel's ring writes the rest to the start
        // of the range again, and reports that all of it is written (seen with Linux 6.18).
        let backend =
            if automatic && lies_in(&opened.file, FUSE) { Backend::Threads } else { backend };
        let by_ring = backend == Backend::Uring;
        // A write through the page cache reaches the disk later, in a request of the kernel's own,
        // which does not carry our priority.
        let priorities = by_ring
            && access.is_direct()
            && opened.disk.as_ref().is_some_and(Disk::has_priorities)
            && may_prefer_io();
        let in_memory = automatic && is_in_memory(&opened);
        let io = DeviceIo { driver: Rc::clone(reactor.driver()), by_ring, in_memory };
        let geometry = opened.disk.as_ref().and_then(|disk| System::this().geometry(disk));
        let has_copies = opened.disk.as_ref().is_some_and(|disk| System::this().has_copies(disk));
        let written = opened.disk.as_ref().filter(|_| writable);
        let delays = written.map(|disk| LongDelays::of(&System::this(), disk));
        let below = std::mem::take(&mut opened.below);
        let core = Core {
            file: Arc::new(opened.file),
            io: Box::new(io),
            capabilities,
            medium,
            writable,
            access,
            priorities,
            gate: Rc::default(),
            in_flight: 0.into(),
            flush_failed: false.into(),
            spindle: opened.disk.as_ref().and_then(crate::spindle::Spindle::of),
        };
        let (core, path) = (Rc::new(core), path.to_owned());
        Ok(Self { core, path, backend, geometry, has_copies, _delays: delays, _below: below })
    }

    /// The backend through which requests reach the kernel: the one that [`Backend::Auto`] chose.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// Whether I/O bypasses the page cache. It does not if the file system refuses, or if a file's
    /// length is not a multiple of the unit of its direct I/O.
    #[must_use]
    pub fn direct(&self) -> bool {
        self.core.access.is_direct()
    }

    /// The logical sector, which direct I/O reads and writes as a whole. A write of a part of it
    /// reads the rest first.
    #[must_use]
    pub fn logical_sector(&self) -> Sectors {
        self.core.access.unit()
    }

    /// Path under which the device was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the device is a disk or a partition, not a file.
    #[must_use]
    pub fn is_disk(&self) -> bool {
        self.core.medium != Medium::File
    }
}

impl BlockDevice for FileDevice {
    fn capabilities(&self) -> Capabilities {
        self.core.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        self.core.submit(request)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.core.submit_urgent(request)
    }

    fn has_priorities(&self) -> bool {
        self.core.priorities
    }

    fn geometry(&self) -> Option<Geometry> {
        self.geometry
    }

    fn has_copies(&self) -> bool {
        self.has_copies
    }

    fn power(&self, command: PowerCommand) -> Completion<PowerState> {
        crate::spindle::power(&self.core, command)
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        let inside = self.core.capabilities.check(&Request::Read { extent: within });
        match (inside, self.core.medium) {
            (Err(error), _) => Completion::ready(Err(error)),
            // The kernel does not know which sectors of a disk hold data.
            (Ok(()), Medium::Disk { .. }) => {
                Completion::ready(Ok(Extents::of(within, ExtentKind::Data)))
            }
            (Ok(()), Medium::File) => holes::extents(&self.core, within),
        }
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        self.core.drain();
    }
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileDevice")
            .field("path", &self.path)
            .field("backend", &self.backend)
            .field("access", &self.core.access)
            .finish_non_exhaustive()
    }
}

fn choose(reactor: &Reactor, wanted: Backend) -> Result<Backend, OpenError> {
    match wanted {
        Backend::Threads => Ok(Backend::Threads),
        Backend::Auto if reactor.driver().open_ring().is_err() => Ok(Backend::Threads),
        Backend::Auto => Ok(Backend::Uring),
        Backend::Uring => match reactor.driver().open_ring() {
            Ok(()) => Ok(Backend::Uring),
            Err(source) => Err(OpenError::NoUring { source }),
        },
    }
}

fn capabilities(
    opened: &open::Opened,
    options: &OpenOptions,
    access: Access,
) -> Result<Capabilities, Errno> {
    let capacity = Sectors(opened.size / SECTOR_BYTES);
    let discard = options.discard && options.mode.is_writing();
    let holes = discard && opened.disk.is_none() && punches_holes(opened);
    let told = match &opened.disk {
        Some(disk) => Capabilities {
            capacity,
            physical_sector: Sectors::from_bytes_ceil(
                rustix::fs::ioctl_blkpbszget(&opened.file)?.into(),
            ),
            untorn: disk.untorn(),
            rotational: disk.queue("rotational").is_none_or(|value| value != "0"),
            volatile_cache: is_volatile(Some(disk), access),
            native_fua: access.is_direct() && disk.queue("fua").is_some_and(|value| value == "1"),
            // A disk that discards but cannot zero promises nothing about the content.
            discard: discard
                && disk.limit("discard_max_bytes") > 0
                && disk.limit("write_zeroes_max_bytes") > 0,
            // A rotational drive writes the zeroes to the platters, whoever makes them.
            fast_zero: discard
                && disk.limit("write_zeroes_max_bytes") > 0
                && disk.queue("rotational").is_some_and(|value| value == "0"),
        },
        None => Capabilities {
            capacity,
            physical_sector: Sectors(1),
            untorn: Sectors(1),
            rotational: true,
            volatile_cache: is_volatile(None, access),
            native_fua: false,
            discard: holes,
            fast_zero: holes,
        },
    };
    let physical_sector = options.physical_sector.unwrap_or(told.physical_sector);
    // A file says nothing of what lies below it.
    let untorn = if opened.disk.is_some() { told.untorn } else { physical_sector };
    Ok(Capabilities { physical_sector, untorn, ..told })
}

/// Whether writes may be lost with the power until a flush. They are safe if all of this holds:
/// they go past the page cache, the disk is hardware, the kernel says that the disk has no volatile
/// cache, and nobody can turn one on meanwhile. A virtual disk (loop, device mapper, array,
/// network) says what its driver knows, not what its medium does.
///
/// The cache of a SCSI or ATA disk can be turned on at any time: by its administrator, by a server
/// of another partition that ends, and by the drive itself after it lost power. The kernel learns
/// of that. A flush that the disk does not need ends in the kernel at once.
fn is_volatile(disk: Option<&Disk>, access: Access) -> bool {
    let Some(disk) = disk else { return !plant::is(Bug::FileTakenForDurable) };
    let cached = !access.is_direct() && !plant::is(Bug::CachedTakenForDurable);
    let hardware = disk.is_hardware() || plant::is(Bug::VirtualDiskTakenForDurable);
    let fixed = !may_change(disk) || plant::is(Bug::CacheTakenForFixed);
    cached || !hardware || !fixed || !disk.drops_flushes()
}

/// Whether the file system can give up parts of the file. Tried behind the file's end, where there
/// is no data.
fn punches_holes(opened: &open::Opened) -> bool {
    let behind = opened.size.next_multiple_of(1 << 20);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&opened.file, flags, behind, 1 << 20).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::access::TMPFS;

    /// A disk as the kernel shows it.
    fn disk(dir: &Path, cache: Option<&str>, hardware: bool) -> Disk {
        fs::create_dir_all(dir.join("queue")).unwrap();
        fs::write(dir.join("dev"), "8:16\n").unwrap();
        if let Some(cache) = cache {
            fs::write(dir.join("queue/write_cache"), cache).unwrap();
        }
        if hardware {
            fs::create_dir(dir.join("device")).unwrap();
        }
        Disk::in_dir(dir.to_owned()).unwrap()
    }

    #[test]
    fn only_direct_writes_to_hardware_without_a_cache_are_durable_without_a_flush() {
        let direct = Access::Direct { unit: Sectors(8) };
        for (access, cache, hardware, volatile) in [
            (direct, Some("write through\n"), true, false),
            (Access::Cached, Some("write through\n"), true, true),
            (direct, Some("write back\n"), true, true),
            (direct, Some("write through\n"), false, true),
            (direct, Some("something new\n"), true, true),
            (direct, None, true, true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let disk = disk(dir.path(), cache, hardware);
            assert_eq!(is_volatile(Some(&disk), access), volatile, "{access:?} {cache:?}");
            let partition = dir.path().join("sdb1");
            fs::create_dir(&partition).unwrap();
            fs::write(partition.join("partition"), "1\n").unwrap();
            fs::write(partition.join("dev"), "8:17\n").unwrap();
            let partition = Disk::in_dir(partition).unwrap();
            assert_eq!(is_volatile(Some(&partition), access), volatile, "{access:?} {cache:?}");
        }
        assert!(is_volatile(None, direct) && is_volatile(None, Access::Cached), "files are");
    }

    #[test]
    fn a_cache_that_is_off_can_be_turned_on_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk(dir.path(), Some("write through\n"), true);
        let direct = Access::Direct { unit: Sectors(8) };
        assert!(!is_volatile(Some(&disk), direct));
        let attribute = dir.path().join("device/scsi_disk/0:0:0:0");
        fs::create_dir_all(&attribute).unwrap();
        fs::write(attribute.join("cache_type"), "write through\n").unwrap();
        assert!(is_volatile(Some(&disk), direct));
    }

    #[test]
    fn a_disk_is_not_in_memory_although_its_node_is() {
        let Some(file) = tempfile::tempfile_in("/dev/shm").ok().filter(|f| lies_in(f, TMPFS))
        else {
            return manylogs_testkit::skip("/dev/shm is not in memory");
        };
        let dir = tempfile::tempdir().unwrap();
        let mut opened = open::Opened { file, disk: None, size: 0, below: Vec::new() };
        assert!(is_in_memory(&opened));
        opened.disk = Some(disk(dir.path(), None, true));
        assert!(!is_in_memory(&opened));
    }
}
