//! The processors that threads run on.

#![expect(unsafe_code, reason = "the system calls take pointers")]

use std::io;
use std::mem::{size_of, zeroed};
use std::sync::mpsc;
use std::thread;

/// Where `/proc/TID/stat` has the number of the processor, counted from the field behind the name.
const PROCESSOR_FIELD: usize = 36;

/// Moves the thread that made it to the processors on which other threads of the machine run, from
/// a thread of its own.
///
/// Of two threads that wait for each other in turn each wakes the other. That costs an interrupt of
/// another processor if they run on two, and less than a tenth of it on one.
///
/// The thread of its own is needed because `/proc/TID/stat` has to wait while that thread begins
/// another program. Until then Linux closes its files that are marked close-on-exec. If one of them
/// is a FUSE file, the thread waits for its server: a server that read `/proc` itself would wait
/// for ever.
#[derive(Debug)]
pub struct Follower {
    wanted: mpsc::SyncSender<Look>,
    found: mpsc::Receiver<io::Result<bool>>,
    /// Whether a look is under way.
    looks: bool,
}

/// A wish to be where another thread is.
struct Look {
    thread: u32,
    /// The processor on which the wish was made.
    from: Option<usize>,
}

impl Follower {
    /// Will move the calling thread.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn of_this_thread() -> io::Result<Self> {
        // SAFETY: the call takes nothing, and always succeeds.
        let own = unsafe { libc::gettid() };
        let (wanted, wishes) = mpsc::sync_channel::<Look>(1);
        let (tell, found) = mpsc::channel();
        // The thread ends when the follower is dropped. Nobody waits for it: it may look.
        thread::Builder::new().name("follower".to_owned()).spawn(move || {
            for look in wishes {
                if tell.send(move_beside(own, &look)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { wanted, found, looks: false })
    }

    /// Begins to look where another thread of the machine runs, or ran last, and moves there.
    /// Returns at once. Does nothing while an earlier look is under way.
    ///
    /// The scheduler may move the thread on at any time: the processors that it may use stay the
    /// same.
    pub fn follow(&mut self, thread: u32) {
        if !self.looks {
            let look = Look { thread, from: own_processor() };
            self.looks = self.wanted.try_send(look).is_ok();
        }
    }

    /// Whether a look is under way whose result was not asked for yet.
    #[must_use]
    pub const fn looks(&self) -> bool {
        self.looks
    }

    /// The result of the look that has ended: false if the two were on one processor already.
    /// `None` while it is under way, or if there was none.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such thread here,
    /// [`io::ErrorKind::PermissionDenied`] if the moved thread may not run on that processor, and
    /// what the kernel says if it has more processors than [`libc::cpu_set_t`]. The thread stays
    /// where it is then.
    pub fn found(&mut self) -> Option<io::Result<bool>> {
        if !self.looks {
            return None;
        }
        let found = self.found.try_recv().ok()?;
        self.looks = false;
        Some(found)
    }
}

/// Moves the thread `own`: see [`Follower::found`].
fn move_beside(own: libc::pid_t, look: &Look) -> io::Result<bool> {
    let there = processor_of(look.thread)?;
    if look.from == Some(there) {
        return Ok(false);
    }
    let allowed = set_of(own)?;
    set(own, &only(there, &allowed)?)?;
    set(own, &allowed)?;
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

/// The processors that a thread of this process may use; zero is the calling one.
fn set_of(thread: libc::pid_t) -> io::Result<libc::cpu_set_t> {
    // SAFETY: a set is an array of numbers, and may be all zeroes: then it is empty.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the kernel writes at most as many bytes as it is told.
    match unsafe { libc::sched_getaffinity(thread, size_of_val(&set), &raw mut set) } {
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
    // SAFETY: see `set_of`.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the number is within the set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    Ok(set)
}

fn set(thread: libc::pid_t, set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the call only reads the set, which outlives it.
    match unsafe { libc::sched_setaffinity(thread, size_of_val(set), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
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

    /// Follows a thread, and waits for the result.
    fn follow(follower: &mut Follower, thread: u32) -> io::Result<bool> {
        assert!(!follower.looks() && follower.found().is_none());
        follower.follow(thread);
        loop {
            assert!(follower.looks());
            if let Some(found) = follower.found() {
                return found;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_goes_where_another_is_and_may_go_on() {
        let allowed = set_of(0).unwrap();
        let processors = each(&allowed);
        let mut follower = Follower::of_this_thread().unwrap();
        for place in processors.iter().copied().take(4) {
            let (tell, told) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let other = thread::spawn(move || {
                set(0, &only(place, &allowed).unwrap()).unwrap();
                assert_eq!(own_processor(), Some(place));
                // SAFETY: the call takes nothing.
                tell.send(unsafe { libc::gettid() }).unwrap();
                ended.recv().unwrap_err();
            });
            let number = told.recv().unwrap().cast_unsigned();
            assert_eq!(processor_of(number).unwrap(), place);
            follow(&mut follower, number).unwrap();
            assert_eq!(each(&set_of(0).unwrap()), processors);
            let elsewhere = processors.iter().copied().find(|own| *own != place);
            if let Some(elsewhere) = elsewhere {
                set(0, &only(elsewhere, &allowed).unwrap()).unwrap();
                let refused = follow(&mut follower, number).map_err(|error| error.kind());
                assert_eq!(refused, Err(io::ErrorKind::PermissionDenied));
                assert_eq!(each(&set_of(0).unwrap()), [elsewhere]);
                set(0, &allowed).unwrap();
            }
            drop(end);
            other.join().unwrap();
            // The kernel may list the thread for a moment after it was joined.
            let gone = loop {
                match processor_of(number) {
                    Ok(_) => thread::yield_now(),
                    Err(error) => break error.kind(),
                }
            };
            assert_eq!(gone, io::ErrorKind::NotFound);
        }
    }
}
