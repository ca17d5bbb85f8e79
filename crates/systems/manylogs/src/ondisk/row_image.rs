//! An image of rows on their way home, on an array with parity (`hole=closed`).
//!
//! A crash may leave a row torn: its parity does not fit its data. If a drive is missing, too, what
//! it held in that row is lost, although nobody was writing it. So before a checkpoint writes to
//! homes it writes the whole rows to a place of their own. An opening after a crash writes them
//! home once more. An image counts only in the incarnation that wrote it, and only until the
//! homes are durable: then it is ended, before anything else may be written to these homes.

use std::rc::Rc;

use bytes::Bytes;
use manylogs_block::{
    BlockDevice, Extent, Geometry, IoError, Lba, PAGE, Payload, Request, Sectors, to_usize,
};
use manylogs_logstore::{Incarnation, VolumeId};
use manylogs_plant::{self as plant, Bug};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"MLOGROWS";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    /// Of the header, with zero in this place.
    checksum: U32,
    /// Number of ranges of rows that follow.
    ranges: U32,
    volume: VolumeId,
    incarnation: U32,
    /// Of the content behind the header.
    payload_checksum: U32,
    payload_sectors: U64,
    reserved: [u8; 16],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRows {
    first: U64,
    count: U64,
}

const _: () = assert!(size_of::<Raw>() == 64);
const _: () = assert!(size_of::<RawRows>() == 16);

/// Rows that follow one another in one stripe of the volume. Homes are whole stripes of the array,
/// so the addresses of the volume lie in rows as those of the array do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Rows {
    /// The addresses of the rows, on one column after the other.
    pub(crate) fn extents(self, array: Geometry) -> impl Iterator<Item = Extent> {
        let len = Sectors(self.count * PAGE.0);
        let start = move |column| array.address(column, Lba(self.first * PAGE.0));
        (0..array.columns)
            .map(move |column| Extent { start: start(column).unwrap_or_default(), len })
    }

    /// Length of the rows on all columns together.
    pub(crate) fn sectors(self, array: Geometry) -> Sectors {
        Sectors(self.count * PAGE.0 * u64::from(array.columns))
    }

    fn is_within(self, capacity: Sectors, array: Geometry) -> bool {
        let per_stripe = array.chunk.0 / PAGE.0;
        let last = self.first.checked_add(self.count).map(|end| end.saturating_sub(1));
        self.count > 0
            && self.first < capacity.0
            && last.is_some_and(|last| last / per_stripe == self.first / per_stripe)
            && self.extents(array).all(|extent| extent.end().0 <= capacity.0)
    }
}

/// The array as the addresses of the volume lie on it.
pub(crate) const fn array_of_homes(array: Geometry) -> Geometry {
    Geometry { first: Sectors(0), ..array }
}

/// Sectors of the header of an image with this many ranges: whole rows.
fn header_len(ranges: u64, row: Sectors) -> Sectors {
    let bytes = size_of::<Raw>() as u64 + ranges * size_of::<RawRows>() as u64;
    Sectors(bytes.div_ceil(row.bytes()) * row.0)
}

/// The most rows of an image in `room`, however they lie.
pub(crate) fn rows_most(room: Extent, row: Sectors) -> u64 {
    let all = room.len.0 / row.0;
    let fits = |rows: u64| header_len(rows, row).0 / row.0 + rows <= all;
    (0..all).rev().find(|rows| fits(*rows)).unwrap_or(0)
}

/// Whose images count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageOf {
    pub(crate) volume: VolumeId,
    pub(crate) incarnation: Incarnation,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowImage {
    pub(crate) rows: Vec<Rows>,
    /// Contents of the ranges one after the other, each by column.
    pub(crate) content: Payload,
    /// The place of the image, once it is known.
    pub(crate) place: Extent,
}

impl RowImage {
    /// Number of rows.
    pub(crate) fn count(&self) -> u64 {
        self.rows.iter().map(|rows| rows.count).sum()
    }

