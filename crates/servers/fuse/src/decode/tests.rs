use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;

/// The numbers of all known operations, and some unknown ones.
const CODES: std::ops::Range<u32> = 0..64;
const ID: RequestId = RequestId(77);

/// A request as the kernel sends it, with a body of several parts.
fn message(opcode: u32, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
        opcode,
        unique: ID.0,
        nodeid: 5,
        uid: 1000,
        gid: 100,
        pid: 4321,
        ..InHeader::default()
    };
    [header.as_bytes(), &body].concat()
}

/// The operation in a message.
fn asked(bytes: &[u8]) -> Operation<'_> {
    let request = Request::decode(bytes, Dialect { extended_setxattr: true }).unwrap();
    assert_eq!(request.id, ID);
    let context = Context { node: NodeId(5), uid: 1000, gid: 100, pid: 4321 };
    assert_eq!(request.context, context);
    request.operation
}

/// Bodies of all operations, as long as the kernel makes them.
fn bodies() -> Vec<(u32, Vec<u8>, Operation<'static>)> {
    let handle = FileHandle(9);
    let flags = OpenFlags(0o2);
    let create = wire::CreateIn { flags: 0o2, mode: 0o100_640, umask: 0o22, open_flags: 0 };
    let created = Create { name: b"name", flags, permissions: 0o640, umask: 0o22 };
    let read =
        wire::ReadIn { fh: 9, offset: 4096, size: 512, flags: 0o2, ..wire::ReadIn::default() };
    let part = Read { handle, offset: 4096, size: 512, flags };
    let sync = wire::FsyncIn { fh: 9, fsync_flags: 1, padding: 0 };
    let synced = Sync { handle, content_alone: true };
    let of = |parts: &[&[u8]]| parts.concat();
    vec![
        (opcode::DESTROY, of(&[]), Operation::Destroy),
        (opcode::LOOKUP, of(&[b"name\0"]), Operation::Lookup(b"name")),
        (opcode::FORGET, of(&[&3_u64.to_ne_bytes()]), Operation::Forget(3)),
        (opcode::GETATTR, of(&[&[0; 16]]), Operation::GetAttributes),
        (opcode::STATX, of(&[&[0; 24]]), Operation::Statx),
        (opcode::READLINK, of(&[]), Operation::ReadLink),
        (
            opcode::MKNOD,
            of(&[
                wire::MknodIn { mode: 0o060_600, rdev: 0x801, umask: 0o77, padding: 0 }.as_bytes(),
                b"name\0",
            ]),
            Operation::MakeNode(MakeNode {
                name: b"name",
                kind: Some(NodeKind::BlockDevice),
                permissions: 0o600,
                umask: 0o77,
                device: Device { major: 8, minor: 1 },
            }),
        ),
        (
            opcode::MKDIR,
            of(&[wire::MkdirIn { mode: 0o1777, umask: 0o22 }.as_bytes(), b"name\0"]),
            Operation::MakeDirectory(MakeDirectory {
                name: b"name",
                permissions: 0o1777,
                umask: 0o22,
            }),
        ),
        (
            opcode::SYMLINK,
            of(&[b"name\0", b"../target\0"]),
            Operation::MakeSymlink(MakeSymlink { name: b"name", target: b"../target" }),
        ),
        (opcode::UNLINK, of(&[b"name\0"]), Operation::Unlink(b"name")),
        (opcode::RMDIR, of(&[b"name\0"]), Operation::RemoveDirectory(b"name")),
        (
            opcode::RENAME2,
            of(&[wire::Rename2In { newdir: 6, flags: 2, padding: 0 }.as_bytes(), b"a\0b\0"]),
            Operation::Rename(Rename {
                name: b"a",
                to: NodeId(6),
                to_name: b"b",
                flags: RenameFlags::EXCHANGE,
            }),
        ),
        (
            opcode::LINK,
            of(&[&8_u64.to_ne_bytes(), b"name\0"]),
            Operation::Link(Link { node: NodeId(8), name: b"name" }),
        ),
        (
            opcode::OPEN,
            of(&[wire::OpenIn { flags: 0o2, open_flags: 1 }.as_bytes()]),
            Operation::Open(Open { flags, kill_set_ids: true }),
        ),
        (opcode::CREATE, of(&[create.as_bytes(), b"name\0"]), Operation::Create(created)),
        (opcode::TMPFILE, of(&[create.as_bytes(), b"name\0"]), Operation::CreateUnnamed(created)),
        (opcode::READ, of(&[read.as_bytes()]), Operation::Read(part)),
        (opcode::READDIR, of(&[read.as_bytes()]), Operation::ReadDirectory(part)),
        (opcode::READDIRPLUS, of(&[read.as_bytes()]), Operation::ReadDirectoryPlus(part)),
        (
            opcode::WRITE,
            of(&[
                wire::WriteIn {
                    fh: 9,
                    offset: 7,
                    size: 4,
                    write_flags: 4,
                    flags: 0o2,
                    ..wire::WriteIn::default()
                }
                .as_bytes(),
                b"data",
            ]),
            Operation::Write(Write { handle, offset: 7, data: b"data", flags, kill_set_ids: true }),
        ),
        (opcode::FLUSH, of(&[&9_u64.to_ne_bytes(), &[0; 16]]), Operation::Flush(handle)),
        (opcode::RELEASE, of(&[&9_u64.to_ne_bytes(), &[0; 16]]), Operation::Release(handle)),
        (
            opcode::RELEASEDIR,
            of(&[&9_u64.to_ne_bytes(), &[0; 16]]),
            Operation::ReleaseDirectory(handle),
        ),
        (opcode::FSYNC, of(&[sync.as_bytes()]), Operation::Sync(synced)),
        (opcode::FSYNCDIR, of(&[sync.as_bytes()]), Operation::SyncDirectory(synced)),
        (opcode::SYNCFS, of(&[&[0; 8]]), Operation::SyncFileSystem),
        (
            opcode::FALLOCATE,
            of(
                &[wire::FallocateIn { fh: 9, offset: 1, length: 2, mode: 3, padding: 0 }
                    .as_bytes()],
            ),
            Operation::Allocate(Allocate { handle, offset: 1, len: 2, mode: 3 }),
        ),
        (
            opcode::LSEEK,
            of(&[wire::LseekIn { fh: 9, offset: 5, whence: 4, padding: 0 }.as_bytes()]),
            Operation::Seek(Seek { handle, offset: 5, whence: 4 }),
        ),
        (opcode::STATFS, of(&[]), Operation::Usage),
        (
            opcode::GETXATTR,
            of(&[wire::GetxattrIn { size: 64, padding: 0 }.as_bytes(), b"user.a\0"]),
            Operation::GetXattr(GetXattr { name: b"user.a", room: Room(64) }),
        ),
        (
            opcode::LISTXATTR,
            of(&[wire::GetxattrIn { size: 0, padding: 0 }.as_bytes()]),
            Operation::ListXattrs(Room(0)),
        ),
        (opcode::REMOVEXATTR, of(&[b"user.a\0"]), Operation::RemoveXattr(b"user.a")),
        (opcode::ACCESS, of(&[&4_u32.to_ne_bytes(), &[0; 4]]), Operation::Access(4)),
        (
            opcode::IOCTL,
            of(&[
                wire::IoctlIn {
                    fh: 9,
                    cmd: 7,
                    in_size: 2,
                    out_size: 8,
                    ..wire::IoctlIn::default()
                }
                .as_bytes(),
                b"in",
            ]),
            Operation::Ioctl(Ioctl { handle, command: 7, data: b"in", room: 8 }),
        ),
        (
            opcode::SETXATTR,
            of(&[
                wire::SetxattrIn { size: 2, flags: 1 }.as_bytes(),
                wire::SetxattrMore { setxattr_flags: 1, padding: 0 }.as_bytes(),
                b"user.a\0",
                b"\0v",
            ]),
            Operation::SetXattr(SetXattr {
                name: b"user.a",
                value: b"\0v",
                flags: XattrFlags::CREATE,
                kill_set_gid: true,
            }),
        ),
        (63, of(&[b"unknown"]), Operation::Other(63)),
    ]
}

