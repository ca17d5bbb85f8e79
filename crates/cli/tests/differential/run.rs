//! Runs a sequence of calls in all worlds, and finds differences.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fd::OwnedFd;
use rustix::fs::{
    IFlags, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens,
    ioctl_getflags, ioctl_setflags,
};

use crate::call::{Call, Of, Slot, Step};
use crate::known::{self, Case};
use crate::perform::World;
use crate::seen::{ACCESS, CONTENT, Change, Differs, Watch, compare};
use crate::tree;
use crate::worlds::{NAMES, Worlds};

/// Calls between comparisons of whole trees.
const TREE_EVERY: u64 = 1000;

/// Sets a time of access before all others, and leaves the time of the last change of content.
const OLD: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 900_000_000, tv_nsec: 0 },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
};

/// Like [`OLD`], for both times.
const ALL_OLD: Timestamps =
    Timestamps { last_access: OLD.last_access, last_modification: OLD.last_access };

/// A difference between one of our worlds and the kernel's.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) step: Step,
    pub(crate) world: &'static str,
    /// The file; empty if the call's answer differs.
    pub(crate) of: String,
    pub(crate) differs: Differs,
    /// The call's answer in the kernel's world.
    answer: String,
}

impl Difference {
    /// A text that is equal for differences that probably have one cause.
    pub(crate) fn signature(&self) -> String {
        let Differs { what, kernel, ours } = &self.differs;
        let call = format!("{:?}", self.step.call);
        let call = call.split([' ', '(']).next().unwrap_or_default();
        match *what {
            "answer" if kernel.starts_with("Err") => format!("{call}: {kernel}, {ours}"),
            "answer" => format!("{call}: answer"),
            // Values of a file's attributes are part of the text.
            what if kernel.starts_with(|first: char| !first.is_alphabetic()) => {
                format!("{what}: {kernel}, {ours}")
            }
            what => format!("{call}: {what} {kernel}"),
        }
    }

    /// Whether later calls would differ as a result.
    pub(crate) fn is_lasting(&self) -> bool {
        let Differs { what, kernel, ours } = &self.differs;
        match *what {
            "answer" => kernel.starts_with("Ok") != ours.starts_with("Ok"),
            what => what == "the file",
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Step { number, user, call, .. } = &self.step;
        let Differs { what, kernel, ours } = &self.differs;
        let of = if self.of.is_empty() { String::new() } else { format!(" of {}", self.of) };
        writeln!(f, "call {number}, {user:?}: {call:?}: {}", self.answer)?;
        write!(f, "    {what}{of}: ")?;
        write!(f, "kernel {kernel}, {} {ours}", self.world)
    }
}

/// A sequence of calls under way, in a directory of each world.
pub(crate) struct Run<'w> {
    worlds: &'w mut Worlds,
    name: String,
    dirs: Vec<World>,
}

/// Sets the time of access, also of a file that is immutable or append-only.
fn set_old(file: &OwnedFd) {
    if futimens(file, &OLD).is_ok() {
        return;
    }
    let Ok(flags) = ioctl_getflags(file) else { return };
    let set = |flags| ioctl_setflags(file, flags).unwrap();
    set(flags - IFlags::IMMUTABLE - IFlags::APPEND);
    futimens(file, &OLD).unwrap();
    set(flags);
}

/// Nanoseconds since 1970.
fn now() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos().try_into().unwrap()
}

impl<'w> Run<'w> {
    pub(crate) fn new(worlds: &'w mut Worlds, name: &str) -> Self {
        let dirs = worlds.begin(name);
        Self { worlds, name: name.to_owned(), dirs }
    }

    /// Performs a call in each world; returns the differences that are not known ones.
    pub(crate) fn step(&mut self, step: &Step) -> Vec<Difference> {
        if step.call == Call::Remount {
            self.remount();
            return self.compare_trees(step);
        }
        let subjects = step.subjects();
        let watches: Vec<_> =
            self.dirs.iter().map(|world| Watch::begin(world, step, &subjects)).collect();
        let mut performed = self.dirs.iter_mut().map(|world| {
            let answer = world.perform(step.user, &step.call);
            (answer, now())
        });
        let (kernels, now) = performed.next().unwrap();
        let said = format!("{kernels:?}");
        let others = performed.map(|(answer, _)| answer);
        let answers: Vec<_> = std::iter::once(kernels).chain(others).collect();
        let ended = watches.iter().zip(&self.dirs);
        let ended: Vec<_> = ended.map(|(watch, world)| watch.end(world, &subjects)).collect();
        let mut found = Vec::new();
        for (world, (answer, ended_there)) in (0..).zip(answers.iter().zip(&ended)).skip(1) {
            let case =
                Case { step, subject: None, answer: &said, files: &ended[0], world: &self.dirs[0] };
            if *answer != answers[0] {
                let (kernel, ours) = (said.clone(), format!("{answer:?}"));
                let differs = Differs { what: "answer", kernel, ours };
                self.note(&case, (world, differs), &mut found);
            }
            let of_both = ended[0].iter().zip(ended_there);
            for (subject, (theirs, own)) in subjects.iter().zip(of_both) {
                for (kernel, ours) in theirs.iter().zip(own) {
                    for differs in compare(kernel, ours, now) {
                        let case = Case { subject: Some(subject), ..case };
                        self.note(&case, (world, differs), &mut found);
                    }
                }
            }
        }
        self.mend(step, &ended);
        if step.number.is_multiple_of(TREE_EVERY) {
            found.extend(self.compare_trees(step));
        }
        found
    }

