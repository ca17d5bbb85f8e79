//! Clients of a base volume.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, Sectors,
};
use manylogs_everest::Offloaded;
use manylogs_sim::Oracle;

use super::gone::Lost;
use super::leaving::Evacuated;

/// Every request is answered within this time, however full the stores are, and whatever is lost.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(60);

/// State of a base volume that outlives its openings.
#[derive(Clone)]
pub(super) struct Volume {
    pub(super) oracle: Rc<RefCell<Oracle>>,
    pub(super) rng: Rc<RefCell<Rng>>,
    pub(super) next_tag: Rc<Cell<u64>>,
    /// Number of operations still to do.
    pub(super) left: Rc<Cell<u64>>,
    /// Number of reads that failed because no store with their data could be reached.
    pub(super) failed_reads: Rc<Cell<u64>>,
    pub(super) longest: u64,
    /// Whether reads may fail for a while.
    pub(super) may_fail: bool,
    /// The most that stores may hold of it, where no write is given up half done.
    pub(super) held_most: Option<Sectors>,
    /// What is lost with a store that is gone for good.
    pub(super) lost: Lost,
    /// What that store held when it went, and was not written since.
    pub(super) held: Lost,
    /// Whether it has gone.
    pub(super) has_loss: Rc<Cell<bool>>,
    /// Stores that take no more writes.
    pub(super) evacuated: Evacuated,
}

impl Volume {
    /// Stores hold no more than they may.
    fn check_bound(&self, device: &Offloaded) -> Result<(), String> {
        let held = device.figures().held;
        match self.held_most.filter(|most| held > *most) {
            None => Ok(()),
            Some(most) => {
                Err(format!("stores hold {} sectors, and {} are the most", held.0, most.0))
            }
        }
    }

    /// Judges the content of the volume as it was opened anew, which is the only truth from now on.
    pub(super) fn check_reopened(&self, content: &Payload) -> Result<(), String> {
        let checked = self.oracle.borrow_mut().check_recovered(content);
        checked.map_err(|wrong| wrong.to_string())?;
        let absent = (0..).zip(content.sectors()).filter(|(_, found)| found.is_none());
        match absent.into_iter().find(|(sector, _)| !self.lost.has(*sector)) {
            None => Ok(()),
            Some((sector, _)) => Err(format!("sector {sector} is lost, and nobody has said so")),
        }
    }
}

/// A base volume that is open.
pub(super) struct World {
    pub(super) runtime: Handle,
    pub(super) device: Offloaded,
    pub(super) volume: Volume,
}

impl World {
    /// Runs one client, which sends one request after another.
    pub(super) async fn client(&self) -> Result<(), String> {
        while self.volume.left.get() > 0 {
            self.volume.left.set(self.volume.left.get() - 1);
            if self.below(8) == 0 {
                let pause = Nanos::from_micros(1 << self.below(16));
                self.runtime.sleep(pause).await;
            }
            let from = self.runtime.now();
            match self.below(20) {
                0..11 => self.write(1 + self.below(self.volume.longest)).await?,
                11..13 => self.zero().await?,
                13 if self.below(4) == 0 => self.reclaim().await?,
                14 => self.flush().await?,
                _ => self.read().await?,
            }
            self.volume.check_bound(&self.device)?;
            let took = self.runtime.now().since(from);
            if took > ANSWER_WITHIN {
                return Err(format!("an answer took {} ms", took.0 / 1_000_000));
            }
        }
        Ok(())
    }

    fn below(&self, bound: u64) -> u64 {
        self.volume.rng.borrow_mut().below(bound)
    }

    /// Draws a place. Half of all requests meet in a few places, so that they overlap. They cover
    /// whole physical sectors: a power cut may damage the rest of a sector that is written in part.
    fn place(&self, len: u64) -> Extent {
        let told = self.device.capabilities();
        let unit = told.physical_sector.0;
        let len = len.next_multiple_of(unit);
        let room = (told.capacity.0 - len) / unit;
        let near = if self.below(2) == 0 { room } else { room.min(40 / unit) };
        Extent::new(self.below(near + 1) * unit, len)
    }

    async fn write(&self, len: u64) -> Result<(), String> {
        let extent = self.place(len);
        let len = extent.len.0;
        let tag = self.volume.next_tag.get();
        self.volume.next_tag.set(tag + len);
        let payload = Payload::tags(tag, Sectors(len));
        let (fua, hint) = (self.below(2) == 0, Hint::None);
        let request = Request::Write { extent, payload: payload.clone(), fua, hint };
        self.change(extent, &payload, request, fua).await
    }

    async fn zero(&self) -> Result<(), String> {
        let extent = self.place(1 + self.below(100));
        let fua = self.below(2) == 0;
        let request = Request::WriteZeroes { extent, fua, if_fast: false };
        self.change(extent, &Payload::zeroes(extent.len), request, fua).await
    }

    /// Makes a change, which must not fail, whichever stores are gone.
    async fn change(
        &self,
        extent: Extent,
        content: &Payload,
        request: Request,
        fua: bool,
    ) -> Result<(), String> {
        let write = self.volume.oracle.borrow_mut().submit(extent, content);
        let is_later = self.volume.has_loss.get();
        let done = self.device.submit(request).await;
        done.map_err(|error| format!("a write failed: {error}"))?;
        self.volume.oracle.borrow_mut().acknowledge(extent, write, fua);
        self.volume.lost.written(extent);
        // An answer of the store may have been on its way when it went.
        if is_later {
            self.volume.held.written(extent);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), String> {
        let flush = self.volume.oracle.borrow_mut().submit_flush();
        let done = self.device.submit(Request::Flush).await;
        done.map_err(|error| format!("a flush failed: {error}"))?;
        self.volume.oracle.borrow_mut().acknowledge_flush(flush);
        Ok(())
    }

    async fn read(&self) -> Result<(), String> {
        let extent = self.place(1 + self.below(60));
        let read = self.volume.oracle.borrow_mut().submit_read(extent);
        let was_lost = self.volume.lost.may_fail(extent);
        match self.device.submit(Request::Read { extent }).await {
            Ok(found) => {
                let checked = self.volume.oracle.borrow_mut().check_read(read, &found);
                checked.map_err(|wrong| format!("read: {wrong}"))
            }
            Err(IoError::Medium { .. }) if was_lost || self.volume.lost.may_fail(extent) => {
                self.volume.oracle.borrow_mut().fail_read(read);
                Ok(())
            }
            Err(IoError::Transient { .. }) if self.volume.may_fail => {
                self.volume.oracle.borrow_mut().fail_read(read);
                self.volume.failed_reads.set(self.volume.failed_reads.get() + 1);
                Ok(())
            }
            Err(error) => Err(format!("a read failed: {error}")),
        }
    }

    async fn reclaim(&self) -> Result<(), String> {
        match self.device.reclaim().await {
            Err(IoError::Transient { .. }) if self.volume.may_fail => Ok(()),
            other => other.map_err(|error| format!("reclaim: {error}")),
        }
    }
}
