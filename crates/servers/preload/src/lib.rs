//! A library for `LD_PRELOAD`: in a program that loads it, `open`, `openat`, `creat` and `fopen`
//! support `O_DUR` of the Manylogs paper (section IV-D), and file name patterns from the
//! environment. MLFS's mount need not change.
//!
//! * `O_DUR` gives the file the property `user.manylogs.durable`. Where the file cannot have it,
//!   for instance on other file systems, the flag means `O_DSYNC`.
//! * Files whose path fits a pattern of `MANYLOGS_DURABLE` get the property when they are opened
//!   for writing; where they cannot have it nothing changes.
//!
//! The functions of the C library take no longer than without this library, except for files opened
//! for writing while there are patterns. Nothing here allocates, takes a lock or changes `errno` of
//! a call that succeeds: programs open files in signal handlers, and between `fork` and `exec`.

mod calls;
mod mark;
mod real;

/// The flag. No `open` flag of Linux has this bit, and kernels ignore it.
pub(crate) const O_DUR: libc::c_int = 0x4000_0000;

/// The letter that means `O_DUR` in a mode of `fopen`. The C library ignores letters that it does
/// not know.
pub(crate) const DUR_LETTER: u8 = b'D';
