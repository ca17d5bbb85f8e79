//! One history: a volume on a medium, opened by the real program a few times, used by clients, and
//! cut from its power again and again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use manylogs_block::Rng;
use manylogs_logstore::VolumeId;
use manylogs_torture::Violation;

use crate::client::{Target, Teller, read_all, run};
use crate::disk;
use crate::medium::{Judged, Medium};
use crate::server::{FrontEnd, Server, Stack};

/// Images of power cuts that are kept for each opening of the volume.
const CUTS: usize = 16;
/// A client that takes longer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);
/// Number of histories in this process, for unique names.
static HISTORIES: AtomicU64 = AtomicU64::new(0);

/// Description of a history.
#[derive(Clone, Debug)]
pub struct History {
    /// Seed of all random choices except the interleaving of threads.
    pub seed: u64,
    /// The layers above and below the program.
    pub stack: Stack,
    /// A bug to plant in the program, which must have been built with the feature `plant`.
    pub plant: Option<String>,
}

/// The reason why a history failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The layers could not be set up, so nothing was tested.
    Setup(String),
    /// A promise was broken, or a request was not answered as it should be.
    Wrong(String),
}

impl Failure {
    /// A promise that was broken.
    pub(crate) fn of(violation: Violation) -> Self {
        Self::Wrong(violation.to_string())
    }
}

impl std::error::Error for Failure {}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Setup(reason) => write!(f, "not tested: {reason}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

/// Result of a successful history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Crash states that were recovered and checked.
    pub states: u64,
}

impl History {
    /// The history of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        Self { seed, stack: Stack::of_seed(seed), plant: None }
    }

    /// Runs the history with `program`.
    ///
    /// # Errors
    /// The failure with a description of the layers.
    pub fn run(&self, program: &Path) -> Result<Report, Failure> {
        let described = |problem| format!("seed {}, {:?}: {problem}", self.seed, self.stack);
        let judged = self.live(program).map_err(|failure| match failure {
            Failure::Setup(reason) => Failure::Setup(described(reason)),
            Failure::Wrong(what) => Failure::Wrong(described(what)),
        });
        let Judged { states, problem } = judged?;
        problem.map_or(Ok(Report { states }), |problem| Err(Failure::Wrong(described(problem))))
    }

    fn live(&self, program: &Path) -> Result<Judged, Failure> {
        let mut rng = Rng::new(self.seed);
        let stack = self.stack;
        let config = disk::config(stack.physical_sector());
        let medium = Medium::new(rng.next_u64(), config, Self::volume_id(), CUTS);
        let mut medium = medium?;
        let dir = tempfile::tempdir().map_err(|error| Failure::Setup(error.to_string()))?;
        let teller = Teller::new(medium.events(), medium.units());
        // A loop device or a FUSE mount outlives its killed server and has to be removed first.
        let openings = if stack.front_end == FrontEnd::Nbd { 1 + rng.below(3) } else { 1 };
        for left in (0..openings).rev() {
            let path = dir.path().join(format!("disk{left}"));
            let mount = medium.mount(&path);
            let mount = mount.map_err(|error| Failure::Setup(format!("mount: {error}")))?;
            let server = Server::start(program, stack, &path, self.plant.as_deref());
            let used = use_server(server.map_err(Failure::Setup)?, &teller, &mut rng, left > 0);
            drop(mount);
            used.map_err(Failure::Wrong)?;
            if left > 0 {
                medium.cut_power()?;
            }
        }
        drop(teller);
        medium.judge()
    }

    /// Two volumes with the same id cannot be open at once on one machine.
    fn volume_id() -> VolumeId {
        let history = HISTORIES.fetch_add(1, Ordering::Relaxed);
        let mut rng = Rng::new(u64::from(std::process::id()) << 32 | history);
        let mut id = VolumeId::default();
        id.iter_mut().for_each(|byte| *byte = u8::try_from(rng.below(256)).unwrap_or(0));
        id
    }
}

/// Clients use the server until they are done, or until it is killed.
fn use_server(server: Server, teller: &Teller, rng: &mut Rng, killed: bool) -> Result<(), String> {
    let clients = 2 + rng.below(3);
    let dead = Arc::new(AtomicBool::new(false));
    let after = Duration::from_millis(20 + rng.below(250));
    let mut threads = Vec::new();
    for _ in 0..clients {
        let mut target = server.connect()?;
        let (teller, mut rng, dead) = (teller.clone(), rng.split(), Arc::clone(&dead));
        let count = 30 + rng.below(50);
        threads.push(std::thread::spawn(move || {
            use_it(&mut *target, &teller, &mut rng, count, &dead)
        }));
    }
    let (began, mut late) = (Instant::now(), false);
    while threads.iter().any(|thread| !thread.is_finished()) && !dead.load(Ordering::Acquire) {
        std::thread::sleep(LOOK);
        late = began.elapsed() > PATIENCE;
        if late || (killed && began.elapsed() > after) {
            dead.store(true, Ordering::Release);
            server.kill();
        }
    }
    let used = threads.into_iter().try_for_each(|thread| {
        thread.join().map_err(|_| "a client's thread panicked".to_owned())?
    });
    if late {
        return Err(format!("clients hang; the server said: {}", server.said()));
    }
    used.map_err(|error| format!("{error}; the server said: {}", server.said()))?;
    if dead.load(Ordering::Acquire) { Ok(()) } else { server.end() }
}

fn use_it(
    target: &mut dyn Target,
    teller: &Teller,
    rng: &mut Rng,
    count: u64,
    dead: &AtomicBool,
) -> Result<(), String> {
    let used = run(target, teller, rng, count).and_then(|()| read_all(target, teller));
    match used {
        // Requests that a killed server has not answered stay in flight for the oracle.
        Err(_) if dead.load(Ordering::Acquire) => Ok(()),
        used => used.map_err(|error| format!("a client: {error}")),
    }
}
