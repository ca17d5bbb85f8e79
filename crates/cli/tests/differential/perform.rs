//! Performing calls in one world.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, Timespec, Timestamps};
use rustix::io::{Errno, Result};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use rustix::{fs::Gid, fs::Uid};

use crate::call::{At, Call, Of, SLOTS, SetTime, Slot, User, Whence};
use crate::make::SIZE_MOST;

/// Block size of direct I/O.
const BLOCK: u64 = 4096;

/// An open file.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) fd: OwnedFd,
    pub(crate) flags: OFlags,
}

/// A directory of one file system, with the files open there.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) path: PathBuf,
    pub(crate) base: OwnedFd,
    pub(crate) slots: [Option<Open>; SLOTS],
}

/// The answer of a call.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Nothing,
    Number(u64),
    Bytes(Vec<u8>),
    Texts(Vec<String>),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("done"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Texts(texts) => write!(f, "{texts:?}"),
            Self::Bytes(bytes) => {
                write!(f, "{} bytes, crc {:08x}, ", bytes.len(), crc32c::crc32c(bytes))?;
                f.write_str(&bytes[..bytes.len().min(80)].escape_ascii().to_string())
            }
        }
    }
}

/// Makes this thread act as a user; root again when dropped.
struct As;

impl As {
    fn user(user: User) -> Self {
        if user != User::Root {
            let id = user.id();
            let second = (user == User::Alice).then(|| Gid::from_raw(User::SECOND_GROUP));
            let groups: Vec<_> = [Gid::from_raw(id)].into_iter().chain(second).collect();
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(Gid::from_raw(id), Gid::from_raw(id), Gid::ROOT).unwrap();
            set_thread_res_uid(Uid::from_raw(id), Uid::from_raw(id), Uid::ROOT).unwrap();
        }
        Self
    }
}

impl Drop for As {
    fn drop(&mut self) {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).unwrap();
        set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).unwrap();
        set_thread_groups(&[]).unwrap();
    }
}

fn nothing(result: Result<()>) -> Result<Answer> {
    result.map(|()| Answer::Nothing)
}

fn number(result: Result<impl TryInto<u64>>) -> Result<Answer> {
    result.map(|number| Answer::Number(number.try_into().ok().unwrap()))
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

fn time(time: SetTime) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        SetTime::Now => (0, fs::UTIME_NOW),
        SetTime::Omit => (0, fs::UTIME_OMIT),
        SetTime::At(seconds, nanos) => (seconds, nanos),
    };
    Timespec { tv_sec, tv_nsec }
}

/// Has `call` read up to `len` bytes, into memory aligned for direct I/O.
fn read(len: usize, call: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<Answer> {
    let mut room = vec![0xEE; len + 4096];
    let skip = room.as_ptr().align_offset(4096);
    let bytes = &mut room[skip..skip + len];
    let len = call(bytes)?;
    Ok(Answer::Bytes(bytes[..len].to_vec()))
}

fn write(len: usize, fill: u8, call: impl FnOnce(&[u8]) -> Result<usize>) -> Result<Answer> {
    let mut room = vec![fill; len + 4096];
    let skip = room.as_ptr().align_offset(4096);
    let bytes = &mut room[skip..skip + len];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte ^= (at >> 6).to_le_bytes()[0];
    }
    number(call(bytes))
}

