//! Clients of the base volumes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Handle, Hint, Nanos, Payload, Request, Rng, Sectors};
use manylogs_sim::Oracle;

use super::world::Opened;

/// On sound disks every request is answered within this, however full the store is.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(60);

/// State that the clients of one incarnation share.
pub(super) struct World {
    pub(super) runtime: Handle,
    pub(super) opened: Opened,
    /// One entry for each volume.
    pub(super) oracles: Rc<RefCell<Vec<Oracle>>>,
    pub(super) rng: RefCell<Rng>,
    pub(super) next_tag: Rc<Cell<u64>>,
    pub(super) longest: u64,
    /// Operations that are still to be done.
    pub(super) left: Cell<u64>,
}

impl World {
    /// Runs one client, which sends one request after another.
    pub(super) async fn client(&self) -> Result<(), String> {
        while self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            if self.below(8) == 0 {
                let pause = Nanos::from_micros(1 << self.below(16));
                self.runtime.sleep(pause).await;
            }
            let volume = self.below(self.opened.volumes.len() as u64);
            let volume = manylogs_block::to_usize(volume);
            let from = self.runtime.now();
            match self.below(10) {
                0..6 => self.write(volume, 1 + self.below(self.longest)).await?,
                6 => self.zero(volume).await?,
                7 if self.below(4) == 0 => self.reclaim(volume).await?,
                _ => self.read(volume).await?,
            }
            let took = self.runtime.now().since(from);
            if took > ANSWER_WITHIN {
                return Err(format!("an answer took {} ms on sound disks", took.0 / 1_000_000));
            }
        }
        Ok(())
    }

    fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    /// Half of all requests meet in a few places, so that they overlap.
    fn place(&self, volume: usize, len: u64) -> Extent {
        let room = self.opened.volumes[volume].capabilities().capacity.0 - len;
        let near = if self.below(2) == 0 { room } else { room.min(40) };
        Extent::new(self.below(near + 1), len)
    }

    async fn write(&self, volume: usize, len: u64) -> Result<(), String> {
        let extent = self.place(volume, len);
        let tag = self.next_tag.get();
        self.next_tag.set(tag + len);
        let payload = Payload::tags(tag, Sectors(len));
        let (fua, hint) = (self.below(2) == 0, Hint::None);
        let request = Request::Write { extent, payload: payload.clone(), fua, hint };
        self.change(volume, extent, &payload, request).await
    }

    async fn zero(&self, volume: usize) -> Result<(), String> {
        let extent = self.place(volume, 1 + self.below(100));
        let fua = self.below(2) == 0;
        let request = Request::WriteZeroes { extent, fua, if_fast: false };
        self.change(volume, extent, &Payload::zeroes(extent.len), request).await
    }

    /// Every acknowledged change is durable, whether or not FUA was asked for.
    async fn change(
        &self,
        volume: usize,
        extent: Extent,
        content: &Payload,
        request: Request,
    ) -> Result<(), String> {
        let write = self.oracles.borrow_mut()[volume].submit(extent, content);
        let done = self.opened.volumes[volume].submit(request).await;
        done.map_err(|error| format!("unexpected error: {error}"))?;
        self.oracles.borrow_mut()[volume].acknowledge(extent, write, true);
        Ok(())
    }

    async fn read(&self, volume: usize) -> Result<(), String> {
        let extent = self.place(volume, 1 + self.below(60));
        let read = self.oracles.borrow_mut()[volume].submit_read(extent);
        let found = self.opened.volumes[volume].submit(Request::Read { extent }).await;
        let found = found.map_err(|error| format!("unexpected error: {error}"))?;
        let checked = self.oracles.borrow_mut()[volume].check_read(read, &found);
        checked.map_err(|wrong| format!("volume {volume}: {wrong}"))
    }

    async fn reclaim(&self, volume: usize) -> Result<(), String> {
        let reclaimed = self.opened.volumes[volume].reclaim().await;
        reclaimed.map_err(|error| format!("reclaim: {error}"))
    }
}
