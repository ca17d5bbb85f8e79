//! Summaries of logs: which may be written to a device, and what a log waits for before it begins
//! anew.

use super::Store;
use crate::{Log, LogId, RecordSequence};

impl Store {
    /// The sequence of the log's last record, if what the log holds will not change in this epoch:
    /// it takes no more records, and all that it took are durable. `None` if the log has no summary
    /// that says all.
    #[must_use]
    pub fn closed_at(&self, log: LogId) -> Option<RecordSequence> {
        let log = self.logs.get(log)?;
        let is_over = log.is_sealed() && !log.is_retired();
        let summary = log.summary().filter(|summary| summary.is_whole())?;
        (is_over && !log.is_busy() && !log.is_empty()).then(|| summary.last())
    }

    /// The bytes of the log's summary, if it says all that the log holds.
    #[must_use]
    pub fn summary_of(&self, log: LogId) -> Option<Vec<u8>> {
        self.logs.get(log)?.summary()?.encode(self.volume, log)
    }

    /// The log's summary is not needed in memory any more.
    pub fn drop_summary(&mut self, log: LogId) {
        self.logs.adjust(log, Log::drop_summary);
    }

    /// Whether the log waits for [`Store::let_begin`] before it takes a record.
    #[must_use]
    pub fn is_held(&self, log: LogId) -> bool {
        self.logs.get(log).is_some_and(Log::is_held)
    }

    /// Keeps a log that holds nothing from beginning an epoch before [`Store::let_begin`].
    pub fn hold(&mut self, log: LogId) {
        self.logs.with(log, Log::hold);
    }

    /// The log may begin an epoch: no device has a summary of it that counts.
    pub fn let_begin(&mut self, log: LogId) {
        self.logs.adjust(log, Log::release);
    }
}
