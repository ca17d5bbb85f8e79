//! Injects faults by rules.

use std::cell::{Cell, RefCell};

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Geometry, IoError, Request, RequestKind,
};

/// Which requests fail, and how. A request that fails does not reach the device below.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    on: &'static [RequestKind],
    within: Option<Extent>,
    error: fn(Extent) -> IoError,
    times: u32,
    until_changed: bool,
}

impl Rule {
    /// Every request of these kinds fails with what `error` makes of its extent.
    #[must_use]
    pub const fn new(on: &'static [RequestKind], error: fn(Extent) -> IoError) -> Self {
        Self { on, within: None, error, times: u32::MAX, until_changed: false }
    }

    /// Only requests that touch `extent`; a flush touches no sector.
    #[must_use]
    pub const fn within(self, extent: Extent) -> Self {
        Self { within: Some(extent), ..self }
    }

    /// Limits the rule to this number of requests. [`u32::MAX`] means all requests and is the
    /// default.
    #[must_use]
    pub const fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// A sector is sound again after a write, zeroing or discard, because a drive replaces bad
    /// sectors when they are written. Needs an extent.
    #[must_use]
    pub const fn until_changed(self) -> Self {
        Self { until_changed: true, ..self }
    }

    fn concerns(&self, request: &Request) -> bool {
        let touches = |extent: Extent| request.extent().is_some_and(|it| it.overlaps(extent));
        self.times > 0 && self.on.contains(&request.kind()) && self.within.is_none_or(touches)
    }

    /// The parts of the rule's extent before and after `changed`, which is sound again.
    fn without(self, changed: Extent) -> impl Iterator<Item = Self> {
        let parts = match self.within {
            Some(extent) if self.until_changed && extent.overlaps(changed) => [
                Some(Extent::between(extent.start, changed.start.max(extent.start))),
                Some(Extent::between(changed.end().min(extent.end()), extent.end())),
            ],
            other => [other, None],
        };
        let everywhere = self.within.is_none();
        let kept = parts.into_iter().flatten().filter(|part| !part.is_empty());
        let kept = kept.map(move |part| self.within(part));
        kept.chain(everywhere.then_some(self))
    }
}

/// A device whose requests fail by rule.
#[derive(Debug)]
pub struct Faults<B> {
    below: B,
    rules: RefCell<Vec<Rule>>,
    failed: Cell<u64>,
}

impl<B> Faults<B> {
    /// A device without rules: all requests pass.
    pub const fn new(below: B) -> Self {
        Self { below, rules: RefCell::new(Vec::new()), failed: Cell::new(0) }
    }

    /// Adds a rule. If several rules match a request, the newest decides.
    pub fn add(&self, rule: Rule) {
        self.rules.borrow_mut().push(rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.borrow_mut().clear();
    }

    /// Whether there is a rule at all.
    pub fn has_rules(&self) -> bool {
        !self.rules.borrow().is_empty()
    }

    /// Number of requests that failed by a rule.
    pub const fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// The device below.
    pub const fn below(&self) -> &B {
        &self.below
    }

    fn failure(&self, request: &Request) -> Option<IoError> {
        let mut rules = self.rules.borrow_mut();
        let rule = rules.iter_mut().rfind(|rule| rule.concerns(request))?;
        if rule.times != u32::MAX {
            rule.times -= 1;
        }
        self.failed.set(self.failed.get() + 1);
        Some((rule.error)(request.extent().unwrap_or_default()))
    }

    fn heal(&self, changed: Extent) {
        let mut rules = self.rules.borrow_mut();
        if rules.iter().any(|rule| rule.until_changed) {
            *rules = rules.drain(..).flat_map(|rule| rule.without(changed)).collect();
        }
    }
}

impl<B: BlockDevice> BlockDevice for Faults<B> {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        if let Some(error) = self.failure(&request) {
            return Completion::ready(Err(error));
        }
        if let Some(changed) = request.extent().filter(|_| request.kind().is_change()) {
            self.heal(changed);
        }
        self.below.submit(request)
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.below.extents(within)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.below.geometry()
    }

    fn has_copies(&self) -> bool {
        self.below.has_copies()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use manylogs_block::{IoResult, MemoryDevice, Payload, Rng, Sectors};
    use manylogs_sim::{Sim, TaskOrder};

    use super::*;

    const READS: &[RequestKind] = &[RequestKind::Read];

    fn ask(device: &Faults<MemoryDevice>, request: Request) -> IoResult {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let node = sim.node();
        sim.block_on(node, device.submit(request))
    }

    #[test]
    fn a_rule_fails_its_kinds_where_and_as_often_as_it_says() {
        let device = Faults::new(MemoryDevice::new(Sectors(64)));
        let bad = Extent::new(8, 8);
        device.add(Rule::new(READS, |extent| IoError::Transient { extent }).within(bad).times(2));
        device.add(Rule::new(&[RequestKind::Flush], |_| IoError::Gone));
        let read = |start, len| ask(&device, Request::Read { extent: Extent::new(start, len) });
        assert!(read(0, 8).is_ok() && read(16, 8).is_ok());
        let extent = Extent::new(0, 9);
        assert_eq!(read(0, 9), Err(IoError::Transient { extent }));
        assert!(read(15, 1).is_err() && read(15, 1).is_ok(), "the third one passes");
        assert_eq!(ask(&device, Request::Flush), Err(IoError::Gone));
        assert!(ask(&device, Request::write_fua(bad, Payload::zeroes(bad.len))).is_ok());
        assert_eq!(device.failed(), 3);
        device.clear();
        assert!(ask(&device, Request::Flush).is_ok());
    }

    /// The model is the set of bad sectors.
    #[test]
    fn changed_sectors_are_sound_again_and_no_others() {
        let device = Faults::new(MemoryDevice::new(Sectors(64)));
        let (mut bad, mut rng) = (BTreeSet::new(), Rng::new(3));
        for _ in 0..3000 {
            let len = 1 + rng.below(12);
            let extent = Extent::new(rng.below(64 - len), len);
            match rng.below(8) {
                0 => {
                    let rule = Rule::new(READS, |extent| IoError::Medium { extent });
                    device.add(rule.within(extent).until_changed());
                    bad.extend(extent.range());
                }
                1 | 2 => {
                    ask(&device, Request::write_zeroes(extent, false)).unwrap();
                    bad.retain(|sector| !extent.range().contains(sector));
                }
                _ => {
                    let sound = ask(&device, Request::Read { extent }).is_ok();
                    assert_eq!(sound, bad.range(extent.range()).next().is_none(), "{extent}");
                }
            }
        }
    }
}
