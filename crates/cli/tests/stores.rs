//! Processes that lend stores, and base volumes that borrow them: acknowledged writes survive a
//! kill of any process, and mistakes are reported.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::Place;
use common::client::{Client, FLUSH, FUA, READ, TRIM, WRITE};
use common::served::Server;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK_BYTES: u32 = 4096;
const BLOCK: u64 = BLOCK_BYTES as u64;
const BLOCKS: u64 = 3000;

/// A base volume, and the blocks that clients wrote to it.
struct Bench {
    place: Place,
    port: u16,
    /// The version of each written block; 0 is zeroes.
    written: BTreeMap<u64, u64>,
    versions: u64,
}

fn content(block: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; 4096];
    }
    (0..512_u64).flat_map(|word| (block << 40 | version << 16 | word).to_le_bytes()).collect()
}

/// A free port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Bench {
    fn new(everest: &str) -> Self {
        let place = Place::new();
        place.run(&["format", "base.img", "--size", "64M", "--everest", everest]).succeeds();
        Self { place, port: free_port(), written: BTreeMap::new(), versions: 0 }
    }

    /// Lends a file: the first over a Unix socket, the second over TCP.
    fn lend(&self, name: &str) -> Server {
        let at = match name {
            "one.img" => "unix:one.sock".to_owned(),
            _ => format!("tcp:127.0.0.1:{}", self.port),
        };
        let args = ["lend", name, "--listen", &at];
        let size: &[&str] = if self.place.path(name).exists() { &[] } else { &["--size", "32M"] };
        Server::start(&mut self.place.command(&[&args[..], size].concat()))
    }

    fn serve(&self, options: &[&str]) -> Server {
        let args = ["serve", "base.img", "--nbd", "unix:nbd.sock", "--same-disk"];
        Server::start(&mut self.place.command(&[&args[..], options].concat()))
    }

    fn client(&self) -> Client {
        Client::connect(&self.place.path("nbd.sock"), PATIENCE)
    }

    /// Writes blocks at scattered places, each durable when it is answered.
    fn write(&mut self, client: &mut Client, count: u64) {
        for _ in 0..count {
            self.versions += 1;
            let block = self.versions * 7919 % BLOCKS;
            let bytes = content(block, self.versions);
            let answered = client.ask(FUA, WRITE, block * BLOCK, BLOCK_BYTES, &bytes);
            assert_eq!(answered, 0, "a write of block {block}");
            self.written.insert(block, self.versions);
        }
    }

    /// Discards a range that overlaps written ones.
    fn trim(&mut self, client: &mut Client) {
        assert_eq!(client.ask(FUA, TRIM, 100 * BLOCK, 300 * BLOCK_BYTES, &[]), 0);
        (100..400).for_each(|block| {
            self.written.insert(block, 0);
        });
    }

    /// Checks that all acknowledged writes are there.
    fn check(&self, client: &mut Client) {
        for (block, version) in &self.written {
            let found = client.read(block * BLOCK, BLOCK_BYTES);
            assert!(found == content(*block, *version), "block {block}, version {version}");
        }
    }

    /// Stops a server once it knows that no client is connected any more: it learns of a client's
    /// end some time after it.
    fn stop(&self, device: &str) {
        let began = Instant::now();
        loop {
            let said = self.place.run(&["status", device, "--json"]);
            let status: Value = serde_json::from_str(&said.succeeds().stdout).unwrap();
            let count =
                |pointer: &str| status.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
            if count("/nbd/connections") + count("/lent/connections") == 0 {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{device} has clients: {status}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.place.run(&["stop", device]).succeeds();
    }

    fn offload(&self) -> Value {
        let said = self.place.run(&["status", "base.img", "--json"]);
        let status: Value = serde_json::from_str(&said.succeeds().stdout).unwrap();
        status["offload"].clone()
    }

    fn wait(&self, what: &str, until: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let offload = self.offload();
            if until(&offload) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {offload}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for_stores(&self, state: &str, count: usize) {
        self.wait("the stores", |offload| {
            let stores = offload["stores"].as_array().unwrap();
            stores.iter().filter(|store| store["state"] == state).count() == count
        });
    }
}

/// Two copies, one over a Unix socket and one over TCP. All processes are killed, one by one and
/// together.
#[test]
fn what_was_acknowledged_is_there_whoever_is_killed() {
    let mut bench = Bench::new("disk");
    let (one, two) = (bench.lend("one.img"), bench.lend("two.img"));
    let stores = [one.path.clone(), two.path.clone()];
    assert!(stores[0].starts_with("unix:/") && stores[1].starts_with("tcp:127.0.0.1:"));
    let borrow =
        ["--store", &stores[0], "--store", &stores[1], "--copies", "2", "--offload", "always"];
    let served = bench.serve(&borrow);
    let mut client = bench.client();
    bench.wait_for_stores("lends", 2);
    bench.write(&mut client, 300);
    let offload = bench.offload();
    assert!(offload["offloaded_writes"].as_u64().unwrap() >= 300, "{offload}");
    assert_eq!(offload["why"], "every write goes to stores, as it was asked for");

    // One store is killed under load: writes go on, and its content is read from the other store.
    let began = Instant::now();
    two.kill();
    bench.write(&mut client, 300);
    bench.trim(&mut client);
    bench.check(&mut client);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    bench.wait_for_stores("away", 1);
    let said = bench.place.run(&["stores", "base.img"]);
    assert!(said.succeeds().stdout.contains("1 of 2 stores cannot be reached"), "{said:?}");
    let two = bench.lend("two.img");
    bench.wait_for_stores("lends", 2);
    bench.write(&mut client, 300);
    bench.check(&mut client);

    // The base's server is killed, and the next one learns what stores hold.
    served.kill();
    let served = bench.serve(&borrow);
    let mut client = bench.client();
    bench.check(&mut client);
    bench.wait_for_stores("lends", 2);
    bench.write(&mut client, 300);

    // All are killed at once.
    served.kill();
    one.kill();
    two.kill();
    let (one, two) = (bench.lend("one.img"), bench.lend("two.img"));
    let served = bench.serve(&borrow);
    let mut client = bench.client();
    bench.check(&mut client);
    bench.wait_for_stores("lends", 2);
    bench.write(&mut client, 100);
    assert_eq!(client.ask(0, FLUSH, 0, 0, &[]), 0);

    // All data goes home, and no store is needed any more.
    bench.wait("what is held goes home", |offload| {
        let unused = |store: &Value| store["listed"] == false;
        offload["held_bytes"] == 0 && offload["stores"].as_array().unwrap().iter().all(unused)
    });
    drop(client);
    bench.stop("base.img");
    assert!(served.wait().0.success());
    let listed = bench.place.run(&["stores", "base.img"]);
    assert!(listed.succeeds().stdout.contains("no store holds"), "{listed:?}");
    // Lenders end in order, although clients reconnect.
    for lent in [one, two] {
        lent.terminate();
        let (status, said) = lent.wait();
        assert!(status.success() && said.contains("closed"), "{said}");
    }
    assert!(!bench.place.path("one.sock").exists());
    let served = bench.serve(&[]);
    bench.check(&mut bench.client());
    drop(served);
}

/// A base volume on a volume: it can borrow stores, too.
#[test]
fn a_volume_borrows_stores_too() {
    let mut bench = Bench::new("volume");
    let one = bench.lend("one.img");
    let borrow = ["--store", &one.path, "--offload", "always"];
    let served = bench.serve(&borrow);
    let mut client = bench.client();
    bench.wait_for_stores("lends", 1);
    bench.write(&mut client, 500);
    served.kill();
    let served = bench.serve(&borrow);
    bench.check(&mut bench.client());
    served.kill();
    // The volume cannot be drained while a store may hold newer data.
    let refused = (0..20).any(|_| {
        let served = bench.serve(&borrow);
        let mut client = bench.client();
        bench.wait_for_stores("lends", 1);
        bench.write(&mut client, 100);
        served.kill();
        let drained = bench.place.run(&["drain", "base.img"]);
        drained.code == Some(2) && drained.stderr.contains("may hold newer data")
    });
    assert!(refused, "it is drained each time");
    // Nobody serves it: its header is read through the volume.
    bench.place.run(&["stores", "base.img"]).succeeds();
    let judged = bench.place.run(&["check", "base.img"]);
    assert!(judged.stdout.contains("of Everest, on this volume"), "{judged:?}");
    assert!(judged.stdout.contains("it is served only with it"), "{judged:?}");
    // A newly formatted volume keeps nothing of it, and needs no store.
    bench.place.run(&["format", "base.img", "--force"]).succeeds();
    let served = bench.serve(&[]);
    assert_eq!(bench.offload(), Value::Null);
    drop(served);
}

/// While no store takes writes they go home, and the status says so; a store that comes back is
/// used again.
#[test]
fn a_base_volume_goes_on_without_its_only_store() {
    let mut bench = Bench::new("disk");
    let one = bench.lend("one.img");
    let borrow = ["--store", &one.path, "--offload", "always", "--patience", "1s"];
    let served = bench.serve(&borrow);
    let mut client = bench.client();
    bench.wait_for_stores("lends", 1);
    bench.write(&mut client, 200);
    one.kill();
    bench.write(&mut client, 200);
    bench.wait_for_stores("away", 1);
    let one = bench.lend("one.img");
    bench.wait_for_stores("lends", 1);
    bench.write(&mut client, 200);
    bench.check(&mut client);
    drop((served, one));
}

/// A store that is added while the base volume is served is found by the next server without being
/// named, until it is removed.
#[test]
fn a_store_that_is_added_is_found_after_a_restart() {
    let mut bench = Bench::new("disk");
    let one = bench.lend("one.img");
    let id = one.path.rsplit_once('#').unwrap().1.to_owned();
    bench.place.run(&["stores", "base.img", "add", &one.path]).fails(2, &["no server"]);
    let served = bench.serve(&["--offload", "always", "--patience", "1s"]);
    let mut client = bench.client();
    bench.write(&mut client, 10);
    let add = |store: &str| bench.place.run(&["stores", "base.img", "add", store]);
    add("unix:nobody.sock").fails(1, &["nobody.sock", "No such file"]);
    add("nobody").fails(2, &["unix:PATH or tcp:HOST:PORT"]);
    bench.place.run(&["stores", "base.img", "add"]).fails(2, &["name the store"]);
    // The name is not given, and the path is relative.
    assert!(add("unix:one.sock").succeeds().stdout.contains(&id));
    bench.wait_for_stores("lends", 1);
    assert_eq!(bench.offload()["stores"][0]["kept"], true);
    bench.write(&mut client, 100);
    assert_eq!(bench.offload()["offloaded_writes"], 100);
    served.kill();

    let served = bench.serve(&["--offload", "always"]);
    let mut client = bench.client();
    bench.check(&mut client);
    bench.wait_for_stores("lends", 1);
    bench.write(&mut client, 100);
    // Given as well, it is one store.
    served.kill();
    let served = bench.serve(&["--store", &one.path, "--offload", "always"]);
    let mut client = bench.client();
    bench.check(&mut client);
    assert_eq!(bench.offload()["stores"].as_array().unwrap().len(), 1);

    let remove = |store: &str| bench.place.run(&["stores", "base.img", "remove", store]);
    remove("one").fails(2, &["32 digits"]);
    remove(&"7".repeat(32)).fails(2, &["no store of this base volume"]);
    assert!(remove(&id).succeeds().stdout.contains("holds nothing any more"));
    assert_eq!(bench.offload()["stores"].as_array().unwrap().len(), 0);
    one.kill();
    bench.write(&mut client, 10);
    drop(client);
    bench.stop("base.img");
    assert!(served.wait().0.success());
    let served = bench.serve(&[]);
    bench.check(&mut bench.client());
    assert_eq!(bench.offload()["stores"].as_array().unwrap().len(), 0);
    served.kill();
}

/// An evacuated store is emptied and takes no more writes, after a kill of the server too, until it
/// is called back.
#[test]
fn an_evacuated_store_is_emptied_and_stays_so() {
    let mut bench = Bench::new("disk");
    let one = bench.lend("one.img");
    let id = one.path.rsplit_once('#').unwrap().1.to_owned();
    let served = bench.serve(&["--offload", "always"]);
    let mut client = bench.client();
    let stores =
        |bench: &Bench, args: &[&str]| bench.place.run(&[&["stores", "base.img"], args].concat());
    stores(&bench, &["add", "unix:one.sock"]).succeeds();
    bench.wait_for_stores("lends", 1);
    bench.write(&mut client, 100);
    assert_eq!(bench.offload()["offloaded_writes"], 100);
    stores(&bench, &["evacuate", &"7".repeat(32)]).fails(2, &["no store of this base volume"]);
    let told = stores(&bench, &["evacuate", &id]);
    assert!(told.succeeds().stdout.contains("takes no more writes"), "{told:?}");
    bench.wait_for_stores("empty", 1);
    assert!(bench.offload()["stores"][0]["left_from_bytes"].is_u64());
    let offloaded = bench.offload()["offloaded_writes"].clone();
    bench.write(&mut client, 10);
    assert_eq!(bench.offload()["offloaded_writes"], offloaded);
    served.kill();
    let told = bench.place.run(&["status", "base.img"]);
    assert!(told.succeeds().stdout.contains("was evacuated and has nothing"), "{told:?}");

    let served = bench.serve(&["--offload", "always"]);
    let mut client = bench.client();
    bench.wait_for_stores("empty", 1);
    bench.write(&mut client, 10);
    assert_eq!(bench.offload()["offloaded_writes"], 0);
    stores(&bench, &["add", "unix:one.sock"]).succeeds();
    bench.wait_for_stores("lends", 1);
    bench.write(&mut client, 10);
    assert_eq!(bench.offload()["offloaded_writes"], 10);
    let removed = stores(&bench, &["remove", &id]);
    assert!(removed.succeeds().stdout.contains("holds nothing any more"), "{removed:?}");
    bench.check(&mut client);
    drop((served, one));
}

/// Leaves a base volume whose server was killed while a store held data of it.
fn left_open(bench: &mut Bench, store: &str) {
    let borrow = ["--store", store, "--offload", "always"];
    for _ in 0..20 {
        let served = bench.serve(&borrow);
        let mut client = bench.client();
        bench.wait_for_stores("lends", 1);
        bench.write(&mut client, 100);
        served.kill();
        let listed = bench.place.run(&["stores", "base.img", "--json"]);
        if listed.succeeds().stdout.contains(store.rsplit_once('#').unwrap().1) {
            return;
        }
    }
    panic!("no store is listed when the server is killed");
}

#[test]
fn mistakes_with_base_volumes_are_told() {
    let mut bench = Bench::new("disk");
    let one = bench.lend("one.img");
    let (store, id) = (one.path.clone(), one.path.rsplit_once('#').unwrap().1.to_owned());
    left_open(&mut bench, &store);
    let serve = |options: &[&str]| {
        let args = ["serve", "base.img", "--nbd", "unix:nbd.sock", "--patience", "1s"];
        bench.place.run(&[&args[..], options].concat())
    };
    serve(&[]).fails(2, &[&id, "may hold newer data", "give it too"]);
    serve(&["--raw"]).fails(2, &["may hold newer data"]);
    serve(&["--store", &store, "--copies", "2"]).fails(2, &["2 copies", "1 are given"]);
    serve(&["--store", &store, "--copies", "0"]).fails(2, &["0 copies"]);
    serve(&["--store", &store, "--store", &store]).fails(2, &["each once"]);
    // No server answers: with the store's name given, and without.
    let gone = format!("tcp:127.0.0.1:{}", free_port());
    let named = format!("{gone}#{id}");
    serve(&["--store", &named]).fails(1, &[&id, &gone, "refused", "may hold newer data"]);
    serve(&["--store", &store, "--store", &gone]).fails(1, &[&gone, "refused"]);
    serve(&["--store", "unix:nobody.sock"]).fails(1, &["nobody.sock", "No such file"]);
    let (at, _) = store.rsplit_once('#').unwrap();
    let wrong = format!("{at}#00112233445566778899aabbccddeeff");
    serve(&["--store", &wrong]).fails(2, &[&id, "give it too"]);
    // A store that holds nothing is not waited for. What the other one holds may go home now.
    let other = format!("{gone}#00112233445566778899aabbccddeeff");
    let served = bench.serve(&["--store", &store, "--store", &other, "--patience", "1s"]);
    bench.check(&mut bench.client());
    served.kill();
    let served = bench.serve(&["--store", &store, "--store", &wrong]);
    bench.wait_for_stores("away", 1);
    served.kill();
}

#[test]
fn other_things_than_stores_and_base_volumes_are_told() {
    let mut bench = Bench::new("disk");
    let one = bench.lend("one.img");
    left_open(&mut bench, &one.path.clone());
    let place = &bench.place;
    let far = ["serve", "base.img", "--nbd", "unix:x.sock", "--store", "tcp:192.0.2.1:7000"];
    place.run(&far).fails(2, &["192.0.2.1", "not this machine", "lend --allow KEY"]);
    let bad = ["serve", "base.img", "--nbd", "unix:x.sock", "--store", "tcp:localhost"];
    place.run(&bad).fails(2, &["unix:PATH or tcp:HOST:PORT"]);
    // Another kind of server listens there.
    place.run(&["format", "disk.img", "--size", "64M"]).succeeds();
    let other = ["serve", "disk.img", "--nbd", "unix:other.sock"];
    let other = Server::start(&mut place.command(&other));
    let stranger = ["--store", "unix:other.sock", "--patience", "1s"];
    let args = ["serve", "base.img", "--nbd", "unix:x.sock"];
    place.run(&[&args[..], &stranger].concat()).fails(1, &["no store answers there"]);
    // A client that speaks another protocol: the store goes on.
    let mut raw = std::os::unix::net::UnixStream::connect(place.path("one.sock")).unwrap();
    std::io::Write::write_all(&mut raw, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n12345678").unwrap();
    assert_eq!(std::io::Read::read(&mut raw, &mut [0; 64]).unwrap(), 0, "it is disconnected");
    drop(other);
    let no_base = ["serve", "disk.img", "--nbd", "unix:x.sock", "--store", &one.path];
    place.run(&no_base).fails(2, &["no base volume", "--everest"]);
    place.run(&["stores", "disk.img"]).fails(2, &["no base volume"]);
    // No command overwrites a base volume without --force, and a truncated one is none.
    place.run(&["format", "base.img"]).fails(5, &["a base volume", "--force"]);
    place.run(&["lend", "base.img"]).fails(5, &["a base volume", "--force"]);
    let file = File::options().write(true).open(place.path("base.img")).unwrap();
    file.set_len(48 << 20).unwrap();
    let short = ["serve", "base.img", "--nbd", "unix:x.sock", "--store", &one.path];
    place.run(&short).fails(2, &["131072 sectors", "98304", "a part of it is missing"]);
}

#[test]
fn mistakes_with_lent_parts_are_told() {
    let bench = Bench::new("disk");
    let place = &bench.place;
    let lend = |args: &[&str]| place.run(&[&["lend"], args].concat());
    lend(&["new.img"]).fails(2, &["does not exist", "--size"]);
    lend(&["new.img", "--size", "1M"]).fails(2, &["at least 16.0 MiB"]);
    lend(&["new.img", "--size", "32M", "--listen", "tcp:192.0.2.1:7000"])
        .fails(2, &["not this machine"]);
    lend(&["new.img", "--size", "32M", "--listen", "/run/x"]).fails(2, &["unix:PATH"]);
    assert!(!place.path("new.img").exists(), "nothing was made");
    let one = bench.lend("one.img");
    let size = fs::metadata(place.path("one.img")).unwrap();
    let reserved = std::os::unix::fs::MetadataExt::blocks(&size) * 512;
    assert!(reserved >= 32 << 20, "{reserved} bytes are reserved");
    lend(&["one.img", "--listen", "unix:again.sock"]).fails(5, &["is served", "manylogs stop"]);
    lend(&["two.img", "--size", "32M", "--listen", "unix:one.sock"])
        .fails(5, &["a server listens there"]);
    // A copy of a store has its name.
    fs::copy(place.path("one.img"), place.path("copy.img")).unwrap();
    lend(&["copy.img", "--listen", "unix:copy.sock"]).fails(5, &["is open already"]);
    place.run(&["status", "one.img"]).succeeds();
    bench.stop("one.img");
    assert!(one.wait().0.success());
    lend(&["one.img", "--size", "64M", "--listen", "unix:one.sock"])
        .fails(2, &["33554432 bytes, not 67108864"]);
    place.run(&["format", "one.img"]).fails(5, &["a lent store"]);
    place
        .run(&["serve", "one.img", "--nbd", "unix:x.sock"])
        .fails(2, &["the lent store", "manylogs lend"]);
    // Damage in both superblocks.
    let path: PathBuf = place.path("one.img");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() - 4096 + 20;
    (bytes[20], bytes[end]) = (!bytes[20], !bytes[end]);
    fs::write(&path, bytes).unwrap();
    lend(&["one.img", "--listen", "unix:one.sock"]).fails(2, &["holds no Everest store"]);
}

/// The blocks that `manylogs stores BASE forget` says are lost.
fn lost_blocks(said: &str) -> Vec<u64> {
    let mut blocks = Vec::new();
    for line in said.lines().filter_map(|line| line.strip_prefix("lost: ")) {
        let (bytes, start) = line.split_once(" bytes from byte ").unwrap();
        let (bytes, start): (u64, u64) = (bytes.parse().unwrap(), start.parse().unwrap());
        blocks.extend(start / BLOCK..(start + bytes) / BLOCK);
    }
    blocks
}

impl Bench {
    /// Checks that the blocks `lost` are read errors, and all others as they were written last.
    fn check_without(&self, client: &mut Client, lost: &[u64]) {
        for (block, version) in &self.written {
            if lost.contains(block) {
                let answer = client.ask(0, READ, block * BLOCK, BLOCK_BYTES, &[]);
                assert_ne!(answer, 0, "block {block} is lost");
            } else {
                let found = client.read(block * BLOCK, BLOCK_BYTES);
                assert!(found == content(*block, *version), "block {block}, version {version}");
            }
        }
    }

    /// Kills a store when it alone has data; returns the server of the base volume.
    fn kill_with_data(&mut self, store: &str) -> Server {
        let borrow = ["--store", store, "--offload", "always", "--patience", "1s"];
        let served = self.serve(&borrow);
        let mut client = self.client();
        for _ in 0..20 {
            let one = self.lend("one.img");
            self.wait_for_stores("lends", 1);
            self.write(&mut client, 100);
            one.kill();
            self.wait_for_stores("away", 1);
            if self.offload()["only_copy_bytes"].as_u64().unwrap() > 0 {
                return served;
            }
        }
        panic!("everything is home whenever the store is killed");
    }
}

/// A store whose file is gone while the base volume is served: what it alone had is read errors,
/// later too, until it is written.
#[test]
fn a_store_that_is_gone_for_good_is_forgotten() {
    let mut bench = Bench::new("disk");
    let one = bench.lend("one.img");
    let (store, id) = (one.path.clone(), one.path.rsplit_once('#').unwrap().1.to_owned());
    one.kill();
    let served = bench.kill_with_data(&store);
    fs::remove_file(bench.place.path("one.img")).unwrap();
    let forget =
        |args: &[&str]| bench.place.run(&[&["stores", "base.img", "forget"], args].concat());
    forget(&[]).fails(2, &["name the store"]);
    forget(&["one"]).fails(2, &["32 digits"]);
    forget(&[&"7".repeat(32), "--accept-loss"]).fails(2, &["no store of this base volume"]);
    let asked = forget(&[&id]);
    asked.fails(4, &["forgetting store", &id, "--accept-loss"]);
    let lost = lost_blocks(&asked.stdout);
    assert!(!lost.is_empty() && lost.iter().all(|block| bench.written.contains_key(block)));
    let done = forget(&[&id, "--accept-loss"]);
    assert!(done.succeeds().stdout.contains("is forgotten"), "{done:?}");
    assert_eq!(lost_blocks(&done.stdout), lost);
    assert_eq!(bench.offload()["stores"].as_array().unwrap().len(), 0);
    assert_eq!(bench.offload()["lost_bytes"], lost.len() as u64 * BLOCK);
    bench.check_without(&mut bench.client(), &lost);
    served.kill();

    // The base volume is opened without that store, and shows nothing old.
    let served = bench.serve(&[]);
    let mut client = bench.client();
    bench.check_without(&mut client, &lost);
    let block = lost[0];
    bench.versions += 1;
    let bytes = content(block, bench.versions);
    assert_eq!(client.ask(FUA, WRITE, block * BLOCK, BLOCK_BYTES, &bytes), 0);
    bench.written.insert(block, bench.versions);
    bench.check_without(&mut client, &lost[1..]);
    served.kill();
    let served = bench.serve(&[]);
    bench.check_without(&mut bench.client(), &lost[1..]);
    served.kill();
}

/// Nobody knows what a store had of a base volume that is not open.
#[test]
fn a_store_of_a_closed_base_volume_is_forgotten() {
    for everest in ["disk", "volume"] {
        let mut bench = Bench::new(everest);
        let one = bench.lend("one.img");
        let (store, id) = (one.path.clone(), one.path.rsplit_once('#').unwrap().1.to_owned());
        one.kill();
        bench.kill_with_data(&store).kill();
        // The lent part tells whose data it holds, although the base volume is gone.
        let one = bench.lend("one.img");
        let said = bench.place.run(&["status", "one.img", "--json"]);
        let lent: Value = serde_json::from_str(&said.succeeds().stdout).unwrap();
        let lent = &lent["lent"];
        let held = lent["held_for"].as_array().unwrap();
        assert_eq!((held.len(), &lent["clients"]), (1, &1.into()), "{lent}");
        assert!(held[0]["held_bytes"] == lent["used_bytes"] && lent["used_bytes"] != 0, "{lent}");
        let base = held[0]["base"].as_str().unwrap();
        let said = bench.place.run(&["status", "one.img"]);
        assert!(said.succeeds().stdout.contains(&format!("base volume {base}")), "{said:?}");
        one.kill();
        let args = ["stores", "base.img", "forget", &id];
        let asked = bench.place.run(&args);
        asked.fails(4, &["forgetting store", "--accept-loss"]);
        bench.place.run(&[&args[..], &["--accept-loss"]].concat()).succeeds();
        bench.place.run(&args).fails(2, &["no store of this base volume"]);
        let served = bench.serve(&[]);
        let mut client = bench.client();
        bench.check_without(&mut client, &lost_blocks(&asked.stdout));
        bench.written.clear();
        bench.write(&mut client, 20);
        bench.check(&mut client);
        served.kill();
    }
    let bench = Bench::new("disk");
    bench.place.run(&["format", "disk.img", "--size", "64M"]).succeeds();
    let id = "7".repeat(32);
    bench.place.run(&["stores", "disk.img", "forget", &id]).fails(2, &["no base volume"]);
    bench.place.run(&["stores", "base.img", "--accept-loss"]).fails(2, &["forget STORE"]);
}

/// What a lender gives of its disk's time is told, and changes while the part is lent.
#[test]
fn the_share_of_a_lent_part_is_told_and_changed() {
    let bench = Bench::new("disk");
    let place = &bench.place;
    let lend = ["lend", "one.img", "--listen", "unix:one.sock", "--size", "32M"];
    for wrong in ["0", "101", "some"] {
        place.run(&[&lend[..], &["--share", wrong]].concat()).fails(2, &["--share"]);
    }
    assert!(!place.path("one.img").exists(), "nothing was made");
    place.run(&["set", "one.img", "share=40%"]).fails(2, &["no server lends it"]);
    let told = || {
        let said = place.run(&["status", "one.img", "--json"]);
        let status: Value = serde_json::from_str(&said.succeeds().stdout).unwrap();
        status["lent"]["share_percent"].clone()
    };
    let one = Server::start(&mut place.command(&[&lend[..], &["--share", "15"]].concat()));
    assert_eq!(told(), 15);
    assert_eq!(place.run(&["set", "one.img", "share=40%"]).succeeds().stdout, "share=40%\n");
    assert_eq!(told(), 40);
    for wrong in ["share=0", "share=101%", "share=", "share=4x"] {
        place.run(&["set", "one.img", wrong]).fails(2, &[wrong, "share=1% to share=100%"]);
    }
    let mixed = place.run(&["set", "one.img", "share=50%", "group=1M"]);
    mixed.fails(2, &["group=1M", "no more"]);
    assert_eq!(told(), 40, "nothing of it was done");
    place.run(&["set", "one.img", "share=100"]).succeeds();
    assert_eq!(told(), 100);
    // Each start names it anew: nothing of it is on the disk.
    bench.stop("one.img");
    assert!(one.wait().0.success());
    let one = bench.lend("one.img");
    assert_eq!(told(), 100);
    drop(one);
}

/// The public key in a file, which is made.
#[cfg(feature = "tls")]
fn key(place: &Place, file: &str) -> String {
    let said = place.run(&["stores", "base.img", "key", "--key", file]);
    said.succeeds().stdout.trim().to_owned()
}

#[cfg(feature = "tls")]
#[test]
fn a_store_with_keys_serves_those_that_it_names() {
    let mut bench = Bench::new("disk");
    let (mine, others) = (key(&bench.place, "mine"), key(&bench.place, "others"));
    assert_eq!(mine, key(&bench.place, "mine"));
    let lend = |allowed: &str| {
        let at = format!("tcp:127.0.0.1:{}", bench.port);
        let args = ["lend", "one.img", "--listen", &at, "--allow", allowed, "--key", "lends"];
        let size: &[&str] =
            if bench.place.path("one.img").exists() { &[] } else { &["--size=32M"] };
        Server::start(&mut bench.place.command(&[&args[..], size].concat()))
    };
    let lent = lend(&others);
    let store = lent.path.clone();
    assert!(store.ends_with(&format!("+{}", key(&bench.place, "lends"))), "{store}");
    let args = ["serve", "base.img", "--nbd", "unix:nbd.sock", "--patience", "1s", "--store"];
    let with = |store: &str, key: &str| {
        let unnamed = store.split_once('#').unwrap().0.to_owned();
        let known = format!("{unnamed}#{}", store.split_once('+').unwrap().1);
        bench.place.run(&[&args[..], &[&known, "--key", key]].concat())
    };
    with(&store, "mine").fails(1, &["refused this machine's key", "--allow"]);
    let another = store.replace(&key(&bench.place, "lends"), &others);
    with(&another, "others").fails(1, &["the store has the key"]);
    let plain = store.split_once('#').unwrap().0;
    bench.place.run(&[&args[..], &[plain]].concat()).fails(1, &["no store answers there"]);
    fs::write(bench.place.path("exposed"), "0".repeat(64)).unwrap();
    with(&store, "exposed").fails(2, &["exposed", "mode to 600"]);
    lent.terminate();
    let (_, said) = lent.wait();
    assert!(said.contains(&mine), "the log names the key that was refused: {said}");

    let lent = lend(&mine);
    let served = bench.serve(&["--store", &lent.path.clone(), "--key", "mine", "--offload=always"]);
    let mut client = bench.client();
    bench.wait_for_stores("lends", 1);
    bench.write(&mut client, 100);
    bench.check(&mut client);
    assert_eq!(bench.offload()["offloaded_writes"], 100);
    drop((served, lent));
}
