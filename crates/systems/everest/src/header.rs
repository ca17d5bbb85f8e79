//! The header of a base volume: its id, the stores that may hold newer data of it, and which of
//! their versions are void.
//!
//! ```text
//!  LBA 0           128             256
//!  +---------------+---------------+------------------ ... --+
//!  | header, copy 0 | header, copy 1 | what clients see        |
//!  +---------------+---------------+------------------ ... --+
//! ```
//! A change is written to one copy after the other, so that each is whole while the other is
//! written. The copy with the higher generation counts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, IoError, Lba, Payload, Request, SECTOR_BYTES, Sectors, TaskLock,
    narrow, to_usize,
};
use manylogs_plant::{self as plant, Bug};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::call::{BaseId, Opening, StoreId};
use crate::kept::{self, KEPT_BYTES_MAX, KeptStore};
use crate::label::newest;
use crate::leaving;
use crate::lost;
use crate::noted::{self, Note};
use crate::versions::{Range, Version};

pub(crate) const MAGIC: [u8; 8] = *b"EVBASE01";
pub(crate) const COPY: Sectors = Sectors(128);
/// Sectors of a base volume that clients do not see.
pub(crate) const HEADER: Sectors = Sectors(2 * COPY.0);
pub(crate) const PLACES: [Extent; 2] =
    [Extent { start: Lba(0), len: COPY }, Extent { start: Lba(COPY.0), len: COPY }];
/// Openings in a lineage. A store serves a new opening if its lineage has the opening that the
/// store served last.
const LINEAGE_MAX: usize = 512;
/// Stores that may hold data at a time.
pub(crate) const STORES_MAX: usize = 16;
/// A flag in the number of openings: a list of kept stores follows. Programs that do not know it
/// find too many openings, and refuse the header.
const KEEPS: u32 = 1 << 31;
/// The same for a list of lost ranges, which follows that of kept stores.
const LOSES: u32 = 1 << 30;
/// The same for notes of what stores alone have, which follow the lost ranges.
const NOTES: u32 = 1 << 29;
/// The same for a list of stores that leave, which follows the notes.
const LEAVES: u32 = 1 << 28;
/// Most void ranges in a header.
pub(crate) const VOIDS_MAX: usize = 1024;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    openings: U32,
    base: BaseId,
    generation: U64,
    sectors: U64,
    stores: U32,
    voids: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawOpening {
    incarnation: U32,
    reserved: U32,
    token: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawVoid {
    store: StoreId,
    start: U64,
    sectors: U64,
    version: U64,
}

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) base: BaseId,
    pub(crate) generation: u64,
    /// Size of the base volume with its header.
    pub(crate) sectors: Sectors,
    /// The last openings, the newest last.
    pub(crate) lineage: Vec<Opening>,
    /// Stores that may hold data.
    pub(crate) stores: Vec<StoreId>,
    /// Void ranges: versions that the store has of the range, up to that of the range, count as if
    /// they were not there.
    pub(crate) voids: Vec<(StoreId, Range)>,
    /// Stores that every opening borrows.
    pub(crate) kept: Vec<KeptStore>,
    /// Lost ranges: versions up to that of the range count as lost, wherever they are.
    pub(crate) lost: Vec<Range>,
    /// What stores alone have that cannot be reached, or of a base volume that is closed.
    pub(crate) notes: Vec<Note>,
    /// Stores that take no more writes, in this opening and all others.
    pub(crate) leaving: Vec<StoreId>,
}

