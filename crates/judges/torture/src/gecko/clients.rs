//! Clients of the chain.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Extent, Handle, Hint, IoError, Nanos, Payload, Request, Rng, Sectors,
};
use manylogs_gecko::Chain;
use manylogs_sim::Oracle;

use super::model::Changes;

/// On sound drives every request is answered within this time, however full the chain is.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(60);

/// What is known of the content: of each sector for reads, and of all sectors together for crashes.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) oracle: Oracle,
    pub(super) changes: Changes,
}

/// State that the clients of one incarnation share.
pub(super) struct World {
    pub(super) runtime: Handle,
    pub(super) chain: Chain,
    pub(super) known: Rc<RefCell<Known>>,
    pub(super) rng: RefCell<Rng>,
    pub(super) next_tag: Rc<Cell<u64>>,
    pub(super) longest: u64,
    /// Whether all places are alike.
    pub(super) everywhere: bool,
    /// Whether half of all operations are reads.
    pub(super) reads: bool,
    /// Whether reads may fail, because drives are lost.
    pub(super) may_lose: bool,
    /// Most memory of the tail cache.
    pub(super) cache: Sectors,
    /// Number of operations still to do.
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
            let from = self.runtime.now();
            match self.below(if self.reads { 20 } else { 12 }) {
                0..8 => self.write(1 + self.below(self.longest)).await?,
                8 => self.zero().await?,
                9 => self.flush().await?,
                _ => self.read().await?,
            }
            let took = self.runtime.now().since(from);
            if took > ANSWER_WITHIN {
                return Err(format!("an answer took {} ms on sound drives", took.0 / 1_000_000));
            }
            let cached = if self.reads { self.chain.figures().cache_bytes } else { 0 };
            if cached > self.cache.bytes() {
                return Err(format!("the tail cache takes {cached} bytes of {:?}", self.cache));
            }
        }
        Ok(())
    }

    fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    /// Unless all places are alike, half of all requests meet in a few, so that they overlap.
    fn place(&self, len: u64) -> Extent {
        let capacity = self.chain.capabilities().capacity.0;
        let len = len.min(capacity);
        let room = capacity - len;
        let near = if self.everywhere || self.below(2) == 0 { room } else { room.min(40) };
        Extent::new(self.below(near + 1), len)
    }

    async fn write(&self, len: u64) -> Result<(), String> {
        let extent = self.place(len);
        let tag = self.next_tag.get();
        self.next_tag.set(tag + len);
        let payload = Payload::tags(tag, extent.len);
        let (fua, hint) = (self.below(3) == 0, Hint::None);
        let request = Request::Write { extent, payload: payload.clone(), fua, hint };
        self.change(extent, &payload, request, fua).await
    }

    async fn zero(&self) -> Result<(), String> {
        let extent = self.place(1 + self.below(100));
        let fua = self.below(2) == 0;
        let request = match self.below(2) {
            0 => Request::WriteZeroes { extent, fua, if_fast: false },
            _ => Request::Discard { extent, fua },
        };
        self.change(extent, &Payload::zeroes(extent.len), request, fua).await
    }

    async fn change(
        &self,
        extent: Extent,
        content: &Payload,
        request: Request,
        fua: bool,
    ) -> Result<(), String> {
        let (change, write, answer) = {
            let mut known = self.known.borrow_mut();
            let change = known.changes.submit(extent, content);
            (change, known.oracle.submit(extent, content), self.chain.submit(request))
        };
        match answer.await {
            // The others had no room when a drive was lost: it may have been done or not.
            Err(IoError::ReadOnly { .. }) if self.may_lose => return Ok(()),
            answer => answer.map_err(|error| format!("unexpected error: {error}"))?,
        };
        let mut known = self.known.borrow_mut();
        known.changes.answer(change, fua);
        known.oracle.acknowledge(extent, write, fua);
        Ok(())
    }

    async fn flush(&self) -> Result<(), String> {
        let change = self.known.borrow().changes.flush();
        let done = self.chain.submit(Request::Flush).await;
        match done {
            Err(IoError::ReadOnly { .. }) if self.may_lose => return Ok(()),
            done => done.map_err(|error| format!("unexpected error: {error}"))?,
        };
        self.known.borrow_mut().changes.flushed(change);
        Ok(())
    }

    async fn read(&self) -> Result<(), String> {
        let extent = self.place(1 + self.below(60));
        let read = self.known.borrow_mut().oracle.submit_read(extent);
        let found = self.chain.submit(Request::Read { extent }).await;
        if self.may_lose && matches!(found, Err(IoError::Gone | IoError::Checksum { .. })) {
            return Ok(());
        }
        let found = found.map_err(|error| format!("unexpected error: {error}"))?;
        let checked = self.known.borrow_mut().oracle.check_read(read, &found);
        checked.map_err(|wrong| format!("a read: {wrong}"))
    }
}

impl Known {
    pub(super) fn of_blank(sectors: Sectors, longest: Sectors) -> Self {
        let sectors = manylogs_block::to_usize(sectors.0);
        Self { oracle: Oracle::new(sectors), changes: Changes::new(sectors, longest) }
    }

    /// Goes on from the content that the chain has after a crash, if that is allowed.
    pub(super) fn go_on_with(&mut self, content: &Payload) -> Result<(), String> {
        let change = self.changes.check(content)?;
        self.changes.go_on_from(change);
        // The order of changes decides what the sectors hold.
        let sectors = self.oracle.sectors();
        self.oracle = Oracle::new(sectors);
        let all = Extent::new(0, sectors as u64);
        let write = self.oracle.submit(all, content);
        self.oracle.acknowledge(all, write, true);
        Ok(())
    }
}
