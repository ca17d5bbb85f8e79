//! The interface of a store to its clients, on this machine or another.

use std::pin::Pin;

use manylogs_block::{Extent, IoError, Nanos, Sectors, Signal};
use thiserror::Error;

use crate::call::{Call, Reply, StoreId};

/// Why a lender did not do what it was asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LenderError {
    /// Nobody answered. The call was done, or not, or may still be done until the client has begun
    /// another session.
    #[error("the store cannot be reached: what it was asked for last may have been done")]
    Unreachable,
    /// The store was started anew and does not know the session, or it serves a newer one. It did
    /// nothing.
    #[error("the session with the store has ended")]
    NoSession,
    /// The call arrived before. The transport waits for the answer to the first copy.
    #[error("the call arrived before")]
    Repeated,
    /// The store holds a newer version of the range. It did nothing.
    #[error("the store holds a newer version")]
    Newer,
    /// The store serves another opening of the base volume, which this one does not descend from.
    #[error(
        "the store serves another opening of this base volume: two hosts use it, or it is a \
             copy, or an old image"
    )]
    Foreign,
    /// The store answered that it failed.
    #[error(transparent)]
    Failed(#[from] IoError),
}

impl LenderError {
    /// The error as a block device reports it for a request of `extent`. An unreachable store is a
    /// transient error, because no data is lost.
    #[must_use]
    pub fn of_request(self, extent: Extent) -> IoError {
        match self {
            Self::Failed(error) => error,
            Self::Foreign => IoError::Gone,
            _ => IoError::Transient { extent },
        }
    }
}

/// The answer of a lender. The call is under way when this is returned; dropping it does not cancel
/// the call.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, LenderError>>>>;

/// How busy a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests in flight.
    pub in_flight: u64,
    /// The time that another request would wait for those.
    pub wait: Nanos,
}

/// How busy a whole disk is, whoever sends it requests.
pub trait DiskLoad {
    /// Requests at the disk, and the time that another would wait for those.
    fn load(&self) -> Load;
}

/// A store that lends its room to clients: on this machine, or on another.
///
/// Calls may be lost, doubled or delayed, and may overtake one another. [`crate::Lending`] does
/// each at most once, and none of an earlier session.
pub trait Lender {
    /// Name of the store.
    fn id(&self) -> StoreId;

    /// Longest content of one write.
    fn longest_write(&self) -> Sectors;

    /// Sends a call.
    fn call(&self, call: Call) -> Answer<Reply>;

    /// How busy the lender's disk is, as far as is known here.
    fn load(&self) -> Load;

    /// Where the store is, as text for people.
    fn place(&self) -> String {
        "in this process".to_owned()
    }

    /// Notified when the store may have room, or can be reached again.
    fn progress(&self) -> &Signal;
}
