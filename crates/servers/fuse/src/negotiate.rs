//! What kernel and server agree upon before the first request.

use thiserror::Error;

use crate::decode::Dialect;
use crate::request::Init;
use crate::values::InitFlags;
use crate::wire::InitOut;

/// Major version of the newest protocol that this crate speaks.
const MAJOR: u32 = 7;
/// Minor version of that protocol.
const MINOR: u32 = 45;
/// The oldest minor version accepted (Linux 5.4): from it on requests have the lengths that we
/// decode.
const MINOR_LEAST: u32 = 31;
/// Least bytes of a page.
const PAGE_BYTES: u32 = 4096;

/// What a file system wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Flags without which the file system cannot be served.
    pub required: InitFlags,
    /// Flags that are used if the kernel offers them.
    pub desired: InitFlags,
    /// Most bytes of a write; whole pages.
    pub max_write: u32,
    /// Requests that the kernel keeps under way for itself: reading ahead, and direct I/O.
    pub max_background: u16,
    /// Requests of that kind from which on the kernel reports the file system as busy.
    pub congestion_threshold: u16,
}

/// Why kernel and server could not agree.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InitError {
    /// The kernel is too old.
    #[error("this kernel speaks FUSE {major}.{minor}: 7.{MINOR_LEAST} (Linux 5.4) is needed")]
    Version {
        /// The kernel's version of the protocol.
        major: u32,
        /// See `major`.
        minor: u32,
    },
    /// The kernel does not offer what is required.
    #[error("this kernel's FUSE lacks {}: a newer kernel has it", names(*.0))]
    Lacks(InitFlags),
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Flags in effect.
    pub flags: InitFlags,
    /// How requests are encoded.
    pub dialect: Dialect,
    /// Most bytes of what follows the headers of a request or answer.
    pub payload_bytes: u32,
}

/// The answer to the kernel's first request.
#[derive(Debug)]
pub(crate) enum Answered {
    /// The kernel speaks a newer protocol, and begins again with this version.
    Again(InitOut),
    /// Both have agreed, and requests follow.
    Agreed(InitOut, Agreed),
}

fn names(flags: InitFlags) -> String {
    flags.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// Answers the kernel's introduction.
///
/// # Errors
/// See [`InitError`].
pub(crate) fn negotiate(init: &Init, wanted: &Wanted) -> Result<Answered, InitError> {
    let ours = InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() };
    if init.major > MAJOR {
        return Ok(Answered::Again(ours));
    }
    if (init.major, init.minor) < (MAJOR, MINOR_LEAST) {
        return Err(InitError::Version { major: init.major, minor: init.minor });
    }
    let missing = wanted.required.difference(init.offered);
    if !missing.is_empty() {
        return Err(InitError::Lacks(missing));
    }
    let always = InitFlags::INIT_EXT | InitFlags::BIG_WRITES | InitFlags::MAX_PAGES;
    let flags = (wanted.required | wanted.desired | always).intersection(init.offered);
    let [low, high] = halves(flags);
    let max_pages = u16::try_from(wanted.max_write.div_ceil(PAGE_BYTES)).unwrap_or(u16::MAX);
    let out = InitOut {
        max_readahead: init.max_readahead,
        flags: low,
        flags2: high,
        max_background: wanted.max_background,
        congestion_threshold: wanted.congestion_threshold,
        max_write: wanted.max_write,
        time_gran: 1,
        max_pages,
        ..ours
    };
    let dialect = Dialect { extended_setxattr: flags.contains(InitFlags::SETXATTR_EXT) };
    let payload_bytes = (u32::from(max_pages) * PAGE_BYTES).max(wanted.max_write).max(8192);
    Ok(Answered::Agreed(out, Agreed { flags, dialect, payload_bytes }))
}

/// The lower and the upper 32 bits of the flags.
fn halves(flags: InitFlags) -> [u32; 2] {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
    [half(flags.bits()), half(flags.bits() >> 32)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        required: InitFlags::POSIX_ACL,
        desired: InitFlags::SETXATTR_EXT.union(InitFlags::ASYNC_DIO),
        max_write: 1 << 20,
        max_background: 16,
        congestion_threshold: 12,
    };

    fn kernel(major: u32, minor: u32, offered: InitFlags) -> Init {
        Init { major, minor, max_readahead: 131_072, offered }
    }

    #[test]
    fn only_what_both_want_is_agreed_upon() {
        let offered = InitFlags::POSIX_ACL | InitFlags::ASYNC_DIO | InitFlags::MAX_PAGES;
        let answered = negotiate(&kernel(7, 40, offered | InitFlags::DONT_MASK), &WANTED);
        let Ok(Answered::Agreed(out, agreed)) = answered else { panic!("{answered:?}") };
        assert_eq!(agreed.flags, offered);
        assert!(!agreed.dialect.extended_setxattr);
        assert_eq!((out.major, out.minor, out.max_pages), (7, 45, 256));
        assert_eq!(u64::from(out.flags) | u64::from(out.flags2) << 32, offered.bits());
        let all = kernel(7, 45, InitFlags::from_bits_retain(u64::MAX));
        let answered = negotiate(&all, &WANTED);
        let Ok(Answered::Agreed(out, agreed)) = answered else { panic!("{answered:?}") };
        assert!(agreed.dialect.extended_setxattr);
        assert_eq!(out.flags2, 0, "nothing unknown is agreed upon");
    }

    #[test]
    fn a_ring_is_agreed_upon_where_the_kernel_offers_it() {
        let wanted = Wanted { desired: InitFlags::OVER_IO_URING, ..WANTED };
        for (offered, agreed_upon) in [(InitFlags::OVER_IO_URING, true), (WANTED.desired, false)] {
            let offered = offered | InitFlags::POSIX_ACL | InitFlags::INIT_EXT;
            let answered = negotiate(&kernel(7, 42, offered), &wanted);
            let Ok(Answered::Agreed(out, agreed)) = answered else { panic!("{answered:?}") };
            assert_eq!(agreed.flags.contains(InitFlags::OVER_IO_URING), agreed_upon);
            assert_eq!(out.flags2, u32::from(agreed_upon) << 9);
            assert_eq!(agreed.payload_bytes, 1 << 20);
        }
        let small = Wanted { max_write: 4096, ..wanted };
        let answered = negotiate(&kernel(7, 42, InitFlags::all()), &small);
        let Ok(Answered::Agreed(_, agreed)) = answered else { panic!("{answered:?}") };
        assert_eq!(agreed.payload_bytes, 8192, "the least that the kernel takes");
    }

    #[test]
    fn kernels_that_are_too_old_or_lack_something_are_refused_by_name() {
        let refused = |init| negotiate(&init, &WANTED).unwrap_err().to_string();
        let all = InitFlags::all();
        assert!(refused(kernel(7, 30, all)).contains("7.30"));
        assert!(refused(kernel(6, 99, all)).contains("6.99"));
        let lacks = refused(kernel(7, 31, InitFlags::DONT_MASK));
        assert!(lacks.contains("lacks POSIX_ACL:"), "{lacks}");
    }

    #[test]
    fn a_newer_protocol_begins_again() {
        let answered = negotiate(&kernel(8, 0, InitFlags::empty()), &WANTED);
        assert!(matches!(answered, Ok(Answered::Again(out)) if (out.major, out.minor) == (7, 45)));
    }
}
