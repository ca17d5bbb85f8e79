//! Chooses the mechanism's next task: a command, or a cached write.

use manylogs_block::{Extent, Nanos, Time};

use super::{Drive, Pending};
use crate::cache::read::Plan;
use crate::command::{CommandKind, Completion};
use crate::geometry::Location;
use crate::link::LinkKind;
use crate::mechanics::Access;
use crate::queue::Waiting;

impl Drive {
    /// Time at which the mechanism can begin its next task; `None` if it has none.
    pub(super) fn dispatch_time(&self) -> Option<Time> {
        if self.power.stands() {
            return None;
        }
        if let Some(translated) = &self.translated {
            return self.translated_time(translated);
        }
        let command = self.queue.earliest_ready();
        // A cached write may go at any time from its arrival on.
        let ready = if self.writes.is_clean() { command? } else { self.dirty_since };
        Some(ready.max(self.free_at))
    }

    pub(super) fn dispatch(&mut self, at: Time) {
        if let Some(mut translated) = self.translated.take() {
            self.dispatch_translated(at, &mut translated);
            self.translated = Some(translated);
            return;
        }
        if self.destages_next(at) {
            self.destage_next = false;
            return self.destage(at);
        }
        self.destage_next = true;
        match self.queue.take(at, &self.mechanism, &self.reads) {
            Some(waiting) if waiting.write => self.write(at, &waiting),
            Some(waiting) => self.read(at, &waiting, waiting.command.extent, &waiting.place),
            None => self.destage(at),
        }
    }

    /// Whether a cached write goes to the platter next.
    ///
    /// Cached writes come first while FLUSH CACHE waits for them, because no other command is under
    /// way then. They take turns with commands when the buffer is nearly full, and while
    /// SYNCHRONIZE CACHE waits, because that is one command of a queue. Otherwise they use idle
    /// moments.
    pub(super) fn destages_next(&self, at: Time) -> bool {
        if self.writes.is_clean() {
            return false;
        }
        let flush = !self.flushes.is_empty();
        let pressed = self.is_buffer_short() || flush;
        let no_command = self.queue.earliest_ready().is_none_or(|ready| ready > at);
        let exclusive = flush && self.link.kind == LinkKind::Sata;
        exclusive || no_command || (pressed && self.destage_next)
    }

    /// Whether writes wait for room in the buffer, or soon will.
    pub(super) fn is_buffer_short(&self) -> bool {
        self.writes.is_nearly_full() || !self.roomless.is_empty()
    }

    fn destage(&mut self, at: Time) {
        let start = self.leave(at);
        let Some(destage) = self.writes.take_next(start, &self.mechanism) else { return };
        let place = self.mechanism.geometry().locate(destage.extent.start);
        let access = self.mechanism.access(start, &place, destage.extent, true);
        self.counters.destages += 1;
        self.verify.remember(destage.extent);
        self.account(at, &access);
        self.pending.push(access.end, Pending::Destaged(destage));
    }

    fn write(&mut self, at: Time, waiting: &Waiting) {
        let command = waiting.command;
        let start = self.leave(at);
        let mut extent = command.extent;
        let mut place = waiting.place;
        // Older cached data beneath is written along, so that it cannot overwrite this write later.
        let overlaps = (!self.writes.is_clean()).then(|| self.writes.take_overlaps(extent));
        if let Some(destage) = overlaps.as_ref().filter(|d| d.extent.start < extent.start) {
            place = self.mechanism.geometry().locate(destage.extent.start);
        }
        if let Some(destage) = &overlaps {
            extent = destage.extent;
        }
        let access = self.mechanism.access(start, &place, extent, true);
        self.account(at, &access);
        self.verify.remember(extent);
        if let Some(destage) = overlaps {
            self.pending.push(access.end, Pending::Destaged(destage));
        }
        self.complete(at, waiting, access);
    }

    /// Serves a read whose data lies at `extent` on the medium. `extent` begins at `place`.
    pub(super) fn read(&mut self, at: Time, waiting: &Waiting, extent: Extent, place: &Location) {
        let (plan, segment) = self.reads.plan_stream(at, extent, &self.mechanism);
        match plan {
            Plan::Buffered => {
                self.counters.read_hits += 1;
                self.reads.slide(segment, at, extent, &self.mechanism);
                self.complete_from_buffer(at, waiting.command, true);
            }
            Plan::Streams(end) => {
                self.counters.streamed_reads += 1;
                self.reads.slide(segment, at, extent, &self.mechanism);
                self.mechanism.passed(extent.end());
                let access = Access { transfer: end.since(at), end, ..Access::default() };
                self.account(at, &access);
                self.complete(at, waiting, access);
            }
            Plan::Resume(lba) => {
                let rest = Extent::between(lba, extent.end());
                let place = self.mechanism.geometry().locate(lba);
                self.mechanism.passed(lba);
                self.access_medium(at, at, waiting, (extent, rest), &place);
            }
            Plan::Miss => {
                let start = self.leave(at);
                self.access_medium(at, start, waiting, (extent, extent), place);
            }
        }
    }

    /// Reads `part`, the end of `whole`, from the medium.
    fn access_medium(
        &mut self,
        at: Time,
        start: Time,
        waiting: &Waiting,
        (whole, part): (Extent, Extent),
        place: &Location,
    ) {
        let access = self.mechanism.access(start, place, part, false);
        self.account(at, &access);
        self.reads.start(access.end, whole, &self.mechanism);
        self.complete(at, waiting, access);
    }

    pub(super) fn account(&mut self, at: Time, access: &Access) {
        self.free_at = access.end;
        self.counters.busy += access.end.since(at);
        self.counters.extra_revolutions += u64::from(access.extra_revolutions != Nanos(0));
        self.counters.seeks += u64::from(access.seek != Nanos(0));
        self.counters.rotation += access.rotation + access.extra_revolutions;
    }

    pub(super) fn complete(&mut self, at: Time, waiting: &Waiting, access: Access) {
        let command = waiting.command;
        let completed = access.end + self.timing.end(waiting.write, command.extent);
        let completion = Completion {
            tag: command.tag,
            at: completed,
            durable: true,
            buffered: false,
            waited: at.since(waiting.arrived),
            access,
        };
        debug_assert_ne!(command.kind, CommandKind::Flush, "flushes never reach the mechanism");
        self.pending.push(completed, Pending::Complete(completion));
    }
}
