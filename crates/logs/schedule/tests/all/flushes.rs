//! Flushes beside a stream of writes, over a drive that keeps writes in a cache.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Handle, Hint, MemoryDevice, Nanos, Payload,
    Request, Sectors, Time, completion,
};
use manylogs_schedule::{Class, Scheduler, Targets};
use manylogs_sim::{Sim, TaskOrder};

/// Bytes that the cache holds; bytes a second that go to the medium.
const CACHE_BYTES: u64 = 64 << 20;
const RATE: u64 = 256 << 20;
/// Time that a request takes to reach the cache: twice as fast as the medium.
const TRANSFER: Nanos = Nanos::from_millis(2);
const STREAM: Sectors = Sectors(2048);
const TARGETS: Targets =
    Targets { latency: Nanos::from_millis(20), contended_after: Nanos::from_millis(100) };

/// Takes writes into its cache, and answers a flush when all bytes cached before are on the medium.
#[derive(Clone)]
struct Cached(Rc<Inner>);

struct Inner {
    runtime: Handle,
    memory: MemoryDevice,
    /// Bytes received, and how many of them are on the medium.
    written: Cell<u64>,
    on_medium: Cell<u64>,
    at: Cell<Time>,
}

impl Cached {
    fn new(runtime: Handle) -> Self {
        let memory = MemoryDevice::new(Sectors(1 << 22));
        let (written, on_medium, at) = (Cell::new(0), Cell::new(0), Cell::new(runtime.now()));
        Self(Rc::new(Inner { runtime, memory, written, on_medium, at }))
    }

    fn on_medium(&self) -> u64 {
        let (inner, now) = (&self.0, self.0.runtime.now());
        let more = RATE * (now.since(inner.at.get()).0 / 1000) / 1_000_000;
        inner.on_medium.set((inner.on_medium.get() + more).min(inner.written.get()));
        inner.at.set(now);
        inner.on_medium.get()
    }

    async fn until_on_medium(&self, bytes: u64) {
        while self.on_medium() < bytes {
            self.0.runtime.sleep(Nanos::from_millis(1)).await;
        }
    }
}

impl BlockDevice for Cached {
    fn capabilities(&self) -> Capabilities {
        self.0.memory.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let (completer, answer) = completion();
        let (this, before) = (self.clone(), self.0.written.get());
        self.0.runtime.spawn(async move {
            if request == Request::Flush {
                this.until_on_medium(before).await;
            } else {
                let len = request.extent().unwrap_or_default().len.bytes();
                this.until_on_medium((before + len).saturating_sub(CACHE_BYTES)).await;
                this.on_medium();
                this.0.written.set(this.0.written.get() + len);
                this.0.runtime.sleep(TRANSFER).await;
            }
            completer.complete(this.0.memory.submit(request).await);
        });
        answer
    }
}

fn write(number: u64) -> Request {
    let extent = Extent::new(number % 1024 * STREAM.0, STREAM.0);
    let payload = Payload::tags(number, STREAM);
    Request::Write { extent, payload, fua: false, hint: Hint::None }
}

/// A stream writes one request after the other. Once the cache is full, another client flushes 16
/// times a second. Returns the times of the flushes, and the bytes a second of the stream
/// meanwhile.
fn flushed(targets: Targets) -> (Vec<Nanos>, u64) {
    let sim = Sim::new(1, TaskOrder::Fifo);
    let node = sim.node();
    let runtime = sim.handle(node);
    let drive = Cached::new(runtime.clone());
    let scheduler = Scheduler::new(runtime.clone(), Rc::new(drive), targets);
    let streamed = Rc::new(Cell::new(0));
    let (counted, stream) = (Rc::clone(&streamed), scheduler.clone());
    runtime.spawn(async move {
        for number in 0.. {
            stream.submit(Class::Stream, write(number)).await.unwrap();
            counted.set(counted.get() + STREAM.bytes());
        }
    });
    sim.block_on(node, async move {
        runtime.sleep(Nanos::from_secs(2)).await;
        let (began, before) = (runtime.now(), streamed.get());
        let mut times = Vec::new();
        for _ in 0..160 {
            let asked = runtime.now();
            scheduler.submit(Class::Record, Request::Flush).await.unwrap();
            times.push(runtime.now().since(asked));
            runtime.sleep_until(asked + Nanos::from_millis(62)).await;
        }
        let millis = runtime.now().since(began).0 / 1_000_000;
        (times, (streamed.get() - before) * 1000 / millis)
    })
}

#[test]
fn a_stream_does_not_fill_the_cache_again_while_it_is_flushed() {
    let (times, rate) = flushed(TARGETS);
    assert!(times[0] >= Nanos::from_millis(200), "the cache was full: {:?}", times[0]);
    let worst = times[40..].iter().max().unwrap();
    assert!(*worst <= Nanos::from_millis(60), "{worst:?}: as fast as they are asked for");
    assert!(rate >= RATE * 9 / 10, "{rate} bytes a second");
}

/// The case without the scheduler: the flushes stay as long as the first.
#[test]
fn a_stream_that_nobody_schedules_does() {
    let (times, _) = flushed(Targets { latency: Nanos(0), ..TARGETS });
    let least = times[40..].iter().min().unwrap();
    assert!(*least >= Nanos::from_millis(200), "{least:?}");
}
