//! Random calls: each seed has one sequence, whatever the calls answer.

use manylogs_block::{Rng, to_usize};
use rustix::fs::{
    Access, AtFlags, FallocateFlags, FileType, IFlags, OFlags, RenameFlags, XattrFlags, makedev,
};

use crate::call::{At, Call, Of, SLOTS, SetTime, Step, User, Whence};

/// Most bytes of a file: blocks of 4096 bytes, with block numbers of 32 bits.
pub(crate) const SIZE_MOST: u64 = ((1 << 32) - 1) * 4096;
const BLOCK: u64 = 4096;
const NAME_MOST: usize = 255;

const DIRS: [&str; 8] = ["", "", "", "d0/", "d1/", "d0/d2/", "d1/d2/d3/d4/", "d2/"];
const NAMES: [&str; 10] = ["f0", "f1", "f2", "f3", "f4", "s0", "s1", "d0", "d1", "d2"];

/// The sequence of a seed.
#[derive(Debug)]
pub(crate) struct Maker {
    rng: Rng,
    number: u64,
}

impl Iterator for Maker {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.number += 1;
        let users = [User::Root, User::Root, User::Alice, User::Alice, User::Bob];
        let user = self.pick(&users);
        let held = !self.rng.one_in(4);
        Some(Step { number: self.number, user, held, call: self.call(user) })
    }
}

