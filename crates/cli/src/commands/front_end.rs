//! How an engine is exported by this process: a loop device, a file, a ublk device, over NBD.

use std::io;
use std::path::{Path, PathBuf};

use manylogs_serve::log::{Level, line};
use manylogs_serve::{
    DeviceLink, Engine, FuseError, FuseFile, LoopDevice, mount_point, ublk_note, users_of,
};
use manylogs_storage::prefer_this_thread;
use manylogs_ublk::{Cache, Export, UblkDevice, UblkError, identity};

use super::nbd::NbdExport;
use super::volume::id_text;
use crate::args::serve::ServeArgs;
use crate::failure::Failure;

/// What appears of an engine.
pub(super) struct FrontEnd {
    shown: Shown,
    link: Option<DeviceLink>,
}

enum Shown {
    File(FuseFile),
    Loop { device: LoopDevice, file: FuseFile },
    Ublk(Box<UblkDevice>),
    Nbd(NbdExport),
}

impl FrontEnd {
    /// Whether what `args` ask for can be had, as far as that is known without the engine.
    pub(super) fn check(args: &ServeArgs) -> Result<(), Failure> {
        if args.ublk {
            return manylogs_ublk::check().map_err(ublk_failure);
        }
        if args.as_loop || args.file || args.nbd.nbd.is_some() {
            return Ok(());
        }
        Err(Failure::input(
            "give --loop or --ublk for a block device, --file for a file, or --nbd ADDRESS",
        ))
    }

    /// Exports `engine`. `gone` is called if somebody else takes the device away.
    pub(super) fn start(
        args: &ServeArgs,
        engine: &Engine,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Failure> {
        let shown = Shown::start(args, engine, gone)?;
        let link = match (&args.link, shown.device()) {
            (Some(path), Some(device)) => link(path, device, engine.about().volume).map(Some),
            _ => Ok(None),
        };
        match link {
            Ok(link) => Ok(Self { shown, link }),
            Err(failure) => {
                // Nobody else would.
                let _ = shown.end();
                Err(failure)
            }
        }
    }

    /// What its users call it: a path, or a URI.
    pub(super) fn name(&self) -> String {
        match &self.shown {
            Shown::Nbd(export) => export.uri(),
            Shown::File(file) => file.path().display().to_string(),
            Shown::Loop { device, .. } => device.path().display().to_string(),
            Shown::Ublk(device) => device.path().display().to_string(),
        }
    }

    /// Whether its users connect to the next server by themselves: then a signal ends this one.
    pub(super) const fn users_come_back(&self) -> bool {
        matches!(self.shown, Shown::Nbd(_))
    }

    /// Who uses it; nobody knows that of a file.
    pub(super) fn users(&self) -> Vec<String> {
        self.shown.users()
    }

    /// Takes it away, even from its users.
    pub(super) fn end(self) -> Result<(), String> {
        drop(self.link);
        self.shown.end()
    }
}

impl Shown {
    fn start(
        args: &ServeArgs,
        engine: &Engine,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Failure> {
        let (about, at) = (engine.about(), &args.volume.device);
        if let Some(address) = &args.nbd.nbd {
            return Ok(Self::Nbd(NbdExport::new(address, engine)));
        }
        if args.ublk {
            let note = ublk_note(at).map_err(Failure::failed)?;
            let export = Export {
                port: engine.port(),
                capabilities: about.capabilities,
                cache: if args.write_back { Cache::WriteBack } else { Cache::WriteThrough },
                identity: identity(&note, about.volume),
                note,
            };
            let device = UblkDevice::start(export, gone).map_err(ublk_failure)?;
            if device.is_recovered() {
                let message = format!("{} goes on: its server was killed", device.path().display());
                line(Level::Info, Some(at), &message, &[]);
            }
            return Ok(Self::Ublk(Box::new(device)));
        }
        if args.emulate.is_some() {
            // Whoever carries the drive's requests must not be late either, and inherits this. If
            // it is refused the drive may be late, which its report says.
            let _ = prefer_this_thread();
        }
        let place = mount_point(at).map_err(Failure::failed)?;
        let file = FuseFile::mount(engine.port(), about.capabilities, &place);
        let file = file.map_err(fuse_failure)?;
        if !args.as_loop {
            return Ok(Self::File(file));
        }
        let device = LoopDevice::attach(file.path(), about.capabilities.rotational);
        Ok(Self::Loop { device: device.map_err(Failure::failed)?, file })
    }

    /// The block device, if it is one.
    fn device(&self) -> Option<&Path> {
        match self {
            Self::File(_) | Self::Nbd(_) => None,
            Self::Loop { device, .. } => Some(device.path()),
            Self::Ublk(device) => Some(device.path()),
        }
    }

    fn users(&self) -> Vec<String> {
        match self {
            Self::Nbd(export) => export.users(),
            _ => self.device().map(users_of).unwrap_or_default(),
        }
    }

    fn end(self) -> Result<(), String> {
        let in_use = !self.users().is_empty();
        match self {
            Self::File(file) => drop(file),
            Self::Nbd(export) => drop(export),
            Self::Ublk(device) => device.stop(in_use).map_err(|error| error.to_string())?,
            Self::Loop { device, file } => {
                let detached = device.detach();
                if in_use {
                    file.abandon();
                } else {
                    drop(file);
                }
                detached.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}

/// Removes the ublk device that a killed server of the device at `path` left; its name.
pub(super) fn remove_orphan(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let note = ublk_note(path).map_err(Failure::failed)?;
    manylogs_ublk::remove_orphan(&note).map_err(ublk_failure)
}

fn link(path: &Path, device: &Path, volume: Option<[u8; 16]>) -> Result<DeviceLink, Failure> {
    let is_dir = path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir();
    let path = match volume {
        Some(id) if is_dir => path.join(id_text(&id)),
        _ => path.to_owned(),
    };
    DeviceLink::make(&path, device).map_err(|error| {
        let message = format!("cannot make the link {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::Busy(message),
            io::ErrorKind::PermissionDenied => Failure::Permission(message),
            _ => Failure::Input(message),
        }
    })
}

fn fuse_failure(error: FuseError) -> Failure {
    match &error {
        FuseError::Mount { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Failure::Permission(error.to_string())
        }
        _ => Failure::failed(error),
    }
}

fn ublk_failure(error: UblkError) -> Failure {
    match &error {
        UblkError::Control(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            Failure::Permission(error.to_string())
        }
        UblkError::OtherCache { .. } => Failure::Busy(error.to_string()),
        _ => Failure::failed(error),
    }
}