#[test]
fn every_operation_is_read_as_the_kernel_sends_it() {
    for (opcode, body, expected) in bodies() {
        assert_eq!(asked(&message(opcode, &[&body])), expected, "operation {opcode}");
    }
}

#[test]
fn what_is_cut_short_is_refused_and_can_be_answered() {
    let without_body = [
        opcode::DESTROY,
        opcode::GETATTR,
        opcode::STATX,
        opcode::READLINK,
        opcode::SYNCFS,
        opcode::STATFS,
        63,
    ];
    for (opcode, body, _) in bodies() {
        let cut = body.len().checked_sub(1).filter(|_| !without_body.contains(&opcode));
        let Some(cut) = cut else { continue };
        // The padding behind what a server needs may be missing.
        let body = &body[..cut.min(body.len() - 1)];
        let bytes = message(opcode, &[body]);
        let refused = Request::decode(&bytes, Dialect { extended_setxattr: true });
        assert_eq!(refused, Err(DecodeError::TooShort { id: ID, opcode }), "operation {opcode}");
    }
}

#[test]
fn a_header_that_belongs_to_other_bytes_is_no_request() {
    let whole = message(opcode::LOOKUP, &[b"name\0"]);
    let decode = |bytes: &[u8]| Request::decode(bytes, Dialect::default()).map(drop);
    let said = Some(45);
    assert_eq!(decode(&whole[..44]), Err(DecodeError::NoRequest { bytes: 44, said }));
    assert_eq!(decode(&whole[..39]), Err(DecodeError::NoRequest { bytes: 39, said: None }));
    let longer = [&whole[..], b"\0"].concat();
    assert_eq!(decode(&longer), Err(DecodeError::NoRequest { bytes: 46, said }));
}

