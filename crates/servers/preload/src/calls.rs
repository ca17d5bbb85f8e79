//! The functions of the C library that programs call.

#![expect(unsafe_code, reason = "the loader puts them in the place of functions of C")]

use std::ffi::CStr;
use std::ptr::null_mut;

use libc::{FILE, c_char, c_int, mode_t};

use super::mark::{named, opened};
use super::real::{self, Real};
use super::{DUR_LETTER, O_DUR};

/// The mode of files that `fopen` creates.
const FOPEN_MODE: mode_t = 0o666;

// The C library's functions take `mode` as a variable argument. On 64-bit Linux a variable argument
// is passed like a fixed one. If the caller gave no mode, nobody reads the argument: see
// `Real::open`.

/// See open(2).
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPEN.open(path, flags, mode) })
}

/// See open(2).
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPEN64.open(path, flags, mode) })
}

/// `open` without a mode, in programs that are built with checks.
///
/// # Safety
/// As of open(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPEN_2.open_2(path, flags) })
}

/// As [`__open_2`].
///
/// # Safety
/// As of open(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPEN64_2.open_2(path, flags) })
}

/// See openat(2).
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPENAT.open_at(dir, path, flags, mode) })
}

/// See openat(2).
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPENAT64.open_at(dir, path, flags, mode) })
}

/// `openat` without a mode, in programs that are built with checks.
///
/// # Safety
/// As of openat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPENAT_2.open_at_2(dir, path, flags) })
}

/// As [`__openat_2`].
///
/// # Safety
/// As of openat(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __openat64_2(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's.
    opened(flags, |flags| unsafe { real::OPENAT64_2.open_at_2(dir, path, flags) })
}

/// See creat(2). It has no flags, so only a matching name gives the property.
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's.
    named(unsafe { real::CREAT.creat(path, mode) })
}

/// See creat(2).
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's.
    named(unsafe { real::CREAT64.creat(path, mode) })
}

/// See fopen(3); the letter `D` of the mode is `O_DUR`.
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's.
    unsafe { stream(&real::FOPEN, path, mode) }
}

/// See fopen(3).
///
/// # Safety
/// As of that function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's.
    unsafe { stream(&real::FOPEN64, path, mode) }
}

/// # Safety
/// As of fopen(3).
unsafe fn stream(real: &Real, path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's.
    let letters = unsafe { CStr::from_ptr(mode) }.to_bytes();
    // A comma precedes the name of a character set.
    let letters = letters.split(|letter| *letter == b',').next().unwrap_or_default();
    let Some(flags) = flags_of(letters).filter(|_| letters.contains(&DUR_LETTER)) else {
        // SAFETY: the caller's.
        let file = unsafe { real.fopen(path, mode) };
        if !file.is_null() && !matches!(letters, [b'r', rest @ ..] if !rest.contains(&b'+')) {
            // SAFETY: it is open.
            named(unsafe { libc::fileno(file) });
        }
        return file;
    };
    // SAFETY: the caller's.
    let open = |flags| unsafe { real::OPEN64.open(path, flags, FOPEN_MODE) };
    let file = opened(flags | O_DUR, open);
    if file < 0 {
        return null_mut();
    }
    // SAFETY: the file is open, and nobody else knows of it.
    unsafe {
        let stream = libc::fdopen(file, mode);
        if stream.is_null() {
            let errno = *libc::__errno_location();
            libc::close(file);
            *libc::__errno_location() = errno;
        }
        stream
    }
}

/// The flags with which `fopen` opens a file; `None` if the C library refuses the mode.
fn flags_of(letters: &[u8]) -> Option<c_int> {
    let (first, rest) = letters.split_first()?;
    let (alone, more) = match first {
        b'r' => (libc::O_RDONLY, 0),
        b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => return None,
    };
    let has = |letter, flag| if rest.contains(&letter) { flag } else { 0 };
    let access = if rest.contains(&b'+') { libc::O_RDWR } else { alone };
    Some(access | more | has(b'x', libc::O_EXCL) | has(b'e', libc::O_CLOEXEC))
}