impl Maker {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), number: 0 }
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[to_usize(self.rng.below(of.len() as u64))].clone()
    }

    /// A random selection of the flags `of`, each taken in one of `one_in` cases.
    fn some<T: Copy + std::ops::BitOr<Output = T>>(&mut self, none: T, of: &[T], one_in: u64) -> T {
        of.iter().fold(none, |all, flag| if self.rng.one_in(one_in) { all | *flag } else { all })
    }

    fn slot(&mut self) -> usize {
        to_usize(self.rng.below(SLOTS as u64))
    }

    fn path(&mut self) -> String {
        let (dir, name) = (self.pick(&DIRS), self.pick(&NAMES));
        match self.rng.below(60) {
            0 => format!("{dir}{name}/"),
            1 => format!("{dir}./{name}"),
            2 => format!("{dir}/{name}/."),
            3 => format!("{dir}{name}/.."),
            4 => format!("d0/../{name}"),
            5 => dir.to_owned(),
            6 => ".".to_owned(),
            7 => format!("{dir}{}", "n".repeat(NAME_MOST - to_usize(self.rng.below(2)))),
            8 => format!("{dir}{}", "n".repeat(NAME_MOST + 1)),
            9 => "d0/".repeat(1400),
            10..14 => "f0".to_owned(),
            _ => format!("{dir}{name}"),
        }
    }

    fn at(&mut self) -> At {
        At { path: self.path(), follow: !self.rng.one_in(3) }
    }

    fn of(&mut self) -> Of {
        if self.rng.one_in(3) { Of::File(self.slot()) } else { Of::Path(self.at()) }
    }

    /// A random offset in a file, or its length: mostly small, and often beside a limit.
    fn place(&mut self) -> u64 {
        let near =
            |rng: &mut Rng, to: u64| to.saturating_add_signed(rng.below(3).cast_signed() - 1);
        match self.rng.below(40) {
            0..6 => 0,
            6..14 => self.rng.below(64) * BLOCK,
            14..20 => {
                let block = self.rng.below(64) * BLOCK;
                near(&mut self.rng, block)
            }
            20..36 => self.rng.below(200_000),
            36 => {
                let limit = self.pick(&[1 << 31, 1 << 32, 1 << 40, SIZE_MOST - BLOCK, 4 << 30]);
                near(&mut self.rng, limit)
            }
            37 => near(&mut self.rng, SIZE_MOST),
            38 => self.pick(&[SIZE_MOST + 4096, 1 << 45, i64::MAX.cast_unsigned(), 1 << 62]),
            _ => self.rng.below(5_000),
        }
    }

    fn len(&mut self) -> usize {
        to_usize(match self.rng.below(12) {
            0 => 0,
            1..4 => self.rng.below(16) * BLOCK,
            4 => 150_000,
            5..8 => self.rng.below(40_000),
            _ => self.rng.below(600),
        })
    }

    fn mode(&mut self) -> u32 {
        const MODES: [u32; 16] = [
            0o644, 0o666, 0o600, 0o777, 0o755, 0o4755, 0o2755, 0o6777, 0o2767, 0o2666, 0o4666,
            0o1777, 0o2777, 0o666, 0o777, 0o070,
        ];
        self.pick(&MODES)
    }

    fn time(&mut self) -> SetTime {
        match self.rng.below(10) {
            0..2 => SetTime::Now,
            2..4 => SetTime::Omit,
            4..7 => SetTime::At(1_000_000_000 + self.rng.below(1000).cast_signed(), 5_000),
            7 => SetTime::At(self.pick(&[0, -1, -1_000, i32::MIN.into()]), 999_999_999),
            8 => {
                let limits = [1 << 31, (1 << 31) - 1, 1 << 32, (1 << 34) - 1, 15_032_385_535];
                SetTime::At(self.pick(&limits), 1)
            }
            _ => {
                let limits = [i64::MAX, i64::MIN, i64::from(i32::MIN) - 1, 15_032_385_536];
                SetTime::At(self.pick(&limits), 0)
            }
        }
    }

    fn open(&mut self) -> Call {
        let rights = self.pick(&[OFlags::RDWR, OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY]);
        let mut flags = rights | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let often = [OFlags::CREATE, OFlags::CREATE];
        flags = self.some(flags, &often, 2);
        flags = self.some(flags, &[OFlags::TRUNC, OFlags::APPEND, OFlags::EXCL], 6);
        let seldom = [OFlags::NOFOLLOW, OFlags::DIRECTORY, OFlags::NOATIME, OFlags::DIRECT];
        flags = self.some(flags, &seldom, 14);
        flags = self.some(flags, &[OFlags::SYNC, OFlags::DSYNC, OFlags::PATH], 30);
        let mut path = self.path();
        if self.rng.one_in(20) {
            flags |= OFlags::TMPFILE;
            path = self.pick(&DIRS).to_owned() + ".";
        }
        Call::Open { slot: self.slot(), path, flags, mode: self.mode() }
    }

    fn allocate(&mut self) -> Call {
        let modes = [
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE,
            FallocateFlags::UNSHARE_RANGE,
        ];
        let (mode, at) = (self.pick(&modes), self.place());
        Call::Allocate { slot: self.slot(), mode, at, len: self.len() as u64 }
    }

    fn rename(&mut self) -> Call {
        let flags = [
            RenameFlags::empty(),
            RenameFlags::empty(),
            RenameFlags::NOREPLACE,
            RenameFlags::EXCHANGE,
            RenameFlags::WHITEOUT,
            RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
            RenameFlags::WHITEOUT | RenameFlags::EXCHANGE,
            RenameFlags::from_bits_retain(64),
        ];
        let flags = if self.rng.one_in(2) { flags[0] } else { self.pick(&flags) };
        Call::Rename { from: self.path(), to: self.path(), flags }
    }

    fn seek(&mut self) -> Call {
        let at = self.place();
        let signed = at.cast_signed() * self.pick(&[1, 1, -1]);
        let whence = match self.rng.below(8) {
            0..3 => Whence::Start(at),
            3 => Whence::Current(signed),
            4 => Whence::End(signed),
            5 => Whence::Hole(at),
            _ => Whence::Data(at),
        };
        Call::Seek { slot: self.slot(), whence }
    }

    fn id(&mut self) -> Option<u32> {
        let ids = [0, 1001, 1001, 1002, 1002, User::SECOND_GROUP, 70_000, u32::MAX - 1];
        let id = self.pick(&ids);
        (!self.rng.one_in(3)).then_some(id)
    }

    fn xattr_name(&mut self) -> String {
        const NAMES: [&str; 14] = [
            "user.a",
            "user.a",
            "user.b",
            "user.long",
            "trusted.t",
            "security.capability",
            "security.capability",
            "security.other",
            "system.posix_acl_access",
            "user.",
            "system.posix_acl_access",
            "system.posix_acl_default",
            "other.x",
            "nodot",
        ];
        match self.rng.below(40) {
            0 => format!("user.{}", "x".repeat(250)),
            1 => format!("user.{}", "x".repeat(251)),
            2 => "system.other".to_owned(),
            _ => self.pick(&NAMES).to_owned(),
        }
    }

    fn set_xattr(&mut self) -> Call {
        let name = self.xattr_name();
        let value = match &*name {
            "security.capability" if !self.rng.one_in(8) => capability(),
            name if name.starts_with("system.posix") && !self.rng.one_in(8) => {
                let (mode, mask) = (self.rng.below(512), self.rng.below(8));
                acl(self.rng.below(3), mode, mask)
            }
            _ => {
                let lens = [0, 1, 20, 20, 100, 500, 3000, 3900, 5000];
                vec![to_usize(self.rng.below(256)).to_le_bytes()[0]; self.pick(&lens)]
            }
        };
        let flags = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE];
        let flags = if self.rng.one_in(2) { flags[0] } else { self.pick(&flags) };
        Call::SetXattr { of: self.of(), name, value, flags }
    }

    fn make_node(&mut self) -> Call {
        let kinds = [
            FileType::Fifo,
            FileType::Socket,
            FileType::RegularFile,
            FileType::CharacterDevice,
            FileType::BlockDevice,
            FileType::Directory,
        ];
        let devices = [makedev(0, 0), makedev(1, 3), makedev(259, 3), makedev(4000, 100_000)];
        let (kind, device) = (self.pick(&kinds), self.pick(&devices));
        Call::MakeNode { path: self.path(), kind, mode: self.mode(), device }
    }

    fn symlink(&mut self) -> Call {
        let target = match self.rng.below(12) {
            0 => String::new(),
            1 => ".".to_owned(),
            2 => "t".repeat(self.pick(&[59, 60, 200, 4094, 4095, 4096])),
            3 => self.pick(&DIRS).to_owned() + ".",
            _ => self.pick(&NAMES).to_owned(),
        };
        Call::Symlink { target, path: self.path() }
    }

    fn copy(&mut self) -> Call {
        let place = |maker: &mut Self| maker.rng.one_in(2).then(|| maker.rng.below(100_000));
        let (at, to_at) = (place(self), place(self));
        Call::CopyRange { from: self.slot(), at, to: self.slot(), to_at, len: self.len() }
    }

    fn flags(&mut self) -> Call {
        let of = [IFlags::IMMUTABLE, IFlags::APPEND, IFlags::NODUMP, IFlags::NOATIME];
        let flags = self.some(IFlags::empty(), &of, 8);
        let slot = self.slot();
        if self.rng.one_in(3) { Call::Flags(slot) } else { Call::SetFlags { slot, flags } }
    }

    fn call(&mut self, user: User) -> Call {
        let fill = self.rng.next_u64().to_le_bytes()[0];
        match self.rng.below(240) {
            0..36 => self.open(),
            36..39 => Call::Close(self.slot()),
            39..46 => Call::Read { slot: self.slot(), len: self.len() },
            46..51 => Call::Pread { slot: self.slot(), len: self.len(), at: self.place() },
            51..66 => Call::Write { slot: self.slot(), len: self.len(), fill },
            66..78 => Call::Pwrite { slot: self.slot(), len: self.len(), at: self.place(), fill },
            78..86 => self.seek(),
            86..92 => Call::Truncate { path: self.path(), size: self.place().cast_signed() },
            92..100 => Call::SetSize { slot: self.slot(), size: self.place() },
            100..112 => self.allocate(),
            112..116 => self.copy(),
            116..119 => Call::Sync(self.slot()),
            119..122 => Call::SyncContent(self.slot()),
            122..142 => self.rename(),
            142..150 => Call::Link { from: self.at(), to: self.path() },
            150..152 => Call::LinkFile { slot: self.slot(), to: self.path() },
            152..156 => self.symlink(),
            156..162 => Call::Unlink(self.path()),
            162..166 => Call::RemoveDirectory(self.path()),
            166..174 => Call::MakeDirectory { path: self.path(), mode: self.mode() },
            174..178 => self.make_node(),
            178..188 => Call::SetMode { of: self.of(), mode: self.mode() },
            188..196 => Call::SetOwner { of: self.of(), uid: self.id(), gid: self.id() },
            196..206 => {
                Call::SetTimes { of: self.of(), accessed: self.time(), modified: self.time() }
            }
            206..214 => self.set_xattr(),
            214..217 => Call::Xattr { of: self.of(), name: self.xattr_name() },
            217..219 => Call::Xattrs(self.of()),
            219..222 => Call::RemoveXattr { of: self.of(), name: self.xattr_name() },
            222..224 => self.flags(),
            224..226 => Call::Known(self.of()),
            226..228 => Call::ReadLink(self.path()),
            228..232 => Call::List(self.path()),
            232..235 => {
                let access = [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK];
                let access = self.some(Access::EXISTS, &access, 2);
                let flags = self.pick(&[AtFlags::empty(), AtFlags::EACCESS]);
                Call::MayAccess { path: self.path(), access, flags }
            }
            235 => Call::Usage,
            236 => Call::Umask(self.pick(&[0o22, 0o22, 0, 0o77, 0o2])),
            237 if user == User::Root && self.rng.one_in(4) => Call::SyncAll,
            238 if self.rng.one_in(20) => {
                let dir = self.pick(&DIRS).to_owned();
                Call::Crowd { dir, files: 300, create: self.rng.one_in(2) }
            }
            239 if self.rng.one_in(40) => Call::Remount,
            _ => self.open(),
        }
    }
}

/// A capability of a program in the kernel's on-disk form: version 2, effective, one bit.
fn capability() -> Vec<u8> {
    let words: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An access control list: owner, group and others with the bits of `mode`; depending on `kind`
/// also a user and a mask.
fn acl(kind: u64, mode: u64, mask: u64) -> Vec<u8> {
    let none = u64::from(u32::MAX);
    let mut entries = vec![(1, mode >> 6 & 7, none)];
    if kind > 0 {
        entries.push((2, mode >> 1 & 7, User::Bob.id().into()));
    }
    entries.push((4, mode >> 3 & 7, none));
    if kind > 1 {
        entries.push((8, mode & 7, User::SECOND_GROUP.into()));
    }
    if kind > 0 {
        entries.push((16, mask, none));
    }
    entries.push((32, mode & 7, none));
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        let (tag, rights): (u16, u16) = (tag, u16::try_from(rights).unwrap());
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(id).unwrap().to_le_bytes());
    }
    bytes
}
