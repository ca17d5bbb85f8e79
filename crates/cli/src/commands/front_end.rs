//! How an engine is exported by this process: a loop device, a file, over NBD.

use std::io;
use std::path::Path;

use manylogs_serve::{DeviceLink, Engine, FuseError, FuseFile, LoopDevice, mount_point, users_of};

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
    Nbd(NbdExport),
}

impl FrontEnd {
    /// Whether what `args` ask for can be had, as far as that is known without the engine.
    pub(super) fn check(args: &ServeArgs) -> Result<(), Failure> {
        if args.as_loop || args.file || args.nbd.nbd.is_some() {
            return Ok(());
        }
        Err(Failure::input("give --loop for a block device, --file for a file, or --nbd ADDRESS"))
    }

    /// Exports `engine`.
    pub(super) fn start(args: &ServeArgs, engine: &Engine) -> Result<Self, Failure> {
        let shown = Shown::start(args, engine)?;
        let link = match (&args.link, &shown) {
            (Some(path), Shown::Loop { device, .. }) => {
                link(path, device.path(), engine.about().volume).map(Some)
            }
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
            Shown::File(file) => file.path().display().to_string(),
            Shown::Loop { device, .. } => device.path().display().to_string(),
            Shown::Nbd(export) => export.uri(),
        }
    }

    /// Whether those who use it can go on with the next server: then a signal ends this one.
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
    fn start(args: &ServeArgs, engine: &Engine) -> Result<Self, Failure> {
        let (about, at) = (engine.about(), &args.volume.device);
        if let Some(address) = &args.nbd.nbd {
            return Ok(Self::Nbd(NbdExport::new(address, engine)));
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

    fn users(&self) -> Vec<String> {
        match self {
            Self::File(_) => Vec::new(),
            Self::Loop { device, .. } => users_of(device.path()),
            Self::Nbd(export) => export.users(),
        }
    }

    fn end(self) -> Result<(), String> {
        let in_use = !self.users().is_empty();
        match self {
            Self::File(file) => drop(file),
            Self::Nbd(export) => drop(export),
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