#[test]
fn extensions_at_the_end_are_left_out() {
    let mut bytes = message(opcode::LOOKUP, &[b"name\0", &[0; 3], &[7; 8]]);
    let at = std::mem::offset_of!(InHeader, total_extlen);
    bytes[at..at + 2].copy_from_slice(&1_u16.to_ne_bytes());
    assert_eq!(asked(&bytes), Operation::Lookup(b"name"));
    bytes[at..at + 2].copy_from_slice(&9_u16.to_ne_bytes());
    let refused = Request::decode(&bytes, Dialect::default());
    assert_eq!(refused, Err(DecodeError::TooShort { id: ID, opcode: opcode::LOOKUP }));
}

#[test]
fn changes_are_those_whose_bits_are_set() {
    let all = wire::SetattrIn {
        valid: setattr::MODE
            | setattr::SIZE
            | setattr::ATIME
            | setattr::MTIME
            | setattr::MTIME_NOW
            | setattr::KILL_SUIDGID,
        size: 11,
        mode: 0o100_4755,
        atime: (-3_i64).cast_unsigned(),
        atimensec: 4,
        uid: 12,
        ..wire::SetattrIn::default()
    };
    let expected = SetAttributes {
        permissions: Some(0o4755),
        size: Some(11),
        accessed: Some(NewTime::At(Time { seconds: -3, nanos: 4 })),
        modified: Some(NewTime::Now),
        kill_set_ids: true,
        ..SetAttributes::default()
    };
    let bytes = message(opcode::SETATTR, &[all.as_bytes()]);
    assert_eq!(asked(&bytes), Operation::SetAttributes(expected));
    let none = message(opcode::SETATTR, &[wire::SetattrIn::default().as_bytes()]);
    assert_eq!(asked(&none), Operation::SetAttributes(SetAttributes::default()));
}

#[test]
fn a_kernel_introduces_itself_with_32_or_64_flags() {
    let of = wire::InitIn { major: 7, minor: 31, max_readahead: 9, flags: 1 << 20 };
    let short = Init { major: 7, minor: 31, max_readahead: 9, offered: InitFlags::POSIX_ACL };
    assert_eq!(asked(&message(opcode::INIT, &[of.as_bytes()])), Operation::Init(short));
    let of = wire::InitIn { flags: of.flags | 1 << 30, ..of };
    let more = wire::InitInMore { flags2: 3, unused: [0; 11] };
    let bytes = message(opcode::INIT, &[of.as_bytes(), more.as_bytes()]);
    let Operation::Init(init) = asked(&bytes) else { panic!("no introduction") };
    assert_eq!(init.offered.bits(), 1 << 20 | 1 << 30 | 3 << 32);
    let cut = message(opcode::INIT, &[of.as_bytes()]);
    assert!(Request::decode(&cut, Dialect::default()).is_err());
}

