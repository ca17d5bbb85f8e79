//! The C library's functions, which this library's functions call.

#![expect(unsafe_code, reason = "they are C")]

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, c_char, c_int, c_void, mode_t};

/// A function that is looked up at its first call.
pub(crate) struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

pub(crate) static OPEN: Real = Real::new(c"open");
pub(crate) static OPEN64: Real = Real::new(c"open64");
pub(crate) static OPEN_2: Real = Real::new(c"__open_2");
pub(crate) static OPEN64_2: Real = Real::new(c"__open64_2");
pub(crate) static OPENAT: Real = Real::new(c"openat");
pub(crate) static OPENAT64: Real = Real::new(c"openat64");
pub(crate) static OPENAT_2: Real = Real::new(c"__openat_2");
pub(crate) static OPENAT64_2: Real = Real::new(c"__openat64_2");
pub(crate) static CREAT: Real = Real::new(c"creat");
pub(crate) static CREAT64: Real = Real::new(c"creat64");
pub(crate) static FOPEN: Real = Real::new(c"fopen");
pub(crate) static FOPEN64: Real = Real::new(c"fopen64");

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type Open2 = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
type OpenAt2 = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
type Creat = unsafe extern "C" fn(*const c_char, mode_t) -> c_int;
type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// The function's address. Two threads may both look it up, and find the same.
    fn find(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // A program calls a function that its C library lacks.
            // SAFETY: it ends the process.
            unsafe { libc::abort() };
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }

    /// Calls `open` or `open64`.
    ///
    /// # Safety
    /// As of that function.
    pub(crate) unsafe fn open(&self, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the C library has a function of this kind under this name.
        let function = unsafe { std::mem::transmute::<*mut c_void, Open>(self.find()) };
        // SAFETY: the caller's.
        unsafe { function(path, flags, mode) }
    }

    /// Calls `__open_2` or `__open64_2`, which programs call that are built with checks.
    ///
    /// # Safety
    /// As of that function.
    pub(crate) unsafe fn open_2(&self, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the C library has a function of this kind under this name.
        let function = unsafe { std::mem::transmute::<*mut c_void, Open2>(self.find()) };
        // SAFETY: the caller's.
        unsafe { function(path, flags) }
    }

    /// Calls `openat` or `openat64`.
    ///
    /// # Safety
    /// As of that function.
    pub(crate) unsafe fn open_at(
        &self,
        dir: c_int,
        path: *const c_char,
        flags: c_int,
        mode: mode_t,
    ) -> c_int {
        // SAFETY: the C library has a function of this kind under this name.
        let function = unsafe { std::mem::transmute::<*mut c_void, OpenAt>(self.find()) };
        // SAFETY: the caller's.
        unsafe { function(dir, path, flags, mode) }
    }

    /// Calls `__openat_2` or `__openat64_2`.
    ///
    /// # Safety
    /// As of that function.
    pub(crate) unsafe fn open_at_2(&self, dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the C library has a function of this kind under this name.
        let function = unsafe { std::mem::transmute::<*mut c_void, OpenAt2>(self.find()) };
        // SAFETY: the caller's.
        unsafe { function(dir, path, flags) }
    }

    /// Calls `creat` or `creat64`.
    ///
    /// # Safety
    /// As of that function.
    pub(crate) unsafe fn creat(&self, path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the C library has a function of this kind under this name.
        let function = unsafe { std::mem::transmute::<*mut c_void, Creat>(self.find()) };
        // SAFETY: the caller's.
        unsafe { function(path, mode) }
    }

    /// Calls `fopen` or `fopen64`.
    ///
    /// # Safety
    /// As of that function.
    pub(crate) unsafe fn fopen(&self, path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: the C library has a function of this kind under this name.
        let function = unsafe { std::mem::transmute::<*mut c_void, Fopen>(self.find()) };
        // SAFETY: the caller's.
        unsafe { function(path, mode) }
    }
}
