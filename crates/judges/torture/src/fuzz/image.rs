//! A small image, and the places of the structures in it.

use std::ops::Range;

use manylogs_block::{Extent, Media, Payload, SECTOR_BYTES, Sector, Sectors, to_usize};

use crate::fuzz::seal;
use manylogs_logstore::ondisk::root::ROOT_BYTES;

/// A sparse disk image.
#[derive(Clone, Debug)]
pub struct Image {
    /// Size of the image.
    pub sectors: Sectors,
    /// Content other than zeroes.
    pub media: Media,
    /// Places of the volume's structures before the image is changed.
    pub(crate) spots: Vec<Spot>,
}

/// Kinds of structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageKind {
    Superblock,
    Root,
    Snapshot,
    Record,
}

/// A structure and its bytes in the image.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) kind: ImageKind,
    pub(crate) range: Range<usize>,
}

const KINDS: [(&[u8; 8], ImageKind); 4] = [
    (b"MANYLOGS", ImageKind::Superblock),
    (b"MLOGROOT", ImageKind::Root),
    (b"MLOGSNP2", ImageKind::Snapshot),
    (b"MLOGREC1", ImageKind::Record),
];

impl Image {
    /// An image from lines of an address and the 16 bytes there, in hexadecimal.
    ///
    /// # Panics
    /// If the text has another form.
    #[must_use]
    pub fn from_text(text: &str, sectors: Sectors) -> Self {
        let hex = |text: &str| {
            usize::from_str_radix(text, 16).unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        let mut image = Self { sectors, media: Media::default(), spots: Vec::new() };
        for (address, row) in text.lines().filter_map(|line| line.split_once(": ")) {
            let row = row.split(' ').map(|byte| hex(byte).to_le_bytes()[0]);
            image.write(hex(address), &row.collect::<Vec<u8>>());
        }
        image.find_spots();
        image
    }

    fn find_spots(&mut self) {
        let starts: Vec<u64> = self.media.iter().map(|(lba, _)| lba).collect();
        for start in starts {
            let at = to_usize(start * SECTOR_BYTES);
            let magic = self.read(at, 8);
            let Some((_, kind)) = KINDS.iter().find(|(known, _)| magic == *known) else { continue };
            let len = match kind {
                ImageKind::Superblock => 4096,
                ImageKind::Root => ROOT_BYTES,
                ImageKind::Snapshot => 1024,
                ImageKind::Record => seal::used(&self.read(at, 96)).unwrap_or(96),
            };
            self.spots.push(Spot { kind: *kind, range: at..at + len });
        }
    }

    /// Bytes of the image; zeroes behind its end.
    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        let sector_bytes = to_usize(SECTOR_BYTES);
        let (mut lba, mut skip) = (at / sector_bytes, at % sector_bytes);
        while bytes.len() < len {
            let part = sector_bytes.min(skip + len - bytes.len()) - skip;
            match self.media.get(lba as u64) {
                Sector::Bytes(content) => bytes.extend_from_slice(&content[skip..skip + part]),
                Sector::Zero | Sector::Tag(_) => bytes.resize(bytes.len() + part, 0),
            }
            (lba, skip) = (lba + 1, 0);
        }
        bytes
    }

    /// Changes bytes of the image.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        let sector_bytes = to_usize(SECTOR_BYTES);
        let start = at / sector_bytes;
        let end = (at + bytes.len()).div_ceil(sector_bytes);
        let mut content = self.read(start * sector_bytes, (end - start) * sector_bytes);
        let skip = at - start * sector_bytes;
        content[skip..skip + bytes.len()].copy_from_slice(bytes);
        let extent = Extent::new(start as u64, (end - start) as u64);
        if extent.end().0 <= self.sectors.0 {
            self.media.write(extent, &Payload::bytes(content));
        }
    }
}