#[test]
fn forgets_are_as_many_as_are_said() {
    let one = |node: u64, times: u64| wire::ForgetOne { nodeid: node, nlookup: times };
    let (head, ones) = (wire::BatchForgetIn { count: 2, dummy: 0 }, [one(3, 1), one(4, 2)]);
    let bytes = message(opcode::BATCH_FORGET, &[head.as_bytes(), ones.as_bytes()]);
    let Operation::ForgetMany(forgets) = asked(&bytes) else { panic!("no forgets") };
    assert_eq!(forgets.collect::<Vec<_>>(), [(NodeId(3), 1), (NodeId(4), 2)]);
    for count in [3, u32::MAX] {
        let head = wire::BatchForgetIn { count, dummy: 0 };
        let bytes = message(opcode::BATCH_FORGET, &[head.as_bytes(), ones.as_bytes()]);
        assert!(Request::decode(&bytes, Dialect::default()).is_err());
    }
}

#[test]
fn the_dialect_says_how_an_attribute_is_set() {
    let head = wire::SetxattrIn { size: 1, flags: 0 };
    let bytes = message(opcode::SETXATTR, &[head.as_bytes(), b"user.a\0", b"v"]);
    let decoded = Request::decode(&bytes, Dialect { extended_setxattr: false }).unwrap();
    let Operation::SetXattr(set) = decoded.operation else { panic!("no attribute") };
    assert_eq!((set.name, set.value, set.kill_set_gid), (&b"user.a"[..], &b"v"[..], false));
}

proptest! {
    /// Whatever the bytes are, every part of the decoded request lies within them.
    #[test]
    fn no_bytes_make_decoding_panic(
        code in CODES,
        extlen in 0..3_u16,
        body in proptest::collection::vec(any::<u8>(), 0..200),
        extended_setxattr: bool,
    ) {
        let mut bytes = message(code, &[&body]);
        let at = std::mem::offset_of!(InHeader, total_extlen);
        bytes[at..at + 2].copy_from_slice(&extlen.to_ne_bytes());
        if let Ok(request) = Request::decode(&bytes, Dialect { extended_setxattr }) {
            match request.operation {
                Operation::Write(write) => prop_assert!(write.data.len() + 40 <= body.len()),
                Operation::SetXattr(set) => prop_assert!(set.value.len() < body.len()),
                Operation::ForgetMany(all) => prop_assert!(all.count() * 16 + 8 <= body.len()),
                Operation::Lookup(name) => prop_assert!(!name.contains(&0)),
                _ => {}
            }
        }
    }

    /// Bytes with an arbitrary header do not make decoding panic either.
    #[test]
    fn no_header_makes_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = Request::decode(&bytes, Dialect::default());
    }

    /// A valid request with bytes changed, and cut anywhere.
    #[test]
    fn no_damage_makes_decoding_panic(
        which in 0..bodies().len(),
        keep in 0..300_usize,
        changes in proptest::collection::vec((0..300_usize, any::<u8>()), 0..4),
    ) {
        let (opcode, mut body, _) = bodies().swap_remove(which);
        body.truncate(keep);
        for (at, byte) in changes {
            if let Some(changed) = body.get_mut(at) {
                *changed = byte;
            }
        }
        let _ = Request::decode(&message(opcode, &[&body]), Dialect { extended_setxattr: true });
    }
}

#[test]
fn two_pieces_are_one_request() {
    let dialect = Dialect { extended_setxattr: true };
    let mut parted = 0;
    for (opcode, body, expected) in bodies() {
        let bytes = message(opcode, &[&body]);
        for cut in size_of::<InHeader>()..=bytes.len() {
            let (head, payload) = bytes.split_at(cut);
            match Request::decode_parted([head, payload], dialect) {
                Ok(request) => {
                    assert_eq!(request.operation, expected, "operation {opcode}, cut at {cut}");
                    parted += usize::from(!payload.is_empty() && cut > size_of::<InHeader>());
                }
                // Nothing that belongs together may lie in both pieces.
                Err(refused) => assert_eq!(refused, DecodeError::TooShort { id: ID, opcode }),
            }
        }
    }
    assert!(parted > 20, "{parted} cuts within a body");
    let mut bytes = message(opcode::LOOKUP, &[b"name\0", &[0; 3], &[7; 8]]);
    let at = std::mem::offset_of!(InHeader, total_extlen);
    bytes[at..at + 2].copy_from_slice(&1_u16.to_ne_bytes());
    let (head, payload) = bytes.split_at(size_of::<InHeader>());
    let request = Request::decode_parted([head, payload], dialect).unwrap();
    assert_eq!(request.operation, Operation::Lookup(b"name"), "without its extension");
    let longer = [payload, &[0]].concat();
    assert!(Request::decode_parted([head, &longer], dialect).is_err());
}
