//! Differences that are meant, or that a program cannot avoid behind FUSE: each with its reason.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rustix::fs::{FallocateFlags, RenameFlags};

use crate::call::{Call, Of, Step, Whence};
use crate::make::SIZE_MOST;
use crate::perform::World;
use crate::seen::{Change, Differs, Seen, seen};

const SECTORS_OF_BLOCK: u64 = 8;

/// Where something is different.
#[derive(Clone, Copy)]
pub(crate) struct Case<'c> {
    pub(crate) step: &'c Step,
    /// The file; none for what a call answered.
    pub(crate) subject: Option<&'c Of>,
    /// What the call answered in the kernel's world.
    pub(crate) answer: &'c str,
    /// The kernel's.
    pub(crate) world: &'c World,
    /// The files that the call may change, in the kernel's world.
    pub(crate) files: &'c [[Change; 2]],
}

impl Case<'_> {
    fn files(&self) -> impl Iterator<Item = Seen> {
        self.files.iter().flatten().flat_map(|change| [change.before, change.after]).flatten()
    }
}

/// A difference that is meant.
struct Known {
    name: &'static str,
    applies: fn(&Case<'_>, &Differs) -> bool,
}

const KNOWN: [Known; 16] = [
    // The kernel answers reads of what its page cache holds, and behind the end, and lists that it
    // has kept. Nobody hears of them.
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
    // FUSE takes every place that a number can say; only what looks for data asks the server.
    Known {
        name: "a place behind the largest size",
        applies: |case, differs| {
            let Call::Seek { whence, .. } = case.step.call else { return false };
            let looks = matches!(whence, Whence::Data(_) | Whence::Hole(_));
            differs.what == "answer" && !looks && differs.kernel.contains("InvalidInput")
        },
    },
    // Blocks that were allocated and never written are data to the kernel where its page cache has
    // read them, and a hole otherwise.
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
    // Where blocks lie is each driver's choice, and so is how many extents they are. Up to four
    // extents are in the inode, and more in a block of the tree.
    Known {
        name: "the block of an extent tree",
        applies: |_, differs| {
            let sectors =
                [&differs.kernel, &differs.ours].map(|text| text.parse().unwrap_or(0_u64));
            // The kernel keeps the block when a file becomes short again.
            let many = sectors[0] > sectors[1] || sectors[0] > 4 * SECTORS_OF_BLOCK;
            let apart = sectors[0].abs_diff(sectors[1]);
            differs.what == "sectors" && many && apart == SECTORS_OF_BLOCK
        },
    },
    // Where a full block of names is cut in two is each driver's choice, if names have several
    // lengths. Further names fill one half or the other then.
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
    // FUSE knows some modes, and refuses others before it looks at the range.
    Known {
        name: "another error of a mode of fallocate",
        applies: |case, differs| {
            let Call::Allocate { mode, .. } = case.step.call else { return false };
            let unknown = mode.contains(FallocateFlags::UNSHARE_RANGE);
            unknown && differs.kernel.starts_with("Err") && differs.ours.contains("Unsupported")
        },
    },
    // What goes through a pipe is the kernel's alone.
    Known {
        name: "times of a pipe that is used",
        applies: |case, differs| {
            let uses = matches!(case.step.call, Call::Write { .. } | Call::Read { .. });
            let is_pipe = case.files.iter().flatten().any(Change::is_pipe);
            uses && is_pipe && differs.ours != "moved" && differs.what.ends_with("time")
        },
    },
    // The kernel puts the whiteout into the directory, finds that the new name cannot be had, and
    // takes it away again.
    Known {
        name: "times of the directory after a rename with a whiteout that fails",
        applies: |case, differs| {
            let Call::Rename { flags, .. } = case.step.call else { return false };
            let failed = flags.contains(RenameFlags::WHITEOUT) && case.answer.starts_with("Err");
            failed && ["mtime", "ctime"].contains(&differs.what) && differs.ours == "stayed"
        },
    },
    // The kernel decides, and does not know flags.
    Known {
        name: "access() of an immutable file",
        applies: |case, differs| {
            let asks = matches!(case.step.call, Call::MayAccess { .. });
            let refused = differs.kernel.contains("code: 1,");
            asks && differs.what == "answer" && refused && case.files().any(|file| file.locked)
        },
    },
    // FUSE asks who owns a device or a pipe before it says that these have no flags.
    Known {
        name: "flags of special files",
        applies: |case, differs| {
            let sets = matches!(case.step.call, Call::SetFlags { .. });
            sets && differs.what == "answer" && differs.kernel.contains("Inappropriate ioctl")
        },
    },
    // FUSE does not know flags, and answers itself that what is no directory has no default list to
    // remove, and that nothing is written where that is all there is to write.
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
    // Places in directories mean something to the file system alone.
    Known {
        name: "a place in a directory",
        applies: |case, differs| {
            let seeks = matches!(case.step.call, Call::Seek { .. });
            seeks && differs.what == "answer" && case.files().any(|file| file.is_directory())
        },
    },
    // What asks for it is the request that comes before a write, which must not fail. Nothing is
    // taken from the file here, either.
    Known {
        name: "EPERM where a stranger gives a file with set-id bits its own owner",
        applies: |case, differs| {
            let stays = matches!(case.step.call, Call::SetOwner { uid: None, gid: None, .. });
            stays && differs.what == "answer" && differs.kernel.contains("PermissionDenied")
        },
    },
    // FUSE does not know how large a file may be, and asks for the bits of the owner's file before
    // it asks for the write.
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
    // When a write past the page cache fails that would make a file longer, FUSE cuts what it may
    // have left: it gives the file the size that it has, which is a change as of any program.
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
    // The kernel's FUSE does not know the flags of inodes, so that it checks rights and kinds
    // first, and the server refuses what is left.
    Known {
        name: "another error of an immutable or append-only file",
        applies: |case, differs| {
            let refused = differs.kernel.contains("PermissionDenied");
            let refused = refused && differs.ours.starts_with("Err");
            differs.what == "answer" && refused && case.files().any(|file| file.locked)
        },
    },
];

/// The name of the known difference that this is one of.
pub(crate) fn reason(case: &Case<'_>, differs: &Differs) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.applies)(case, differs)).map(|known| known.name)
}

thread_local! {
    static COUNTS: RefCell<BTreeMap<&'static str, u64>> = RefCell::default();
}

pub(crate) fn count(name: &'static str) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(name).or_default() += 1);
}

/// How often each was met since the last time that this was asked.
pub(crate) fn counts() -> BTreeMap<&'static str, u64> {
    COUNTS.take()
}
