//! Entry point of the plugin, and the callback for block sizes, which the bindings lack.

#![expect(unsafe_code, reason = "nbdkit is C: it is given a table of functions")]

use std::ffi::{c_int, c_void};

use nbdkit::{Builder, Plugin};

use crate::connection::Connection;

/// Smaller requests work only through a filter of nbdkit (`blocksize`), which reads, changes and
/// writes whole blocks.
const BLOCK_MIN: u32 = 512;
/// Block size that file systems write. Smaller blocks share records and physical sectors.
const BLOCK_PREFERRED: u32 = 4096;
/// Longer requests may be refused; nbdkit refuses those over 64 MiB.
const BLOCK_MAX: u32 = 32 << 20;

type Absent = Option<extern "C" fn()>;
type BlockSize = extern "C" fn(*mut c_void, *mut u32, *mut u32, *mut u32) -> c_int;

/// `struct nbdkit_plugin` of nbdkit 1.30 and later. It begins with the structure of 1.26, which the
/// bindings have. An older nbdkit does not read beyond the fields that it knows.
#[repr(C)]
struct Table {
    known: Plugin,
    list_exports: Absent,
    default_export: Absent,
    export_description: Absent,
    cleanup: Absent,
    block_size: BlockSize,
}

/// Gives nbdkit the plugin's functions.
// SAFETY: nbdkit looks for this name in a plugin, and nothing else that is linked here has it.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_init() -> *const Plugin {
    let known = builder().into_ptr::<Connection>();
    // SAFETY: the bindings have allocated and filled it and keep no pointer to it; it has no
    // destructor, so that a copy of it may live on in its place.
    let mut known = unsafe { known.read() };
    known._struct_size = size_of::<Table>() as u64;
    let table = Table {
        known,
        list_exports: None,
        default_export: None,
        export_description: None,
        cleanup: None,
        block_size,
    };
    // nbdkit keeps the table for as long as it runs. The table begins with the bindings' structure.
    Box::into_raw(Box::new(table)).cast_const().cast()
}

/// A builder with the callbacks that [`Connection`] implements.
fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.after_fork = true;
    builder.can_extents = true;
    builder.can_fast_zero = true;
    builder.can_flush = true;
    builder.can_fua = true;
    builder.can_multi_conn = true;
    builder.can_trim = true;
    builder.can_write = true;
    builder.can_zero = true;
    builder.config = true;
    builder.config_complete = true;
    builder.config_help = true;
    builder.extents = true;
    builder.flush = true;
    builder.is_rotational = true;
    builder.trim = true;
    builder.unload = true;
    builder.write_at = true;
    builder.zero = true;
    builder
}

extern "C" fn block_size(
    _connection: *mut c_void,
    minimum: *mut u32,
    preferred: *mut u32,
    maximum: *mut u32,
) -> c_int {
    // SAFETY: nbdkit passes pointers to three variables of its own, for us to set.
    unsafe {
        *minimum = BLOCK_MIN;
        *preferred = BLOCK_PREFERRED;
        *maximum = BLOCK_MAX;
    }
    0
}