    fn note(&self, case: &Case<'_>, found: (usize, Differs), all: &mut Vec<Difference>) {
        let (world, differs) = found;
        match known::reason(case, &differs) {
            Some(reason) => known::count(reason),
            None => {
                let of = match case.subject {
                    None => String::new(),
                    Some(Of::File(slot)) => format!("slot {slot}"),
                    Some(Of::Path(at)) => format!("{:?}", at.path),
                };
                let step = case.step.clone();
                let answer = case.answer.to_owned();
                all.push(Difference { step, world: NAMES[world], of, differs, answer });
            }
        }
    }

    /// Undoes known differences after the call: makes offsets, times and set-id bits equal again.
    fn mend(&self, step: &Step, ended: &[Vec<[Change; 2]>]) {
        match step.call {
            Call::List(ref path) => self.mend_listed(path, ended),
            Call::Seek { slot, .. } => self.mend_place(slot),
            Call::Write { slot, .. } | Call::Pwrite { slot, .. } | Call::Allocate { slot, .. } => {
                self.mend_written(slot, ended);
            }
            Call::Read { slot, .. } | Call::Pread { slot, .. } => self.mend_read(slot, ended),
            Call::CopyRange { from, to, .. } => {
                self.mend_read(from, ended);
                self.mend_written(to, ended);
            }
            _ => {}
        }
    }

    /// The slot's open file, in each world.
    fn all(&self, slot: Slot) -> impl Iterator<Item = &OwnedFd> {
        self.dirs.iter().filter_map(move |dir| Some(&dir.slots[slot].as_ref()?.fd))
    }

    fn mend_place(&self, slot: Slot) {
        let places: Vec<_> = self.dirs.iter().map(|world| world.place(slot)).collect();
        if places.iter().any(|place| *place != places[0]) {
            for file in self.all(slot) {
                let _ = rustix::fs::seek(file, SeekFrom::Start(0));
            }
        }
    }

    /// After a write; the written file is the last subject.
    fn mend_written(&self, slot: Slot, ended: &[Vec<[Change; 2]>]) {
        let last = ended.iter().map(|ended| ended.last().map(|[_, change]| *change));
        let last: Vec<Option<Change>> = last.collect();
        let Some(Change { after: Some(kernels), .. }) = last[0] else { return };
        let moved = |change: &Option<Change>| change.and_then(|change| change.moved(CONTENT));
        let mode = |change: &Option<Change>| Some(change.as_ref()?.after?.mode);
        let is_pipe = last.iter().flatten().any(Change::is_pipe);
        if is_pipe || last.iter().any(|change| moved(change) != moved(&last[0])) {
            for file in self.all(slot) {
                // Not all descriptors allow this.
                let _ = futimens(file, &ALL_OLD);
            }
        }
        if last.iter().any(|change| mode(change) != mode(&last[0])) {
            let mode = Mode::from_raw_mode(u32::from(kernels.mode) & 0o7777);
            for file in self.all(slot) {
                let _ = fchmod(file, mode);
            }
        }
    }

    /// After a read; the file is the first subject.
    fn mend_read(&self, slot: Slot, ended: &[Vec<[Change; 2]>]) {
        let moved = ended.iter().map(|ended| ended.first()?[1].moved(ACCESS));
        let moved: Vec<_> = moved.collect();
        if moved.iter().any(|one| *one != moved[0]) {
            self.all(slot).for_each(set_old);
        }
    }

    /// After a listing; the directory is the first subject.
    fn mend_listed(&self, path: &str, ended: &[Vec<[Change; 2]>]) {
        let moved = ended.iter().map(|ended| ended.first()?[1].moved(ACCESS));
        let moved: Vec<_> = moved.collect();
        if moved.iter().any(|one| *one != moved[0]) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME;
            let open = |world: &World| rustix::fs::openat(&world.base, path, flags, Mode::empty());
            self.dirs.iter().flat_map(|world| open(world).ok()).for_each(|dir| set_old(&dir));
        }
    }

    fn compare_trees(&mut self, step: &Step) -> Vec<Difference> {
        let (kernel, now) = (&self.dirs[0], now());
        let mut found = Vec::new();
        for (world, ours) in self.dirs.iter().enumerate().skip(1) {
            for (path, differs) in tree::differences(kernel, ours, now) {
                let of = Of::Path(crate::call::At { path, follow: false });
                let case = Case { step, subject: Some(&of), answer: "", files: &[], world: kernel };
                self.note(&case, (world, differs), &mut found);
            }
        }
        found
    }

    fn remount(&mut self) {
        self.dirs.clear();
        self.worlds.unmount();
        self.worlds.mount();
        self.dirs = self.worlds.again(&self.name);
    }
}
