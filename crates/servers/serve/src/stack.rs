//! From a path to an open volume: the device, the lock, recovery.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use manylogs::{OpenOptions, PatientReads, RecoveryReport, Volume, VolumeError, identify};
use manylogs_block::{BlockDevice, Handle, Nvram, Sectors};
use manylogs_storage::{
    Backend, FileDevice, OpenError, OpenMode, Reactor, VolumeLock, VolumeLockError,
};
use thiserror::Error;

/// How long to wait for the device of a killed server to become free.
pub const RESTART_PATIENCE: Duration = Duration::from_secs(3);

/// Why a device or the volume on it could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StackError {
    /// The system has no descriptors or threads left.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] io::Error),
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// The volume is open somewhere else.
    #[error(transparent)]
    Lock(#[from] VolumeLockError),
    /// There is no volume, it is damaged, or the device failed.
    #[error("{}: {error}", path.display())]
    Volume {
        /// The device.
        path: PathBuf,
        /// The fault.
        error: VolumeError,
    },
}

/// Options for opening a device.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// The disk, partition or image.
    pub path: PathBuf,
    /// Purpose of the opening.
    pub mode: OpenMode,
    /// Backend through which requests reach the kernel.
    pub backend: Backend,
    /// Size of a physical sector, where the device does not report it.
    pub physical_sector: Option<Sectors>,
    /// Time for which to retry while another process has the device open.
    pub patience: Duration,
}

impl StackOptions {
    /// The ordinary way to open the device at `path`.
    #[must_use]
    pub fn new(path: &Path, mode: OpenMode) -> Self {
        Self {
            path: path.to_owned(),
            mode,
            backend: Backend::Auto,
            physical_sector: None,
            patience: Duration::ZERO,
        }
    }
}

/// An open device, the runtime that drives it and, once taken, the lock of its volume. All of it
/// belongs to one thread.
pub struct Stack {
    /// Runs the tasks of all layers.
    pub reactor: Reactor,
    /// The device under the volume.
    pub device: Rc<dyn BlockDevice>,
    /// The same device, for reading labels and superblocks: see [`PatientReads`].
    pub reads: Rc<dyn BlockDevice>,
    path: PathBuf,
    lock: Option<VolumeLock>,
}

impl Stack {
    /// Opens the device.
    ///
    /// # Errors
    /// See [`StackError`].
    pub fn open(options: &StackOptions) -> Result<Self, StackError> {
        let reactor = Reactor::new().map_err(StackError::Runtime)?;
        let device = open(&reactor, &options.path, options)?;
        let reads = PatientReads::new(Rc::clone(&device), reactor.handle());
        Ok(Self { reactor, device, reads, path: options.path.clone(), lock: None })
    }

    /// Opens the device at `path` beside this one, in the same way and on the same runtime.
    ///
    /// # Errors
    /// See [`StackError`].
    pub fn beside(
        &self,
        path: &Path,
        options: &StackOptions,
    ) -> Result<Rc<dyn BlockDevice>, StackError> {
        open(&self.reactor, path, options)
    }

    /// From now on `reads` reports unreadable sectors as medium errors, which a repair needs.
    pub fn give_up_unreadable(&mut self) {
        self.reads = PatientReads::giving_up(Rc::clone(&self.device), self.runtime());
    }

    /// The runtime as layers see it.
    #[must_use]
    pub fn runtime(&self) -> Handle {
        self.reactor.handle()
    }

    /// Path of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `main` to its end.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        self.reactor.block_on(main)
    }

    /// Takes the lock of the volume's ID, so that no other volume with this ID is open on this
    /// machine: a copy of a disk has the ID of the original.
    ///
    /// # Errors
    /// If there is no volume, or it is open.
    pub fn lock(&mut self) -> Result<(), StackError> {
        let device = Rc::clone(&self.reads);
        let identity = self.run(async move { identify(&device).await });
        let identity = identity.map_err(|error| self.volume_error(error))?;
        self.lock_as(identity.volume)
    }

    /// Like [`Stack::lock`], for a volume or system with the ID `id`.
    ///
    /// # Errors
    /// If another process has it open.
    pub fn lock_as(&mut self, id: [u8; 16]) -> Result<(), StackError> {
        self.lock = Some(VolumeLock::take(id, &self.path)?);
        Ok(())
    }

    /// Opens the volume, under its lock if [`Stack::lock`] was called.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_volume(
        &self,
        options: OpenOptions,
    ) -> Result<(Volume, RecoveryReport), StackError> {
        let (runtime, device) = (self.runtime(), Rc::clone(&self.device));
        let opened = self.run(async move { Volume::open(runtime, device, &options).await });
        opened.map_err(|error| self.volume_error(error))
    }

    /// How to open a volume whose table is in `nvram`, or in the logs.
    #[must_use]
    pub fn options(nvram: Option<Rc<dyn Nvram>>, give_up_nvram: bool) -> OpenOptions {
        OpenOptions { nvram, give_up_nvram, ..OpenOptions::default() }
    }

    /// Wraps `error` as an error of this device's volume.
    #[must_use]
    pub fn volume_error(&self, error: VolumeError) -> StackError {
        StackError::Volume { path: self.path.clone(), error }
    }
}

fn open(
    reactor: &Reactor,
    path: &Path,
    options: &StackOptions,
) -> Result<Rc<dyn BlockDevice>, StackError> {
    let file = manylogs_storage::OpenOptions {
        backend: options.backend,
        physical_sector: options.physical_sector,
        patience: options.patience,
        ..manylogs_storage::OpenOptions::new(options.mode)
    };
    Ok(Rc::new(FileDevice::open(reactor, path, &file)?))
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("path", &self.path).finish_non_exhaustive()
    }
}
