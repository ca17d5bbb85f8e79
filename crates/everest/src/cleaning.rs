//! Cleaning from the tail: live versions in the oldest log are appended at the head, and then the
//! floor rises.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, Payload, Request, Sectors};
use manylogs_logstore::store::{Cleaner, Job, Live, chunk_len, span_of};
use manylogs_logstore::{LogId, ScanOf, Space, io, scan};
use manylogs_plant::{self as plant, Bug};

use crate::ring::FromTail;
use crate::store::Inner;

impl Inner {
    pub(crate) async fn run_cleaner(self: Rc<Self>) {
        loop {
            let asked = self.wanted.wait();
            while !self.closed.get() && self.clean_one().await.unwrap_or(false) {}
            if self.closed.get() {
                return;
            }
            asked.await;
        }
    }

    /// Empties one log; false if there is nothing to gain.
    async fn clean_one(&self) -> Result<bool, IoError> {
        let job = {
            let state = self.state.borrow();
            if state.store.read_only.is_some() {
                return Ok(false);
            }
            let [for_cleaning, for_deletions] = self.spared;
            // A few of the longest writes should find room without waiting.
            let wanted = for_cleaning.log + for_deletions.log + Sectors(4 * self.record.0);
            FromTail { head: state.head, wanted }.next(&state.store)
        };
        let Some(Job::Renew(log)) = job else { return Ok(false) };
        let before = self.state.borrow().store.counters.log_resets;
        if !self.renew(log).await? {
            return Ok(false);
        }
        self.raise_floor().await?;
        self.progress.notify();
        self.commit.notify();
        Ok(self.state.borrow().store.counters.log_resets > before)
    }

    /// Appends the live versions of `log` at the head; false if there is no room for them now.
    async fn renew(&self, log: LogId) -> Result<bool, IoError> {
        let (of, device) = {
            let state = self.state.borrow();
            let store = &state.store;
            let of = ScanOf {
                volume: store.volume,
                log,
                region: store.logs.region(log),
                physical: store.logs.shape().physical,
                floor: store.roots.on_disk.floor,
                capacity: Space::END,
            };
            (of, Rc::clone(&self.devices[usize::from(store.logs.device(log).0)]))
        };
        let scanned = scan(&device, of, Payload::default()).await?;
        let live = self.state.borrow().store.live_in(log, &scanned.records);
        let mut rest = live.as_slice();
        while !rest.is_empty() {
            let (chunk, others) = rest.split_at(chunk_len(rest));
            rest = others;
            if !self.renew_chunk(log, chunk).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn renew_chunk(&self, log: LogId, chunk: &[Live]) -> Result<bool, IoError> {
        let (mut within, mut content) = (Extent::default(), Payload::default());
        if let Some(span) = span_of(chunk) {
            let read = self.state.borrow_mut().store.begin_read(log, span);
            let device = &self.devices[usize::from(read.device.0)];
            let found = device.submit(Request::Read { extent: read.extent }).await;
            let home = Space::of(chunk[0].extent).1;
            content = self.state.borrow_mut().store.end_read(&read, found, home)?;
            within = read.within;
        }
        for live in chunk {
            while !self.renew_one(live, within, &content) {
                // Entries that share a record need less room than was set aside for them, so room
                // may become free.
                let progress = self.progress.wait();
                {
                    let state = self.state.borrow();
                    let idle = state.store.entries.slots.len() == 0;
                    if idle || state.store.read_only.is_some() {
                        return Ok(false);
                    }
                }
                progress.await;
            }
        }
        Ok(true)
    }

    /// Appends a version again if it is still live; false if there is no room for it.
    fn renew_one(&self, live: &Live, within: Extent, content: &Payload) -> bool {
        let mut state = self.state.borrow_mut();
        // A version that was overwritten or deleted meanwhile needs no renewal.
        let Some(batch) = state.store.renewal(live, within, content) else { return true };
        let room = state.store.room_of(&batch);
        let fits = state.store.fits(room);
        if fits {
            state.put(batch, room, None);
            self.commit.notify();
        }
        fits
    }

    /// Raises the floor as far as possible: logs that only supersede entries kept can then be
    /// reset.
    async fn raise_floor(&self) -> Result<(), IoError> {
        let (floor, last) = {
            let state = self.state.borrow();
            (state.store.oldest_needed(), state.store.entries.tickets.last())
        };
        // Until an entry under way is durable, a crash falls back to the version that it has
        // displaced.
        if let Some(last) = last
            && !plant::is(Bug::FloorWithoutBarrier)
        {
            io::wait_durable(self, last).await?;
        }
        if floor > self.state.borrow().store.roots.on_disk.floor {
            self.update_root(|root| root.floor = floor).await?;
            self.state.borrow_mut().store.floor_raised(floor);
        }
        Ok(())
    }
}
