//! Front ends: the file, block device or socket through which users reach a served device.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thiserror::Error;

use crate::address::NbdAddress;
use crate::engine::Engine;
use crate::fuse::FuseFile;
use crate::link::DeviceLink;
use crate::loop_device::LoopDevice;
use crate::users::users_of;
use manylogs_operate::status::id_text;

/// A way to reach a served device, which exists until it is ended.
pub trait FrontEnd: fmt::Debug {
    /// Name for users: a path, or a URI.
    fn name(&self) -> String;

    /// The block device, if it is one.
    fn device(&self) -> Option<&Path> {
        None
    }

    /// Its users, as far as they can be found out; users of a plain file cannot.
    fn users(&self) -> Vec<String> {
        self.device().map(users_of).unwrap_or_default()
    }

    /// Whether its users connect to the next server by themselves. A signal then ends this server
    /// while they are connected.
    fn users_come_back(&self) -> bool {
        false
    }

    /// Removes the front end. If it is `in_use`, its users see errors from then on.
    ///
    /// # Errors
    /// If the system refuses. The server ends all the same.
    fn end(self: Box<Self>, in_use: bool) -> Result<(), Box<dyn Error + Send + Sync>>;
}

impl FrontEnd for FuseFile {
    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn end(self: Box<Self>, _: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

/// A loop device over a file.
#[derive(Debug)]
pub struct LoopFrontEnd {
    /// The device.
    pub device: LoopDevice,
    /// The file that it is attached to.
    pub file: FuseFile,
}

impl FrontEnd for LoopFrontEnd {
    fn name(&self) -> String {
        self.device.path().display().to_string()
    }

    fn device(&self) -> Option<&Path> {
        Some(self.device.path())
    }

    fn end(self: Box<Self>, in_use: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        let detached = self.device.detach();
        if in_use {
            self.file.abandon();
        }
        Ok(detached?)
    }
}

/// The engine's socket for NBD clients. The socket is removed when this is dropped.
#[derive(Debug)]
pub struct NbdFrontEnd {
    address: NbdAddress,
    connections: Arc<AtomicUsize>,
}

impl NbdFrontEnd {
    /// The front end of `engine`, which was started with the listener of `address`.
    #[must_use]
    pub fn new(address: &NbdAddress, engine: &Engine) -> Self {
        Self { address: address.clone(), connections: engine.connections() }
    }
}

impl FrontEnd for NbdFrontEnd {
    fn name(&self) -> String {
        self.address.uri(false)
    }

    fn users(&self) -> Vec<String> {
        match self.connections.load(Ordering::SeqCst) {
            0 => Vec::new(),
            count => vec![format!("{count} NBD connections")],
        }
    }

    fn users_come_back(&self) -> bool {
        true
    }

    fn end(self: Box<Self>, _: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

impl Drop for NbdFrontEnd {
    fn drop(&mut self) {
        self.address.remove_socket();
    }
}

/// Why a symbolic link to the device was not made.
#[derive(Debug, Error)]
#[error("cannot make the link {}: {source}", path.display())]
pub struct LinkError {
    /// The link.
    pub path: PathBuf,
    /// The kernel's answer.
    pub source: io::Error,
}

/// A front end, and the symbolic link to its device if the user wants one.
#[derive(Debug)]
pub struct Shown {
    front_end: Box<dyn FrontEnd>,
    link: Option<DeviceLink>,
}

impl Shown {
    /// Shows `front_end`, with a symbolic link at `link` to its block device. Where `link` is a
    /// directory, the name of the link is the id of the volume.
    ///
    /// # Errors
    /// If the link cannot be made. The front end is removed again.
    pub fn new(
        front_end: Box<dyn FrontEnd>,
        link: Option<&Path>,
        volume: Option<[u8; 16]>,
    ) -> Result<Self, LinkError> {
        let made = match (link, front_end.device()) {
            (Some(path), Some(device)) => make_link(path, device, volume).map(Some),
            _ => Ok(None),
        };
        match made {
            Ok(link) => Ok(Self { front_end, link }),
            Err(error) => {
                // Returns the link's error, because the user can mend its cause.
                let _ = end(front_end);
                Err(error)
            }
        }
    }

    /// See [`FrontEnd::name`].
    #[must_use]
    pub fn name(&self) -> String {
        self.front_end.name()
    }

    /// See [`FrontEnd::users`].
    #[must_use]
    pub fn users(&self) -> Vec<String> {
        self.front_end.users()
    }

    /// See [`FrontEnd::users_come_back`].
    #[must_use]
    pub fn users_come_back(&self) -> bool {
        self.front_end.users_come_back()
    }

    /// Removes the link and the front end, even if they are in use.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn end(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        drop(self.link);
        end(self.front_end)
    }
}

fn end(front_end: Box<dyn FrontEnd>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let in_use = !front_end.users().is_empty();
    front_end.end(in_use)
}

fn make_link(
    path: &Path,
    device: &Path,
    volume: Option<[u8; 16]>,
) -> Result<DeviceLink, LinkError> {
    let is_dir = path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir();
    let path = match volume {
        Some(id) if is_dir => path.join(id_text(&id)),
        _ => path.to_owned(),
    };
    DeviceLink::make(&path, device).map_err(|source| LinkError { path, source })
}
