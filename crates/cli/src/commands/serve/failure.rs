//! The exit code of `manylogs serve`, and of orders to a server, for each thing that can go wrong.

use std::io;
use std::path::Path;

use manylogs_everest::{LenderError, OffloadError, StoreError};
use manylogs_operate::control::{ControlError, OrderErrorKind};
use manylogs_serve::nbdkit::NbdkitError;
use manylogs_serve::{FuseError, KeyError, LinkError, ListenError, ServeError};
use manylogs_ublk::UblkError;

use crate::commands::gecko::refused;
use crate::commands::volume::stack_failure;
use crate::failure::Failure;

pub(crate) fn control_failure(error: ControlError) -> Failure {
    match &error {
        ControlError::NotServed { .. }
        | ControlError::NoDevice { .. }
        | ControlError::NoDirectory { .. } => Failure::input(error),
        ControlError::Io { source, .. } => Failure::of_io(source, &error),
        ControlError::Refused(refused) => match refused.kind {
            OrderErrorKind::InUse => Failure::Busy(error.to_string()),
            OrderErrorKind::BadInput => Failure::input(error),
            OrderErrorKind::Failed => Failure::failed(error),
        },
        _ => Failure::failed(error),
    }
}

pub(crate) fn ublk_failure(error: UblkError) -> Failure {
    match &error {
        UblkError::Control(source) => Failure::of_io(source, &error),
        UblkError::OtherCache { .. } => Failure::Busy(error.to_string()),
        _ => Failure::failed(error),
    }
}

pub(crate) fn serve_failure(error: ServeError) -> Failure {
    match error {
        ServeError::Stack(error) => stack_failure(error),
        ServeError::Chain(error) => refused(&error),
        error @ (ServeError::Table { .. } | ServeError::Drive(_) | ServeError::Content(_)) => {
            Failure::input(error)
        }
        error @ (ServeError::NotABase { .. }
        | ServeError::OwnDisk { .. }
        | ServeError::Place(_)
        | ServeError::OtherSize { .. }) => Failure::input(error),
        ServeError::Offload { path, error } => offload_failure(&path, &error),
        ServeError::Store { path, error } => store_failure(&path, &error),
        error => Failure::failed(error),
    }
}

/// What the exit code says of a machine that has no key.
pub(crate) fn key_failure(error: KeyError) -> Failure {
    match &error {
        KeyError::Io { error: source, .. } => Failure::of_io(source, &error),
        _ => Failure::input(error),
    }
}

/// What the exit code says of a base volume that cannot be opened.
pub(crate) fn offload_failure(path: &Path, error: &OffloadError) -> Failure {
    let message = format!("{}: {error}", path.display());
    match error {
        OffloadError::NoHeader => Failure::Loss(message),
        OffloadError::Store { source: LenderError::Foreign, .. } => Failure::Busy(message),
        OffloadError::Base(_) | OffloadError::Store { .. } => Failure::Failed(message),
        _ => Failure::Input(message),
    }
}

/// The failure, with its exit code, for a store that cannot be lent.
pub(crate) fn store_failure(path: &Path, error: &StoreError) -> Failure {
    let message = format!("{}: {error}", path.display());
    match error {
        StoreError::Version { .. } => Failure::TooNew(message),
        StoreError::Damaged { .. } | StoreError::NoRoot | StoreError::StaleRoot => {
            Failure::Loss(message)
        }
        StoreError::Io(_) => Failure::Failed(message),
        _ => Failure::Input(message),
    }
}

pub(crate) fn listen_failure(error: ListenError) -> Failure {
    let message = error.to_string();
    match error {
        error if error.is_permission() => Failure::Permission(message),
        error if error.is_taken() => Failure::Busy(message),
        _ => Failure::Input(message),
    }
}

pub(super) fn nbdkit_failure(error: NbdkitError) -> Failure {
    match error {
        NbdkitError::Listen(error) => listen_failure(error),
        error @ NbdkitError::NoPluginAt { .. } => Failure::input(error),
        error => Failure::failed(error),
    }
}

pub(super) fn fuse_failure(error: FuseError) -> Failure {
    match &error {
        FuseError::Mount { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Failure::Permission(format!(
                "{error}: run as root, or serve over NBD (--nbd unix:PATH)"
            ))
        }
        _ => Failure::failed(error),
    }
}

pub(super) fn link_failure(error: LinkError) -> Failure {
    let message = error.to_string();
    match error.source.kind() {
        io::ErrorKind::AlreadyExists => Failure::Busy(message),
        io::ErrorKind::PermissionDenied => Failure::Permission(message),
        _ => Failure::Input(message),
    }
}
