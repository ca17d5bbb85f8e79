//! The arrival of a command: it is answered from the buffer, or queued.

use manylogs_block::Time;

use super::Drive;
use crate::cache::read::Plan;
use crate::command::{Command, CommandKind};
#[cfg(test)]
use crate::planted::{Bug, is};
use crate::queue::Waiting;

impl Drive {
    pub(super) fn submit_read(&mut self, now: Time, command: Command, urgent: bool) {
        self.counters.reads += 1;
        if self.writes.covers(command.extent) {
            self.counters.read_hits += 1;
            return self.complete_from_buffer(now, command, true);
        }
        let pieces = self.translated.as_ref().map(|t| t.layer.pieces(command.extent));
        // The buffer is indexed by place on the medium, so a read in several pieces is not looked
        // up.
        let on_medium = pieces.map_or(Some(command.extent), |pieces| match pieces[..] {
            [piece] => Some(piece),
            _ => None,
        });
        if let Some(extent) = on_medium {
            let (plan, segment) = self.reads.plan(now, extent, &self.mechanism);
            if plan == Plan::Buffered {
                self.counters.read_hits += 1;
                self.reads.slide(segment, now, extent, &self.mechanism);
                return self.complete_from_buffer(now, command, true);
            }
        }
        self.enqueue(now, command, now + self.timing.read_start, urgent);
    }

    pub(super) fn submit_write(&mut self, now: Time, command: Command, fua: bool, urgent: bool) {
        self.counters.writes += 1;
        if let Some(translated) = &mut self.translated {
            translated.layer.write_arrives(now, command.extent);
        } else {
            self.reads.invalidate(command.extent);
        }
        #[cfg(test)]
        let fua = fua && !is(Bug::FuaIgnored);
        let direct = fua || !self.write_cache || !self.writes.could_hold(command.extent.len);
        if direct {
            self.enqueue(now, command, now + self.timing.write_start, urgent);
        } else if self.roomless.is_empty() && self.writes.has_room(command.extent.len) {
            self.admit(now, command);
        } else {
            self.roomless.push_back((command, now));
        }
    }

    pub(super) fn submit_flush(&mut self, now: Time, command: Command) {
        self.counters.flushes += 1;
        self.flushes.push_back((command, self.writes.next_sequence()));
        self.finish_flushes(now);
    }

    /// A write enters the cache and is acknowledged.
    pub(super) fn admit(&mut self, now: Time, command: Command) {
        self.counters.cached_writes += 1;
        if self.writes.is_clean() {
            self.dirty_since = now;
        }
        self.writes.insert(command.extent, command.tag);
        self.complete_from_buffer(now, command, false);
    }

    fn enqueue(&mut self, arrived: Time, command: Command, ready: Time, urgent: bool) {
        let urgent = urgent && self.priority;
        let write = command.kind != CommandKind::Read;
        let start = match &self.translated {
            Some(translated) if !write => translated.layer.place_of(command.extent.start),
            // The place of a shingled drive's write is set later, when the queue is looked at.
            _ => command.extent.start,
        };
        let place = self.mechanism.geometry().locate(start);
        self.queue.push(Waiting { command, write, start, place, arrived, ready, urgent });
    }
}
