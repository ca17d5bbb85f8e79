//! Reads the header of a base volume without opening it.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Payload, Request, Sectors};
use manylogs_engine::{PatientReads, read_copy};

use crate::begin::OffloadError;
use crate::call::{BaseId, StoreId};
use crate::header::{COPY, HEADER, Header, MAGIC, PLACES};
use crate::kept::KeptStore;
use crate::offload::Offloaded;

/// What the header of a base volume says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseLabel {
    /// Its id.
    pub id: BaseId,
    /// Its size when it was made, with the header.
    pub sectors: Sectors,
    /// Stores that may hold newer data.
    pub stores: Vec<StoreId>,
    /// Stores that every opening borrows.
    pub kept: Vec<KeptStore>,
    /// Lost ranges, in addresses of clients.
    pub lost: Vec<Extent>,
    /// Openings so far.
    pub openings: u32,
}

impl Offloaded {
    /// The label of the base volume on `device`; `None` if there is none. Writes nothing.
    ///
    /// # Errors
    /// If the device fails, or has a header of which no copy is whole.
    pub async fn identify(
        runtime: &Handle,
        device: Rc<dyn BlockDevice>,
    ) -> Result<Option<BaseLabel>, OffloadError> {
        if !Header::shows(runtime, &device).await? {
            return Ok(None);
        }
        let header = Header::find(runtime, device).await?.ok_or(OffloadError::NoHeader)?;
        let content = header.content();
        Ok(Some(BaseLabel {
            id: content.base,
            sectors: content.sectors,
            stores: content.stores.clone(),
            kept: content.kept.clone(),
            lost: content.lost.iter().map(|lost| lost.extent).collect(),
            openings: content.opening().incarnation,
        }))
    }

    /// Size that clients would see of a base volume on `device`.
    #[must_use]
    pub fn capacity_on(device: &dyn BlockDevice) -> Sectors {
        Sectors(device.capabilities().capacity.0.saturating_sub(HEADER.0))
    }

    /// Overwrites the header that `device` may have, so that it is no base volume any more.
    ///
    /// # Errors
    /// If the device fails.
    pub async fn erase(device: Rc<dyn BlockDevice>) -> Result<(), IoError> {
        Header::erase(device).await
    }
}

impl Header {
    /// Whether at least one copy of a header on `device` begins with the magic number.
    pub(crate) async fn shows(
        runtime: &Handle,
        device: &Rc<dyn BlockDevice>,
    ) -> Result<bool, IoError> {
        if device.capabilities().capacity <= HEADER {
            return Ok(false);
        }
        let reads: Rc<dyn BlockDevice> = PatientReads::new(Rc::clone(device), runtime.clone());
        for place in PLACES {
            let start = Extent { len: Sectors(8), ..place };
            let Ok(read) = read_copy(&reads, start).await? else { continue };
            if read.to_bytes().is_some_and(|bytes| bytes.starts_with(&MAGIC)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Overwrites both copies with zeroes.
    pub(crate) async fn erase(device: Rc<dyn BlockDevice>) -> Result<(), IoError> {
        for place in PLACES {
            let zeroes = Payload::zeroes(COPY);
            device.submit(Request::write_fua(place, zeroes)).await?;
        }
        Ok(())
    }
}
