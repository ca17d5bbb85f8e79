//! The processors that threads run on.

#![expect(unsafe_code, reason = "the system calls take pointers")]

use std::io;
use std::mem::{size_of, zeroed};

/// Where `/proc/TID/stat` has the number of the processor, counted from the field behind the name.
const PROCESSOR_FIELD: usize = 36;

/// Moves the calling thread to the processor on which another thread of the machine runs, or ran
/// last. Returns false if it is there already. The scheduler may move it on at any time: the
/// processors that it may use stay the same.
///
/// Of two threads that wait for each other in turn each wakes the other. That costs an interrupt of
/// another processor if they run on two, and less than a tenth of it on one.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is no such thread here,
/// [`io::ErrorKind::PermissionDenied`] if the calling thread may not run on that processor, and
/// what the kernel says if it has more processors than [`libc::cpu_set_t`]. The thread stays where
/// it is then.
pub fn move_beside(thread: u32) -> io::Result<bool> {
    let there = processor_of(thread)?;
    if own_processor() == Some(there) {
        return Ok(false);
    }
    let allowed = own_set()?;
    set_own(&only(there, &allowed)?)?;
    set_own(&allowed)?;
    Ok(true)
}

/// The number of the processor that a thread runs on, or ran on last.
fn processor_of(thread: u32) -> io::Result<usize> {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat"))?;
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "/proc has another form");
    parse(&stat).ok_or_else(unknown)
}

/// The processor in the text of `/proc/TID/stat`. The thread's name may have any characters in it.
fn parse(stat: &str) -> Option<usize> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(PROCESSOR_FIELD)?.parse().ok()
}

/// The processor that the calling thread runs on.
fn own_processor() -> Option<usize> {
    // SAFETY: the call takes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The processors that the calling thread may use.
fn own_set() -> io::Result<libc::cpu_set_t> {
    // SAFETY: a set is an array of numbers, and may be all zeroes: then it is empty.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the kernel writes at most as many bytes as it is told; zero is the calling thread.
    match unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } {
        0 => Ok(set),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The set of one processor, which must be in `allowed`.
fn only(processor: usize, allowed: &libc::cpu_set_t) -> io::Result<libc::cpu_set_t> {
    // SAFETY: the number is checked first; both calls look at the set alone.
    let may = processor < 8 * size_of::<libc::cpu_set_t>()
        && unsafe { libc::CPU_ISSET(processor, allowed) };
    if !may {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // SAFETY: see `own_set`.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the number is within the set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    Ok(set)
}

fn set_own(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the call only reads the set, which outlives it; zero is the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(set), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let fields: Vec<String> = (3..53).map(|number| number.to_string()).collect();
        for name in ["tar", "a) 1 2 (b", ")"] {
            let stat = format!("7 ({name}) {}\n", fields.join(" "));
            assert_eq!(parse(&stat), Some(39), "proc(5) calls it field 39");
        }
        assert_eq!(parse("7 (tar) R 1 2"), None);
        assert_eq!(parse(""), None);
    }

    /// All processors that a thread may use, one after the other.
    fn each(allowed: &libc::cpu_set_t) -> Vec<usize> {
        (0..8 * size_of::<libc::cpu_set_t>()).filter(|at| only(*at, allowed).is_ok()).collect()
    }

    #[test]
    fn a_thread_goes_where_another_is_and_may_go_on() {
        let allowed = own_set().unwrap();
        let processors = each(&allowed);
        for place in processors.iter().copied().take(4) {
            let (tell, told) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let other = std::thread::spawn(move || {
                set_own(&only(place, &allowed).unwrap()).unwrap();
                assert_eq!(own_processor(), Some(place));
                // SAFETY: the call takes nothing.
                tell.send(unsafe { libc::gettid() }).unwrap();
                ended.recv().unwrap_err();
            });
            let number = told.recv().unwrap().cast_unsigned();
            assert_eq!(processor_of(number).unwrap(), place);
            move_beside(number).unwrap();
            assert_eq!(each(&own_set().unwrap()), processors);
            let elsewhere = processors.iter().copied().find(|own| *own != place);
            if let Some(elsewhere) = elsewhere {
                set_own(&only(elsewhere, &allowed).unwrap()).unwrap();
                let refused = move_beside(number).map_err(|error| error.kind());
                assert_eq!(refused, Err(io::ErrorKind::PermissionDenied));
                assert_eq!(each(&own_set().unwrap()), [elsewhere]);
                set_own(&allowed).unwrap();
            }
            drop(end);
            other.join().unwrap();
            let gone = processor_of(number).map_err(|error| error.kind());
            assert_eq!(gone, Err(io::ErrorKind::NotFound));
        }
    }
}
