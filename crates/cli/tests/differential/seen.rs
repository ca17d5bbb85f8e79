//! The attributes of a file before and after a call, and whether two worlds agree on them.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, StatxTimestamp};

use crate::call::{Call, Of, Step};
use crate::perform::World;

/// Seconds and nanoseconds.
type Time = (i64, u32);

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    number: u64,
    pub(crate) mode: u16,
    links: u32,
    uid: u32,
    gid: u32,
    pub(crate) size: u64,
    pub(crate) sectors: u64,
    block_bytes: u32,
    device: (u32, u32),
    pub(crate) times: [Time; 4],
    /// Whether it is immutable or append-only, as far as the kernel says.
    pub(crate) locked: bool,
}

/// The times, in the order of [`Seen::times`].
pub(crate) const TIMES: [&str; 4] = ["atime", "mtime", "ctime", "btime"];

/// The place of the time of access among [`TIMES`].
pub(crate) const ACCESS: usize = 0;

/// The place of the time of the last change of content.
pub(crate) const CONTENT: usize = 1;

/// The place of the time of birth.
const BIRTH: usize = 3;

impl Seen {
    pub(crate) fn of(dir: impl AsFd, path: &str, flags: AtFlags) -> Option<Self> {
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let known = fs::statx(dir, path, flags, mask).ok()?;
        let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
        Some(Self {
            number: known.stx_ino,
            mode: known.stx_mode,
            links: known.stx_nlink,
            uid: known.stx_uid,
            gid: known.stx_gid,
            size: known.stx_size,
            sectors: known.stx_blocks,
            block_bytes: known.stx_blksize,
            device: (known.stx_rdev_major, known.stx_rdev_minor),
            locked: known
                .stx_attributes
                .intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND),
            times: [known.stx_atime, known.stx_mtime, known.stx_ctime, known.stx_btime].map(time),
        })
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// The attributes that must be equal in both worlds, by name.
    fn shown(&self) -> [(&'static str, u64); 8] {
        [
            ("mode", self.mode.into()),
            ("links", self.links.into()),
            ("uid", self.uid.into()),
            ("gid", self.gid.into()),
            ("size", self.size),
            ("sectors", self.sectors),
            ("block size", self.block_bytes.into()),
            ("device", u64::from(self.device.0) << 32 | u64::from(self.device.1)),
        ]
    }
}

/// A file that a call may change, in one world.
#[derive(Debug)]
struct Watched {
    held: Option<OwnedFd>,
    before: Option<Seen>,
}

/// The files that a call may change, in one world.
#[derive(Debug)]
pub(crate) struct Watch(Vec<Watched>);

/// A file before and after a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) before: Option<Seen>,
    pub(crate) after: Option<Seen>,
}

pub(crate) fn seen(world: &World, of: &Of) -> Option<Seen> {
    match of {
        Of::File(slot) => Seen::of(&world.slots[*slot].as_ref()?.fd, "", AtFlags::EMPTY_PATH),
        Of::Path(at) => {
            let follow = if at.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            Seen::of(&world.base, &at.path, follow)
        }
    }
}

fn hold(world: &World, of: &Of) -> Option<OwnedFd> {
    let Of::Path(at) = of else { return None };
    let follow = if at.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::CLOEXEC | follow;
    fs::openat(&world.base, &*at.path, flags, Mode::empty()).ok()
}

impl Watch {
    pub(crate) fn begin(world: &World, step: &Step, subjects: &[Of]) -> Self {
        let watched = subjects.iter().map(|of| {
            let held = if step.held { hold(world, of) } else { None };
            // An open call puts another file into the slot.
            let is_new = matches!((of, &step.call), (Of::File(_), Call::Open { .. }));
            Watched { held, before: if is_new { None } else { seen(world, of) } }
        });
        Self(watched.collect())
    }

