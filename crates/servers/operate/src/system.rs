//! Systems that are served instead of a volume, or on top of one.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use manylogs_block::IoError;

use crate::control::{Answer, Order, OrderError};
use crate::status::Status;

/// A block device over others, as the operator of its server sees it: a chain of drives instead of
/// a volume, or a base volume of Everest, which may lie over a volume.
pub trait ServedSystem: Debug {
    /// The kind of system, in words that follow "the device is served as".
    fn kind(&self) -> &'static str;

    /// Its ID, which names its link and the block device.
    fn id(&self) -> [u8; 16];

    /// Adds its part to a status.
    fn tell(&self, status: &mut Status);

    /// Carries out an order that only this kind of system knows.
    fn obey(&self, _order: Order) -> Obeying {
        let refused = format!("the device is served as {}: it knows no such order", self.kind());
        Box::pin(std::future::ready(Err(OrderError::bad_input(refused))))
    }

    /// Makes all answered writes durable, and ends its tasks. A volume below it stays open. Fails
    /// if a device fails.
    fn close(&self) -> Closing;
}

/// An order under way.
pub type Obeying = Pin<Box<dyn Future<Output = Answer>>>;

/// The closing of a system under way.
pub type Closing = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;
