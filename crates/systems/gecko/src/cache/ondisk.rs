//! The bytes of a tail cache on an SSD: a label, and stripes that say what they hold. See
//! `docs/format.md`.

use bytes_of_cache::{RawEntry, RawHeader, RawLabel};
use manylogs_block::{Extent, Payload, Request, SECTOR_BYTES, Sectors, narrow, to_usize};
use manylogs_logstore::ondisk::{equal_logs, protective};
use manylogs_logstore::{DataSequence, VolumeId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Place of the label.
pub(super) const LABEL: Extent = Extent { start: manylogs_block::Lba(0), len: Sectors(8) };
/// Sectors of a stripe's header. Its content follows.
pub(super) const HEADER: Sectors = Sectors(16);
/// Versions that a header names at most.
pub(super) const VERSIONS_MOST: usize = 400;
/// The least and the greatest length of a stripe.
const STRIPE_LEAST: Sectors = Sectors(32);
const STRIPE_MOST: Sectors = Sectors(1 << 15);
const LABEL_MAGIC: [u8; 8] = *b"MLCACHE1";
const HEADER_MAGIC: [u8; 8] = *b"MLSTRIPE";
const VERSION: u32 = 1;

mod bytes_of_cache {
    #![allow(missing_docs, reason = "fields of the format, named as in its description")]

    use zerocopy::little_endian::{U32, U64};
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

    use super::{HEADER, VERSIONS_MOST};

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct RawLabel {
        pub magic: [u8; 8],
        pub checksum: U32,
        pub version: U32,
        pub chain: [u8; 16],
        pub stripe_sectors: U64,
        pub device_sectors: U64,
    }

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct RawHeader {
        pub magic: [u8; 8],
        pub checksum: U32,
        pub count: U32,
        pub chain: [u8; 16],
        pub stripe: U64,
        pub written: U64,
        pub entries: [RawEntry; VERSIONS_MOST],
    }

    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
    #[repr(C)]
    pub(super) struct RawEntry {
        pub sequence: U64,
        pub start: U64,
        pub sectors: U32,
    }

    const _: () = assert!(size_of::<RawHeader>() as u64 <= HEADER.bytes());
}

/// What the label of a cache says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) chain: VolumeId,
    pub(super) stripe: Sectors,
    /// Size of the device.
    pub(super) sectors: Sectors,
}

impl Label {
    pub(super) fn write(&self) -> Request {
        let raw = RawLabel {
            magic: LABEL_MAGIC,
            checksum: U32::ZERO,
            version: U32::new(VERSION),
            chain: self.chain,
            stripe_sectors: U64::new(self.stripe.0),
            device_sectors: U64::new(self.sectors.0),
        };
        let mut bytes = equal_logs::seal(raw.as_bytes());
        let mbr = protective::mbr(self.sectors);
        bytes[protective::AT..][..mbr.len()].copy_from_slice(&mbr);
        Request::write_fua(LABEL, Payload::bytes(bytes))
    }

    /// The label in `bytes`; `None` if there is none that is whole and of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = RawLabel::read_from_prefix(bytes).ok()?.0;
        let is_known = raw.magic == LABEL_MAGIC && raw.version.get() == VERSION;
        if !is_known || !equal_logs::is_whole(raw.as_bytes()) {
            return None;
        }
        let stripe = Sectors(raw.stripe_sectors.get());
        let label = Self { chain: raw.chain, stripe, sectors: Sectors(raw.device_sectors.get()) };
        label.is_possible().then_some(label)
    }

    /// Whether the device has room for a stripe, and stripes have a length that can be.
    pub(super) fn is_possible(&self) -> bool {
        (STRIPE_LEAST..=STRIPE_MOST).contains(&self.stripe) && self.stripes() > 0
    }

    /// Number of stripes. The room of one is the label's.
    pub(super) const fn stripes(&self) -> u64 {
        (self.sectors.0 / self.stripe.0).saturating_sub(1)
    }

    /// Place of a stripe.
    pub(super) fn place(&self, stripe: u32) -> Extent {
        Extent::new((u64::from(stripe) + 1) * self.stripe.0, self.stripe.0)
    }

    /// Most content of a stripe.
    pub(super) const fn content(&self) -> Sectors {
        Sectors(self.stripe.0 - HEADER.0)
    }
}

