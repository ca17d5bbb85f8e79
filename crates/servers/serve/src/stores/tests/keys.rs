//! Sides that prove their keys, and sides that cannot.

use std::fs::{Permissions, metadata, read_to_string, set_permissions, write};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use manylogs_block::{Extent, Nanos, Payload};
use manylogs_everest::{Ask, Opening, Part, Reply, Version};
use tempfile::TempDir;

use super::{Bench, call, lent, lent_sealed};
use crate::stores::keys::{Identity, KeyError};

/// Three machines: one lends, one borrows, one does neither.
fn machines(dir: &TempDir) -> [Identity; 3] {
    ["lends", "borrows", "other"].map(|name| Identity::of_file(&dir.path().join(name)).unwrap())
}

/// The trouble of a link that never comes to a connection.
fn trouble(bench: &Bench, borrows: &Identity, lends: &Identity) -> String {
    let link = bench.link_sealed(Some(borrows.of_client(lends.public()).unwrap()));
    let (runtime, known) = (bench.reactor.handle(), link.clone());
    let found = bench.reactor.block_on(async move {
        runtime.within(Nanos::from_millis(700), known.known(Nanos::from_secs(60))).await
    });
    assert_eq!(found, None, "the store is known");
    link.trouble()
}

#[test]
fn a_client_and_a_store_that_know_each_other_exchange_content() {
    let bench = Bench::new();
    let [lends, borrows, _] = machines(&bench.dir);
    let (_device, server) =
        lent_sealed(&bench, Some(lends.of_store(vec![borrows.public()]).unwrap()));
    let link = bench.link_sealed(Some(borrows.of_client(lends.public()).unwrap()));
    let lineage = vec![Opening { incarnation: 1, token: 5 }];
    assert!(bench.ask(&link, call(0, Ask::Claim { lineage })).unwrap().is_ok());
    assert_eq!(server.connections(), 1);
    let content: Vec<u8> = (0..12 * 4096_u32).map(|at| (at % 251) as u8).collect();
    for (number, piece) in (1..).zip(content.chunks(4096)) {
        let extent = Extent::new(8 * number, 8);
        let payload = Some(Payload::bytes(piece.to_vec()));
        let ask = Ask::Write { extent, version: Version(number), content: payload };
        assert_eq!(bench.ask(&link, call(number, ask)), Some(Ok(Reply::Done)));
    }
    // The answer is longer than a record of TLS.
    let read = bench.ask(&link, call(13, Ask::Read { extent: Extent::new(8, 96) }));
    let Some(Ok(Reply::Found(parts))) = read else { panic!("{read:?}") };
    let bytes = |part: &Part| part.stored.as_ref().unwrap().1.to_bytes().unwrap();
    assert_eq!(parts.iter().map(bytes).collect::<Vec<_>>().concat(), content);
}

/// What goes from a client to the store at the bench's address, and back, as others on the way see
/// it.
fn listen_in(bench: &Bench, client: &str) -> Arc<Mutex<Vec<u8>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = UnixListener::bind(bench.dir.path().join(client)).unwrap();
    let (store, hears) = (bench.path(), Arc::clone(&heard));
    let pass = move |mut from: UnixStream, mut to: UnixStream, hears: Arc<Mutex<Vec<u8>>>| {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            hears.lock().unwrap().extend(&bytes[..count]);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    };
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = UnixStream::connect(store).unwrap();
        let (back, hears_back) = ((server.try_clone(), client.try_clone()), Arc::clone(&hears));
        std::thread::spawn(move || pass(back.0.unwrap(), back.1.unwrap(), hears_back));
        pass(client, server, hears);
    });
    heard
}

