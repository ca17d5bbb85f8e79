//! An array as a volume sees it: its columns one by one.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, ExtentKind, Extents, Geometry, Handle, Payload,
    Request, Sectors, all_done, completion,
};

use manylogs_plant::{self as plant, Bug};

use crate::join::{join, placed};
use crate::map::ColumnMap;

/// An array whose volume addresses are those of a [`ColumnMap`]. [`Columns::spread`] splits a
/// request by column. Only then do the parts go to the array below, in the array's own addresses.
pub struct Columns {
    below: Rc<dyn BlockDevice>,
    map: ColumnMap,
    ports: Vec<Rc<Port>>,
    /// Answers of a flush of the array, one for each port.
    flushed: Rc<RefCell<VecDeque<Completion>>>,
}

/// One column as a device: its addresses are the places on the column.
struct Port {
    below: Rc<dyn BlockDevice>,
    geometry: Geometry,
    column: u16,
    flushed: Rc<RefCell<VecDeque<Completion>>>,
}

impl Columns {
    /// The array `below`, with its addresses arranged by `map`.
    #[must_use]
    pub fn new(below: Rc<dyn BlockDevice>, map: ColumnMap) -> Self {
        let (geometry, flushed) = (*map.geometry(), Rc::<RefCell<VecDeque<Completion>>>::default());
        let port = |column| {
            let (below, flushed) = (Rc::clone(&below), Rc::clone(&flushed));
            Rc::new(Port { below, geometry, column, flushed })
        };
        let ports = (0..geometry.columns).map(port).collect();
        Self { below, map, ports, flushed }
    }

    /// The map from volume addresses to columns.
    #[must_use]
    pub const fn map(&self) -> &ColumnMap {
        &self.map
    }

    /// The columns, each as a device addressed by the places on it. A flush of one column flushes
    /// the whole array.
    pub fn ports(&self) -> impl ExactSizeIterator<Item = Rc<dyn BlockDevice>> {
        self.ports.iter().map(|port| Rc::clone(port) as Rc<dyn BlockDevice>)
    }

    /// Splits `request` by column. `send` gets the part of each column, and must hand it on to the
    /// column's port, now or later.
    ///
    /// # Panics
    /// If it is a flush: see [`Columns::flush`].
    pub fn spread(
        &self,
        request: &Request,
        send: impl Fn(usize, Request) -> Completion,
    ) -> Completion {
        let Some(extent) = request.extent() else { panic!("a flush has no place") };
        let split = self.map.split(extent);
        let mut parts = Vec::with_capacity(split.shares.len());
        for (index, share) in split.shares.iter().enumerate() {
            let mut part =
                placed(request, share.extent, |payload| split.payload_of(index, payload));
            if let Request::Write { fua, .. } = &mut part
                && plant::is(Bug::PartsNotDurable)
            {
                *fua &= index == 0;
            }
            parts.push(send(usize::from(share.column), part));
        }
        let reads = matches!(request, Request::Read { .. });
        join(reads.then_some(split), parts)
    }

    /// Flushes the array, once. `send` is called for each column, and must hand the flush on to the
    /// column's port at once.
    pub fn flush(
        &self,
        runtime: &Handle,
        send: impl Fn(usize, Request) -> Completion,
    ) -> Completion {
        let flush = self.below.submit(Request::Flush);
        let (completers, answers): (Vec<_>, Vec<_>) =
            self.ports.iter().map(|_| completion()).unzip();
        self.flushed.borrow_mut().extend(answers);
        runtime.spawn(async move {
            let early = plant::is(Bug::ArrayFlushAnsweredEarly);
            let result = if early { Ok(Payload::default()) } else { flush.await };
            completers.into_iter().for_each(|completer| completer.complete(result.clone()));
        });
        join(None, (0..self.ports.len()).map(|column| send(column, Request::Flush)).collect())
    }

    /// Whether the array itself carries out the request as it is.
    fn is_plain(&self, request: &Request, extent: Extent) -> bool {
        let is_padded =
            matches!(request, Request::Write { .. }) && !self.map.padding(extent).is_empty();
        self.map.is_plain(extent) && !is_padded
    }

    fn submit_by(
        &self,
        request: Request,
        send: impl Fn(&dyn BlockDevice, Request) -> Completion,
    ) -> Completion {
        if request.extent().is_none_or(|extent| self.is_plain(&request, extent)) {
            return send(&*self.below, request);
        }
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        if self.map.geometry().parity > 0 {
            return self.fill_rows(request, send);
        }
        self.spread(&request, |column, part| send(&*self.ports[column], part))
    }

    /// Sends a request to rows, and what pads the rows of a structure, in one batch. Of a durable
    /// write the parts go without FUA, and a flush of the array follows: the array would carry out
    /// each part by itself, read what the others are about to write, and flush its members once for
    /// each page.
    fn fill_rows(
        &self,
        mut request: Request,
        send: impl Fn(&dyn BlockDevice, Request) -> Completion,
    ) -> Completion {
        let is_durable = match &mut request {
            Request::Write { fua, .. }
            | Request::WriteZeroes { fua, .. }
            | Request::Discard { fua, .. } => std::mem::take(fua),
            Request::Read { .. } | Request::Flush => false,
        };
        let padding = match &request {
            Request::Write { extent, .. } => self.map.padding(*extent),
            _ => Vec::new(),
        };
        let own = self.spread(&request, |column, part| {
            if column > 0 && plant::is(Bug::RowsInTwoBatches) {
                let port = Rc::clone(&self.ports[column]);
                return Completion::of_others(async move { port.submit(part).await });
            }
            send(&*self.ports[column], part)
        });
        let pads = padding.into_iter().map(|pad| {
            let (extent, payload) = (pad.extent, Payload::zeroes(pad.extent.len));
            let hint = manylogs_block::Hint::None;
            send(&*self.below, Request::Write { extent, payload, fua: false, hint })
        });
        let pads: Vec<Completion> = pads.collect();
        if !is_durable {
            return if pads.is_empty() { own } else { after(own, pads, None) };
        }
        // Without a volatile cache the parts are durable, and a flush would only wait for others.
        let flush = self.below.capabilities().volatile_cache && !plant::is(Bug::RowsNotFlushed);
        after(own, pads, flush.then(|| Rc::clone(&self.below)))
    }
}

