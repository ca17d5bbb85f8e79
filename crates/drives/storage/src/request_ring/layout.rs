//! Where things lie in an entry of FUSE over io_uring.
//!
//! Facts are from the kernel's public header `linux/fuse.h`: `struct fuse_uring_req_header` and
//! `struct fuse_uring_cmd_req`. All numbers are in the byte order of the machine.

/// Bytes of the headers (`fuse_uring_req_header`).
pub(super) const HEADERS_BYTES: usize = 288;
/// Bytes of the request's own header (`fuse_in_header`), at the beginning.
pub(super) const IN_HEADER_BYTES: usize = 40;
/// Where the operation's header lies.
pub(super) const OPERATION_AT: usize = 128;
/// Bytes of the operation's header, at most.
pub(super) const OPERATION_BYTES: usize = 128;
/// Where the number lies by which the answer names the request (`commit_id`).
pub(super) const ID_AT: usize = 264;
/// Where the length of the payload lies (`payload_sz`), of the request and of its answer.
pub(super) const PAYLOAD_LEN_AT: usize = 272;
/// Bytes of an answer's header (`fuse_out_header`), at the beginning.
pub(super) const OUT_HEADER_BYTES: usize = 16;

/// `FUSE_IO_URING_CMD_REGISTER`: the kernel may put a request into the entry.
pub(super) const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: the entry holds an answer, and the kernel may then put a
/// request into it.
pub(super) const COMMIT_AND_FETCH: u32 = 2;

/// The part of a command that says what it is about.
pub(super) fn command(queue: u16, id: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}