fn follow(at: &At) -> AtFlags {
    if at.follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

impl World {
    pub(crate) fn new(path: PathBuf) -> Self {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = fs::open(&path, flags, Mode::empty()).unwrap();
        Self { path, base, slots: Default::default() }
    }

    /// Whether the slot's file was opened for direct I/O.
    pub(crate) fn is_direct(&self, slot: Slot) -> bool {
        self.slots[slot].as_ref().is_some_and(|open| open.flags.contains(OFlags::DIRECT))
    }

    fn full(&self, at: &At) -> CString {
        let full = [self.path.as_os_str().as_bytes(), b"/", at.path.as_bytes()].concat();
        CString::new(full).unwrap()
    }

    /// Performs a call as a user. A slot without a file answers `EBADF`.
    pub(crate) fn perform(&mut self, user: User, call: &Call) -> Result<Answer> {
        match call {
            Call::Close(slot) => {
                self.slots[*slot] = None;
                return Ok(Answer::Nothing);
            }
            Call::Umask(bits) => {
                rustix::process::umask(mode(*bits));
                return Ok(Answer::Nothing);
            }
            Call::Open { slot, .. } => self.slots[*slot] = None,
            _ => {}
        }
        let _as = As::user(user);
        if let Call::Open { slot, path, flags, mode: bits } = call {
            let fd = fs::openat(&self.base, &**path, *flags, mode(*bits))?;
            self.slots[*slot] = Some(Open { fd, flags: *flags });
            return Ok(Answer::Nothing);
        }
        self.on_content(call).or_else(|| self.on_names(call)).unwrap_or_else(|| self.about(call))
    }

    /// The offset of the slot's file.
    pub(crate) fn place(&self, slot: Slot) -> Option<u64> {
        self.slots[slot].as_ref().and_then(|open| fs::tell(&open.fd).ok())
    }

    /// Whether a part of the slot's file reads as zeroes. Of a large part only the beginning and
    /// the end are read.
    pub(crate) fn reads_zeroes(&self, slot: Slot, part: std::ops::Range<u64>) -> bool {
        const MOST: u64 = 1 << 20;
        let Ok(fd) = self.fd(slot) else { return false };
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC;
        let Ok(file) = fs::open(path, flags, Mode::empty()) else { return false };
        let size = fs::fstat(&file).unwrap().st_size.cast_unsigned();
        let part = part.start..part.end.min(size);
        let late = part.end.saturating_sub(MOST).max(part.start);
        [part.start..part.end.min(part.start + MOST), late..part.end].into_iter().all(|part| {
            let mut bytes = vec![0; usize::try_from(part.end.saturating_sub(part.start)).unwrap()];
            let read = rustix::io::pread(&file, &mut bytes, part.start);
            read.is_ok() && bytes.iter().all(|byte| *byte == 0)
        })
    }

    fn fd(&self, slot: Slot) -> Result<&OwnedFd> {
        self.slots[slot].as_ref().map(|open| &open.fd).ok_or(Errno::BADF)
    }

    /// An offset and a length, rounded to whole blocks for direct I/O.
    fn part(&self, slot: Slot, at: u64, len: usize) -> (u64, usize) {
        match self.is_direct(slot) {
            true => (at / BLOCK * BLOCK, len.next_multiple_of(4096)),
            false => (at, len),
        }
    }

    fn on_content(&self, call: &Call) -> Option<Result<Answer>> {
        // The file's offset may be within a block, so direct I/O goes to the beginning of the file.
        let is_direct = |slot: Slot| self.is_direct(slot);
        Some(match *call {
            Call::Read { slot, len } if is_direct(slot) => self.pread(slot, len, 0),
            Call::Write { slot, len, fill } if is_direct(slot) => self.pwrite(slot, len, 0, fill),
            Call::Read { slot, len } => {
                self.fd(slot).and_then(|fd| read(len, |bytes| rustix::io::read(fd, bytes)))
            }
            Call::Write { slot, len, fill } => {
                self.fd(slot).and_then(|fd| write(len, fill, |bytes| rustix::io::write(fd, bytes)))
            }
            Call::Pread { slot, len, at } => self.pread(slot, len, at),
            Call::Pwrite { slot, len, at, fill } => self.pwrite(slot, len, at, fill),
            Call::Seek { slot, whence } => self.fd(slot).and_then(|fd| {
                number(fs::seek(
                    fd,
                    match whence {
                        Whence::Start(at) => fs::SeekFrom::Start(at),
                        Whence::Current(by) => fs::SeekFrom::Current(by),
                        Whence::End(by) => fs::SeekFrom::End(by),
                        Whence::Data(at) => fs::SeekFrom::Data(at),
                        Whence::Hole(at) => fs::SeekFrom::Hole(at),
                    },
                ))
            }),
            Call::Truncate { ref path, size } => {
                let path = self.full(&At { path: path.clone(), follow: true });
                let done = nix::unistd::truncate(&*path, size);
                nothing(done.map_err(|errno| Errno::from_raw_os_error(errno as i32)))
            }
            Call::SetSize { slot, size } => {
                self.fd(slot).and_then(|fd| nothing(fs::ftruncate(fd, size)))
            }
            Call::Allocate { slot, mode, at, len } => {
                self.fd(slot).and_then(|fd| nothing(fs::fallocate(fd, mode, at, len)))
            }
            Call::CopyRange { from, mut at, to, mut to_at, len } => {
                // In whole blocks, because either file may be opened for direct I/O.
                let mut copied = || {
                    let (from, to) = (self.fd(from)?, self.fd(to)?);
                    let (at, to_at) = (at.as_mut(), to_at.as_mut());
                    number(fs::copy_file_range(from, at, to, to_at, len))
                };
                if is_direct(from) || is_direct(to) { Ok(Answer::Nothing) } else { copied() }
            }
            Call::Sync(slot) => self.fd(slot).and_then(|fd| nothing(fs::fsync(fd))),
            Call::SyncContent(slot) => self.fd(slot).and_then(|fd| nothing(fs::fdatasync(fd))),
            Call::SyncAll => nothing(fs::syncfs(&self.base)),
            _ => return None,
        })
    }

    fn pread(&self, slot: Slot, len: usize, at: u64) -> Result<Answer> {
        let (fd, (at, len)) = (self.fd(slot)?, self.part(slot, at, len));
        read(len, |bytes| rustix::io::pread(fd, bytes, at))
    }

    fn pwrite(&self, slot: Slot, len: usize, at: u64, fill: u8) -> Result<Answer> {
        let appends = |open: &Open| open.flags.contains(OFlags::APPEND | OFlags::DIRECT);
        if self.slots[slot].as_ref().is_some_and(appends) {
            // Not performed: the end of the file may be within a block.
            return Ok(Answer::Nothing);
        }
        let (fd, (at, len)) = (self.fd(slot)?, self.part(slot, at, len));
        let crosses = at < SIZE_MOST && at.saturating_add(len as u64) > SIZE_MOST;
        if self.is_direct(slot) && crosses {
            // Not performed: for FUSE a direct write of only a part is an error.
            return Ok(Answer::Nothing);
        }
        write(len, fill, |bytes| rustix::io::pwrite(fd, bytes, at))
    }

    fn on_names(&self, call: &Call) -> Option<Result<Answer>> {
        let base = self.base.as_fd();
        Some(nothing(match call {
            Call::Rename { from, to, flags } => {
                fs::renameat_with(base, &**from, base, &**to, *flags)
            }
            Call::Link { from, to } => {
                let follow = if from.follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                fs::linkat(base, &*from.path, base, &**to, follow)
            }
            Call::LinkFile { slot, to } => {
                self.fd(*slot).and_then(|fd| fs::linkat(fd, "", base, &**to, AtFlags::EMPTY_PATH))
            }
            Call::Symlink { target, path } => fs::symlinkat(&**target, base, &**path),
            Call::Unlink(path) => fs::unlinkat(base, &**path, AtFlags::empty()),
            Call::RemoveDirectory(path) => fs::unlinkat(base, &**path, AtFlags::REMOVEDIR),
            Call::MakeDirectory { path, mode: bits } => fs::mkdirat(base, &**path, mode(*bits)),
            Call::MakeNode { path, kind, mode: bits, device } => {
                fs::mknodat(base, &**path, *kind, mode(*bits), *device)
            }
            Call::Crowd { dir, files, create } => self.crowd(dir, *files, *create),
            _ => return None,
        }))
    }

    fn crowd(&self, dir: &str, files: u32, create: bool) -> Result<()> {
        for number in 0..files {
            let path = format!("{dir}one of the many files {number:>30}");
            if create {
                let new = FileType::RegularFile;
                fs::mknodat(&self.base, &*path, new, mode(0o666), 0)?;
            } else {
                fs::unlinkat(&self.base, &*path, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    fn about(&self, call: &Call) -> Result<Answer> {
        let base = self.base.as_fd();
        match call {
            Call::SetMode { of: Of::Path(at), mode: bits } => {
                nothing(fs::chmodat(base, &*at.path, mode(*bits), AtFlags::empty()))
            }
            Call::SetMode { of: Of::File(slot), mode: bits } => {
                nothing(fs::fchmod(self.fd(*slot)?, mode(*bits)))
            }
            Call::SetOwner { of, uid, gid } => {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                nothing(match of {
                    Of::Path(at) => fs::chownat(base, &*at.path, uid, gid, follow(at)),
                    Of::File(slot) => fs::fchown(self.fd(*slot)?, uid, gid),
                })
            }
            Call::SetTimes { of, accessed, modified } => {
                let times =
                    Timestamps { last_access: time(*accessed), last_modification: time(*modified) };
                nothing(match of {
                    Of::Path(at) => fs::utimensat(base, &*at.path, &times, follow(at)),
                    Of::File(slot) => fs::futimens(self.fd(*slot)?, &times),
                })
            }
            Call::SetFlags { slot, flags } => {
                let fd = self.fd(*slot)?;
                // Programs read flags before they write them, and keep the flags that they do not
                // know.
                nothing(fs::ioctl_setflags(fd, EXTENTS | *flags))
            }
            Call::Flags(slot) => number(fs::ioctl_getflags(self.fd(*slot)?).map(|f| f.bits())),
            Call::Known(of) => nothing(match of {
                Of::Path(at) => fs::statat(base, &*at.path, follow(at)).map(drop),
                Of::File(slot) => fs::fstat(self.fd(*slot)?).map(drop),
            }),
            Call::ReadLink(path) => {
                let target = fs::readlinkat(base, &**path, Vec::new())?;
                Ok(Answer::Bytes(target.into_bytes()))
            }
            Call::List(path) => self.list(path).map(Answer::Texts),
            Call::MayAccess { path, access, flags } => {
                nothing(fs::accessat(base, &**path, *access, *flags))
            }
            Call::Usage => {
                let usage = fs::fstatvfs(base)?;
                let shown = [usage.f_bsize, usage.f_frsize, usage.f_namemax, usage.f_files];
                Ok(Answer::Texts(shown.map(|number| number.to_string()).to_vec()))
            }
            _ => self.about_xattrs(call),
        }
    }

    fn about_xattrs(&self, call: &Call) -> Result<Answer> {
        let mut room = vec![0; 70_000];
        match call {
            Call::SetXattr { of, name, value, flags } => nothing(match of {
                Of::Path(at) if at.follow => fs::setxattr(self.full(at), name, value, *flags),
                Of::Path(at) => fs::lsetxattr(self.full(at), name, value, *flags),
                Of::File(slot) => fs::fsetxattr(self.fd(*slot)?, name, value, *flags),
            }),
            Call::RemoveXattr { of, name } => nothing(match of {
                Of::Path(at) if at.follow => fs::removexattr(self.full(at), name),
                Of::Path(at) => fs::lremovexattr(self.full(at), name),
                Of::File(slot) => fs::fremovexattr(self.fd(*slot)?, name),
            }),
            Call::Xattr { of, name } => {
                let len = match of {
                    Of::Path(at) if at.follow => fs::getxattr(self.full(at), name, &mut room),
                    Of::Path(at) => fs::lgetxattr(self.full(at), name, &mut room),
                    Of::File(slot) => fs::fgetxattr(self.fd(*slot)?, name, &mut room),
                }?;
                Ok(Answer::Bytes(room[..len].to_vec()))
            }
            Call::Xattrs(of) => {
                let len = match of {
                    Of::Path(at) if at.follow => fs::listxattr(self.full(at), &mut room),
                    Of::Path(at) => fs::llistxattr(self.full(at), &mut room),
                    Of::File(slot) => fs::flistxattr(self.fd(*slot)?, &mut room),
                }?;
                Ok(Answer::Texts(names(&room[..len])))
            }
            other => panic!("{other:?} is not performed"),
        }
    }

    /// The names of a directory and their kinds, in order.
    fn list(&self, path: &str) -> Result<Vec<String>> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(&self.base, path, flags, Mode::empty())?;
        let mut room = Vec::with_capacity(32_768);
        let mut entries = RawDir::new(dir, room.spare_capacity_mut());
        let mut listed = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            listed.push(format!("{name} {:?}", entry.file_type()));
        }
        listed.sort();
        Ok(listed)
    }
}

/// The flag that all files and directories have.
const EXTENTS: fs::IFlags = fs::IFlags::from_bits_retain(0x8_0000);

/// Names of attributes as they are listed, in order.
pub(crate) fn names(listed: &[u8]) -> Vec<String> {
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names
}
