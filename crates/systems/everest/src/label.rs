//! Reads the header of a base volume without opening it.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, IoError, Payload, Request, Sectors, to_usize};
use manylogs_engine::{PatientReads, read_copy};

use crate::begin::OffloadError;
use crate::call::{BaseId, StoreId};
use crate::header::{COPY, Content, HEADER, Header, MAGIC, PLACES};
use crate::kept::KeptStore;
use crate::offload::Offloaded;

/// Bytes at the start of a base volume that hold both copies of its header.
pub const BASE_HEADER_BYTES: usize = to_usize(HEADER.bytes());

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
    /// Void ranges, in addresses of clients, each with the store whose versions of it count no
    /// more: they are home, and that store could not be told.
    pub voids: Vec<(StoreId, Extent)>,
    /// The stores of which it is noted what each alone has, with that, in addresses of clients:
    /// forgetting one now loses just this.
    pub alone: Vec<(StoreId, Vec<Extent>)>,
    /// Stores that take no more writes: they are evacuated whenever the base volume is open.
    pub leaving: Vec<StoreId>,
    /// Openings so far.
    pub openings: u32,
    /// How many of the two copies of the header are whole. The next change writes both.
    pub whole_copies: usize,
}

impl BaseLabel {
    /// What each copy of a header begins with.
    pub const MAGIC: [u8; 8] = MAGIC;

    /// The label in the first [`BASE_HEADER_BYTES`] of a device; `None` if they are no base volume.
    ///
    /// # Errors
    /// [`OffloadError::NoHeader`] if they are one, and no copy of the header is whole.
    pub fn decode(head: &[u8]) -> Result<Option<Self>, OffloadError> {
        let copies = PLACES.map(|place| {
            let from = to_usize(Sectors(place.start.0).bytes());
            head.get(from..).unwrap_or_default()
        });
        if !copies.iter().any(|copy| copy.starts_with(&MAGIC)) {
            return Ok(None);
        }
        let label = Self::of_copies(copies.map(Content::decode));
        label.map(Some).ok_or(OffloadError::NoHeader)
    }

    fn of_copies(copies: [Option<Content>; 2]) -> Option<Self> {
        let whole_copies = copies.iter().flatten().count();
        let (content, _) = newest(copies)?;
        Some(Self {
            id: content.base,
            sectors: content.sectors,
            openings: content.opening().incarnation,
            lost: content.lost.iter().map(|lost| lost.extent).collect(),
            voids: content.voids.iter().map(|(store, void)| (*store, void.extent)).collect(),
            alone: content.alone(),
            stores: content.stores,
            kept: content.kept,
            leaving: content.leaving,
            whole_copies,
        })
    }
}

/// The copy of a header that counts, and its number.
pub(crate) fn newest(copies: [Option<Content>; 2]) -> Option<(Content, usize)> {
    let whole = copies.into_iter().zip(0..).filter_map(|(copy, number)| Some((copy?, number)));
    // Of equals the first counts.
    whole.reduce(|one, other| if other.0.generation > one.0.generation { other } else { one })
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
        let copies = Header::copies(runtime, &device).await?;
        BaseLabel::of_copies(copies).map(Some).ok_or(OffloadError::NoHeader)
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
    /// Both copies of the header on `device`; `None` for one that is not whole.
    pub(crate) async fn copies(
        runtime: &Handle,
        device: &Rc<dyn BlockDevice>,
    ) -> Result<[Option<Content>; 2], IoError> {
        // Data that a killed process left in the drive's cache must be durable before it is
        // believed.
        device.submit(Request::Flush).await?;
        let reads: Rc<dyn BlockDevice> = PatientReads::new(Rc::clone(device), runtime.clone());
        let mut copies = [None, None];
        for (copy, place) in copies.iter_mut().zip(PLACES) {
            let Ok(read) = read_copy(&reads, place).await? else { continue };
            *copy = Content::decode(&read.to_bytes().unwrap_or_default());
        }
        Ok(copies)
    }

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
