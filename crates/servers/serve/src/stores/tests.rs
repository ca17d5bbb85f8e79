//! Connections between clients and stores, with a store's server that does what a test wants.

#[cfg(feature = "tls")]
pub(crate) mod keys;
pub(crate) mod names;

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, IoError, MemoryDevice, Nanos, Payload, Request,
    Sectors, Signal,
};
use manylogs_everest::net::{
    Answers, FRAME_HEAD_BYTES, Frame, FrameHead, FrameKind, LiesOn, Welcome,
};
use manylogs_everest::{
    Ask, Call, CircularStore, Lender, LenderError, Lending, Load, Opening, Reply, Session,
    StoreOptions, Version,
};
use manylogs_storage::{Peer, Reactor};
use tempfile::TempDir;

use super::address::StoreAddress;
use super::lent::LentServer;
use super::link::Link;
use super::names::Place;
use super::tls::{ClientSeal, StoreSeal};
use crate::address::NbdAddress;

const STORE: [u8; 16] = [7; 16];
const BASE: [u8; 16] = [9; 16];
/// Longer than the link tolerates silence.
const SOON: Nanos = Nanos::from_secs(6);

/// A socket address, and links to the store that listens there.
struct Bench {
    dir: TempDir,
    reactor: Reactor,
}

impl Bench {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), reactor: Reactor::new().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("store.sock")
    }

    /// A server that serves its connections by the functions `each`, one for each in turn.
    fn fake(&self, each: Vec<fn(UnixStream)>) -> JoinHandle<()> {
        let listener = UnixListener::bind(self.path()).unwrap();
        std::thread::spawn(move || {
            each.into_iter().for_each(|serve| serve(listener.accept().unwrap().0));
        })
    }

    fn link(&self) -> Link {
        self.link_sealed(None)
    }

    fn link_sealed(&self, sealed: Option<ClientSeal>) -> Link {
        self.link_to(self.path(), sealed)
    }

    fn link_to(&self, path: PathBuf, sealed: Option<ClientSeal>) -> Link {
        let at = NbdAddress::Unix(path.clone());
        let address = StoreAddress { at, store: None, key: None };
        let (runtime, connector) = (self.reactor.handle(), self.reactor.connector());
        Link::start(runtime, connector, address, (Place::Known(Peer::Unix(path)), sealed), BASE)
    }

    /// The result of a call, once the store is known; `None` if it is not answered.
    fn ask(&self, link: &Link, call: Call) -> Option<Result<Reply, LenderError>> {
        let (runtime, link) = (self.reactor.handle(), link.clone());
        self.reactor.block_on(async move {
            link.known(SOON).await.unwrap();
            let answer = link.call(call);
            runtime.within(SOON, answer).await
        })
    }

    /// Lets the server work until it is so.
    fn until(&self, mut is_so: impl FnMut() -> bool) {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed().as_secs() < 60, "it does not come");
            self.rest(Nanos::from_millis(5));
        }
    }

    /// How many bytes a peer gets before it is disconnected.
    fn said_until_the_end(&self, stream: &mut UnixStream) -> usize {
        stream.set_nonblocking(true).unwrap();
        let (mut said, mut some) = (0, [0; 512]);
        self.until(|| match stream.read(&mut some) {
            Ok(0) => true,
            Ok(read) => {
                said += read;
                false
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                false
            }
        });
        said
    }

    fn rest(&self, span: Nanos) {
        let runtime = self.reactor.handle();
        self.reactor.block_on(async move { runtime.sleep(span).await });
    }
}

fn call(number: u64, ask: Ask) -> Call {
    let opening = Opening { incarnation: 1, token: 5 };
    Call { base: BASE, session: Session { opening, number: 1 }, number, ask }
}

fn delete() -> Call {
    call(0, Ask::Delete { extent: Extent::new(0, 8), version: Version(1) })
}

fn read_frame(stream: &mut UnixStream) -> Frame {
    let mut head = [0; FRAME_HEAD_BYTES];
    stream.read_exact(&mut head).unwrap();
    let head = FrameHead::parse(&head, 1 << 20).unwrap();
    let mut body = vec![0; head.len()];
    stream.read_exact(&mut body).unwrap();
    head.frame(Bytes::from(body)).unwrap()
}

fn send(stream: &mut UnixStream, frame: Frame) {
    stream.write_all(&frame.encode().concat()).unwrap();
}

fn greet(stream: &mut UnixStream, store: [u8; 16]) {
    read_frame(stream);
    send(
        stream,
        Welcome { store, longest_write: Sectors(64), lies_on: LiesOn::default() }.encode(),
    );
}

/// Reads a call, and leaves without an answer.
fn leaves(mut stream: UnixStream) {
    greet(&mut stream, STORE);
    read_frame(&mut stream);
}

