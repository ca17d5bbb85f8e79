//! Stores whose hosts have names, and name servers that are slow or gone.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use manylogs_block::Extent;
use manylogs_everest::{Ask, LenderError, Opening, Reply, Version};

use super::{BASE, Bench, SOON, STORE, call, delete, greet, leaves, lent, lent_at};
use crate::address::NbdAddress;
use crate::stores::address::StoreAddress;
use crate::stores::link::Link;
use crate::stores::names::{Names, Place};

impl Bench {
    /// A link to a store on a host whose name is looked up by `names`.
    fn link_named(&self, port: u16, names: &Names) -> Link {
        let at = NbdAddress::Tcp { host: "store.example".to_owned(), port };
        let place = Place::of(&at, false, names).unwrap();
        let address = StoreAddress { at, store: None, key: None };
        let (runtime, connector) = (self.reactor.handle(), self.reactor.connector());
        Link::start(runtime, connector, address, (place, None), BASE)
    }

    fn reached(&self, link: &Link) -> Result<(), String> {
        let link = link.clone();
        self.reactor.block_on(async move { link.reached(SOON).await })
    }
}

fn local(port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(vec![(Ipv4Addr::LOCALHOST, port).into()])
}

/// Names that nobody knows before `released` ends; whether they are asked for, and whether that is
/// done on this thread.
fn slow_names(released: Receiver<()>) -> (Names, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (released, here) = (Mutex::new(released), thread::current().id());
    let (asked, waited) = (Arc::new(AtomicBool::default()), Arc::new(AtomicBool::default()));
    let (asks, waits) = (Arc::clone(&asked), Arc::clone(&waited));
    let names = Names::with(move |_, port| {
        asks.store(true, Ordering::SeqCst);
        match thread::current().id() == here {
            true => waits.store(true, Ordering::SeqCst),
            false => drop(released.lock().unwrap().recv()),
        }
        local(port)
    });
    (names, asked, waited)
}

/// While a name server says nothing, calls to other stores are answered, and the link says what it
/// waits for. Once the name is known, the store is reached.
#[test]
pub(crate) fn a_slow_name_server_holds_no_request_up() {
    let bench = Bench::new();
    let (_device, _server) = lent(&bench);
    let link = bench.link();
    let lineage = vec![Opening { incarnation: 1, token: 5 }];
    assert!(bench.ask(&link, call(0, Ask::Claim { lineage })).unwrap().is_ok());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_other, _named) = lent_at(&bench, listener, None);
    let (release, released) = channel();
    let (names, asked, waited) = slow_names(released);
    let slow = bench.link_named(port, &names);
    bench.until(|| asked.load(Ordering::SeqCst));
    assert!(!waited.load(Ordering::SeqCst), "this thread waits for the name server");
    for number in 1..4 {
        let ask = Ask::Delete { extent: Extent::new(0, 8), version: Version(1) };
        assert_eq!(bench.ask(&link, call(number, ask)), Some(Ok(Reply::Done)));
    }
    bench.until(|| slow.trouble().contains("no name server has answered for 2 s"));
    assert!(slow.trouble().contains("store.example"), "{}", slow.trouble());
    drop(release);
    assert_eq!(bench.reached(&slow), Ok(()));
}

/// A name is asked for again with each connection; a store whose address is known is reached
/// without a name server.
#[test]
fn a_store_whose_address_is_known_needs_no_name_server() {
    let bench = Bench::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        for ends in [leaves, is_left] {
            ends(UnixStream::from(OwnedFd::from(listener.accept().unwrap().0)));
        }
    });
    let asked = AtomicUsize::default();
    let names = Names::with(move |_, port| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Err(io::Error::other("it is not known yet")),
        1 => local(port),
        _ => Err(io::Error::other("the name server is gone")),
    });
    let link = bench.link_named(port, &names);
    bench.until(|| link.trouble().contains("store.example: it is not known yet"));
    assert_eq!(bench.ask(&link, delete()), Some(Err(LenderError::Unreachable)));
    assert_eq!(bench.reached(&link), Ok(()));
    link.end();
    bench.until(|| server.is_finished());
    server.join().unwrap();
}

/// Greets, and waits for the other side to go.
fn is_left(mut stream: UnixStream) {
    greet(&mut stream, STORE);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A name of another machine is refused without keys, and so are more lookups at a time than the
/// bound says.
#[test]
fn names_of_other_machines_and_too_many_of_them_are_refused() {
    let bench = Bench::new();
    let far = Names::with(|_, port| Ok(vec![([192, 0, 2, 7], port).into()]));
    let link = bench.link_named(7, &far);
    bench.until(|| link.trouble().contains("store.example: that is not this machine"));
    link.end();
    let (release, released) = channel::<()>();
    let (names, ..) = slow_names(released);
    let links: Vec<Link> = (0..40).map(|_| bench.link_named(7, &names)).collect();
    bench.until(|| links.iter().all(|link| !link.trouble().is_empty()));
    let told = |what: &str| links.iter().filter(|link| link.trouble().contains(what)).count();
    assert_eq!(told("32 other names are being looked up"), 8);
    assert_eq!(told("no name server has answered"), 32);
    links.iter().for_each(Link::end);
    drop(release);
}
