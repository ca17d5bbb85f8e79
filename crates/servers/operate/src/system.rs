//! What is served in the place of a volume, or over one.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use manylogs_block::IoError;

use crate::status::Status;

/// A block device over others, as the operator of its server sees it: a chain of drives in the
/// place of a volume, or a base volume of Everest, which may be over one.
pub trait ServedSystem: Debug {
    /// What it is, in words that follow "the device is served as".
    fn kind(&self) -> &'static str;

    /// Its id: the name of a link, and of what the kernel shows.
    fn id(&self) -> [u8; 16];

    /// Adds what is to be told of it to a status.
    fn tell(&self, status: &mut Status);

    /// Makes durable what was answered, and ends its tasks. A volume below it stays open. Fails if
    /// a device does.
    fn close(&self) -> Closing;
}

/// The end of a system.
pub type Closing = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;
