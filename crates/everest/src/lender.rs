//! A store as its clients need it, wherever it is.

use std::pin::Pin;

use manylogs_block::{Extent, IoError, Payload, Sectors, Signal};
use manylogs_logstore::Space;
use thiserror::Error;

use crate::store::{CircularStore, Found};
use crate::versions::{Range, Version};

/// Why a lender did not do what it was asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LenderError {
    /// Nobody answered. What was asked for was done or not, and is not done any more once another
    /// call was: whoever carries calls over a link sees to that. What the store holds is there when
    /// it can be reached again.
    #[error("the store cannot be reached: what it was asked for last may have been done")]
    Unreachable,
    /// The store answered that it failed.
    #[error(transparent)]
    Failed(#[from] IoError),
}

impl LenderError {
    /// The error as a block device tells it, of a request for `extent`. A store that cannot be
    /// reached is no medium that has lost anything.
    #[must_use]
    pub fn of_request(self, extent: Extent) -> IoError {
        match self {
            Self::Unreachable => IoError::Transient { extent },
            Self::Failed(error) => error,
        }
    }
}

/// An answer of a lender. A write or a read is under way when the call returns, and nothing takes
/// it back; a deletion begins when its answer is waited for.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, LenderError>>>>;

/// A store that lends its room to a client: on this machine, or on another.
///
/// For each call see the method of [`CircularStore`] of that name.
pub trait Lender {
    /// Longest content of one write.
    fn longest_write(&self) -> Sectors;

    /// Stores a version; `None` is zeroes.
    fn write(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
        content: Option<Payload>,
    ) -> Answer<()>;

    /// Forgets what is not newer than `version`.
    fn delete(&self, base: Space, extent: Extent, version: Version) -> Answer<()>;

    /// The newest content, as it is when this is called.
    fn read(&self, base: Space, extent: Extent) -> Answer<Vec<Found>>;

    /// The oldest ranges of a base volume, `most` of them.
    fn oldest(&self, base: Space, most: usize) -> Answer<Vec<Range>>;

    /// Whether it is time to reclaim, as far as is known here.
    fn is_crowded(&self) -> bool;

    /// Notified when the store may have room, or can be reached again.
    fn progress(&self) -> &Signal;
}

impl Lender for CircularStore {
    fn longest_write(&self) -> Sectors {
        Self::longest_write(self)
    }

    fn write(
        &self,
        base: Space,
        extent: Extent,
        version: Version,
        content: Option<Payload>,
    ) -> Answer<()> {
        let written = Self::write(self, base, extent, version, content);
        Box::pin(async move { Ok(written.await.map(drop)?) })
    }

    fn delete(&self, base: Space, extent: Extent, version: Version) -> Answer<()> {
        let store = self.clone();
        Box::pin(async move { Ok(Self::delete(&store, base, extent, version).await?) })
    }

    fn read(&self, base: Space, extent: Extent) -> Answer<Vec<Found>> {
        let read = Self::read(self, base, extent);
        Box::pin(async move { Ok(read.await?) })
    }

    fn oldest(&self, base: Space, most: usize) -> Answer<Vec<Range>> {
        let ranges = Self::oldest(self, base, most);
        Box::pin(std::future::ready(Ok(ranges)))
    }

    fn is_crowded(&self) -> bool {
        Self::is_crowded(self)
    }

    fn progress(&self) -> &Signal {
        Self::progress(self)
    }
}
