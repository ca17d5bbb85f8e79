//! Leaving a volume: in order, or drained, so that the disk is readable without this software.

use std::rc::Rc;

use manylogs_block::Nanos;
use manylogs_logstore::Floors;
use manylogs_logstore::ondisk::log_bitmap::LogBitmap;
use manylogs_logstore::ondisk::root::Left;

use crate::cleaning::checkpoint::{Pace, Pass};
use crate::error::VolumeError;
use crate::lifecycle::superblocks::zero;
use crate::state::Inner;
use crate::volume::Volume;
use manylogs_engine::{Phase, raise_floor, update_root};
use manylogs_plant::{self as plant, Bug};

/// Pause between two checks for requests under way.
const LOOK: Nanos = Nanos::from_millis(1);
/// Most passes of a drain: versions may be on their way into a log during the first.
const PASSES: u32 = 4;

/// Options of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOptions {
    /// Overwrite the logs and the snapshots with zeroes, so that no old copies of data stay there.
    pub wipe: bool,
}

/// Result of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// Extents that went home.
    pub extents: u64,
    /// Bytes written home.
    pub home_bytes: u64,
    /// Bytes of logs and snapshots that were overwritten.
    pub wiped_bytes: u64,
}

impl Volume {
    /// Makes everything durable, writes a snapshot and ends the volume's tasks. Requests under way
    /// are served, later ones fail with [`manylogs_block::IoError::Gone`].
    ///
    /// # Errors
    /// If the device fails: then the volume is left as by a crash.
    pub async fn close(&self) -> Result<(), VolumeError> {
        let inner = self.shared();
        inner.refuse_requests().await;
        let result = inner.leave(Left::Closed).await;
        inner.end_tasks();
        result
    }

    /// Moves all data home, including zeroed ranges, and closes the volume. Then the logs hold no
    /// live versions, and a linear device-mapper table over [`crate::Layout::homes`] exposes the
    /// same data. After a crash in the middle the volume can be opened as usual.
    ///
    /// # Errors
    /// If the device fails, or logged copies are lost ([`VolumeError::Lost`]). Then the volume is
    /// closed with all other data at home, and the lost extents are still recorded.
    pub async fn drain(&self, options: &DrainOptions) -> Result<DrainReport, VolumeError> {
        let inner = self.shared();
        inner.refuse_requests().await;
        inner.device.set_draining();
        let result = inner.drain(options).await;
        if result.is_err() {
            // Close in order as far as possible.
            let _ = inner.leave(Left::Closed).await;
        }
        inner.end_tasks();
        result
    }
}

impl Inner {
    /// Makes new requests fail. Resolves when the last request has ended.
    async fn refuse_requests(&self) {
        self.engine.state.borrow_mut().closing = true;
        // Wakes a waiting checkpoint, so that it ends.
        self.engine.wanted.notify();
        while Rc::strong_count(&self.activity) > 1 {
            self.engine.runtime.sleep(LOOK).await;
        }
    }

    async fn leave(self: &Rc<Self>, left: Left) -> Result<(), VolumeError> {
        self.make_durable(Phase::Snapshot).await?;
        self.snapshot_and_leave(left).await?;
        Ok(())
    }

    fn end_tasks(&self) {
        self.engine.close();
        self.flush_asked.notify();
    }

    async fn drain(self: &Rc<Self>, options: &DrainOptions) -> Result<DrainReport, VolumeError> {
        let mut report = DrainReport::default();
        let mut kept = 0;
        for _ in 0..PASSES {
            let extents = self.engine.state.borrow().store.map().len() as u64;
            if extents == 0 {
                break;
            }
            report.extents += extents;
            let pass = Pass { materialise: true, ..Pass::at(Pace::Urgent) };
            let done = self.checkpoint_all(pass).await?;
            report.home_bytes += done.home_write_sectors.bytes();
            kept = done.kept_extents;
        }
        let left = self.engine.state.borrow().store.map().len() as u64;
        if kept > 0 {
            return Err(VolumeError::NotHome { extents: kept });
        }
        if left > 0 {
            return Err(VolumeError::Lost { extents: left });
        }
        self.raise_floor_to_the_end().await?;
        self.leave(Left::Drained).await?;
        if options.wipe {
            report.wiped_bytes = self.wipe().await?;
        }
        Ok(report)
    }

    /// Declares all entries in the logs dead.
    async fn raise_floor_to_the_end(self: &Rc<Self>) -> Result<(), VolumeError> {
        if !plant::is(Bug::DrainWithoutBarrier) {
            self.make_durable(Phase::Drain).await?;
        }
        let floor = self.engine.state.borrow().store.next_data();
        raise_floor(&**self, Phase::Drain, Floors::both(floor)).await?;
        self.engine.state.borrow_mut().store.forget_all(floor);
        Ok(())
    }

    /// Overwrites logs and snapshots. The root already says that they hold nothing live.
    async fn wipe(&self) -> Result<u64, VolumeError> {
        update_root(self, Phase::Drain, |root| root.snapshot = None).await?;
        let places = self.layout.snapshots().into_iter().chain([self.layout.images()]);
        let places = places.chain(self.layout.regions().to_vec());
        let bytes = zero(&self.device, Phase::Drain, places).await?;
        let none = LogBitmap::none(self.layout.regions().len());
        update_root(self, Phase::Drain, |root| root.used = none).await?;
        Ok(bytes)
    }
}
