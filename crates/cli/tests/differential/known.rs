//! Differences that are intended, or that a program behind FUSE cannot avoid, each with its reason.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rustix::fs::{FallocateFlags, RenameFlags};

use crate::call::{Call, Of, Step, Whence};
use crate::make::SIZE_MOST;
use crate::perform::World;
use crate::seen::{Change, Differs, Seen, seen};

const SECTORS_OF_BLOCK: u64 = 8;

/// The circumstances of a difference.
#[derive(Clone, Copy)]
pub(crate) struct Case<'c> {
    pub(crate) step: &'c Step,
    /// The file; `None` if the call's answer differs.
    pub(crate) subject: Option<&'c Of>,
    /// The call's answer in the kernel's world.
    pub(crate) answer: &'c str,
    /// The kernel's world.
    pub(crate) world: &'c World,
    /// The files that the call may change, in the kernel's world.
    pub(crate) files: &'c [[Change; 2]],
}

impl Case<'_> {
    fn files(&self) -> impl Iterator<Item = Seen> {
        self.files.iter().flatten().flat_map(|change| [change.before, change.after]).flatten()
    }
}

/// A known difference.
struct Known {
    name: &'static str,
    applies: fn(&Case<'_>, &Differs) -> bool,
}

const KNOWN: [Known; 16] = [
    // The kernel itself answers reads of cached pages, reads behind the end, and cached lists. The
    // server does not learn of these reads.
    Known {
        name: "the time of access after a read that the kernel answers",
        applies: |case, differs| {
            let reads = matches!(
                case.step.call,
                Call::Read { .. } | Call::Pread { .. } | Call::CopyRange { .. } | Call::List(..)
            );
            reads && differs.what == "atime" && differs.ours != "moved"
        },
    },
    // FUSE accepts every offset; only a search for data or holes reaches the server.
    Known {
        name: "a place behind the largest size",
        applies: |case, differs| {
            let Call::Seek { whence, .. } = case.step.call else { return false };
            let looks = matches!(whence, Whence::Data(_) | Whence::Hole(_));
            differs.what == "answer" && !looks && differs.kernel.contains("InvalidInput")
        },
    },
    // The kernel reports blocks that were allocated and never written as data if its page cache has
    // read them, and as a hole otherwise.
    Known {
        name: "data or hole where blocks read as zeroes",
        applies: |case, differs| {
            let (slot, from) = match case.step.call {
                Call::Seek { slot, whence: Whence::Data(from) | Whence::Hole(from) } => {
                    (slot, from)
                }
                _ => return false,
            };
            let place = |said: &str| said.strip_prefix("Ok(")?.strip_suffix(')')?.parse().ok();
            let places = [place(&differs.kernel), place(&differs.ours)];
            let places = places.map(|place| place.unwrap_or(u64::MAX));
            let (first, last) = (places[0].min(places[1]), places[0].max(places[1]));
            differs.what == "answer" && first >= from && case.world.reads_zeroes(slot, first..last)
        },
    },
    // Each driver chooses where blocks lie, and so the number of extents. Up to four extents fit in
    // the inode; more need a block of the tree.
    Known {
        name: "the block of an extent tree",
        applies: |_, differs| {
            let sectors =
                [&differs.kernel, &differs.ours].map(|text| text.parse().unwrap_or(0_u64));
            // The kernel keeps that block when a file becomes short again.
            let many = sectors[0] > sectors[1] || sectors[0] > 4 * SECTORS_OF_BLOCK;
            let apart = sectors[0].abs_diff(sectors[1]);
            differs.what == "sectors" && many && apart == SECTORS_OF_BLOCK
        },
    },
    // Each driver chooses where to split a full block of names, if names differ in length. Later
    // names then fill one half or the other.
    Known {
        name: "the blocks of a large directory",
        applies: |case, differs| {
            let [kernel, ours] =
                [&differs.kernel, &differs.ours].map(|text| text.parse().unwrap_or(0_u64));
            let now = case.subject.and_then(|of| seen(case.world, of));
            let is_it = |seen: Seen| {
                let shown = if differs.what == "size" { seen.size } else { seen.sectors };
                seen.is_directory() && shown == kernel
            };
            case.files().chain(now).any(is_it)
                && ["size", "sectors"].contains(&differs.what)
                && kernel.abs_diff(ours) * 4 <= kernel
        },
    },
    // FUSE refuses modes that it does not know before it checks the range.
    Known {
        name: "another error of a mode of fallocate",
        applies: |case, differs| {
            let Call::Allocate { mode, .. } = case.step.call else { return false };
            let unknown = mode.contains(FallocateFlags::UNSHARE_RANGE);
            unknown && differs.kernel.starts_with("Err") && differs.ours.contains("Unsupported")
        },
    },
    // Only the kernel sees the data that go through a pipe.
    Known {
        name: "times of a pipe that is used",
        applies: |case, differs| {
            let uses = matches!(case.step.call, Call::Write { .. } | Call::Read { .. });
            let is_pipe = case.files.iter().flatten().any(Change::is_pipe);
            uses && is_pipe && differs.ours != "moved" && differs.what.ends_with("time")
        },
    },
    // The kernel puts the whiteout into the directory, finds that the new name is impossible, and
    // removes the whiteout again.
    Known {
        name: "times of the directory after a rename with a whiteout that fails",
        applies: |case, differs| {
            let Call::Rename { flags, .. } = case.step.call else { return false };
            let failed = flags.contains(RenameFlags::WHITEOUT) && case.answer.starts_with("Err");
            failed && ["mtime", "ctime"].contains(&differs.what) && differs.ours == "stayed"
        },
    },
    // The kernel decides by itself, and does not know the inode's flags.
    Known {
        name: "access() of an immutable file",
        applies: |case, differs| {
            let asks = matches!(case.step.call, Call::MayAccess { .. });
            let refused = differs.kernel.contains("code: 1,");
            asks && differs.what == "answer" && refused && case.files().any(|file| file.locked)
        },
    },
    // FUSE checks the owner of a device or a pipe before it refuses because these have no flags.
    Known {
        name: "flags of special files",
        applies: |case, differs| {
            let sets = matches!(case.step.call, Call::SetFlags { .. });
            sets && differs.what == "answer" && differs.kernel.contains("Inappropriate ioctl")
        },
    },
    // FUSE does not know flags. It answers by itself that a file has no default list to remove, and
    // that a write of no bytes succeeds.
    Known {
        name: "what changes nothing of an immutable or append-only file",
        applies: |case, differs| {
            let changes_nothing = match &case.step.call {
                Call::RemoveXattr { name, .. } => {
                    let is_other = case.files().any(|file| file.locked && !file.is_directory());
                    name == "system.posix_acl_default" && is_other
                }
                Call::Write { .. } | Call::Pwrite { .. } | Call::CopyRange { .. } => {
                    differs.ours == "Ok(0)"
                }
                _ => false,
            };
            let refused = differs.what == "answer" && differs.kernel.contains("code: 1,");
            changes_nothing && refused && case.files().any(|file| file.locked)
        },
    },
    // Offsets in directories have a meaning for the file system alone.
    Known {
        name: "a place in a directory",
        applies: |case, differs| {
            let seeks = matches!(case.step.call, Call::Seek { .. });
            seeks && differs.what == "answer" && case.files().any(|file| file.is_directory())
        },
    },
    // The server cannot tell this change from the request before a write, which must not fail. The
    // file keeps its bits here too.
    Known {
        name: "EPERM where a stranger gives a file with set-id bits its own owner",
        applies: |case, differs| {
            let stays = matches!(case.step.call, Call::SetOwner { uid: None, gid: None, .. });
            stays && differs.what == "answer" && differs.kernel.contains("PermissionDenied")
        },
    },
    // FUSE does not know the largest size of a file, and has the bits of the owner's file cleared
    // before it sends the write.
    Known {
        name: "set-id bits after a write behind the largest size by the owner",
        applies: |case, differs| {
            let at = match case.step.call {
                Call::Pwrite { at, .. } => at,
                Call::Allocate { at, len, .. } => at + len,
                Call::Write { .. } => SIZE_MOST,
                Call::CopyRange { to_at, .. } => to_at.unwrap_or(SIZE_MOST),
                _ => return false,
            };
            at >= SIZE_MOST && ["mode", "ctime"].contains(&differs.what)
        },
    },
    // When a direct write fails that would make a file longer, FUSE cuts off a part that may have
    // been written: it sets the size that the file has, which counts as a change.
    Known {
        name: "times after a write past the page cache that fails",
        applies: |case, differs| {
            let (Call::Write { slot, .. } | Call::Pwrite { slot, .. }) = case.step.call else {
                return false;
            };
            let failed = case.world.is_direct(slot) && case.answer.starts_with("Err");
            failed && ["mtime", "ctime"].contains(&differs.what) && differs.kernel == "stayed"
        },
    },
    // FUSE does not know the flags of inodes: it checks rights and kinds first, and the server
    // refuses the rest.
    Known {
        name: "another error of an immutable or append-only file",
        applies: |case, differs| {
            let refused = differs.kernel.contains("PermissionDenied");
            let refused = refused && differs.ours.starts_with("Err");
            differs.what == "answer" && refused && case.files().any(|file| file.locked)
        },
    },
];

/// The name of the known difference that applies, if any.
pub(crate) fn reason(case: &Case<'_>, differs: &Differs) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.applies)(case, differs)).map(|known| known.name)
}

thread_local! {
    static COUNTS: RefCell<BTreeMap<&'static str, u64>> = RefCell::default();
}

pub(crate) fn count(name: &'static str) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(name).or_default() += 1);
}

/// How often each known difference was met since the last call.
pub(crate) fn counts() -> BTreeMap<&'static str, u64> {
    COUNTS.take()
}
