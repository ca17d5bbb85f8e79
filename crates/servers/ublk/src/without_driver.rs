//! Replacement of the device in a program without the driver's library.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use crate::{UblkError, UblkOptions};

/// A device that cannot exist, because the program was built without the driver's library.
#[derive(Debug)]
pub struct UblkDevice(Infallible);

/// Finds no device.
///
/// # Errors
/// Never fails.
pub fn remove_orphan(_: &Path) -> Result<Option<PathBuf>, UblkError> {
    Ok(None)
}

impl UblkDevice {
    /// Reports that the program was built without the driver's library.
    ///
    /// # Errors
    /// Always.
    pub fn start(_: UblkOptions, _: impl FnOnce() + Send + 'static) -> Result<Self, UblkError> {
        Err(UblkError::NotBuilt)
    }

    /// Path of the device. Never called.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Whether it was taken over from a server that was killed.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        match self.0 {}
    }

    /// Ends the device. Never called.
    ///
    /// # Errors
    /// Never fails.
    pub fn stop(self, _: bool) -> Result<(), UblkError> {
        match self.0 {}
    }
}
