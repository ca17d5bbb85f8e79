//! Giving an open file the durable property.

#![expect(unsafe_code, reason = "it calls the C library")]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use libc::{c_char, c_int};
use manylogs_ext4::DurableNames;

use super::O_DUR;

unsafe extern "C" {
    /// Like `getenv`, but null in programs that run with other rights than the user who started
    /// them.
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// `_IOR('M', 0x70, __u32)` and `_IOW('M', 0x71, __u32)` of MLFS.
const GET_DURABLE: libc::Ioctl = 0x8004_4d70;
const SET_DURABLE: libc::Ioctl = 0x4004_4d71;
/// The flags that are kept when a file is opened once more.
const AGAIN: c_int = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_LARGEFILE
    | libc::O_CLOEXEC;
/// Flags with which no file is opened for writing.
const NO_FILE: c_int = libc::O_PATH | (libc::O_DIRECTORY & !libc::O_TMPFILE);

/// The patterns in the environment when the library was loaded.
static NAMES: OnceLock<DurableNames> = OnceLock::new();

/// The loader calls this before the program begins, so that no later call has to read the
/// environment.
// SAFETY: the section holds functions that the loader calls without arguments that are used.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = {
    extern "C" fn loaded() {
        read_names();
    }
    loaded
};

fn read_names() {
    // SAFETY: the name ends with a zero; nothing else runs yet.
    let list = unsafe { secure_getenv(c"MANYLOGS_DURABLE".as_ptr()) };
    if list.is_null() {
        return;
    }
    // SAFETY: the environment is a list of such strings.
    let list = unsafe { CStr::from_ptr(list) }.to_string_lossy();
    if list.is_empty() {
        return;
    }
    match DurableNames::of_list(&list, ',') {
        Ok(names) => drop(NAMES.set(names)),
        Err(error) => {
            let said = format!("manylogs: MANYLOGS_DURABLE is ignored: {error}\n");
            // SAFETY: the pointer and the length are those of the text.
            unsafe { libc::write(2, said.as_ptr().cast(), said.len()) };
        }
    }
}

/// Whether these flags open a file for writing.
const fn writes(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY && flags & NO_FILE == 0
}

/// Opens a file, and gives it the property if the flag `O_DUR` or its name asks for that. `open`
/// gets the flags for the kernel.
pub(crate) fn opened(flags: c_int, open: impl Fn(c_int) -> c_int) -> c_int {
    let given = flags & !O_DUR;
    if !writes(given) {
        return open(given);
    }
    if flags & O_DUR == 0 {
        return named(open(given));
    }
    let file = open(given | libc::O_DSYNC);
    if file >= 0 && given & libc::O_DSYNC == 0 {
        quietly(|| {
            if keep(file) {
                open_again(file, given);
            }
        });
    }
    file
}

/// Gives an open file the property if its name fits a pattern.
pub(crate) fn named(file: c_int) -> c_int {
    if let Some(names) = NAMES.get().filter(|_| file >= 0) {
        quietly(|| {
            let mut path = [0; libc::PATH_MAX as usize];
            if names.fits_path(path_of(file, &mut path)) {
                keep(file);
            }
        });
    }
    file
}

/// Calls `what` and leaves `errno` as it was.
fn quietly(what: impl FnOnce()) {
    // SAFETY: the place is this thread's for as long as it lives.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    what();
    *errno = before;
}

/// Gives the file the property; returns whether it has it now.
fn keep(file: c_int) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for what it writes.
    if unsafe { libc::fstat(file, stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: it was written.
    let kind = unsafe { stat.assume_init() }.st_mode & libc::S_IFMT;
    // The `ioctl` numbers may mean something else to a device.
    if kind != libc::S_IFREG {
        return false;
    }
    let (mut has, wanted) = (0_u32, 1_u32);
    // SAFETY: both are as long as the numbers say.
    unsafe {
        let known = libc::ioctl(file, GET_DURABLE, &raw mut has) == 0;
        known && (has == 1 || libc::ioctl(file, SET_DURABLE, &raw const wanted) == 0)
    }
}

/// Opens the same file under the same number without `O_DSYNC`. If that fails its writes stay
/// synchronous, which is slower but correct.
fn open_again(file: c_int, flags: c_int) {
    let mut path = [0; 32];
    own_path(file, &mut path);
    // SAFETY: the path ends with a zero. The number is this file's until the caller's caller hears
    // of it.
    unsafe {
        let again = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags & AGAIN);
        let Ok(again @ 0..) = c_int::try_from(again) else { return };
        libc::dup3(again, file, flags & libc::O_CLOEXEC);
        libc::close(again);
    }
}

/// Writes the path `/proc/self/fd/N` of an open file.
fn own_path(file: c_int, path: &mut [u8; 32]) {
    const DIR: &[u8] = b"/proc/self/fd/";
    path[..DIR.len()].copy_from_slice(DIR);
    let mut digits = [0; 10];
    let (mut rest, mut count) = (file.unsigned_abs(), 0);
    while rest > 0 || count == 0 {
        digits[count] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        (rest, count) = (rest / 10, count + 1);
    }
    for (at, digit) in digits[..count].iter().rev().enumerate() {
        path[DIR.len() + at] = *digit;
    }
}

/// The path of an open file; empty if there is no `/proc`.
fn path_of(file: c_int, path: &mut [u8; libc::PATH_MAX as usize]) -> &[u8] {
    let mut link = [0; 32];
    own_path(file, &mut link);
    // SAFETY: both paths are as long as is said, and the first ends with a zero.
    let len = unsafe {
        libc::readlink(link.as_ptr().cast::<c_char>(), path.as_mut_ptr().cast(), path.len())
    };
    &path[..usize::try_from(len).unwrap_or_default()]
}
