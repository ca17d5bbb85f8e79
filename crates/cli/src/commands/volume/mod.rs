//! Commands on a volume that no other process has open.

pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod format;
pub(crate) mod maintain;
pub(crate) mod probe;
mod said_array;
pub(crate) mod set;
pub(crate) mod status;
mod table;

use std::future::Future;
use std::path::Path;
use std::rc::Rc;

use manylogs::{NvramError, OpenOptions, RecoveryReport, Volume, VolumeError};
use manylogs_block::{BlockDevice, Handle, Nanos, Nvram, Sectors};
use manylogs_operate::control::connect;
pub(crate) use manylogs_operate::status::id_text;
use manylogs_serve::{Stack, StackError, StackOptions};
use manylogs_storage::{OpenError, OpenMode, Reactor, VolumeLockError};

use super::{everest, gecko};
use crate::args::volume::{FormatArgs, VolumeArgs};
use crate::failure::Failure;

/// A device, and the command line's options for the volume on it.
pub(crate) struct Session {
    stack: Stack,
    pub(crate) device: Rc<dyn BlockDevice>,
    nvram: Option<Rc<dyn Nvram>>,
    give_up_table: bool,
}

impl Session {
    /// Opens the device, for reading or for changes.
    pub(crate) fn open(args: &VolumeArgs, mode: OpenMode) -> Result<Self, Failure> {
        let mut session = Self::open_with(args, mode, None)?;
        if let Some(table) = &args.table {
            session.nvram = Some(table::open(table, args.give_up_table)?);
        }
        Ok(session)
    }

    /// Like [`Session::open`], with the size of a physical sector where the device does not report
    /// it.
    pub(crate) fn open_with(
        args: &VolumeArgs,
        mode: OpenMode,
        physical_sector: Option<Sectors>,
    ) -> Result<Self, Failure> {
        let backend = args.backend.into();
        let options =
            StackOptions { backend, physical_sector, ..StackOptions::new(&args.device, mode) };
        let stack =
            Stack::open(&options).map_err(|error| in_use(&args.device, stack_failure(error)))?;
        let device = Rc::clone(&stack.device);
        Ok(Self { stack, device, nvram: None, give_up_table: args.give_up_table })
    }

    /// Opens another device beside the one of this session, to be formatted with it.
    pub(crate) fn beside(
        &self,
        args: &FormatArgs,
        path: &Path,
    ) -> Result<Rc<dyn BlockDevice>, Failure> {
        let options = StackOptions {
            backend: args.volume.backend.into(),
            physical_sector: args.physical_sector,
            ..StackOptions::new(path, OpenMode::Exclusive)
        };
        let opened = self.stack.beside(path, &options);
        opened.map_err(|error| in_use(path, stack_failure(error)))
    }

    pub(crate) const fn reactor(&self) -> &Reactor {
        &self.stack.reactor
    }

    pub(crate) fn runtime(&self) -> Handle {
        self.stack.runtime()
    }

    /// The device for reading labels and superblocks, see [`Stack::reads`].
    pub(crate) fn reads(&self) -> Rc<dyn BlockDevice> {
        Rc::clone(&self.stack.reads)
    }

    /// See [`Stack::give_up_unreadable`].
    pub(crate) fn give_up_unreadable(&mut self) {
        self.stack.give_up_unreadable();
    }

    pub(crate) fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        self.stack.run(main)
    }

    /// See [`Stack::lock`].
    pub(crate) fn lock(&mut self) -> Result<(), Failure> {
        self.stack.lock().map_err(|error| in_use(self.stack.path(), stack_failure(error)))
    }

    /// Opens the volume and prints what recovery found.
    pub(crate) fn open_volume(&mut self) -> Result<(Volume, RecoveryReport), Failure> {
        self.lock()?;
        self.open_copy()
    }

    /// Like [`Session::open_volume`], but without the lock: a volume of the same ID may be open.
    pub(crate) fn open_copy(&mut self) -> Result<(Volume, RecoveryReport), Failure> {
        self.open_with_options(self.options())
    }

    /// Like [`Session::open_copy`], with other options.
    pub(crate) fn open_with_options(
        &self,
        options: OpenOptions,
    ) -> Result<(Volume, RecoveryReport), Failure> {
        let opened = self.stack.open_volume(options);
        let (volume, report) = opened.map_err(stack_failure)?;
        if report.from_backup_superblock {
            eprintln!(
                "manylogs: {}: the first superblock is damaged, the copy at the end was used \
                 (manylogs check --repair restores it)",
                self.path().display()
            );
        }
        if report.reshaped {
            eprintln!(
                "manylogs: {}: the volume was made for an array of another shape; nothing is lost, \
                 but records are placed as on a single drive (manylogs drain {path}, then manylogs \
                 set {path} --geometry now)",
                self.path().display(),
                path = self.path().display()
            );
        }
        Ok((volume, report))
    }

    /// The options for opening the volume.
    pub(crate) fn options(&self) -> OpenOptions {
        Stack::options(self.nvram.clone(), self.give_up_table)
    }

    pub(crate) fn path(&self) -> &Path {
        self.stack.path()
    }

    /// The failure for an error of this session's volume.
    pub(crate) fn failure(&self, error: &VolumeError) -> Failure {
        volume_failure(self.path(), error)
    }
}

