//! What stands for a device where none can be made.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use crate::{UblkError, UblkOptions};

/// There is none: the program was built without the driver's library.
#[derive(Debug)]
pub struct UblkDevice(Infallible);

/// Finds none.
///
/// # Errors
/// None.
pub fn remove_orphan(_: &Path) -> Result<Option<PathBuf>, UblkError> {
    Ok(None)
}

impl UblkDevice {
    /// Says that it cannot be done.
    ///
    /// # Errors
    /// Always.
    pub fn start(_: UblkOptions, _: impl FnOnce() + Send + 'static) -> Result<Self, UblkError> {
        Err(UblkError::NotBuilt)
    }

    /// Where it would be.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// Whether it was taken over from a server that was killed.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        match self.0 {}
    }

    /// Would end it.
    ///
    /// # Errors
    /// None.
    pub fn stop(self, _: bool) -> Result<(), UblkError> {
        match self.0 {}
    }
}
