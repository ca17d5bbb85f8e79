//! One history: a volume on a medium, opened by the real program a few times, used by clients, and
//! cut from its power again and again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use manylogs_block::Rng;
use manylogs_logstore::VolumeId;
use rustix::process::{Signal, kill_process};

use crate::client::{Target, Teller, read_all, run};
use crate::disk;
use crate::medium::{Judged, Medium};
use crate::server::{FrontEnd, Server, Stack};

/// Images kept of each opening of the volume.
const CUTS: usize = 16;

/// A history to be.
#[derive(Clone, Debug)]
pub struct History {
    /// Decides all but the interleaving.
    pub seed: u64,
    /// What lies above and below the program.
    pub stack: Stack,
    /// A bug planted in the program, which must have been built with the feature `plant`.
    pub plant: Option<String>,
}

/// What came of a history that went well.
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

    /// Runs it with `program`.
    ///
    /// # Errors
    /// What was wrong, with the stack.
    pub fn run(&self, program: &Path) -> Result<Report, String> {
        let judged = self.live(program);
        let described = |problem| format!("seed {}, {:?}: {problem}", self.seed, self.stack);
        let Judged { states, problem } = judged.map_err(described)?;
        problem.map_or(Ok(Report { states }), |problem| Err(described(problem)))
    }

    fn live(&self, program: &Path) -> Result<Judged, String> {
        let mut rng = Rng::new(self.seed);
        let stack = self.stack;
        let config = disk::config(stack.physical_sector(), stack.volatile_cache());
        let mut medium = Medium::new(rng.next_u64(), config, self.volume_id(), CUTS)?;
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let teller = Teller::new(medium.events(), medium.units());
        // Clients of a killed kernel device see errors that say nothing; NBD's just lose the server.
        let openings = if stack.front_end == FrontEnd::Nbd { 1 + rng.below(3) } else { 1 };
        for left in (0..openings).rev() {
            let path = dir.path().join(format!("disk{left}"));
            let mount = medium.mount(&path).map_err(|error| format!("mount: {error}"))?;
            let server = Server::start(program, stack, &path, self.plant.as_deref())?;
            let used = self.used(server, &teller, &mut rng, left > 0);
            drop(mount);
            used?;
            if left > 0 {
                medium.cut_power()?;
            }
        }
        drop(teller);
        medium.judge()
    }

    /// Clients use the server until they are done, or until it is killed.
    fn used(
        &self,
        server: Server,
        teller: &Teller,
        rng: &mut Rng,
        killed: bool,
    ) -> Result<(), String> {
        let clients = 2 + rng.below(3);
        let dead = Arc::new(AtomicBool::new(false));
        let (pid, after) = (server.pid(), Duration::from_millis(20 + rng.below(250)));
        let mut threads = Vec::new();
        for _ in 0..clients {
            let mut target = server.connect()?;
            let (teller, mut rng, dead) = (teller.clone(), rng.split(), Arc::clone(&dead));
            let count = 30 + rng.below(50);
            threads.push(std::thread::spawn(move || {
                use_it(&mut *target, &teller, &mut rng, count, &dead)
            }));
        }
        if killed {
            std::thread::sleep(after);
            dead.store(true, Ordering::Release);
            let _ = kill_process(pid, Signal::KILL);
        }
        let used = threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| "a client's thread panicked".to_owned())?
        });
        if killed {
            server.reap();
            return used;
        }
        used.map_err(|error| format!("{error}; the server said: {}", server.said()))?;
        server.end()
    }

    /// Two volumes of one id cannot be open at once on a machine.
    fn volume_id(&self) -> VolumeId {
        let mut rng = Rng::new(self.seed ^ u64::from(std::process::id()) << 32);
        let mut id = VolumeId::default();
        id.iter_mut().for_each(|byte| *byte = u8::try_from(rng.below(256)).unwrap_or(0));
        id
    }
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
        // What a killed server had not answered stays under way.
        Err(_) if dead.load(Ordering::Acquire) => Ok(()),
        used => used.map_err(|error| format!("a client: {error}")),
    }
}
