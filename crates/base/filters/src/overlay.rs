//! A view of a device: changes go to the view, never to the device.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Geometry, Handle, IoError, IoResult, Lba,
    Payload, Request, Sector, Sectors, completion,
};

/// A device over one that is only read: written sectors stay in memory, and are read from there. So
/// a recovery can be tried on a disk that must not be changed.
///
/// Changes are atomic and are there when the request is answered; none survives the overlay. A
/// changed sector takes some 600 bytes of memory. The overlay has a limit of changed sectors: a
/// write beyond it fails with [`IoError::NoSpace`] and changes nothing. Discards do nothing.
/// Changed sectors are read from memory alone, even if the medium below is bad there.
pub struct Overlay<B> {
    below: B,
    runtime: Handle,
    changed: RefCell<BTreeMap<u64, Sector>>,
    most: usize,
}

impl<B> Overlay<B> {
    /// A view of `below` in which at most `most` sectors can change.
    pub fn new(runtime: Handle, below: B, most: Sectors) -> Self {
        let most = usize::try_from(most.0).unwrap_or(usize::MAX);
        Self { below, runtime, changed: RefCell::default(), most }
    }

    /// The device below.
    pub const fn below(&self) -> &B {
        &self.below
    }

    /// Sectors that were changed: extents by address, none adjacent to another.
    pub fn changed(&self) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for lba in self.changed.borrow().keys() {
            match extents.last_mut() {
                Some(last) if last.end().0 == *lba => last.len += Sectors(1),
                _ => extents.push(Extent::new(*lba, 1)),
            }
        }
        extents
    }

    fn write(&self, extent: Extent, payload: &Payload) -> IoResult {
        let mut changed = self.changed.borrow_mut();
        let known = changed.range(extent.range()).count();
        let fresh = usize::try_from(extent.len.0).unwrap_or(usize::MAX) - known;
        if fresh > self.most - changed.len() {
            return Err(IoError::NoSpace { extent });
        }
        for (lba, sector) in extent.range().zip(payload.sectors()) {
            // A copy, because a slice would keep all of the payload in memory.
            let own = |sector| match sector {
                Sector::Bytes(bytes) => Sector::Bytes(Bytes::copy_from_slice(&bytes)),
                other => other,
            };
            if let Some(sector) = sector {
                changed.insert(lba, own(sector));
            }
        }
        Ok(Payload::default())
    }

    /// The parts of `extent`, in order: changed ones with their content, the others without.
    fn parts(&self, extent: Extent) -> Vec<(Extent, Option<Payload>)> {
        let (mut parts, mut next): (Vec<(Extent, Option<Payload>)>, _) = (Vec::new(), extent.start);
        for (lba, sector) in self.changed.borrow().range(extent.range()) {
            let at = Lba(*lba);
            if next < at {
                parts.push((Extent::between(next, at), None));
            }
            let content = Payload::from(sector.clone());
            match parts.last_mut() {
                Some((last, Some(before))) if last.end() == at => {
                    last.len += Sectors(1);
                    before.append(content);
                }
                _ => parts.push((Extent::new(*lba, 1), Some(content))),
            }
            next = Lba(lba + 1);
        }
        if next < extent.end() {
            parts.push((Extent::between(next, extent.end()), None));
        }
        parts
    }
}

impl<B: BlockDevice> Overlay<B> {
    fn read(&self, extent: Extent) -> Completion {
        let parts = self.parts(extent);
        if let [(whole, None)] = parts.as_slice() {
            return self.below.submit(Request::Read { extent: *whole });
        }
        let answers = parts.into_iter().map(|(extent, content)| match content {
            Some(content) => Completion::ready(Ok(content)),
            None => self.below.submit(Request::Read { extent }),
        });
        let mut answers: Vec<Completion> = answers.collect();
        if let [_] = answers.as_slice() {
            return answers.remove(0);
        }
        let (completer, whole) = completion();
        self.runtime.spawn(async move {
            let mut read = Ok(Payload::default());
            for answer in answers {
                read = match (read, answer.await) {
                    (Ok(mut before), Ok(content)) => {
                        before.append(content);
                        Ok(before)
                    }
                    (Err(error), _) | (Ok(_), Err(error)) => Err(error),
                };
            }
            completer.complete(read);
        });
        whole
    }
}

impl<B: BlockDevice> BlockDevice for Overlay<B> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            volatile_cache: false,
            native_fua: true,
            discard: false,
            fast_zero: false,
            ..self.below.capabilities()
        }
    }

    fn submit(&self, request: Request) -> Completion {
        if let Err(error) = self.capabilities().check(&request) {
            return Completion::ready(Err(error));
        }
        match request {
            Request::Read { extent } => self.read(extent),
            Request::Write { extent, payload, .. } => {
                Completion::ready(self.write(extent, &payload))
            }
            Request::WriteZeroes { extent, .. } => {
                Completion::ready(self.write(extent, &Payload::zeroes(extent.len)))
            }
            Request::Flush | Request::Discard { .. } => Completion::ready(Ok(Payload::default())),
        }
    }

    fn geometry(&self) -> Option<Geometry> {
        self.below.geometry()
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies()
    }
}

