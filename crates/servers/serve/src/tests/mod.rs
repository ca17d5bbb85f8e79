//! Which requests reach the volume when clients send theirs: servers over a device that records.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub(crate) mod client;
mod limits;
mod nbd;
#[cfg(feature = "plant")]
mod planted;
mod stop;

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manylogs::{PhaseProbe, Volume};
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Handle, IoError, MemoryDevice, Nanos,
    Request, Sectors, completion,
};
use manylogs_operate::Subject;
use manylogs_storage::Reactor;
use tempfile::TempDir;

use crate::engine::{Engine, Left, ServeError};
use crate::server::Exported;
use client::Client;

/// Time limit of the tests: whatever takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Size of the exported devices.
const CAPACITY: Sectors = Sectors(1 << 18);

/// A request that reached the device; changes with their FUA flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Read(Extent),
    Write(Extent, bool),
    Flush,
    Discard(Extent, bool),
    Zero(Extent, bool),
}

impl From<&Request> for Seen {
    fn from(request: &Request) -> Self {
        match request {
            Request::Read { extent } => Self::Read(*extent),
            Request::Write { extent, fua, .. } => Self::Write(*extent, *fua),
            Request::Flush => Self::Flush,
            Request::Discard { extent, fua } => Self::Discard(*extent, *fua),
            Request::WriteZeroes { extent, fua, .. } => Self::Zero(*extent, *fua),
        }
    }
}

/// State of the device that the test's thread shares: it reads and controls it.
#[derive(Debug, Default)]
struct Watched {
    seen: Mutex<Vec<Seen>>,
    /// While set, writes are not answered.
    holds_writes: AtomicBool,
    /// While set, every request fails.
    fails: AtomicBool,
}

/// A device in memory that records its requests. A read returns the content at its arrival. A write
/// takes effect when it is answered, a moment after its arrival.
struct Recorder {
    below: Rc<MemoryDevice>,
    runtime: Handle,
    watched: Arc<Watched>,
}

impl BlockDevice for Recorder {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.watched.seen.lock().unwrap().push(Seen::from(&request));
        let (completer, answer) = completion();
        let (below, runtime) = (Rc::clone(&self.below), self.runtime.clone());
        let watched = Arc::clone(&self.watched);
        let read = matches!(request, Request::Read { .. }).then(|| below.submit(request.clone()));
        self.runtime.spawn(async move {
            let moment = Nanos::from_millis(1);
            runtime.sleep(moment).await;
            while matches!(request, Request::Write { .. })
                && watched.holds_writes.load(Ordering::SeqCst)
            {
                runtime.sleep(moment).await;
            }
            if watched.fails.load(Ordering::SeqCst) {
                completer.complete(Err(IoError::FlushFailed));
                return;
            }
            completer.complete(match read {
                Some(read) => read.await,
                None => below.submit(request).await,
            });
        });
        answer
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.below.extents(within)
    }
}

/// A server in this process, with a socket for NBD.
struct Bench {
    engine: Option<Engine>,
    watched: Arc<Watched>,
    dir: TempDir,
}

/// Looks at the medium after the server has ended.
type Look = Box<dyn FnOnce(&Reactor, Rc<MemoryDevice>) + Send>;

impl Bench {
    /// A server that exports the recorder itself.
    fn start() -> Self {
        Self::with(|_, recorder| (Rc::new(recorder), None), Box::new(|_, _| ()))
    }

    /// A server that exports a new volume on the recorder.
    fn of_volume(look: Look) -> Self {
        let open = |reactor: &Reactor, recorder: Recorder| {
            let (runtime, device) = (reactor.handle(), Rc::new(recorder));
            let config = manylogs::VolumeConfig::default();
            let create = async move { Volume::create(runtime, device, &config).await };
            let volume = reactor.block_on(create).unwrap();
            (Rc::new(volume.clone()) as Rc<dyn BlockDevice>, Some(volume))
        };
        Self::with(open, look)
    }

    fn with(
        open: impl FnOnce(&Reactor, Recorder) -> (Rc<dyn BlockDevice>, Option<Volume>) + Send + 'static,
        look: Look,
    ) -> Self {
        let (dir, watched) = (tempfile::tempdir().unwrap(), Arc::<Watched>::default());
        let listener = UnixListener::bind(dir.path().join("nbd.sock")).unwrap();
        let (telling, plant) = (Arc::clone(&watched), planted_here());
        let engine = Engine::spawn(Some(listener.into()), move |serving| {
            plant();
            let reactor = Reactor::new().unwrap();
            let below = Rc::new(MemoryDevice::new(CAPACITY));
            let (runtime, medium) = (reactor.handle(), Rc::clone(&below));
            let (device, volume) = open(&reactor, Recorder { below, runtime, watched: telling });
            let subject = Subject {
                name: "recorder".to_owned(),
                capacity: CAPACITY,
                volume,
                system: None,
                drive: None,
                recognised: None,
                probe: PhaseProbe::default(),
            };
            let exported = Exported { device, subject };
            let left = serving.serve(&reactor, exported, None)?;
            look(&reactor, medium);
            Ok(left)
        });
        Self { engine: Some(engine.unwrap()), watched, dir }
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket(), PATIENCE)
    }

    /// The requests that have reached the device since the last call.
    fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.watched.seen.lock().unwrap())
    }

    fn hold_writes(&self, hold: bool) {
        self.watched.holds_writes.store(hold, Ordering::SeqCst);
    }

    fn status(&self) -> serde_json::Value {
        self.engine().port().order(manylogs_operate::control::Order::Status).unwrap()
    }

    /// Ends the server in order.
    fn stop(&mut self) -> Result<Left, ServeError> {
        let engine = self.engine.take().unwrap();
        engine.port().stop();
        engine.join()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.hold_writes(false);
        if let Some(engine) = self.engine.take() {
            engine.port().stop();
            let _ = engine.join();
        }
    }
}

/// Plants in another thread the bug that is planted in this one.
fn planted_here() -> impl FnOnce() + Send {
    #[cfg(feature = "plant")]
    let bug = manylogs_plant::planted();
    move || {
        #[cfg(feature = "plant")]
        manylogs_plant::plant(bug);
    }
}

/// Waits until `what` holds.
fn wait_for(mut what: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !what() {
        assert!(began.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}
