//! The real program over the medium, in a process of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use manylogs_block::{Rng, Sectors};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Target;
use crate::client::file::FileClient;
use crate::client::nbd::NbdClient;

/// A server that takes longer to end counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);

/// The front end through which clients reach the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontEnd {
    /// Over NBD, on a socket.
    Nbd,
    /// As a file through FUSE.
    File,
    /// As a loop device over that file.
    Loop,
}

/// The disk below the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// The medium's file, on physical sectors of 512 bytes.
    File512,
    /// The medium's file, on physical sectors of 4096 bytes.
    File4096,
    /// A loop device over the medium with logical sectors of 4096 bytes.
    Native4096,
}

/// The layers of one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The front end above the program.
    pub front_end: FrontEnd,
    /// The disk below the program.
    pub below: Below,
    /// Whether requests go through `io_uring`; if not, through threads.
    pub ring: bool,
}

impl Stack {
    /// The stack of a seed: over many seeds every front end, disk and backend occurs.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(!seed);
        let front_end = match rng.below(5) {
            0..3 => FrontEnd::Nbd,
            3 => FrontEnd::File,
            _ => FrontEnd::Loop,
        };
        let below = match rng.below(6) {
            0..3 => Below::File512,
            3 => Below::File4096,
            _ => Below::Native4096,
        };
        Self { front_end, below, ring: rng.one_in(2) }
    }

    pub(crate) const fn physical_sector(self) -> Sectors {
        match self.below {
            Below::File512 => Sectors(1),
            Below::File4096 | Below::Native4096 => Sectors(8),
        }
    }
}

/// A loop device over the medium.
struct LoopBelow(PathBuf);

impl LoopBelow {
    fn attach(file: &Path) -> Result<Self, String> {
        let arguments = ["--find", "--show", "--direct-io=on", "--sector-size=4096"];
        let said = Command::new("losetup").args(arguments).arg(file).output();
        let said = said.map_err(|error| format!("losetup: {error}"))?;
        let name = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        if !said.status.success() || name.is_empty() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&said.stderr)));
        }
        let attached = Self(name.into());
        // The kernel keeps the cache mode of a detached loop device. The mode of an earlier user
        // may drop every flush.
        let queue = Path::new("/sys/block").join(attached.name()).join("queue/write_cache");
        fs::write(&queue, "write back").map_err(|error| format!("{}: {error}", queue.display()))?;
        Ok(attached)
    }

    fn name(&self) -> &std::ffi::OsStr {
        self.0.file_name().unwrap_or_default()
    }
}

impl Drop for LoopBelow {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

/// A running `manylogs serve`.
pub(crate) struct Server {
    child: Child,
    // Declared after the child, so that the loop device is detached when the child has ended.
    _below: Option<LoopBelow>,
    front_end: FrontEnd,
    address: PathBuf,
    said: PathBuf,
}

impl Server {
    /// Starts `program` on the disk that is mounted at `disk`; `plant` is a bug to plant in it.
    pub(crate) fn start(
        program: &Path,
        stack: Stack,
        disk: &Path,
        plant: Option<&str>,
    ) -> Result<Self, String> {
        let below = match stack.below {
            Below::Native4096 => Some(LoopBelow::attach(disk)?),
            Below::File512 | Below::File4096 => None,
        };
        let (socket, said) = (disk.with_extension("sock"), disk.with_extension("said"));
        let mut command = Command::new(program);
        command.arg("serve").arg(below.as_ref().map_or(disk, |below| &below.0));
        command.args(["--backend", if stack.ring { "uring" } else { "threads" }]);
        match stack.front_end {
            FrontEnd::Nbd => command.arg("--nbd").arg(format!("unix:{}", socket.display())),
            FrontEnd::File => command.arg("--file"),
            FrontEnd::Loop => command.arg("--loop"),
        };
        if let Some(bug) = plant {
            command.env("MANYLOGS_PLANT", bug);
        }
        let log = File::options().create(true).append(true).open(&said);
        command.stdout(Stdio::piped()).stderr(log.map_err(|error| error.to_string())?);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let mut server =
            Self { child, _below: below, front_end: stack.front_end, address: socket, said };
        let mut name = String::new();
        if let Some(stdout) = server.child.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut name);
        }
        if name.is_empty() {
            // The program prints the reason before it ends.
            let _ = server.child.wait();
            return Err(format!("the server did not start: {}", server.said()));
        }
        if stack.front_end != FrontEnd::Nbd {
            server.address = name.trim().into();
        }
        Ok(server)
    }

    /// Output of the program so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Connects a client, which gets its own thread.
    pub(crate) fn connect(&self) -> Result<Box<dyn Target>, String> {
        let failed = |error| format!("{}: {error}", self.address.display());
        Ok(match self.front_end {
            FrontEnd::Nbd => Box::new(NbdClient::connect(&self.address).map_err(failed)?),
            _ => Box::new(FileClient::open(&self.address).map_err(failed)?),
        })
    }

    /// Kills the server without closing anything. Dropping the value waits for the process.
    pub(crate) fn kill(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Stops the server in order.
    pub(crate) fn end(mut self) -> Result<(), String> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let began = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("it ended with {status}: {}", self.said())),
                Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(LOOK),
                Ok(None) => return Err(format!("it does not end: {}", self.said())),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Server {
    /// Removes the mounts that a killed server left in the kernel.
    fn clear_away(&self) {
        let mut mounted = self.address.clone();
        match self.front_end {
            FrontEnd::Nbd => return,
            FrontEnd::File => {}
            FrontEnd::Loop => {
                let name = self.address.file_name().unwrap_or_default();
                let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
                mounted = fs::read_to_string(backing).unwrap_or_default().trim_end().into();
                let _ = Command::new("losetup").arg("--detach").arg(&self.address).output();
            }
        }
        let _ = Command::new("umount").arg("--lazy").arg(mounted).output();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let killed = match self.child.try_wait() {
            Ok(Some(status)) => !status.success(),
            _ => true,
        };
        let _ = self.child.kill();
        let _ = self.child.wait();
        if killed {
            self.clear_away();
        }
    }
}
