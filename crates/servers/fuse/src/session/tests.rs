//! Sessions over a socket that stands in for the kernel.

use std::sync::Mutex;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use zerocopy::FromBytes;

use super::*;
use crate::answer::{Found, Written};
use crate::request::{Context, Room, Seek, Write};
use crate::values::InitFlags;
use crate::wire::{self, InHeader, opcode};

const WANTED: Wanted = Wanted {
    required: InitFlags::empty(),
    desired: InitFlags::SETXATTR_EXT,
    max_write: 8192,
    max_background: 16,
    congestion_threshold: 12,
};

/// The test's end of the socket: sends requests and receives answers as the kernel would.
struct Kernel(OwnedFd);

impl Kernel {
    fn ask(&self, opcode: u32, unique: u64, body: &[u8]) {
        let len = u32::try_from(size_of::<InHeader>() + body.len()).unwrap();
        let header = InHeader { len, opcode, unique, nodeid: 1, ..InHeader::default() };
        rustix::io::write(&self.0, &[header.as_bytes(), body].concat()).unwrap();
    }

    fn introduce(&self, major: u32, minor: u32) {
        let init = wire::InitIn { major, minor, max_readahead: 0, flags: u32::MAX >> 2 };
        self.ask(opcode::INIT, 1, init.as_bytes());
    }

    /// The next answer: the request's number, the error, and the body.
    fn hear(&self) -> (u64, i32, Vec<u8>) {
        let mut bytes = vec![0; 4096];
        let len = read(&self.0, &mut bytes[..]).unwrap();
        let (header, rest) = OutHeader::read_from_prefix(&bytes[..len]).unwrap();
        assert_eq!(usize::try_from(header.len).unwrap(), len);
        (header.unique, header.error, rest.to_vec())
    }
}

fn pair() -> (Kernel, OwnedFd) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
    (Kernel(ours), theirs)
}

/// Answers some requests, keeps one, and drops another.
#[derive(Default)]
struct Server {
    forgotten: Mutex<Vec<(u64, u64)>>,
    kept: Mutex<Option<Reply<Found>>>,
}

impl Filesystem for Server {
    fn forget(&self, node: crate::NodeId, times: u64) {
        self.forgotten.lock().unwrap().push((node.0, times));
    }

    fn write(&self, _: Context, write: Write<'_>, reply: Reply<Written>) {
        reply.send(&Written(u32::try_from(write.data.len()).unwrap()));
    }

    fn read_link(&self, _: Context, reply: Reply<[u8]>) {
        drop(reply);
    }

    fn seek(&self, _: Context, _: Seek, reply: Reply<Found>) {
        *self.kept.lock().unwrap() = Some(reply);
    }

    fn xattrs(&self, _: Context, room: Room, reply: Reply<[u8]>) {
        room.answer(reply, b"user.a\0");
    }
}

#[test]
fn requests_are_answered_each_with_its_number() {
    let (kernel, device) = pair();
    kernel.introduce(7, 45);
    let mut channel = Channel::open(device, &WANTED).unwrap();
    let (unique, error, body) = kernel.hear();
    assert_eq!((unique, error), (1, 0));
    let out = InitOut::read_from_bytes(&body).unwrap();
    assert_eq!((out.major, out.minor, out.max_write, out.max_pages), (7, 45, 8192, 2));

    let write = wire::WriteIn { size: 3, ..wire::WriteIn::default() };
    kernel.ask(opcode::WRITE, 2, &[write.as_bytes(), b"abc"].concat());
    kernel.ask(opcode::WRITE, 3, &[write.as_bytes(), b"ab"].concat());
    kernel.ask(opcode::READLINK, 4, &[]);
    kernel.ask(opcode::FORGET, 5, &6_u64.to_ne_bytes());
    let many = wire::BatchForgetIn { count: 2, dummy: 0 };
    let one = |nodeid: u64, nlookup: u64| wire::ForgetOne { nodeid, nlookup };
    let ones = [one(3, 7), one(4, 1)];
    kernel.ask(opcode::BATCH_FORGET, 0, &[many.as_bytes(), ones.as_bytes()].concat());
    kernel.ask(opcode::LSEEK, 6, wire::LseekIn::default().as_bytes());
    kernel.ask(36, 7, &[0; 8]);
    kernel.ask(opcode::UNLINK, 8, b"name\0");
    for (unique, size) in [(9, 0), (10, 7), (11, 6)] {
        let room = wire::GetxattrIn { size, padding: 0 };
        kernel.ask(opcode::LISTXATTR, unique, room.as_bytes());
    }
    kernel.ask(opcode::DESTROY, 12, &[]);
    let server = Server::default();
    let destroy = channel.serve(&server).unwrap().unwrap();

    let nothing = Vec::new;
    assert_eq!(kernel.hear(), (2, 0, [3_u32, 0].map(u32::to_ne_bytes).concat()));
    assert_eq!(kernel.hear(), (3, -5, nothing()), "a write that is cut short");
    assert_eq!(kernel.hear(), (4, -5, nothing()), "a reply that was dropped");
    assert_eq!(*server.forgotten.lock().unwrap(), [(1, 6), (3, 7), (4, 1)]);
    assert_eq!(kernel.hear(), (7, -38, nothing()), "an operation that nobody knows");
    assert_eq!(kernel.hear(), (8, -38, nothing()), "an operation that is not implemented");
    assert_eq!(kernel.hear(), (9, 0, [7_u32, 0].map(u32::to_ne_bytes).concat()));
    assert_eq!(kernel.hear(), (10, 0, b"user.a\0".to_vec()));
    assert_eq!(kernel.hear(), (11, -34, nothing()), "more than there is room for");
    // The kept request can be answered late; the answer to the last request (`DESTROY`) comes last.
    server.kept.lock().unwrap().take().unwrap().send(&Found(99));
    assert_eq!(kernel.hear(), (6, 0, 99_u64.to_ne_bytes().to_vec()));
    destroy.send(&());
    assert_eq!(kernel.hear(), (12, 0, nothing()));
}

#[test]
fn a_session_ends_with_its_connection_and_never_with_a_panic() {
    let (kernel, device) = pair();
    kernel.introduce(7, 31);
    let mut channel = Channel::open(device, &WANTED).unwrap();
    kernel.hear();
    drop(kernel);
    assert!(channel.serve(&Server::default()).unwrap().is_none());
    let (kernel, device) = pair();
    kernel.introduce(7, 31);
    let mut channel = Channel::open(device, &WANTED).unwrap();
    rustix::io::write(&kernel.0, &[1; 50]).unwrap();
    let error = channel.serve(&Server::default()).unwrap_err().to_string();
    assert!(error.contains("50 bytes are no request"), "{error}");
}

#[test]
fn a_kernel_with_a_newer_protocol_is_asked_to_begin_again() {
    let (kernel, device) = pair();
    kernel.introduce(8, 2);
    kernel.introduce(7, 45);
    Channel::open(device, &WANTED).unwrap();
    let majors = [kernel.hear(), kernel.hear()].map(|(_, error, body)| (error, body[0]));
    assert_eq!(majors, [(0, 7), (0, 7)]);
}

#[test]
fn a_kernel_that_is_too_old_is_refused_and_told() {
    let (kernel, device) = pair();
    kernel.introduce(7, 12);
    let refused = Channel::open(device, &WANTED).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("7.12"), "{refused}");
    assert_eq!(kernel.hear(), (1, -71, Vec::new()));
}
