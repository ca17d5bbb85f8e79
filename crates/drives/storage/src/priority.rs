//! Real-time priority: for a thread that must run as soon as it is ready, and for operations that a
//! disk must do before others.

#![expect(unsafe_code, reason = "the system call takes a pointer")]

use std::io;

/// The lowest real-time priority: still ahead of every ordinary thread.
const PRIORITY: i32 = 1;

/// The highest priority of an operation on a disk: class 1 (real time), level 0, as in
/// `linux/ioprio.h`. The kernel hands it to ATA disks as NCQ priority.
pub(crate) const REAL_TIME_IO: u16 = 1 << 13;
/// `IOPRIO_WHO_PROCESS`: a thread.
const ONE_THREAD: libc::c_long = 1;

/// Whether this process may give operations [`REAL_TIME_IO`]: it needs the capability
/// `CAP_SYS_NICE` or `CAP_SYS_ADMIN`. Tested on a thread of its own, which ends afterwards.
pub(crate) fn may_prefer_io() -> bool {
    let asked = std::thread::spawn(|| {
        let own: libc::c_long = 0;
        let priority = libc::c_long::from(REAL_TIME_IO);
        // SAFETY: the call takes numbers only.
        unsafe { libc::syscall(libc::SYS_ioprio_set, ONE_THREAD, own, priority) == 0 }
    });
    asked.join().unwrap_or(false)
}

/// Lets the calling thread run as soon as it is ready, ahead of every ordinary thread of the
/// machine (`SCHED_FIFO`), until it ends. On a machine with more work than processors an ordinary
/// thread waits some milliseconds for its turn, and so do the timers of its reactor.
///
/// Threads that it starts afterwards are preferred too, as are those that the kernel starts for its
/// io_uring: a punctual timer does not help if the thread that copies the data waits. All of them
/// must sleep most of the time, because all other threads lose the time they use.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] without the capability `CAP_SYS_NICE` or a limit that
/// allows it (`ulimit -r`); the thread then goes on as it was.
pub fn prefer_this_thread() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the call only reads `parameters`, which outlives it; zero is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_preferred_or_told_that_it_may_not() {
        // On a thread of its own, so that the other threads of the test run stay ordinary.
        let preferred = std::thread::spawn(prefer_this_thread).join().unwrap();
        if let Err(error) = preferred {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
