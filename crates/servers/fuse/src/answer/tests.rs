use super::*;
use crate::values::{Device, NodeId};

fn bytes(answer: &(impl Answer + ?Sized)) -> Vec<u8> {
    answer.with_parts(|parts| parts.concat())
}

fn attributes() -> Attributes {
    Attributes {
        node: NodeId(10),
        number: 11,
        size: 12,
        sectors: 13,
        accessed: Time { seconds: -1, nanos: 14 },
        modified: Time { seconds: 15, nanos: 16 },
        changed: Time { seconds: 17, nanos: 18 },
        kind: NodeKind::CharDevice,
        permissions: 0o4644,
        links: 19,
        uid: 20,
        gid: 21,
        device: Device { major: 0x123, minor: 0x4_5678 },
        block_bytes: 4096,
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Offsets are those of `struct fuse_attr`.
fn check_attributes(bytes: &[u8]) {
    let long = [0, 8, 16, 24, 32, 40].map(|at| u64_at(bytes, at));
    assert_eq!(long, [11, 12, 13, u64::MAX, 15, 17]);
    let short = [48, 52, 56, 60, 64, 68, 72].map(|at| u32_at(bytes, at));
    assert_eq!(short, [14, 16, 18, 0o024_644, 19, 20, 21]);
    assert_eq!([76, 80].map(|at| u32_at(bytes, at)), [0x4561_2378, 4096]);
}

#[test]
fn attributes_lie_where_the_kernel_reads_them() {
    let valid = Duration::new(3, 4);
    let known = Known { attributes: attributes(), valid };
    let out = bytes(&known);
    assert_eq!((out.len(), u64_at(&out, 0), u32_at(&out, 8)), (104, 3, 4));
    check_attributes(&out[16..]);
    let name_valid = Duration::new(5, 6);
    let entry =
        Entry { attributes: attributes(), generation: 7, name_valid, attributes_valid: valid };
    let out = bytes(&entry);
    assert_eq!(out.len(), 128);
    assert_eq!([0, 8, 16, 24].map(|at| u64_at(&out, at)), [10, 7, 5, 3]);
    assert_eq!([32, 36].map(|at| u32_at(&out, at)), [6, 4]);
    check_attributes(&out[40..]);
    let opened = Opened { handle: FileHandle(8), flags: OpenedFlags::KEEP_CACHE };
    let created = bytes(&Created { entry, opened });
    assert_eq!((&created[..128], created.len()), (&out[..], 144));
    assert_eq!((u64_at(&created, 128), u32_at(&created, 136)), (8, 2));
}

#[test]
fn a_birth_is_only_told_if_it_is_known() {
    let known = Known { attributes: attributes(), valid: Duration::from_secs(1) };
    let born = Some(Time { seconds: 30, nanos: 31 });
    let out = bytes(&KnownFromBirth { known, born });
    assert_eq!((out.len(), u64_at(&out, 0)), (288, 1));
    // Offsets are those of `struct statx`.
    let stat = &out[32..];
    assert_eq!((u32_at(stat, 0), u32_at(stat, 4)), (0xfff, 4096));
    assert_eq!([16, 20, 24].map(|at| u32_at(stat, at)), [19, 20, 21]);
    assert_eq!(u16::from_ne_bytes([stat[28], stat[29]]), 0o024_644);
    assert_eq!([32, 40, 48].map(|at| u64_at(stat, at)), [11, 12, 13]);
    let times = [64, 80, 96, 112].map(|at| (u64_at(stat, at), u32_at(stat, at + 8)));
    assert_eq!(times, [(u64::MAX, 14), (30, 31), (17, 18), (15, 16)]);
    assert_eq!([128, 132].map(|at| u32_at(stat, at)), [0x123, 0x4_5678]);
    let out = bytes(&KnownFromBirth { known, born: None });
    assert_eq!(u32_at(&out, 32), 0x7ff);
}

#[test]
fn names_fill_their_room_and_no_more() {
    let mut names = Names::with_room(72);
    assert!(names.push(2, 100, NodeKind::Directory, b"."));
    assert!(!names.push(3, 200, NodeKind::File, &[b'n'; 17]), "it would take 48 bytes");
    assert!(names.push(3, 200, NodeKind::File, &[b'n'; 16]));
    assert!(!names.push(4, 300, NodeKind::File, b"x"));
    let out = bytes(&names);
    assert_eq!(out.len(), 72);
    assert_eq!((u64_at(&out, 0), u64_at(&out, 8)), (2, 100));
    assert_eq!((u32_at(&out, 16), u32_at(&out, 20)), (1, 4));
    assert_eq!(&out[24..32], b".\0\0\0\0\0\0\0");
    assert_eq!((u64_at(&out, 40), u32_at(&out, 48), u32_at(&out, 52)), (200, 16, 8));
    assert!(!Names::with_room(0).push(2, 1, NodeKind::File, b"x"));
}

#[test]
fn other_answers_lie_where_the_kernel_reads_them() {
    let usage = Usage {
        block_bytes: 4096,
        blocks: 1,
        free_blocks: 2,
        available_blocks: 3,
        inodes: 4,
        free_inodes: 5,
        longest_name: 255,
    };
    let out = bytes(&usage);
    assert_eq!([0, 8, 16, 24, 32].map(|at| u64_at(&out, at)), [1, 2, 3, 4, 5]);
    assert_eq!([40, 44, 48].map(|at| u32_at(&out, at)), [4096, 255, 4096]);
    assert_eq!((out.len(), bytes(&()).len()), (80, 0));
    assert_eq!(bytes(&Written(6)), [6_u32, 0].map(u32::to_ne_bytes).concat());
    assert_eq!(bytes(&Found(1 << 40)), (1_u64 << 40).to_ne_bytes());
    assert_eq!(bytes(&b"content"[..]), b"content");
    let done = bytes(&IoctlDone { result: -1, data: b"out".to_vec() });
    assert_eq!((u32_at(&done, 0), &done[16..]), (u32::MAX, &b"out"[..]));
}
