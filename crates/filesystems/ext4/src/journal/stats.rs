//! What a journal has done.

/// Counters of a sink since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Transactions that became durable.
    pub transactions: u64,
    /// Atomic records of the log that they took: fewer, if some share a record.
    pub records: u64,
    /// Flushes of the device that transactions waited for.
    pub flushes: u64,
    /// Bytes appended to the log, headers and descriptors included.
    pub log_bytes: u64,
    /// Bytes of blocks in it that were changed.
    pub changed_bytes: u64,
    /// Bytes of blocks in it that were not changed, and only written anew.
    pub renewed_bytes: u64,
    /// Bytes written home from the log.
    pub home_bytes: u64,
    /// Requests that wrote these.
    pub home_writes: u64,
    /// Bytes that are newer in the log than at home, now.
    pub at_risk_bytes: u64,
}

impl SinkStats {
    /// The difference to the earlier counters `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            records: self.records - before.records,
            flushes: self.flushes - before.flushes,
            log_bytes: self.log_bytes - before.log_bytes,
            changed_bytes: self.changed_bytes - before.changed_bytes,
            renewed_bytes: self.renewed_bytes - before.renewed_bytes,
            home_bytes: self.home_bytes - before.home_bytes,
            home_writes: self.home_writes - before.home_writes,
            at_risk_bytes: self.at_risk_bytes,
        }
    }
}
