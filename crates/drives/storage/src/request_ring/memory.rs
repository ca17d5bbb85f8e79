//! The memory of the entries.

use std::io;
use std::ptr::NonNull;

/// Bytes of the page that begins an entry: it holds the entry's headers.
const HEAD_BYTES: usize = 4096;

/// Memory for entries, each with headers and a payload. Pages that nobody has touched cost nothing.
pub(super) struct Memory {
    start: NonNull<u8>,
    slots: usize,
    payload_bytes: usize,
}

// SAFETY: it is plain memory. Who may use an entry's part of it is said in [`super`].
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory for `slots` entries with payloads of `payload_bytes`, in whole pages.
    pub(super) fn new(slots: usize, payload_bytes: usize) -> io::Result<Self> {
        let payload_bytes = payload_bytes.next_multiple_of(HEAD_BYTES);
        let bytes = payload_bytes.checked_add(HEAD_BYTES).and_then(|each| each.checked_mul(slots));
        let bytes = bytes.filter(|bytes| *bytes > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, slots, payload_bytes })
    }

    pub(super) const fn slots(&self) -> usize {
        self.slots
    }

    pub(super) const fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Bytes of address space.
    pub(super) const fn bytes(&self) -> usize {
        self.slots * (HEAD_BYTES + self.payload_bytes)
    }

    /// The headers of an entry.
    pub(super) fn head(&self, slot: u32) -> *mut u8 {
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        assert!(slot < self.slots, "there is no entry {slot}");
        // SAFETY: within the memory, as the slot is one of it.
        unsafe { self.start.as_ptr().add(slot * (HEAD_BYTES + self.payload_bytes)) }
    }

    /// The payload of an entry.
    pub(super) fn payload(&self, slot: u32) -> *mut u8 {
        // SAFETY: within the memory: the payload follows the headers.
        unsafe { self.head(slot).add(HEAD_BYTES) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nobody uses the memory: it is dropped with the last that may.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}
