//! Attributes and limits of a device as the kernel gets them.

use manylogs_block::Capabilities;

use crate::Cache;

/// The driver's attributes of devices.
const ROTATIONAL: u32 = 1 << 1;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;

/// Attributes and sizes, in the driver's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) attributes: u32,
    /// Powers of two, in bytes.
    pub(crate) logical_shift: u8,
    pub(crate) physical_shift: u8,
    /// Whether the device takes discards. It always takes write-zeroes.
    pub(crate) discard: bool,
}

impl Limits {
    pub(crate) fn of(capabilities: &Capabilities, cache: Cache) -> Self {
        let mut attributes = 0;
        if capabilities.rotational {
            attributes |= ROTATIONAL;
        }
        if cache == Cache::WriteBack && capabilities.volatile_cache {
            attributes |= VOLATILE_CACHE;
            if capabilities.native_fua {
                attributes |= FUA;
            }
        }
        let physical = capabilities.physical_sector.bytes().max(1).ilog2().clamp(9, 16);
        Self {
            attributes,
            logical_shift: 9,
            physical_shift: u8::try_from(physical).unwrap_or(9),
            discard: capabilities.discard,
        }
    }
}

#[cfg(test)]
mod tests {
    use manylogs_block::Sectors;

    use super::*;

    const VOLUME: Capabilities = Capabilities {
        capacity: Sectors(1 << 20),
        physical_sector: Sectors(8),
        untorn: Sectors(8),
        rotational: true,
        volatile_cache: true,
        native_fua: true,
        discard: true,
        fast_zero: true,
    };

    #[test]
    fn a_cache_is_told_of_only_if_it_is_used() {
        let back = Limits::of(&VOLUME, Cache::WriteBack);
        let all = ROTATIONAL | VOLATILE_CACHE | FUA;
        let shifts = (back.logical_shift, back.physical_shift);
        assert_eq!((back.attributes, shifts, back.discard), (all, (9, 12), true));
        assert_eq!(Limits::of(&VOLUME, Cache::WriteThrough).attributes, ROTATIONAL);
        let plain = Capabilities { native_fua: false, rotational: false, ..VOLUME };
        assert_eq!(Limits::of(&plain, Cache::WriteBack).attributes, VOLATILE_CACHE);
        let durable = Capabilities { volatile_cache: false, ..VOLUME };
        assert_eq!(Limits::of(&durable, Cache::WriteBack).attributes, ROTATIONAL);
    }

    #[test]
    fn a_sector_is_at_least_what_the_block_layer_knows() {
        let of = |sectors| Capabilities { physical_sector: Sectors(sectors), ..VOLUME };
        assert_eq!(Limits::of(&of(1), Cache::WriteBack).physical_shift, 9);
        assert_eq!(Limits::of(&of(0), Cache::WriteBack).physical_shift, 9);
        assert_eq!(Limits::of(&of(32), Cache::WriteBack).physical_shift, 14);
    }
}
