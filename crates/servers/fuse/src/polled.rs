//! Sessions whose thread does other work while the kernel has no requests.

use std::fs::File;
use std::io;
use std::sync::Arc;

use manylogs_plant::{Bug, is};
use manylogs_storage::{RequestRing, RingShape, Watcher};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::filesystem::Filesystem;
use crate::mount::Mount;
use crate::session::{Channel, Turn};
use crate::tally::Tally;
use crate::values::InitFlags;

/// Most requests of one processor that can be under way in the ring. Others wait in the kernel.
const DEPTH_MOST: u16 = 16;
/// The same where little memory is allowed. Each processor keeps so many entries, whatever the
/// bound is.
const DEPTH_LEAST: u16 = 8;
/// Where the kernel lists the processors that the machine may have.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";
/// Most processors for which entries are kept. The address space for more would be too much.
const PROCESSORS_MOST: u16 = 256;

/// A session whose thread does other work while the kernel has no requests.
#[derive(Debug)]
pub struct PolledSession {
    // Dropped before the mount: nobody would answer the kernel's last request to a server.
    channel: Channel,
    ring: Option<RequestRing>,
    /// Why the kernel does not use the ring although both agreed upon it.
    refused: Option<io::Error>,
    /// Whether the device may have requests. Without a ring that is always tried.
    device_due: bool,
    mount: Arc<Mount>,
}

impl PolledSession {
    pub(crate) fn new(
        channel: Channel,
        mount: Arc<Mount>,
        watcher: &Watcher,
        ring_bytes: u64,
    ) -> io::Result<Self> {
        let flags = fcntl_getfl(channel.device())?;
        fcntl_setfl(channel.device(), flags | OFlags::NONBLOCK)?;
        let mut this = Self { channel, ring: None, refused: None, device_due: true, mount };
        if this.channel.agreed.flags.contains(InitFlags::OVER_IO_URING) {
            match this.register(watcher, ring_bytes) {
                Ok(ring) => this.ring = Some(ring),
                Err(error) => this.refused = Some(error),
            }
        }
        Ok(this)
    }

    fn register(&self, watcher: &Watcher, ring_bytes: u64) -> io::Result<RequestRing> {
        let device = Arc::new(File::from(self.to_wait_for()?));
        let payload_bytes = self.channel.payload_bytes();
        // With no queue the kernel is told that there is no ring.
        let queues = ring_queues().unwrap_or(0);
        let depth = depth(ring_bytes, u64::from(queues) * payload_bytes as u64);
        RequestRing::register(watcher, device, RingShape { queues, depth, payload_bytes })
    }

    /// The counts of the requests that were served.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.channel.tally.clone()
    }

    /// The ring through which most requests come; through the device come those to forget inodes,
    /// and signals. `None` if all come through the device.
    #[must_use]
    pub const fn ring(&self) -> Option<&RequestRing> {
        self.ring.as_ref()
    }

    /// Why the kernel does not use the ring, although both agreed upon it.
    #[must_use]
    pub const fn ring_refused(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    /// Whether a request may be there: in the ring, or in the device while that is due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.device_due || self.ring.as_ref().is_some_and(RequestRing::has_arrived)
    }

    /// Notes that the device has become readable. Beside a ring it is read only then.
    pub fn device_is_due(&mut self) {
        self.device_due = !is(Bug::RingDeviceUnread);
    }

    /// A second descriptor of the connection, for waiting until a request is there. The connection
    /// lasts until both are closed, so this one must be closed first.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn to_wait_for(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(self.channel.device(), 0)?)
    }

    /// Serves a request, if there is one.
    ///
    /// # Errors
    /// Those of reading from the kernel: the session is to be dropped then.
    pub fn serve_next(&mut self, fs: &impl Filesystem) -> io::Result<Turn> {
        let turn = self.turn(fs)?;
        if matches!(turn, Turn::Ended(_)) {
            self.mount.set_gone();
        }
        Ok(turn)
    }

    fn turn(&mut self, fs: &impl Filesystem) -> io::Result<Turn> {
        if self.ring.is_none() || self.device_due {
            let turn = self.channel.serve_next(fs)?;
            if self.ring.is_none() || !matches!(turn, Turn::Nothing) {
                return Ok(turn);
            }
            self.device_due = false;
        }
        let Some((request, answer)) = self.ring.as_ref().and_then(RequestRing::next) else {
            return Ok(Turn::Nothing);
        };
        let parts = [used_head(request.head(), request.payload()), request.payload()];
        self.channel.serve_one(fs, parts, Some(answer))
    }
}

/// The part of the headers that the request uses: its length counts headers and payload.
fn used_head<'a>(head: &'a [u8], payload: &[u8]) -> &'a [u8] {
    let said = head.first_chunk().map(|len| u32::from_ne_bytes(*len)).unwrap_or_default();
    let used = usize::try_from(said).unwrap_or(usize::MAX).saturating_sub(payload.len());
    &head[..used.min(head.len())]
}

/// Entries of each queue, if the queues may have `ring_bytes` and one entry of each takes `all`.
fn depth(ring_bytes: u64, all: u64) -> u16 {
    let depth = u16::try_from(ring_bytes / all.max(1)).unwrap_or(DEPTH_MOST);
    depth.clamp(DEPTH_LEAST, DEPTH_MOST)
}

/// Queues that a ring needs: one for each processor that the machine may have. `None` if there are
/// too many, or the kernel does not say it.
#[must_use]
pub fn ring_queues() -> Option<u16> {
    let listed = std::fs::read_to_string(PROCESSORS).ok()?;
    count(listed.trim()).filter(|count| (1..=PROCESSORS_MOST).contains(count))
}

/// The number of processors in a list such as `0-3,8`.
fn count(listed: &str) -> Option<u16> {
    listed.split(',').try_fold(0_u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_are_as_deep_as_memory_allows() {
        let depths = [0, 8, 20, 32, 1 << 30].map(|mib| depth(mib << 20, 2 << 20));
        assert_eq!(depths, [8, 8, 10, 16, 16]);
    }

    #[test]
    fn processors_are_counted() {
        let counts = ["0", "0-1", "0-3,8", "0-255", "", "3-1", "0-x"].map(count);
        assert_eq!(counts, [Some(1), Some(2), Some(5), Some(256), None, None, None]);
    }

    #[test]
    fn the_head_ends_where_the_payload_begins() {
        let mut head = [0; 168];
        head[0] = 60;
        assert_eq!(used_head(&head, b"name\0").len(), 55);
        assert_eq!(used_head(&head, &[]).len(), 60);
        // Lengths that no kernel sends are refused when the request is decoded.
        assert_eq!(used_head(&head, &[0; 61]).len(), 0);
        assert_eq!(used_head(&[255; 168], &[]).len(), 168);
    }
}
