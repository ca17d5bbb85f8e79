//! A library for `LD_PRELOAD`: `open`, `openat`, `creat` and `fopen` know `O_DUR` of the Manylogs
//! paper (section IV-D), and names from the environment, without a change of MLFS's mount.
//!
//! * `O_DUR` gives the file the property `user.manylogs.durable`. Where the file cannot have it, on
//!   other file systems for one, the flag means `O_DSYNC`.
//! * Files whose path fits a pattern of `MANYLOGS_DURABLE` get the property when they are opened to
//!   be written; where they cannot have it nothing is different.
//!
//! A function of the C library takes as long as it did, but for files that are opened to be
//! written while there are patterns. Nothing here allocates, takes a lock or changes `errno` of a
//! call that succeeds: programs open files in signal handlers, and between `fork` and `exec`.

mod calls;
mod mark;
mod real;

/// The flag: of those that Linux has for `open`, none has this bit. Kernels ignore it.
pub(crate) const O_DUR: libc::c_int = 0x4000_0000;

/// The letter of `fopen` that stands for it. The C library ignores letters that it does not know.
pub(crate) const DUR_LETTER: u8 = b'D';
