//! What a server does before it ends.

use std::rc::Rc;
use std::time::Duration;

use std::io::Write;

use manylogs::{OpenOptions, Volume};
use manylogs_block::{BlockDevice, Extent, MemoryDevice, Request};
use manylogs_storage::Reactor;

use super::client::WRITE;
use super::{Bench, Seen, wait_for};
use manylogs_operate::control::Order;

#[test]
pub(super) fn what_was_acknowledged_before_a_stop_is_there_afterwards() {
    let look = |reactor: &Reactor, medium: Rc<MemoryDevice>| {
        let runtime = reactor.handle();
        reactor.block_on(async move {
            let options = OpenOptions::default();
            let (volume, report) = Volume::open(runtime, medium, &options).await.unwrap();
            assert!(report.was_closed, "closed in order");
            let read = Request::Read { extent: Extent::new(8, 8) };
            let found = volume.submit(read).await.unwrap().to_bytes().unwrap();
            assert_eq!(found, vec![9; 4096]);
        });
    };
    let mut bench = Bench::of_volume(Box::new(look));
    // Written without FUA and without a flush: the content is in the buffer.
    assert_eq!(bench.client().ask(0, WRITE, 4096, 4096, &[9; 4096]), 0);
    bench.stop().unwrap();
}

#[test]
pub(super) fn a_device_without_a_volume_is_flushed_before_a_stop() {
    let mut bench = Bench::start();
    assert_eq!(bench.client().ask(0, WRITE, 4096, 4096, &[9; 4096]), 0);
    bench.stop().unwrap();
    assert_eq!(bench.seen(), [Seen::Write(Extent::new(8, 8), false), Seen::Flush]);
}

#[test]
pub(super) fn a_server_that_stops_waits_for_requests_under_way_and_says_so() {
    let mut bench = Bench::start();
    bench.hold_writes(true);
    let mut client = bench.client();
    let (request, cookie) = client.request(0, WRITE, 0, 512, &[1; 512]);
    client.stream.write_all(&request).unwrap();
    wait_for(|| bench.status()["under_way"] == 1);
    assert!(bench.status()["stopping"].is_null());
    let port = bench.engine().port();
    port.stop();
    // For longer than the time that clients have to fetch their last answers.
    for _ in 0..65 {
        std::thread::sleep(Duration::from_millis(20));
        let status = bench.status();
        let why = status["stopping"].as_str().unwrap();
        assert!(why.contains("1 requests are under way"), "{why}");
        let refused = port.order(Order::Checkpoint).unwrap_err().to_string();
        assert!(refused.contains("1 requests are under way"), "{refused}");
    }
    bench.hold_writes(false);
    assert_eq!(client.answer(), (cookie, 0));
    bench.stop().unwrap();
}