#[test]
fn nobody_on_the_way_reads_what_is_stored() {
    for sealed in [false, true] {
        let bench = Bench::new();
        let [lends, borrows, _] = machines(&bench.dir);
        let of_store = sealed.then(|| lends.of_store(vec![borrows.public()]).unwrap());
        let (_device, _server) = lent_sealed(&bench, of_store);
        let heard = listen_in(&bench, "on-the-way");
        let of_client = sealed.then(|| borrows.of_client(lends.public()).unwrap());
        let link = bench.link_to(bench.dir.path().join("on-the-way"), of_client);
        let lineage = vec![Opening { incarnation: 1, token: 5 }];
        assert!(bench.ask(&link, call(0, Ask::Claim { lineage })).unwrap().is_ok());
        let secret = b"nobody else is to read this.....".repeat(128);
        let content = Some(Payload::bytes(secret.clone()));
        let ask = Ask::Write { extent: Extent::new(8, 8), version: Version(1), content };
        assert_eq!(bench.ask(&link, call(1, ask)), Some(Ok(Reply::Done)));
        let heard = heard.lock().unwrap();
        let is_read = heard.windows(32).any(|bytes| bytes == &secret[..32]);
        assert_eq!(is_read, !sealed, "{} bytes were heard", heard.len());
    }
}

#[test]
pub(crate) fn a_client_whose_key_was_not_named_is_not_let_in() {
    let bench = Bench::new();
    let [lends, borrows, other] = machines(&bench.dir);
    let (_device, server) =
        lent_sealed(&bench, Some(lends.of_store(vec![other.public()]).unwrap()));
    let trouble = trouble(&bench, &borrows, &lends);
    assert!(trouble.contains("refused this machine's key"), "{trouble}");
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_store_with_another_key_is_not_taken() {
    let bench = Bench::new();
    let [lends, borrows, other] = machines(&bench.dir);
    let (_device, _server) =
        lent_sealed(&bench, Some(other.of_store(vec![borrows.public()]).unwrap()));
    let trouble = trouble(&bench, &borrows, &lends);
    let expected = format!("the store has the key {}", other.public());
    assert!(trouble.contains(&expected), "{trouble}");
}

/// Public keys are no secret: whoever shows one must have the private one.
#[test]
pub(crate) fn a_key_that_was_only_seen_lets_nobody_in() {
    let bench = Bench::new();
    let [lends, borrows, other] = machines(&bench.dir);
    let (_device, server) =
        lent_sealed(&bench, Some(lends.of_store(vec![borrows.public()]).unwrap()));
    let trouble = trouble(&bench, &other.showing(&borrows), &lends);
    assert!(!trouble.is_empty());
    assert_eq!(server.connections(), 0);
}

#[test]
fn one_side_without_keys_is_told_so() {
    let bench = Bench::new();
    let [lends, borrows, _] = machines(&bench.dir);
    let (_device, _server) = lent(&bench);
    let trouble = trouble(&bench, &borrows, &lends);
    assert!(trouble.contains("does not encrypt") || trouble.contains("end of file"), "{trouble}");
    let bench = Bench::new();
    let (_device, server) =
        lent_sealed(&bench, Some(lends.of_store(vec![borrows.public()]).unwrap()));
    let answer = bench.reactor.block_on({
        let link = bench.link();
        async move { link.known(Nanos::from_millis(700)).await }
    });
    assert!(answer.is_err());
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_key_file_is_made_once_and_is_nobody_elses() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("new").join("key");
    let made = Identity::of_file(&path).unwrap();
    assert_eq!(metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Identity::of_file(&path).unwrap().public(), made.public());
    assert!(!read_to_string(&path).unwrap().contains(&made.public().to_string()));
    set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Identity::of_file(&path), Err(KeyError::Exposed { .. })));
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    for text in ["", "key", &"0".repeat(63), &"x".repeat(64)] {
        write(&path, text).unwrap();
        assert!(matches!(Identity::of_file(&path), Err(KeyError::Unknown { .. })), "{text}");
    }
    assert!(matches!(Identity::of_file(dir.path()), Err(KeyError::Io { .. })));
}

/// RFC 8032, section 7.1, test 1: the public key of a private one.
#[test]
fn keys_are_those_of_the_standard() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("key");
    write(&path, "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\n").unwrap();
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let public = Identity::of_file(&path).unwrap().public().to_string();
    assert_eq!(public, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    assert_eq!(public.parse(), Ok(Identity::of_file(&path).unwrap().public()));
}
