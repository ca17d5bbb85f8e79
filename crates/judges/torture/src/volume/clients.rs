//! Clients of a volume, their requests, and the answers they expect.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs::{Settings, Volume};
use manylogs_block::{
    BlockDevice, Completion, Extent, Handle, Hint, IoError, IoResult, Nanos, Payload, Request, Rng,
    Sectors, Time, to_usize,
};
use manylogs_sim::{Oracle, WriteId};

use crate::volume::kept::Kept;
use crate::volume::plan::{Plan, Shape};
use crate::volume::trouble::Told;

/// On a sound device every request is answered within this time, however full the logs are: the
/// slowest checkpoint of all their content takes a fraction of it.
const ANSWER_WITHIN: Nanos = Nanos::from_secs(5);
/// Length of zeroed ranges in histories with long ones.
const LONG_ZEROES: u64 = 6000;

/// State that the clients of one incarnation share.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) volume: Volume,
    pub(crate) runtime: Handle,
    pub(crate) oracle: Rc<RefCell<Oracle>>,
    pub(crate) rng: RefCell<Rng>,
    pub(crate) next_tag: Rc<Cell<u64>>,
    /// Number of operations still to do.
    pub(crate) left: Cell<u64>,
    pub(crate) done: Rc<Cell<u64>>,
    /// Time of the last answer to a client.
    pub(crate) answered: Rc<Cell<Time>>,
    /// The settings that the volume keeps.
    pub(crate) kept: Rc<RefCell<Kept>>,
    /// Whether the device may fail, or did so once.
    pub(crate) troubled: bool,
    /// How the device's failures affect reads.
    pub(crate) told: Told,
    /// Whether a flush has failed: no write may be accepted from then on.
    pub(crate) refuses: Cell<bool>,
}

/// A change that was submitted.
pub(crate) struct Sent {
    extent: Extent,
    fua: bool,
    /// Whether the device must refuse it.
    refused: bool,
    write: WriteId,
    at: Time,
    done: Completion,
}

