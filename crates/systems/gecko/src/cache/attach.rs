//! The SSD of a tail cache: made, given to a chain that is open, filled in the background.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, IoError, Payload, Request, Sectors};
use thiserror::Error;

use super::flash::Flash;
use super::ondisk::{HEADER, Header, LABEL, Label};
use super::{ANSWERS_WITHIN, live_sectors};
use crate::chain::Chain;
use crate::keeper::NotChanged;
use crate::roster::Change;
use crate::state::{Inner, State};

/// Options of making a cache on an SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Length of a stripe, which is written as a whole: 32 to 32,768 sectors.
    pub stripe: Sectors,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { stripe: Sectors::from_bytes_ceil(1 << 20) }
    }
}

/// Why a device is not used as the SSD of a tail cache.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheError {
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// It does not answer.
    #[error("does not answer within {} ms", ANSWERS_WITHIN.0 / 1_000_000)]
    Silent,
    /// It has no label of a cache, or one that is damaged.
    #[error("holds no cache of a chain")]
    NotACache,
    /// It is the cache of another chain.
    #[error("holds the cache of another chain: overwrite its first 4 KiB to use it here")]
    OfAnother,
    /// It holds something else, which would be lost.
    #[error("holds {what}, which would be lost: give an SSD that holds nothing, or wipe it")]
    Holds {
        /// What it holds.
        what: String,
    },
    /// It is smaller than when it became a cache.
    #[error(
        "has {} sectors, and had {} as a cache: overwrite its first 4 KiB to make it anew",
        have.0, had.0
    )]
    Shrunk {
        /// Its size.
        have: Sectors,
        /// Its size when it became a cache.
        had: Sectors,
    },
    /// It has no room for a stripe.
    #[error("has {} sectors, too few for a cache with stripes of {}", have.0, stripe.0)]
    TooSmall {
        /// Its size.
        have: Sectors,
        /// Length of a stripe.
        stripe: Sectors,
    },
}

impl Chain {
    /// Makes `device` the SSD of this chain's tail cache: overwrites its first 4 KiB with a label.
    /// The labels of the chain say from now on that it has one, so that whoever serves it looks for
    /// it. Durable when this returns. [`Chain::attach_cache`] begins to use it.
    ///
    /// # Errors
    /// If the device fails, or is too small for a stripe, or a drive of the chain fails.
    pub async fn format_cache(
        &self,
        device: &Rc<dyn BlockDevice>,
        options: CacheOptions,
    ) -> Result<(), CacheError> {
        let (sectors, stripe) = (device.capabilities().capacity, options.stripe);
        let label = Label { chain: self.id(), stripe, sectors };
        if !label.is_possible() {
            return Err(CacheError::TooSmall { have: sectors, stripe });
        }
        self.0.asked(device, label.write()).await?;
        match self.0.keeper.change(Change::Cache).await {
            Err(NotChanged::Io(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Uses `device` as the SSD of the tail cache until the chain is closed: what leaves the
    /// cache's memory goes there, and reads find it. What an earlier opening has left there is
    /// found in the background. No promise of the chain depends on what the device holds, or on
    /// its writes: only hits do.
    ///
    /// # Errors
    /// If the device cannot be read, or has no label of this chain's cache.
    pub async fn attach_cache(&self, device: Rc<dyn BlockDevice>) -> Result<(), CacheError> {
        let have = device.capabilities().capacity;
        if have < LABEL.len {
            return Err(CacheError::NotACache);
        }
        let found = self.0.asked(&device, Request::Read { extent: LABEL }).await?;
        let label = found.to_bytes().and_then(|bytes| Label::decode(&bytes));
        let label = label.ok_or(CacheError::NotACache)?;
        if label.chain != self.id() {
            return Err(CacheError::OfAnother);
        }
        if label.sectors > have {
            return Err(CacheError::Shrunk { have, had: label.sectors });
        }
        let flash = Flash::new(Rc::clone(&device), label);
        self.0.engine.state.borrow_mut().cache.flash = Some(flash);
        let runtime = &self.0.engine.runtime;
        runtime.spawn(Rc::clone(&self.0).look_at_stripes(device, label));
        runtime.spawn(Rc::clone(&self.0).run_flash_writer());
        Ok(())
    }
}

impl Inner {
    /// The SSD's answer to a request, unless it takes too long.
    async fn asked(
        &self,
        device: &Rc<dyn BlockDevice>,
        request: Request,
    ) -> Result<Payload, CacheError> {
        let answer = self.engine.runtime.within(ANSWERS_WITHIN, device.submit(request)).await;
        Ok(answer.ok_or(CacheError::Silent)??)
    }

    /// Reads the headers of all stripes, and begins to write stripes then.
    async fn look_at_stripes(self: Rc<Self>, device: Rc<dyn BlockDevice>, label: Label) {
        for stripe in (0..label.stripes()).map(manylogs_block::narrow) {
            let extent = Extent { len: HEADER, ..label.place(stripe) };
            let read = self.asked(&device, Request::Read { extent }).await;
            if self.engine.is_closed() {
                return;
            }
            let mut state = self.engine.state.borrow_mut();
            match read {
                Ok(found) => {
                    let bytes = found.to_bytes().unwrap_or_default();
                    if let Some(header) = Header::decode(&bytes, label.chain, stripe) {
                        found_on_flash(&mut state, &header);
                    }
                }
                Err(CacheError::Silent) => {
                    state.cache.flash.iter_mut().for_each(Flash::fell_silent);
                }
                Err(_) => state.cache.flash.iter_mut().for_each(Flash::failed),
            }
            if state.cache.flash.as_ref().is_some_and(Flash::is_given_up) {
                return;
            }
        }
        self.engine.state.borrow_mut().cache.flash.iter_mut().for_each(Flash::begin);
        self.cache_wanted.notify();
    }

    /// Writes stripes for as long as the chain is open.
    async fn run_flash_writer(self: Rc<Self>) {
        loop {
            let wanted = self.cache_wanted.wait();
            if self.engine.is_closed() {
                return;
            }
            let begun = self.engine.state.borrow_mut().cache.flash.as_mut().and_then(Flash::fill);
            let Some((filling, write)) = begun else {
                wanted.await;
                continue;
            };
            let written = self.engine.runtime.within(ANSWERS_WITHIN, write).await;
            if let Some(flash) = &mut self.engine.state.borrow_mut().cache.flash {
                flash.filled(filling, matches!(written, Some(Ok(_))));
                if written.is_none() {
                    flash.fell_silent();
                }
            }
        }
    }
}

/// Notes the versions of a stripe that the map still has.
fn found_on_flash(state: &mut State, header: &Header) {
    let (map, cache) = (state.store.map(), &mut state.cache);
    if let Some(flash) = &mut cache.flash {
        flash.found(header, |sequence, extent| live_sectors(map, extent, sequence));
    }
}
