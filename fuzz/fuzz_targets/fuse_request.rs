//! Any bytes as a request of the kernel.
#![no_main]

use manylogs_fuse::request::Operation;
use manylogs_fuse::{Dialect, Request};

libfuzzer_sys::fuzz_target!(|input: (bool, Vec<u8>)| {
    let (extended_setxattr, mut bytes) = input;
    // A header that says another length is refused at once.
    let len = u32::try_from(bytes.len()).unwrap_or(0).to_ne_bytes();
    if let Some(place) = bytes.first_chunk_mut() {
        *place = len;
    }
    if let Ok(request) = Request::decode(&bytes, Dialect { extended_setxattr })
        && let Operation::ForgetMany(forgets) = request.operation
    {
        assert!(forgets.count() * 16 <= bytes.len());
    }
});
