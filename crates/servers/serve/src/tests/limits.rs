//! How much memory clients can make a server use.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use super::client::{Client, READ, WRITE};
use super::{Bench, PATIENCE, Seen, wait_for};
use crate::nbd::{BYTES_MAX, CONNECTIONS_MAX};

const MIB: usize = 1 << 20;

#[test]
pub(super) fn answers_that_nobody_fetches_count_towards_the_limit_of_their_client() {
    let bench = Bench::start();
    let (mut deaf, mut good) = (bench.client(), bench.client());
    let asked = 3 * BYTES_MAX / MIB;
    let mut together = Vec::new();
    for _ in 0..asked {
        together.extend(deaf.request(0, READ, 0, 1 << 20, &[]).0);
    }
    deaf.stream.write_all(&together).unwrap();
    let mut carried_out = 0;
    // The connections take turns, and all requests of this one are in its socket. Requests that are
    // still not carried out while another client gets hundreds of answers are held back by the
    // limit.
    for i in 0..400_u64 {
        assert_eq!(good.ask(0, WRITE, i * 4096, 4096, &[5; 4096]), 0);
        let held = bench.status()["nbd"]["held_bytes"].as_u64().unwrap();
        assert!(held <= BYTES_MAX as u64 + 4096, "{held} bytes are held");
        let reads = bench.seen().into_iter().filter(|seen| matches!(seen, Seen::Read(_)));
        carried_out += reads.count();
    }
    // Answers in the kernel's buffer for a client that does not read are not part of the limit.
    let most = (BYTES_MAX + 8 * MIB) / MIB;
    assert!(carried_out >= 8 && carried_out <= most, "{carried_out} of {asked} reads");
    // Once the answers are fetched the rest follows.
    let mut answers = vec![0; asked * (MIB + 16)];
    deaf.stream.read_exact(&mut answers).unwrap();
    wait_for(|| bench.status()["nbd"]["held_bytes"] == 0);
    assert_eq!(deaf.ask(0, READ, 0, 4096, &[]), 0);
}

#[test]
pub(super) fn the_rest_of_a_client_that_left_is_not_carried_out() {
    let bench = Bench::start();
    let connections = bench.engine().connections();
    let mut deaf = bench.client();
    let asked = 3 * BYTES_MAX / MIB;
    let mut together = Vec::new();
    for _ in 0..asked {
        together.extend(deaf.request(0, READ, 0, 1 << 20, &[]).0);
    }
    deaf.stream.write_all(&together).unwrap();
    // There are answers now that the client does not fetch.
    wait_for(|| bench.status()["nbd"]["held_bytes"].as_u64().unwrap() > 2 * MIB as u64);
    drop(deaf);
    wait_for(|| connections.load(Ordering::SeqCst) == 0);
    wait_for(|| bench.status()["under_way"] == 0);
    let reads = bench.seen().len();
    assert!(reads <= (BYTES_MAX + 8 * MIB) / MIB, "{reads} of {asked} reads");
}

#[test]
pub(super) fn so_many_clients_are_let_in_and_no_more() {
    let bench = Bench::start();
    let connections = bench.engine().connections();
    let mut clients: Vec<Client> = (0..CONNECTIONS_MAX).map(|_| bench.client()).collect();
    for _ in 0..3 {
        let refused = Client::try_connect(&bench.socket(), PATIENCE);
        assert!(refused.is_err(), "one more is let in");
    }
    assert_eq!(connections.load(Ordering::SeqCst), CONNECTIONS_MAX);
    assert!(clients.iter_mut().all(|client| client.ask(0, READ, 0, 512, &[]) == 0));
    clients.pop();
    wait_for(|| connections.load(Ordering::SeqCst) < CONNECTIONS_MAX);
    assert_eq!(bench.client().ask(0, READ, 0, 512, &[]), 0);
}

#[test]
fn more_requests_than_a_client_may_have_wait_their_turn() {
    let bench = Bench::start();
    bench.hold_writes(true);
    let mut client = bench.client();
    let mut together = Vec::new();
    for i in 0..2000 {
        together.extend(client.request(0, WRITE, i * 512, 512, &[1; 512]).0);
    }
    let mut sending = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || sending.write_all(&together));
    let mut other = bench.client();
    let mut reached = 0;
    for _ in 0..300 {
        assert_eq!(other.ask(0, READ, 0, 512, &[]), 0);
        let writes = bench.seen().into_iter().filter(|seen| matches!(seen, Seen::Write(..)));
        reached += writes.count();
    }
    assert!((1..=256).contains(&reached), "{reached} at once");
    assert_eq!(bench.status()["under_way"], reached);
    bench.hold_writes(false);
    assert!((0..2000).all(|_| client.answer().1 == 0));
    sender.join().unwrap().unwrap();
}