/// Reads a call, and says nothing until the other side has gone.
fn is_silent(mut stream: UnixStream) {
    greet(&mut stream, STORE);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Answers a call with a damaged answer.
fn damages(mut stream: UnixStream) {
    greet(&mut stream, STORE);
    let number = read_frame(&mut stream).number;
    let range = manylogs_everest::Range { extent: Extent::new(0, 8), version: Version(3) };
    let held = Ok(Reply::Held(vec![range; 9]));
    let frames = Answers::encode(&held, number, Load::default());
    let mut bytes = frames.into_iter().next().unwrap().encode().concat();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    stream.write_all(&bytes).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Greets with the name of another store.
fn is_another(mut stream: UnixStream) {
    greet(&mut stream, [8; 16]);
    while read_some(&mut stream) {
        let done = Answers::encode(&Ok(Reply::Done), 0, Load::default());
        done.into_iter().for_each(|frame| send(&mut stream, frame));
    }
}

/// Greets after a while, and says then that it is alive for as long as somebody listens.
fn greets_late(mut stream: UnixStream) {
    read_frame(&mut stream);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let welcome =
        Welcome { store: STORE, longest_write: Sectors(64), lies_on: LiesOn::default() }.encode();
    let alive = Frame::new(FrameKind::Load, Vec::new());
    let mut said = vec![welcome];
    said.resize(100, alive);
    for frame in said {
        if stream.write_all(&frame.encode().concat()).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the connection stays");
}

/// Reads a frame; false at the end of the connection.
fn read_some(stream: &mut UnixStream) -> bool {
    let mut head = [0; FRAME_HEAD_BYTES];
    if stream.read_exact(&mut head).is_err() {
        return false;
    }
    let head = FrameHead::parse(&head, 1 << 20).unwrap();
    stream.read_exact(&mut vec![0; head.len()]).is_ok()
}

#[test]
pub(crate) fn calls_of_a_connection_that_ends_are_answered() {
    let bench = Bench::new();
    let server = bench.fake(vec![leaves]);
    let answer = bench.ask(&bench.link(), delete());
    assert_eq!(answer, Some(Err(LenderError::Unreachable)));
    server.join().unwrap();
}

#[test]
pub(crate) fn a_store_that_is_silent_is_gone() {
    let bench = Bench::new();
    let server = bench.fake(vec![is_silent]);
    let link = bench.link();
    assert_eq!(bench.ask(&link, delete()), Some(Err(LenderError::Unreachable)));
    assert!(link.trouble().contains("nothing was heard"), "{}", link.trouble());
    server.join().unwrap();
}

#[test]
fn a_link_that_ends_while_it_connects_leaves_no_connection() {
    let bench = Bench::new();
    let server = bench.fake(vec![greets_late]);
    let link = bench.link();
    bench.rest(Nanos::from_millis(100));
    link.end();
    bench.until(|| server.is_finished());
    server.join().unwrap();
}

#[test]
pub(crate) fn a_damaged_answer_is_none() {
    let bench = Bench::new();
    let server = bench.fake(vec![damages]);
    let claim = call(0, Ask::Claim { lineage: Vec::new() });
    assert_eq!(bench.ask(&bench.link(), claim), Some(Err(LenderError::Unreachable)));
    server.join().unwrap();
}

#[test]
pub(crate) fn another_store_at_the_address_is_not_taken() {
    let bench = Bench::new();
    let mut each: Vec<fn(UnixStream)> = vec![leaves];
    // More connections than the link tries to make.
    each.resize(1000, is_another);
    drop(bench.fake(each));
    let link = bench.link();
    assert_eq!(bench.ask(&link, delete()), Some(Err(LenderError::Unreachable)));
    bench.rest(Nanos::from_millis(600));
    assert_eq!(bench.ask(&link, delete()), Some(Err(LenderError::Unreachable)));
    let expected = "07070707070707070707070707070707";
    assert!(link.trouble().ends_with(&format!("not {expected}")), "{}", link.trouble());
    assert_eq!(link.id(), STORE);
}

/// A device whose writes wait.
struct Held {
    below: MemoryDevice,
    held: Cell<bool>,
    released: Signal,
}

impl BlockDevice for Held {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let released = self.held.get().then(|| self.released.wait());
        let done = self.below.submit(request);
        Completion::of_others(async move {
            if let Some(released) = released {
                released.await;
            }
            done.await
        })
    }
}

/// A store whose device can hold writes back, and its server at the bench's address.
fn lent(bench: &Bench) -> (Rc<Held>, Rc<LentServer>) {
    lent_sealed(bench, None)
}

fn lent_sealed(bench: &Bench, sealed: Option<StoreSeal>) -> (Rc<Held>, Rc<LentServer>) {
    lent_at(bench, UnixListener::bind(bench.path()).unwrap(), sealed)
}

fn lent_at(
    bench: &Bench,
    listener: impl Into<OwnedFd>,
    sealed: Option<StoreSeal>,
) -> (Rc<Held>, Rc<LentServer>) {
    let below = MemoryDevice::new(Sectors(64 + 9 * 128 + 16));
    let (held, released) = (Cell::default(), Signal::default());
    let device = Rc::new(Held { below, held, released });
    let disk: Rc<dyn BlockDevice> = Rc::clone(&device) as Rc<dyn BlockDevice>;
    let runtime = bench.reactor.handle();
    let lending = bench.reactor.block_on(async move {
        let options = StoreOptions { log: Sectors(128), table: Sectors(0) };
        let store = CircularStore::create(runtime, vec![disk], options).await.unwrap();
        Lending::open(store, None).await.unwrap()
    });
    let listener = bench.reactor.listen(listener).unwrap();
    let runtime = bench.reactor.handle();
    (device, LentServer::start(runtime, lending, (listener, sealed), Arc::default()))
}

fn write(number: u64, tag: u8) -> Call {
    let content = Some(Payload::bytes(vec![tag; 4096]));
    call(number, Ask::Write { extent: Extent::new(8, 8), version: Version(number), content })
}

#[test]
pub(crate) fn a_write_is_answered_when_it_is_durable() {
    let bench = Bench::new();
    let (device, _server) = lent(&bench);
    let link = bench.link();
    let lineage = vec![Opening { incarnation: 1, token: 5 }];
    let claimed = bench.ask(&link, call(0, Ask::Claim { lineage }));
    assert_eq!(claimed, Some(Ok(Reply::Held(Vec::new()))));
    device.held.set(true);
    let (answer, runtime) = (link.call(write(1, 3)), bench.reactor.handle());
    bench.reactor.block_on(async move {
        let mut answer = answer;
        let early = runtime.within(Nanos::from_millis(400), &mut answer).await;
        assert_eq!(early, None, "it is answered before the disk has it");
        device.held.set(false);
        device.released.notify();
        let answered = runtime.within(SOON, answer).await;
        assert_eq!(answered, Some(Ok(Reply::Done)));
    });
    let read = bench.ask(&link, call(2, Ask::Read { extent: Extent::new(8, 8) }));
    let Some(Ok(Reply::Found(parts))) = read else { panic!("{read:?}") };
    let stored = parts[0].stored.as_ref().unwrap();
    assert_eq!((stored.0, stored.1.to_bytes().unwrap()), (Version(1), vec![3; 4096].into()));
}

/// A store on the base volume's own disk is refused, and one on another disk is not.
#[test]
pub(crate) fn a_store_on_the_own_disk_is_not_used() {
    let on = |disks: &[u64]| LiesOn::new([5; 16], disks.to_vec());
    let refusal = |store: LiesOn, base: LiesOn| {
        let bench = Bench::new();
        let (_device, server) = lent(&bench);
        server.tell_disks(store);
        let link = bench.link();
        link.keep_apart_from(base);
        bench.reactor.block_on(async move { (link.refusal(SOON).await, link.known(SOON).await) })
    };
    let (refused, known) = refusal(on(&[8, 9]), on(&[7, 8]));
    assert!(refused.unwrap().contains("own disk") && known.is_err());
    for other in [on(&[7]), on(&[]), LiesOn::new([6; 16], vec![8, 9]), LiesOn::default()] {
        assert_eq!(refusal(on(&[8, 9]), other), (None, Ok(())));
    }
    assert_eq!(refusal(LiesOn::new([0; 16], vec![8]), LiesOn::new([0; 16], vec![8])).0, None);
}

/// Bad frames of a stranger end the stranger's connection and no other.
#[test]
fn strangers_are_disconnected_and_clients_stay() {
    let bench = Bench::new();
    let (_device, server) = lent(&bench);
    let link = bench.link();
    let lineage = vec![Opening { incarnation: 1, token: 5 }];
    assert!(bench.ask(&link, call(0, Ask::Claim { lineage })).unwrap().is_ok());
    let hello = manylogs_everest::net::Hello { base: BASE }.encode().encode().concat();
    let long = Frame::new(FrameKind::Hello, vec![vec![0; 8192].into()]).encode().concat();
    let mut huge = Frame::new(FrameKind::Call, Vec::new()).encode().concat();
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let twice = [&hello[..], &hello[..]].concat();
    let tags = Ask::Write {
        extent: Extent::new(0, 8),
        version: Version(1),
        content: Some(Payload::tags(1, Sectors(8))),
    };
    let tags = [&hello[..], &call(5, tags).encode(0).encode().concat()].concat();
    let all = Ask::Read { extent: Extent::new(0, 1 << 40) };
    let all = [&hello[..], &call(6, all).encode(0).encode().concat()].concat();
    for bytes in [b"HELO".repeat(20), long, [&hello[..], &huge].concat(), twice, tags, all] {
        let mut stream = UnixStream::connect(bench.path()).unwrap();
        stream.write_all(&bytes).unwrap();
        let said = bench.said_until_the_end(&mut stream);
        assert!(said < 200, "{said} bytes");
    }
    bench.until(|| server.connections() == 1);
    let gone =
        bench.ask(&link, call(1, Ask::Delete { extent: Extent::new(0, 8), version: Version(1) }));
    assert_eq!(gone, Some(Ok(Reply::Done)));
    // More than the store has room for: the call fails, and the connection stays.
    let content = Some(Payload::zeroes(Sectors(1 << 20)));
    let extent = Extent::new(0, 1 << 20);
    let long = bench.ask(&link, call(2, Ask::Write { extent, version: Version(1), content }));
    assert!(matches!(long, Some(Err(LenderError::Failed(IoError::OutOfRange { .. })))), "{long:?}");
    assert_eq!(server.connections(), 1);
}