    /// The addresses of the volume that the rows take, and their contents.
    pub(crate) fn parts(&self, array: Geometry) -> impl Iterator<Item = (Extent, Payload)> {
        let mut done = Sectors(0);
        self.rows.iter().flat_map(move |rows| rows.extents(array)).map(move |extent| {
            let content = self.content.slice(done, extent.len);
            done += extent.len;
            (extent, content)
        })
    }

    /// The bytes and sectors of an image in rows of length `row`.
    pub(crate) fn encode(&self, of: ImageOf, row: Sectors) -> Payload {
        let len = self.content.len();
        let mut raw = Raw {
            magic: MAGIC,
            checksum: U32::ZERO,
            ranges: U32::new(manylogs_block::narrow(self.rows.len() as u64)),
            volume: of.volume,
            incarnation: U32::new(of.incarnation.0),
            payload_checksum: U32::new(self.content.checksum(Sectors(0), len)),
            payload_sectors: U64::new(len.0),
            reserved: [0; 16],
        };
        let raw_rows =
            |rows: &Rows| RawRows { first: U64::new(rows.first), count: U64::new(rows.count) };
        let list: Vec<RawRows> = self.rows.iter().map(raw_rows).collect();
        raw.checksum = U32::new(checksum(&raw, list.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.extend_from_slice(list.as_bytes());
        bytes.resize(to_usize(header_len(list.len() as u64, row).bytes()), 0);
        let mut image = Payload::bytes(Bytes::from(bytes));
        image.append(self.content.clone());
        image
    }

    /// The image in `room` that counts for `of`; `None` if there is none. An image that the medium
    /// cannot return does not count either: its homes are as the crash left them.
    ///
    /// # Errors
    /// If the device fails as a whole.
    pub(crate) async fn read(
        device: &Rc<dyn BlockDevice>,
        room: Extent,
        of: ImageOf,
        (array, capacity): (Geometry, Sectors),
    ) -> Result<Option<Self>, IoError> {
        let Some(row) = array.row() else { return Ok(None) };
        let read = async |extent| match device.submit(Request::Read { extent }).await {
            Err(IoError::Medium { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(content) => Ok(Some(content)),
        };
        let bytes = async |len| {
            let content: Option<Payload> = read(Extent { len, ..room }).await?;
            Ok::<_, IoError>(content.and_then(|content| content.to_bytes()))
        };
        let Some(first) = bytes(row).await? else { return Ok(None) };
        let Some((ranges, len)) = counted(&first, of, room, row) else { return Ok(None) };
        let header = header_len(ranges, row);
        let Some(header_bytes) = bytes(header).await? else { return Ok(None) };
        let Some((rows, payload_checksum)) = rows_of(&header_bytes) else { return Ok(None) };
        let within = rows.iter().all(|rows| rows.is_within(capacity, array));
        if !within || rows.iter().map(|rows| rows.sectors(array).0).sum::<u64>() != len.0 {
            return Ok(None);
        }
        let place = Extent { start: room.start + header, len };
        let Some(content) = read(place).await? else { return Ok(None) };
        let place = Extent { len: header + len, ..room };
        let whole = content.verifies(Sectors(0), len, payload_checksum);
        Ok(whole.then_some(Self { rows, content, place }))
    }
}

fn checksum(raw: &Raw, list: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(raw.as_bytes()), list)
}

/// The number of ranges and the length of the content, if the header belongs to `of` and the image
/// fits its room.
fn counted(header: &[u8], of: ImageOf, room: Extent, row: Sectors) -> Option<(u64, Sectors)> {
    let (raw, _) = Raw::read_from_prefix(header).ok()?;
    let stale = raw.incarnation.get() != of.incarnation.0 && !plant::is(Bug::StaleImageCounts);
    let own = raw.magic == MAGIC && raw.volume == of.volume && !stale;
    let (ranges, len) = (u64::from(raw.ranges.get()), raw.payload_sectors.get());
    let fits = ranges <= room.len.0
        && len.checked_add(header_len(ranges, row).0).is_some_and(|all| all <= room.len.0);
    (own && fits).then_some((ranges, Sectors(len)))
}

/// The ranges of rows, and the checksum of the content, if the header is whole.
fn rows_of(header: &[u8]) -> Option<(Vec<Rows>, u32)> {
    let (mut raw, rest) = Raw::read_from_prefix(header).ok()?;
    let count = raw.ranges.get() as usize;
    let (list, _) = <[RawRows]>::ref_from_prefix_with_elems(rest, count).ok()?;
    let expected = std::mem::replace(&mut raw.checksum, U32::ZERO).get();
    if checksum(&raw, list.as_bytes()) != expected {
        return None;
    }
    let rows = |raw: &RawRows| Rows { first: raw.first.get(), count: raw.count.get() };
    Some((list.iter().map(rows).collect(), raw.payload_checksum.get()))
}

#[cfg(test)]
mod tests {
    use manylogs_block::{Completion, MemoryDevice};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    const ARRAY: Geometry =
        Geometry { chunk: Sectors(32), columns: 3, copies: 1, parity: 1, first: Sectors(0) };
    const ROW: Sectors = Sectors(24);
    const ROOM: Extent = Extent { start: Lba(96), len: Sectors(480) };
    const CAPACITY: Sectors = Sectors(960);

    fn of(incarnation: u32) -> ImageOf {
        ImageOf { volume: [7; 16], incarnation: Incarnation(incarnation) }
    }

    /// The rows that are found after one sector of an image of incarnation 3, or none, has changed.
    fn found(changed: Option<u64>, incarnation: u32) -> Option<Vec<Rows>> {
        let rows = vec![Rows { first: 1, count: 2 }, Rows { first: 9, count: 1 }];
        let content = Payload::tags(500, Sectors(72));
        let image = RowImage { rows, content, place: Extent::default() };
        let (sim, device) =
            (Sim::new(1, TaskOrder::Fifo), Rc::new(MemoryDevice::new(Sectors(2000))));
        let node = sim.node();
        sim.block_on(node, async move {
            let content = image.encode(of(3), ROW);
            let extent = Extent { len: content.len(), ..ROOM };
            let write = |extent, payload| -> Completion {
                device.submit(Request::write_fua(extent, payload))
            };
            write(extent, content).await.unwrap();
            if let Some(sector) = changed {
                let torn = Extent { start: ROOM.start + Sectors(sector), len: Sectors(1) };
                write(torn, Payload::tags(9, Sectors(1))).await.unwrap();
            }
            let device = Rc::clone(&device) as Rc<dyn BlockDevice>;
            let read = RowImage::read(&device, ROOM, of(incarnation), (ARRAY, CAPACITY));
            let found = read.await.unwrap()?;
            assert_eq!((found.place, &found.content), (extent, &image.content));
            let parts: Vec<Extent> = found.parts(ARRAY).map(|(extent, _)| extent).collect();
            let expected = [(8, 16), (40, 16), (72, 16), (200, 8), (232, 8), (264, 8)];
            assert_eq!(parts, expected.map(|(start, len)| Extent::new(start, len)));
            Some(found.rows)
        })
    }

    fn only_whole_images_of_the_last_incarnation_count() {
        assert_eq!(found(None, 3).map(|rows| rows.len()), Some(2));
        assert_eq!(found(None, 4), None, "it is stale");
        for sector in [0, 24, 95] {
            assert_eq!(found(Some(sector), 3), None, "sector {sector} is torn");
        }
    }

    #[test]
    fn an_image_counts_whole_and_in_its_incarnation() {
        only_whole_images_of_the_last_incarnation_count();
    }

    #[cfg(feature = "plant")]
    #[test]
    fn a_stale_image_is_noticed() {
        plant::plant(Some(Bug::StaleImageCounts));
        let noticed = std::panic::catch_unwind(only_whole_images_of_the_last_incarnation_count);
        plant::plant(None);
        assert!(noticed.is_err());
    }

    #[test]
    fn an_image_fits_its_room_however_its_rows_lie() {
        for (len, row) in [(480, 24), (48, 24), (24, 24), (32_768, 16), (12_288, 48)] {
            let room = Extent { len: Sectors(len), ..ROOM };
            let rows = rows_most(room, Sectors(row));
            let needs = |rows: u64| header_len(rows, Sectors(row)).0 + rows * row;
            assert!(needs(rows) <= len && needs(rows + 1) > len, "{len} {row}: {rows}");
        }
    }
}