/// What the header of a stripe says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) stripe: u32,
    /// How many stripes were ever written, this one counted.
    pub(super) written: u64,
    /// The versions in the stripe, whose content follows in this order.
    pub(super) versions: Vec<(DataSequence, Extent)>,
}

impl Header {
    pub(super) fn encode(&self, chain: VolumeId) -> Payload {
        let mut raw = RawHeader::new_zeroed();
        (raw.magic, raw.chain) = (HEADER_MAGIC, chain);
        raw.count = U32::new(narrow(self.versions.len() as u64));
        (raw.stripe, raw.written) = (U64::new(self.stripe.into()), U64::new(self.written));
        for (entry, (sequence, extent)) in raw.entries.iter_mut().zip(&self.versions) {
            entry.sequence = U64::new(sequence.0);
            entry.start = U64::new(extent.start.0);
            entry.sectors = U32::new(narrow(extent.len.0));
        }
        raw.checksum = U32::new(crc32c::crc32c(raw.as_bytes()));
        let mut bytes = raw.as_bytes().to_vec();
        bytes.resize(to_usize(HEADER.0 * SECTOR_BYTES), 0);
        Payload::bytes(bytes)
    }

    /// The header in `bytes`, of the stripe with this number; `None` if there is none of this
    /// chain that is whole.
    pub(super) fn decode(bytes: &[u8], chain: VolumeId, stripe: u32) -> Option<Self> {
        let raw = RawHeader::read_from_prefix(bytes).ok()?.0;
        let is_here = raw.chain == chain && raw.stripe.get() == u64::from(stripe);
        let count = to_usize(raw.count.get().into());
        let is_whole = raw.magic == HEADER_MAGIC && equal_logs::is_whole(raw.as_bytes());
        if !is_here || !is_whole || count > VERSIONS_MOST {
            return None;
        }
        let version = |entry: &RawEntry| {
            let extent = Extent::new(entry.start.get(), entry.sectors.get().into());
            (DataSequence(entry.sequence.get()), extent)
        };
        let versions = raw.entries[..count].iter().map(version).collect();
        Some(Self { stripe, written: raw.written.get(), versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: VolumeId = *b"fedcba9876543210";

    #[test]
    fn a_label_survives_encoding_and_no_bit_flip_passes() {
        let label = Label { chain: CHAIN, stripe: Sectors(64), sectors: Sectors(1000) };
        assert_eq!(label.stripes(), 14);
        assert!(label.place(13).end().0 <= 1000);
        let Request::Write { payload, .. } = label.write() else { panic!("no write") };
        let bytes = payload.to_bytes().unwrap();
        assert_eq!(Label::decode(&bytes), Some(label));
        for bit in 0..size_of::<RawLabel>() * 8 {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_is_believed_in_its_place_alone() {
        let versions =
            vec![(DataSequence(7), Extent::new(8, 8)), (DataSequence(9), Extent::new(3, 1))];
        let header = Header { stripe: 5, written: 1 << 40, versions };
        let bytes = header.encode(CHAIN).to_bytes().unwrap();
        assert_eq!(bytes.len() as u64, HEADER.bytes());
        assert_eq!(Header::decode(&bytes, CHAIN, 5), Some(header));
        assert_eq!(Header::decode(&bytes, CHAIN, 4), None);
        assert_eq!(Header::decode(&bytes, [0; 16], 5), None);
        for bit in (0..size_of::<RawHeader>() * 8).step_by(7) {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bad, CHAIN, 5), None, "bit {bit}");
        }
    }
}