    /// The changes of each subject: of the file that had the name before, and of the one that has
    /// it after.
    pub(crate) fn end(&self, world: &World, subjects: &[Of]) -> Vec<[Change; 2]> {
        let ended = self.0.iter().zip(subjects).map(|(watched, of)| {
            let now = seen(world, of);
            let held = watched.held.as_ref();
            let old = held.map_or(now, |held| Seen::of(held, "", AtFlags::EMPTY_PATH));
            let same = |seen: &Option<Seen>| match (seen, &watched.before) {
                // An inode number may have been used again, with another time of birth.
                (Some(seen), Some(before)) => {
                    (seen.number, seen.times[BIRTH]) == (before.number, before.times[BIRTH])
                }
                _ => false,
            };
            let before = watched.before.filter(|_| same(&old));
            let before_now = watched.before.filter(|_| same(&now));
            [Change { before, after: old }, Change { before: before_now, after: now }]
        });
        ended.collect()
    }
}

impl Change {
    pub(crate) fn is_pipe(&self) -> bool {
        self.after.is_some_and(|seen| seen.mode & 0o170_000 == 0o010_000)
    }

    pub(crate) fn moved(&self, time: usize) -> Option<bool> {
        Some(self.before?.times[time] != self.after?.times[time])
    }

    /// Whether the time of access may have been set to its old value, in the same tick of the
    /// kernel's clock.
    fn is_same_tick(&self, now: i128) -> bool {
        let Some(seen) = self.after else { return false };
        let (seconds, nanos) = seen.times[ACCESS];
        let at = i128::from(seconds) * SECOND + i128::from(nanos);
        self.moved(ACCESS) == Some(false) && now.abs_diff(at) < TICK_NANOS
    }

    /// Whether the times have whole seconds and are recent: a change within one second does not
    /// show then.
    fn is_within(&self, time: usize, now: i64) -> bool {
        let all = [self.before, self.after];
        let mut all = all.into_iter().flatten().map(|seen| seen.times[time]);
        all.all(|(seconds, nanos)| nanos == 0 && seconds.abs_diff(now) < 3)
    }
}

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// The longest tick of the kernel's clock for times of access, with the duration of a call added.
const TICK_NANOS: u128 = 15_000_000;

/// Seconds: a time that is further from now was set by a program.
const SET: u64 = 10 * 24 * 60 * 60;

/// A difference between two worlds in the attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Differs {
    pub(crate) what: &'static str,
    pub(crate) kernel: String,
    pub(crate) ours: String,
}

/// How our file differs from the kernel's after the same call. `now` is when the call ended in the
/// kernel's world, in nanoseconds.
pub(crate) fn compare(kernel: &Change, ours: &Change, now: i128) -> Vec<Differs> {
    let second = i64::try_from(now / SECOND).unwrap();
    let mut found = Vec::new();
    let mut differs = |what, kernel: String, ours: String| {
        if kernel != ours {
            found.push(Differs { what, kernel, ours });
        }
    };
    let (Some(theirs), Some(own)) = (kernel.after, ours.after) else {
        let is = |change: &Change| if change.after.is_some() { "there" } else { "not there" };
        differs("the file", is(kernel).to_owned(), is(ours).to_owned());
        return found;
    };
    for ((what, kernel), (_, ours)) in theirs.shown().into_iter().zip(own.shown()) {
        match what {
            "mode" => differs(what, format!("{kernel:o}"), format!("{ours:o}")),
            _ => differs(what, kernel.to_string(), ours.to_string()),
        }
    }
    for (time, what) in TIMES.into_iter().enumerate() {
        let how = |change: &Change| match change.moved(time) {
            Some(true) => "moved",
            Some(false) => "stayed",
            None => "is new",
        };
        if kernel.is_within(time, second) || time == ACCESS && kernel.is_same_tick(now) {
            continue;
        }
        differs(what, how(kernel).to_owned(), how(ours).to_owned());
        let is_set = |seen: &Seen| seen.times[time].0.abs_diff(second) > SET;
        if is_set(&theirs) || is_set(&own) {
            differs(what, format!("{:?}", theirs.times[time]), format!("{:?}", own.times[time]));
        }
    }
    found
}