/// The answer to `own` once `others` have ended, and then a flush of `flushed`, if it is given.
fn after(
    own: Completion,
    others: Vec<Completion>,
    flushed: Option<Rc<dyn BlockDevice>>,
) -> Completion {
    Completion::of_others(async move {
        let (own, others) = (own.await, all_done(others).await);
        others.and(own.as_ref().map(drop).map_err(Clone::clone))?;
        if let Some(device) = flushed {
            device.submit(Request::Flush).await?;
        }
        own
    })
}

impl BlockDevice for Columns {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        self.submit_by(request, |device, request| device.submit(request))
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.submit_by(request, |device, request| device.submit_urgent(request))
    }

    fn has_priorities(&self) -> bool {
        self.below.has_priorities()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        if self.map.is_plain(within) {
            return self.below.extents(within);
        }
        let inside = self.capabilities().check(&Request::Read { extent: within });
        Completion::ready(inside.map(|()| Extents::of(within, ExtentKind::Data)))
    }
}

impl Port {
    fn submit_by(&self, request: &Request, send: impl Fn(Request) -> Completion) -> Completion {
        let Some(extent) = request.extent() else {
            let told = self.flushed.borrow_mut().pop_front();
            return told.unwrap_or_else(|| send(Request::Flush));
        };
        let (mut parts, mut skip) = (Vec::with_capacity(1), Sectors(0));
        let mut chunks = Vec::with_capacity(1);
        for on_array in self.geometry.addresses(self.column, extent) {
            let part = placed(request, on_array, |payload| payload.slice(skip, on_array.len));
            if !plant::is(Bug::ChunksRepeatContent) {
                skip += on_array.len;
            }
            parts.push(send(part));
            chunks.push(on_array);
        }
        let reads = matches!(request, Request::Read { .. });
        join(reads.then(|| manylogs_block::Split::in_order(&chunks)), parts)
    }
}

impl BlockDevice for Port {
    fn capabilities(&self) -> Capabilities {
        let below = self.below.capabilities();
        let whole =
            (below.capacity + self.geometry.first).0.next_multiple_of(self.geometry.stripe().0);
        Capabilities { capacity: Sectors(whole / u64::from(self.geometry.columns)), ..below }
    }

    fn submit(&self, request: Request) -> Completion {
        self.submit_by(&request, |part| self.below.submit(part))
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        self.submit_by(&request, |part| self.below.submit_urgent(part))
    }

    fn has_priorities(&self) -> bool {
        self.below.has_priorities()
    }
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Columns").field("geometry", self.map.geometry()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use manylogs_block::MemoryDevice;
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    const THREE: Geometry =
        Geometry { chunk: Sectors(8), columns: 3, copies: 1, parity: 0, first: Sectors(0) };

    #[test]
    fn what_was_written_is_read_through_map_and_ports_alike() {
        let sim = Sim::new(1, TaskOrder::Shuffled);
        let node = sim.node();
        let below: Rc<dyn BlockDevice> = Rc::new(MemoryDevice::new(Sectors(480)));
        let map = ColumnMap::new(THREE, vec![Extent::new(48, 96)]);
        let columns = Rc::new(Columns::new(Rc::clone(&below), map));
        let ended = Rc::new(Cell::new(false));
        let (device, done) = (Rc::clone(&columns), Rc::clone(&ended));
        sim.block_on(node, async move {
            let whole = Extent::new(0, 480);
            let write = Request::write_fua(whole, Payload::tags(1, whole.len));
            device.submit(write).await.unwrap();
            let read = device.submit(Request::Read { extent: whole }).await.unwrap();
            assert_eq!(read, Payload::tags(1, whole.len));
            // Homes lie where the array itself has them, and a log lies on one column.
            let homes = below.submit(Request::Read { extent: Extent::new(0, 48) }).await.unwrap();
            assert_eq!(homes, Payload::tags(1, Sectors(48)));
            let log = Request::Read { extent: Extent::new(16, 32) };
            let log = device.ports().next().unwrap().submit(log).await.unwrap();
            assert_eq!(log, Payload::tags(49, Sectors(32)));
            device.submit(Request::Flush).await.unwrap();
            done.set(true);
        });
        assert!(ended.get());
    }

    #[test]
    fn a_flush_goes_to_the_array_once() {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        let below = Rc::new(manylogs_filters::Trace::new(MemoryDevice::new(Sectors(480))));
        let map = ColumnMap::new(THREE, vec![Extent::new(48, 96)]);
        let columns = Columns::new(Rc::clone(&below) as Rc<_>, map);
        let runtime = sim.handle(node);
        sim.block_on(node, async move {
            let ports: Vec<_> = columns.ports().collect();
            columns.flush(&runtime, |at, part| ports[at].submit(part)).await.unwrap();
        });
        assert_eq!(below.count(manylogs_block::RequestKind::Flush).requests, 1);
    }
}