impl World {
    /// Runs one client, which sends one request after another.
    pub(crate) async fn client(&self) -> Result<(), String> {
        while self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            if self.rng.borrow_mut().one_in(8) {
                let pause = Nanos(self.rng.borrow_mut().below(self.plan.longest_pause().0));
                self.runtime.sleep(pause).await;
            }
            self.operate().await?;
            self.answered.set(self.runtime.now());
            self.done.set(self.done.get() + 1);
        }
        Ok(())
    }

    async fn operate(&self) -> Result<(), String> {
        if let Some(run) = self.plan.runs
            && self.below(5) == 0
        {
            return self.write_run(run).await;
        }
        let threshold = self.volume.config().threshold.0;
        match self.below(100) {
            0..35 => self.write(1 + self.below(threshold)).await,
            35..37 => self.burst().await,
            37..47 => self.write(threshold - 1 + self.below(3)).await,
            47..60 => self.write(threshold + 1 + self.below(self.plan.longest_large())).await,
            60..78 => self.read().await,
            78..88 => self.flush().await,
            88..93 => self.zero(false).await,
            93..97 => self.zero(true).await,
            _ => self.maintain().await,
        }
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().below(bound)
    }

    /// Half of all requests meet in a few places, so that they overlap.
    /// A place for so many sectors, or for fewer if the volume is that small.
    fn place(&self, len: u64) -> Extent {
        let capacity = self.volume.layout().capacity().0;
        let len = len.min(capacity / 2);
        let room = capacity - len;
        let start = if self.below(2) == 0 { self.below(room) } else { self.below(40.min(room)) };
        Extent::new(start, len)
    }

    async fn write(&self, len: u64) -> Result<(), String> {
        self.answered(self.send_write(len)).await
    }

    /// Sends many small writes at once: each takes an entry of the table.
    async fn burst(&self) -> Result<(), String> {
        let sent: Vec<Sent> = (0..self.below(40)).map(|_| self.send_write(1)).collect();
        for write in sent {
            self.answered(write).await?;
        }
        Ok(())
    }

    fn send_write(&self, len: u64) -> Sent {
        let extent = self.place(len);
        let fua = self.below(2) == 0;
        let payload = Payload::tags(self.next_tags(extent.len.0), extent.len);
        let hint =
            if self.below(self.plan.durable_only) == 0 { Hint::DurabilityOnly } else { Hint::None };
        let request = Request::Write { extent, payload: payload.clone(), fua, hint };
        self.send(extent, &payload, request, fua)
    }

    /// Returns the first of `len` tags that no sector has had.
    pub(crate) fn next_tags(&self, len: u64) -> u64 {
        self.next_tag.replace(self.next_tag.get() + len)
    }

    async fn zero(&self, discard: bool) -> Result<(), String> {
        let long = self.plan.shape == Shape::LongZeroes && self.below(2) == 0;
        let longest = LONG_ZEROES.min(self.volume.layout().capacity().0 / 2);
        let extent = self.place(1 + self.below(if long { longest } else { 200 }));
        let may_be_durable = !discard || self.plan.durable_discards;
        let fua = may_be_durable && self.below(2) == 0;
        let request = if discard {
            Request::Discard { extent, fua }
        } else {
            Request::write_zeroes(extent, fua)
        };
        self.answered(self.send(extent, &Payload::zeroes(extent.len), request, fua)).await
    }

    pub(crate) fn send(
        &self,
        extent: Extent,
        content: &Payload,
        request: Request,
        fua: bool,
    ) -> Sent {
        let refused = self.refuses.get();
        let (write, at) = (self.oracle.borrow_mut().submit(extent, content), self.runtime.now());
        Sent { extent, fua, refused, write, at, done: self.volume.submit(request) }
    }

    pub(crate) async fn answered(&self, sent: Sent) -> Result<(), String> {
        let Sent { extent, fua, refused, write, at, done } = sent;
        let result = done.await;
        self.in_time(at, "a write")?;
        match result {
            Ok(_) if refused => Err("a write was accepted after a flush had failed".to_owned()),
            Ok(_) => {
                self.oracle.borrow_mut().acknowledge(extent, write, fua);
                Ok(())
            }
            Err(error) => {
                self.oracle.borrow_mut().fail(extent, write);
                self.expected(&error, self.troubled)
            }
        }
    }

    async fn read(&self) -> Result<(), String> {
        let extent = self.place(1 + self.below(60));
        let (read, at) = (self.oracle.borrow_mut().submit_read(extent), self.runtime.now());
        let result = self.volume.submit(Request::Read { extent }).await;
        self.in_time(at, "a read")?;
        match result {
            Ok(content) => {
                let checked = self.oracle.borrow_mut().check_read(read, &content);
                checked.map_err(|wrong| format!("read of {extent}: {wrong}"))
            }
            Err(error) => {
                self.oracle.borrow_mut().fail_read(read);
                self.expected(&error, self.told.reads_fail.get() || self.told.lossy.get())
            }
        }
    }

    pub(crate) async fn flush(&self) -> Result<(), String> {
        let (flush, at) = (self.oracle.borrow_mut().submit_flush(), self.runtime.now());
        let result = self.volume.submit(Request::Flush).await;
        self.in_time(at, "a flush")?;
        match result {
            Ok(_) => {
                self.oracle.borrow_mut().acknowledge_flush(flush);
                Ok(())
            }
            Err(error) => {
                self.refuses.set(true);
                self.expected(&error, self.troubled)
            }
        }
    }

    async fn maintain(&self) -> Result<(), String> {
        if self.plan.sets && self.below(3) > 0 {
            return self.set().await;
        }
        let result = match self.below(4) {
            0 => self.volume.checkpoint().await.map(drop),
            1 => self.volume.snapshot().await.map(drop),
            2 => {
                self.volume.swap().await;
                Ok(())
            }
            _ => {
                let config = self.plan.changed(&mut self.rng.borrow_mut());
                self.volume.reconfigure(&config)
            }
        };
        match result {
            Err(error) if !self.troubled => Err(format!("maintenance: {error}")),
            _ => Ok(()),
        }
    }

    /// Changes the settings kept in the volume.
    async fn set(&self) -> Result<(), String> {
        let settings = Settings::of(&self.plan.changed(&mut self.rng.borrow_mut()));
        let change = self.kept.borrow_mut().begin(settings);
        let result = self.volume.set(&settings).await;
        self.kept.borrow_mut().end(change, result.is_ok());
        match result {
            Err(error) if !self.troubled => Err(format!("set: {error}")),
            _ => Ok(()),
        }
    }

    fn expected(&self, error: &IoError, allowed: bool) -> Result<(), String> {
        if allowed { Ok(()) } else { Err(format!("unexpected error: {error}")) }
    }

    /// Checks that a request sent at `from` was answered in time.
    fn in_time(&self, from: Time, what: &str) -> Result<(), String> {
        let now = self.runtime.now();
        self.answered.set(now);
        let took = now.since(from);
        if took <= ANSWER_WITHIN || self.troubled {
            return Ok(());
        }
        Err(format!("{what} took {} ms on a sound device", took.0 / 1_000_000))
    }
}

/// Takes the content of the volume as the new truth, if it is allowed.
pub(crate) async fn adopt(
    volume: &Volume,
    oracle: &RefCell<Oracle>,
    fresh: bool,
    lossy: bool,
) -> Result<(), String> {
    let capacity = to_usize(volume.layout().capacity().0);
    if fresh {
        *oracle.borrow_mut() = Oracle::new(capacity);
        return Ok(());
    }
    if oracle.borrow().sectors() < capacity {
        oracle.borrow_mut().grow(capacity);
    }
    let content = read_all(volume, lossy).await;
    let content = content.map_err(|error| format!("read after reopening: {error}"))?;
    oracle.borrow_mut().check_recovered(&content).map_err(|wrong| format!("reopened: {wrong}"))
}

/// Reads the whole content of the volume. If it is `lossy`, sectors that cannot be read are absent.
pub(crate) async fn read_all(volume: &Volume, lossy: bool) -> IoResult {
    let whole = Extent::new(0, volume.layout().capacity().0);
    let content = volume.submit(Request::Read { extent: whole }).await;
    if content.is_ok() || !lossy {
        return content;
    }
    let mut content = Payload::default();
    for lba in whole.range() {
        let read = volume.submit(Request::Read { extent: Extent::new(lba, 1) }).await;
        content.append(read.unwrap_or_else(|_| Payload::absent(Sectors(1))));
    }
    Ok(content)
}