impl<B> std::fmt::Debug for Overlay<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay")
            .field("changed", &self.changed.borrow().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::rc::Rc;

    use manylogs_block::{MemoryDevice, RequestKind, Rng, to_usize};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;
    use crate::{Faults, Rule};

    const SECTORS: u64 = 256;

    fn with_overlay<F: Future<Output = ()> + 'static>(
        most: u64,
        test: impl FnOnce(Overlay<Rc<Faults<MemoryDevice>>>) -> F,
    ) {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        let below = Rc::new(Faults::new(MemoryDevice::new(Sectors(SECTORS))));
        let overlay = Overlay::new(sim.handle(node), below, Sectors(most));
        sim.block_on(node, test(overlay));
    }

    async fn read(device: &impl BlockDevice, extent: Extent) -> IoResult {
        device.submit(Request::Read { extent }).await
    }

    #[test]
    fn it_reads_as_if_it_were_a_copy_of_the_device_and_leaves_the_device_alone() {
        with_overlay(SECTORS, |overlay| async move {
            let (whole, mut rng) = (Extent::new(0, SECTORS), Rng::new(3));
            let below = Rc::clone(overlay.below());
            let content = Payload::tags(1000, Sectors(SECTORS));
            below.submit(Request::write_fua(whole, content)).await.unwrap();
            let model = MemoryDevice::holding(Sectors(SECTORS), below.below().media());
            below.add(Rule::new(RequestKind::CHANGES, |_| IoError::Gone));
            let mut changed = [false; to_usize(SECTORS)];
            for step in 0..60 {
                let len = 1 + rng.below(6);
                let extent = Extent::new(rng.below(SECTORS - len + 1), len);
                let request = match rng.below(4) {
                    0 => Request::write_zeroes(extent, false),
                    1 => Request::write_fua(extent, Payload::bytes(vec![7; to_usize(512 * len)])),
                    _ => Request::write_fua(extent, Payload::tags(step * 10, Sectors(len))),
                };
                extent.range().for_each(|at| changed[to_usize(at)] = true);
                overlay.submit(request.clone()).await.unwrap();
                model.submit(request).await.unwrap();
                let within = Extent::new(rng.below(SECTORS / 2), 1 + rng.below(SECTORS / 2));
                let sectors = |content: Payload| content.sectors().collect::<Vec<_>>();
                let found = sectors(read(&overlay, within).await.unwrap());
                assert_eq!(found, sectors(read(&model, within).await.unwrap()), "{within}");
            }
            let listed = overlay.changed();
            assert!(listed.windows(2).all(|two| two[0].end() < two[1].start));
            let listed: Vec<u64> = listed.iter().flat_map(|extent| extent.range()).collect();
            let wanted = (0..SECTORS).filter(|at| changed[to_usize(*at)]);
            assert_eq!(listed, wanted.collect::<Vec<_>>());
            assert_eq!(below.failed(), 0, "nothing is written below");
        });
    }

    #[test]
    fn more_changes_than_it_was_made_for_are_refused_whole() {
        with_overlay(4, |overlay| async move {
            let write = |start, len| {
                Request::write_fua(Extent::new(start, len), Payload::tags(1, Sectors(len)))
            };
            overlay.submit(write(0, 3)).await.unwrap();
            let refused = IoError::NoSpace { extent: Extent::new(2, 3) };
            assert_eq!(overlay.submit(write(2, 3)).await, Err(refused));
            assert!(read(&overlay, Extent::new(3, 2)).await.unwrap().is_zero());
            overlay.submit(write(1, 3)).await.unwrap();
            let discard = Request::Discard { extent: Extent::new(0, SECTORS), fua: false };
            overlay.submit(discard).await.unwrap();
            assert_eq!(overlay.changed(), [Extent::new(0, 4)]);
        });
    }

    #[test]
    fn what_was_changed_is_read_where_the_medium_is_bad_and_nothing_else_is() {
        with_overlay(SECTORS, |overlay| async move {
            let bad = Rule::new(&[RequestKind::Read], |extent| IoError::Medium { extent });
            overlay.below().add(bad.within(Extent::new(10, 1)));
            let written = Payload::tags(5, Sectors(1));
            overlay.submit(Request::write_fua(Extent::new(10, 1), written)).await.unwrap();
            let found = read(&overlay, Extent::new(8, 4)).await.unwrap();
            assert_eq!(found.slice(Sectors(2), Sectors(1)), Payload::tags(5, Sectors(1)));
            let (beyond, capacity) = (Extent::new(SECTORS - 4, 5), Sectors(SECTORS));
            let refused = IoError::OutOfRange { extent: beyond, capacity };
            assert_eq!(read(&overlay, beyond).await, Err(refused));
            overlay.below().add(bad.within(Extent::new(11, 1)));
            assert!(read(&overlay, Extent::new(8, 4)).await.is_err());
        });
    }
}
