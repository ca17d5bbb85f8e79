//! Copies of versions that move from one log to another.

use crate::LogId;

use super::Store;
use manylogs_plant::{self as plant, Bug};

impl Store {
    /// A copy became durable in `log` of a version that newer ones have displaced meanwhile. Until
    /// those are durable recovery may choose the copy: where headers are kept apart, it is told of
    /// the copy even when `log` begins another epoch.
    pub fn keep_overtaken(&mut self, log: LogId) {
        if plant::is(Bug::OvertakenCopyNotKept) {
            return;
        }
        let mut kept = 0;
        for (id, ticket, sectors) in &self.overtakers {
            if !self.entries.tickets.is_done(*ticket) {
                self.entries.slots.get_mut(*id).displaced.push((log, *sectors));
                kept += sectors;
            }
        }
        self.logs.adjust(log, |log| log.add_live(kept));
    }
}
