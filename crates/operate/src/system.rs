//! What is served that is no volume.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use manylogs_block::IoError;

use crate::status::Status;

/// A block device over others that a server has in the place of a volume, such as a chain of
/// drives, as its operator sees it.
pub trait ServedSystem: Debug {
    /// What it is, in words that follow "the device is served as".
    fn kind(&self) -> &'static str;

    /// Its id: the name of a link, and of what the kernel shows.
    fn id(&self) -> [u8; 16];

    /// Adds what is to be told of it to a status.
    fn tell(&self, status: &mut Status);

    /// Makes durable what was answered, and ends its tasks. Fails if a device does.
    fn close(&self) -> Closing;
}

/// The end of a system.
pub type Closing = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;
