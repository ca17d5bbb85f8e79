//! What an array can do, from what its members can.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Capabilities};

/// What each of `members` can do: the least capacity, the longest physical sector, the shortest
/// write that is never torn, and a volatile cache if one of them has it.
///
/// # Panics
/// If `members` is empty.
pub(crate) fn of_each(members: &[Rc<dyn BlockDevice>]) -> Capabilities {
    let each = members.iter().map(BlockDevice::capabilities);
    let both = |all: Capabilities, one: Capabilities| Capabilities {
        capacity: all.capacity.min(one.capacity),
        physical_sector: all.physical_sector.max(one.physical_sector),
        untorn: all.untorn.min(one.untorn),
        rotational: all.rotational || one.rotational,
        volatile_cache: all.volatile_cache || one.volatile_cache,
        native_fua: all.native_fua && one.native_fua,
        discard: all.discard && one.discard,
        fast_zero: all.fast_zero && one.fast_zero,
    };
    let Some(all) = each.reduce(both) else { panic!("an array has members") };
    all
}