/// Adds the name of the server to `failure`, if the device is in use by a server.
pub(crate) fn in_use(device: &Path, failure: Failure) -> Failure {
    match (failure, connect(device)) {
        (Failure::Busy(_), Ok(server)) => {
            let process = server.pid().map_or_else(String::new, |pid| format!(" by process {pid}"));
            let device = device.display();
            Failure::Busy(format!(
                "{device} is served{process}: end its server first (manylogs stop {device})"
            ))
        }
        (failure, _) => failure,
    }
}

/// The failure, with its exit code, for a device or volume that cannot be opened.
pub(crate) fn stack_failure(error: StackError) -> Failure {
    match error {
        StackError::Device(error) => open_failure(&error),
        StackError::Lock(error) => lock_failure(&error),
        StackError::Volume { path, error } => volume_failure(&path, &error),
        error => Failure::failed(error),
    }
}

fn lock_failure(error: &VolumeLockError) -> Failure {
    match error {
        VolumeLockError::Taken { .. } => Failure::Busy(error.to_string()),
        VolumeLockError::NoDirectory => Failure::input(error),
        VolumeLockError::Io { source, .. } => Failure::of_io(source, error),
        _ => Failure::failed(error),
    }
}

/// The failure, with its exit code, for a file or disk that cannot be opened.
pub(crate) fn open_failure(error: &OpenError) -> Failure {
    let message = error.to_string();
    match error {
        OpenError::Permission { .. } | OpenError::ReadOnly { .. } => Failure::Permission(message),
        OpenError::Mounted { .. }
        | OpenError::Held { .. }
        | OpenError::LoopBacking { .. }
        | OpenError::ShownTwice { .. }
        | OpenError::Busy { .. }
        | OpenError::Locked { .. } => Failure::Busy(message),
        OpenError::Io { source, .. } => Failure::of_io(source, message),
        _ => Failure::Input(message),
    }
}

pub(crate) fn volume_failure(path: &Path, error: &VolumeError) -> Failure {
    if matches!(error, VolumeError::NotAVolume) {
        let other = gecko::not_a_volume(path).or_else(|| everest::not_a_volume(path));
        if let Some(failure) = other {
            return failure;
        }
    }
    let message = format!("{}: {error}", path.display());
    match error {
        VolumeError::Version { .. } | VolumeError::Features { .. } => Failure::TooNew(message),
        VolumeError::Nvram(NvramError::Version { .. }) => Failure::TooNew(message),
        VolumeError::Nvram(NvramError::Damaged(_))
        | VolumeError::Damaged { .. }
        | VolumeError::Lost { .. }
        | VolumeError::Superblock
        | VolumeError::NoRoot
        | VolumeError::StaleRoot => Failure::Loss(message),
        VolumeError::Io(_) | VolumeError::NotRead { .. } | VolumeError::Closed => {
            Failure::Failed(message)
        }
        _ => Failure::Input(message),
    }
}

/// A length with a unit.
pub(crate) fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            let digits = if unit == "bytes" || value >= 100.0 { 0 } else { 1 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

/// The bytes that a closed volume leaves in its logs, in words.
pub(crate) fn stay_logged(at_risk_bytes: u64, zeroed_bytes: u64) -> String {
    let data = human(at_risk_bytes.saturating_sub(zeroed_bytes));
    match zeroed_bytes {
        0 => format!("{data} stay logged"),
        zeroes => format!("{data} and {} of zeroes stay logged", human(zeroes)),
    }
}

/// A time with a unit.
pub(crate) fn span(time: Nanos) -> String {
    let seconds = time.0 as f64 / 1e9;
    match seconds {
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
