//! The superblock's fields about errors that were found (`s_error_count` and the fields behind it).

use super::Superblock;
use crate::error::{Corruption, Location};
use crate::ondisk::bytes::{high32, low32, put_le32};
use crate::units::Timestamp;

/// `s_error_count`.
const COUNT: usize = 0x194;
/// Bytes of the names of functions.
const NAME_BYTES: usize = 32;

/// Codes of `ext4.h`: a wrong checksum, and anything else that is corrupted.
const BAD_CHECKSUM: u8 = 4;
const CORRUPTED: u8 = 5;

/// Damage that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// When it was found.
    pub(crate) at: Timestamp,
    /// Where it is, and what it is.
    pub(crate) what: Corruption,
}

/// Offsets of the fields of an error.
struct Fields {
    time: usize,
    time_high: usize,
    ino: usize,
    block: usize,
    name: usize,
    line: usize,
    code: usize,
}

const FIRST: Fields = Fields {
    time: 0x198,
    time_high: 0x278,
    ino: 0x19C,
    block: 0x1A0,
    name: 0x1A8,
    line: 0x1C8,
    code: 0x27A,
};
const LAST: Fields = Fields {
    time: 0x1CC,
    time_high: 0x279,
    ino: 0x1D0,
    block: 0x1D8,
    name: 0x1E0,
    line: 0x1D4,
    code: 0x27B,
};

impl Superblock {
    /// Notes `count` errors, of which these are the first and the last. If an error was noted since
    /// e2fsck last ran, the field of the first one stays.
    pub(crate) fn note_damage(&mut self, count: u32, first: &Damage, last: &Damage) {
        self.set_errors();
        let before = self.u32(COUNT);
        if before == 0 {
            self.put_damage(&FIRST, first);
        }
        self.put_damage(&LAST, last);
        put_le32(&mut *self.0, COUNT, before.saturating_add(count));
    }

    fn put_damage(&mut self, fields: &Fields, damage: &Damage) {
        let (ino, block) = match damage.what.place {
            Location::Inode(ino) => (ino.0, 0),
            Location::Block(ino, block) => (ino.0, block.0),
            Location::Superblock | Location::Group(_) | Location::Journal(_) => (0, 0),
        };
        let seconds = damage.at.seconds.cast_unsigned();
        let what = damage.what.what;
        let bytes = &mut *self.0;
        put_le32(bytes, fields.time, low32(seconds));
        bytes[fields.time_high] = high32(seconds).to_le_bytes()[0];
        put_le32(bytes, fields.ino, ino);
        put_le32(bytes, fields.block, low32(block));
        put_le32(bytes, fields.block + 4, high32(block));
        // There is no line of the kernel's source to name; the name field gets the description.
        put_le32(bytes, fields.line, 0);
        let name = &mut bytes[fields.name..fields.name + NAME_BYTES];
        name.fill(0);
        let len = what.len().min(NAME_BYTES);
        name[..len].copy_from_slice(&what.as_bytes()[..len]);
        bytes[fields.code] = if what.contains("checksum") { BAD_CHECKSUM } else { CORRUPTED };
    }
}
