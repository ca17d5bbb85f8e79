//! The array below a volume.

use manylogs::{Layout, Volume};
use manylogs_block::{BlockDevice, Geometry};
use serde::{Deserialize, Serialize};

/// Bytes of a block of most file systems.
const BLOCK_BYTES: u64 = 4096;

/// The array that a volume was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayStatus {
    /// Columns: drives, or groups of drives with the same content, each with logs of its own.
    pub columns: u16,
    /// Drives in each column.
    pub copies: u16,
    /// Drives with parity in each stripe, beside the columns.
    #[serde(default)]
    pub parity: u16,
    /// Length of a chunk: bytes on one column before the next one follows.
    pub chunk_bytes: u64,
    /// Offset in the volume at which its first whole stripe begins.
    pub first_stripe_bytes: u64,
    /// Whether the array still has this shape. If not, it is used as one drive.
    pub known: bool,
    /// Whether the shape is the user's word, from `format --array`: the device does not say it.
    #[serde(default)]
    pub said: bool,
}

impl ArrayStatus {
    /// The array of an open volume; `None` if the volume was made for one drive.
    #[must_use]
    pub fn of(volume: &Volume) -> Option<Self> {
        Self::of_layout(volume.layout(), volume.geometry().is_some())
    }

    /// The array of a volume with this layout; `known` says whether the array still has its shape.
    #[must_use]
    pub fn of_layout(layout: &Layout, known: bool) -> Option<Self> {
        let home = layout.homes().first().map_or(0, |(_, home)| home.start.0);
        let said = layout.is_said();
        Some(Self { said, ..Self::new(layout.columns()?, home, known) })
    }

    /// The status for `array` and a volume whose homes begin at the device's sector `home`.
    fn new(array: Geometry, home: u64, known: bool) -> Self {
        let stripe = array.stripe().0;
        let into = (home + array.first.0) % stripe;
        Self {
            columns: array.columns,
            copies: array.copies,
            parity: array.parity,
            chunk_bytes: array.chunk.bytes(),
            first_stripe_bytes: (stripe - into) % stripe * 512,
            known,
            said: false,
        }
    }

    /// The shape in words.
    #[must_use]
    pub fn words(&self) -> String {
        let kib = self.chunk_bytes >> 10;
        let copies = match self.copies {
            1 => String::new(),
            copies => format!(" of {copies} drives each"),
        };
        let now = if self.known { "" } else { "; now it has another shape, and is one drive" };
        let said = if self.said { ", as the user said" } else { "" };
        let (parity, logs) = match self.parity {
            0 => (String::new(), "logs on each column"),
            1 => (" and one of parity".to_owned(), "records fill rows"),
            more => (format!(" and {more} of parity"), "records fill rows"),
        };
        format!("{} columns{copies}{parity}, chunks of {kib} KiB, {logs}{said}{now}", self.columns)
    }

    /// Options of mkfs that align a file system's stripes with those of the array.
    #[must_use]
    pub fn mkfs(&self) -> String {
        let (chunk, columns) = (self.chunk_bytes, u64::from(self.columns));
        let stride = (chunk / BLOCK_BYTES).max(1);
        let options = format!(
            "mkfs.ext4 -E stride={stride},stripe_width={}, mkfs.xfs -d su={}k,sw={columns}",
            stride * columns,
            chunk >> 10
        );
        match self.first_stripe_bytes {
            0 => options,
            bytes => format!("{options}; stripes begin {bytes} bytes behind the beginning"),
        }
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Sectors;

    use super::*;

    #[test]
    fn what_is_said_of_an_array() {
        let array =
            Geometry { chunk: Sectors(128), columns: 4, copies: 1, parity: 0, first: Sectors(0) };
        let status = ArrayStatus::new(array, 200, true);
        assert_eq!(status.first_stripe_bytes, 312 * 512);
        assert_eq!(status.words(), "4 columns, chunks of 64 KiB, logs on each column");
        let options = "mkfs.ext4 -E stride=16,stripe_width=64, mkfs.xfs -d su=64k,sw=4; stripes \
                       begin 159744 bytes behind the beginning";
        assert_eq!(status.mkfs(), options);
        let rows = ArrayStatus::new(Geometry { columns: 3, parity: 1, ..array }, 384, true);
        let words = "3 columns and one of parity, chunks of 64 KiB, records fill rows";
        assert_eq!((rows.words().as_str(), rows.first_stripe_bytes), (words, 0));
        let said = ArrayStatus { said: true, ..rows }.words();
        assert_eq!(said, format!("{words}, as the user said"));
        let pairs = Geometry { columns: 2, copies: 2, parity: 0, first: Sectors(56), ..array };
        let reshaped = ArrayStatus::new(pairs, 200, false);
        assert_eq!(reshaped.first_stripe_bytes, 0);
        assert!(reshaped.words().contains("2 columns of 2 drives each"));
        assert!(reshaped.words().ends_with("and is one drive"));
    }
}