impl Content {
    pub(crate) const fn new(base: BaseId, sectors: Sectors) -> Self {
        Self {
            base,
            generation: 1,
            sectors,
            lineage: Vec::new(),
            stores: Vec::new(),
            voids: Vec::new(),
            kept: Vec::new(),
            lost: Vec::new(),
            notes: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// The newest opening.
    pub(crate) fn opening(&self) -> Opening {
        self.lineage.last().copied().unwrap_or_default()
    }

    pub(crate) fn opened(&mut self, token: u64) {
        let incarnation = self.opening().incarnation + 1;
        self.lineage.push(Opening { incarnation, token });
        if self.lineage.len() > LINEAGE_MAX {
            self.lineage.remove(0);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let flag = |is_empty: bool, flag: u32| if is_empty { 0 } else { flag };
        let flags = flag(self.kept.is_empty(), KEEPS)
            | flag(self.lost.is_empty(), LOSES)
            | flag(self.notes.is_empty(), NOTES)
            | flag(self.leaving.is_empty(), LEAVES);
        let mut raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            openings: U32::new(narrow::<_, u32>(self.lineage.len()) | flags),
            base: self.base,
            generation: U64::new(self.generation),
            sectors: U64::new(self.sectors.0),
            stores: U32::new(narrow(self.stores.len())),
            voids: U32::new(narrow(self.voids.len())),
        };
        let mut rest = Vec::new();
        for opening in &self.lineage {
            let (incarnation, token) = (U32::new(opening.incarnation), U64::new(opening.token));
            let raw = RawOpening { incarnation, reserved: U32::ZERO, token };
            rest.extend_from_slice(raw.as_bytes());
        }
        self.stores.iter().for_each(|store| rest.extend_from_slice(store));
        for &(store, Range { extent, version }) in &self.voids {
            let (start, sectors) = (U64::new(extent.start.0), U64::new(extent.len.0));
            let raw = RawVoid { store, start, sectors, version: U64::new(version.0) };
            rest.extend_from_slice(raw.as_bytes());
        }
        if flags & KEEPS != 0 {
            kept::encode(&self.kept, &mut rest);
        }
        if flags & LOSES != 0 {
            lost::encode(&self.lost, &mut rest);
        }
        if flags & NOTES != 0 {
            noted::encode(&self.notes, &mut rest);
        }
        if flags & LEAVES != 0 {
            leaving::encode(&self.leaving, &mut rest);
        }
        raw.checksum = U32::new(crc32c::crc32c_append(crc32c::crc32c(raw.as_bytes()), &rest));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.extend_from_slice(&rest);
        bytes.resize(bytes.len().next_multiple_of(8 * to_usize(SECTOR_BYTES)), 0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (mut raw, rest) = Raw::read_from_prefix(bytes).ok()?;
        let openings = (raw.openings.get() & !(KEEPS | LOSES | NOTES | LEAVES)) as usize;
        let (stores, voids) = (raw.stores.get() as usize, raw.voids.get() as usize);
        if raw.magic != MAGIC || openings > LINEAGE_MAX || stores > STORES_MAX || voids > VOIDS_MAX
        {
            return None;
        }
        let of_openings = openings * size_of::<RawOpening>();
        let of_stores = stores * size_of::<StoreId>();
        let used = of_openings + of_stores + voids * size_of::<RawVoid>();
        let (flags, mut lists) = (raw.openings.get(), rest.get(used..)?);
        let kept = list(flags & KEEPS, &mut lists, kept::decode)?;
        let lost = list(flags & LOSES, &mut lists, lost::decode)?;
        let notes = list(flags & NOTES, &mut lists, noted::decode)?;
        let leaving = list(flags & LEAVES, &mut lists, leaving::decode)?;
        let rest = rest.get(..rest.len() - lists.len())?;
        let checksum = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
        if crc32c::crc32c_append(crc32c::crc32c(raw.as_bytes()), rest) != checksum {
            return None;
        }
        let (lineage, rest) = rest.split_at(of_openings);
        let (stores, rest) = rest.split_at(of_stores);
        let (voids, _) = rest.split_at(voids * size_of::<RawVoid>());
        let opening = |raw: &RawOpening| Opening {
            incarnation: raw.incarnation.get(),
            token: raw.token.get(),
        };
        let void = |raw: &RawVoid| {
            let extent = Extent::new(raw.start.get(), raw.sectors.get());
            (raw.store, Range { extent, version: Version(raw.version.get()) })
        };
        Some(Self {
            base: raw.base,
            generation: raw.generation.get(),
            sectors: Sectors(raw.sectors.get()),
            lineage: <[RawOpening]>::ref_from_bytes(lineage).ok()?.iter().map(opening).collect(),
            stores: <[StoreId]>::ref_from_bytes(stores).ok()?.to_vec(),
            voids: <[RawVoid]>::ref_from_bytes(voids).ok()?.iter().map(void).collect(),
            kept,
            lost,
            notes,
            leaving,
        })
    }
}

/// The list at the start of `rest`, which is shortened by it; empty without its flag, and `None` if
/// it makes no sense.
fn list<T>(
    flag: u32,
    rest: &mut &[u8],
    decode: impl FnOnce(&[u8]) -> Option<(Vec<T>, usize)>,
) -> Option<Vec<T>> {
    if flag == 0 {
        return Some(Vec::new());
    }
    let (list, used) = decode(rest)?;
    *rest = rest.get(used..)?;
    Some(list)
}

/// The header of a base volume in use.
pub(crate) struct Header {
    device: Rc<dyn BlockDevice>,
    content: RefCell<Content>,
    /// The copy that is written first.
    first: usize,
    lock: TaskLock,
    /// A copy could not be written: an opening may find the old header, or the new one.
    broken: Cell<bool>,
    /// Later changes are refused.
    sealed: Cell<bool>,
    /// The store that is being taken off the list.
    pub(crate) unlisting: Cell<Option<StoreId>>,
    /// Whether a note may be on the device, also one that is being written, or could not be.
    pub(crate) noted: Cell<bool>,
}

impl Header {
    /// Writes the header of a new base volume.
    pub(crate) async fn create(
        device: Rc<dyn BlockDevice>,
        content: Content,
    ) -> Result<(), IoError> {
        for place in PLACES {
            write(&device, place, &content).await?;
        }
        Ok(())
    }

    /// The newest header on `device`; `None` if no copy is whole.
    pub(crate) async fn find(
        runtime: &Handle,
        device: Rc<dyn BlockDevice>,
    ) -> Result<Option<Self>, IoError> {
        let newest = newest(Self::copies(runtime, &device).await?);
        let header = |(content, copy): (Content, usize)| Self {
            device: Rc::clone(&device),
            first: 1 - copy,
            noted: Cell::new(!content.notes.is_empty()),
            content: RefCell::new(content),
            lock: TaskLock::default(),
            broken: Cell::new(false),
            sealed: Cell::new(false),
            unlisting: Cell::new(None),
        };
        Ok(newest.map(header))
    }

    /// Waits for the changes that were begun, and refuses others. The next opening changes the
    /// header, and a later change of this one would undo that.
    pub(crate) async fn seal(&self) {
        self.sealed.set(true);
        drop(self.lock.take().await);
    }

    pub(crate) fn content(&self) -> std::cell::Ref<'_, Content> {
        self.content.borrow()
    }

    /// Changes the header, durably in both copies. False if `change` returns false: nothing is
    /// written then.
    ///
    /// # Errors
    /// If a copy cannot be written: an opening may find the old header, or the new one. Later
    /// changes fail too.
    pub(crate) async fn update(
        &self,
        change: impl FnOnce(&mut Content) -> bool,
    ) -> Result<bool, IoError> {
        let _turn = self.lock.take().await;
        if self.sealed.get() {
            return Err(IoError::Gone);
        }
        if self.broken.get() {
            return Err(IoError::ReadOnly { reason: "the header could not be written" });
        }
        let mut new = self.content.borrow().clone();
        if !change(&mut new) {
            return Ok(false);
        }
        self.noted.set(self.noted.get() || !new.notes.is_empty());
        new.generation += 1;
        let copies = if plant::is(Bug::HeaderInOneCopy) { 1 } else { 2 };
        if plant::is(Bug::HeaderBelievedEarly) {
            self.content.replace(new.clone());
        }
        // First the copy that was not the newest at opening: perhaps it is not whole.
        for place in [self.first, 1 - self.first].into_iter().take(copies) {
            let place = PLACES[place];
            let mut written = write(&self.device, place, &new).await;
            if written.as_ref().is_err_and(IoError::is_local) {
                // A drive replaces a bad sector when it is written again.
                written = write(&self.device, place, &new).await;
            }
            if let Err(error) = written {
                self.broken.set(true);
                return Err(error);
            }
        }
        self.content.replace(new);
        Ok(true)
    }

    /// A planted bug: a change that is not durable.
    pub(crate) fn pretend(&self, change: impl FnOnce(&mut Content) -> bool) {
        change(&mut self.content.borrow_mut());
    }
}

async fn write(
    device: &Rc<dyn BlockDevice>,
    place: Extent,
    content: &Content,
) -> Result<(), IoError> {
    let payload = Payload::bytes(content.encode());
    let extent = Extent { len: payload.len(), ..place };
    device.submit(Request::write_fua(extent, payload)).await.map(drop)
}

const _: () = assert!(
    size_of::<Raw>()
        + LINEAGE_MAX * size_of::<RawOpening>()
        + STORES_MAX * size_of::<StoreId>()
        + VOIDS_MAX * size_of::<RawVoid>()
        + KEPT_BYTES_MAX
        + 2 * size_of::<u32>()
        + leaving::BYTES_MAX
        + lost::LOST_BYTES_LEAST
        <= 128 * 512
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_header_survives_encoding_fits_its_place_and_no_bit_flip_passes() {
        let mut content = Content::new(*b"fedcba9876543210", Sectors(4096));
        (0..600).for_each(|token| content.opened(token));
        assert_eq!(content.opening(), Opening { incarnation: 600, token: 599 });
        assert_eq!(content.lineage.len(), LINEAGE_MAX);
        content.lineage.truncate(3);
        content.stores = vec![*b"0123456789abcdef"; STORES_MAX];
        let range = Range { extent: Extent::new(8, 8), version: Version(7) };
        content.voids = vec![(*b"0123456789abcdef", range); 3];
        no_bit_flip_passes(&content, size_of::<Raw>() + 3 * 16 + STORES_MAX * 16 + 3 * 40);
        // A list of kept stores makes another number of openings, which older programs refuse.
        let address = "unix:/run/a".to_owned();
        content.kept = vec![KeptStore { id: *b"0123456789abcdef", address }; 2];
        let openings = U32::read_from_bytes(&content.encode()[12..16]).unwrap().get();
        assert!(openings as usize > LINEAGE_MAX, "{openings}");
        let of_kept = 4 + 2 * (16 + 4 + 11);
        no_bit_flip_passes(
            &content,
            size_of::<Raw>() + 3 * 16 + STORES_MAX * 16 + 3 * 40 + of_kept,
        );
        content.lost = vec![range; 2];
        let of_all = of_kept + 4 + 2 * 24;
        no_bit_flip_passes(&content, size_of::<Raw>() + 3 * 16 + STORES_MAX * 16 + 3 * 40 + of_all);
        let note = Note { store: *b"0123456789abcdef", ranges: vec![range; 3] };
        content.notes = vec![note; 2];
        let of_all = of_all + 4 + 2 * (20 + 3 * 24);
        no_bit_flip_passes(&content, size_of::<Raw>() + 3 * 16 + STORES_MAX * 16 + 3 * 40 + of_all);
        content.leaving = vec![*b"0123456789abcdef"; 2];
        let of_all = of_all + 4 + 2 * 16;
        no_bit_flip_passes(&content, size_of::<Raw>() + 3 * 16 + STORES_MAX * 16 + 3 * 40 + of_all);
        content.notes.clear();
        content.leaving = vec![*b"0123456789abcdef"; STORES_MAX];
        content.voids = vec![(*b"0123456789abcdef", range); VOIDS_MAX];
        content.lineage = vec![Opening::default(); LINEAGE_MAX];
        let kept = KeptStore { id: *b"0123456789abcdef", address: "x".repeat(512) };
        content.kept = vec![kept; STORES_MAX];
        content.lost = vec![range; lost::LOST_BYTES_LEAST / 24];
        assert!(content.has_room());
        assert!(content.encode().len() as u64 <= COPY.bytes());
        assert_eq!(Content::decode(&content.encode()), Some(content));
    }

    fn no_bit_flip_passes(content: &Content, used: usize) {
        let bytes = content.encode();
        assert_eq!(Content::decode(&bytes).as_ref(), Some(content));
        for bit in 0..used * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Content::decode(&bad), None, "bit {bit}");
        }
    }
}
