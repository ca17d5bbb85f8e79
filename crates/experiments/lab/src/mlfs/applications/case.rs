//! The description of a measurement.

use manylogs_block::Nanos;
use manylogs_mlfs::JournalMode;
use manylogs_workload::programs::Program;

use super::super::case::DiskCase;
use crate::stats::round3;

/// Bytes per inode of the file system: enough inodes for eight file servers on the smallest drive.
pub const BYTES_PER_INODE: u64 = 1 << 20;

/// Name of the mode manylogs with durable-only program logs ([`ApplicationCase::odur`]).
pub const MANYLOGS_ODUR: &str = "manylogs+odur";

/// One measurement: a reader of a file of 2 GiB (direct I/O, 1 MiB at a time) beside a program.
#[derive(Clone, Debug)]
pub struct ApplicationCase {
    /// The disk, and the mode of its journal.
    pub disk: DiskCase,
    /// Whether the program's logs are durable-only (have the attribute `user.manylogs.durable`).
    /// For modes with logs near the head.
    pub odur: bool,
    /// The program.
    pub program: Program,
    /// Number of instances, each with files of its own. Zero for the reader alone.
    pub instances: u32,
    /// Requests that the reader has under way.
    pub stream_depth: u32,
    /// Size of the host's page cache in bytes: reads of cached files take no time.
    pub memory_bytes: u64,
    /// How many measured operations a second all instances together may begin: those that make
    /// data durable, or requests of a program that syncs nothing. As many as they can if `None`.
    pub carry_per_s: Option<f64>,
    /// Length of the measurement, in simulated time.
    pub span: Nanos,
}

impl ApplicationCase {
    /// The reader alone, in the mode `ordered`: the base of all shares.
    #[must_use]
    pub fn base(&self) -> Self {
        let disk = DiskCase { mode: JournalMode::Ordered, threshold: None, ..self.disk.clone() };
        Self { disk, odur: false, instances: 0, carry_per_s: None, ..self.clone() }
    }

    /// Name of the journal's mode, including that of the program's logs.
    #[must_use]
    pub const fn mode_name(&self) -> &'static str {
        match (self.disk.mode, self.odur) {
            (JournalMode::Manylogs, true) => MANYLOGS_ODUR,
            (mode, _) => mode.name(),
        }
    }

    /// Time from one flush of a database to the next, in milliseconds.
    pub(super) fn flush_every_ms(&self) -> Option<f64> {
        self.program.flush_every().map(|span| round3(span.as_secs_f64() * 1e3))
    }

    /// Cases with equal keys begin with the same disk.
    pub(super) fn disk_key(&self) -> String {
        format!("{} {} {}", self.disk.key(), self.program, self.instances)
    }

    /// Cases with equal keys differ in their mode alone.
    pub(super) fn cell_key(&self) -> String {
        let disk = DiskCase { mode: JournalMode::Ordered, ..self.disk.clone() };
        Self { disk, odur: false, ..self.clone() }.key()
    }

    /// Cases with equal keys are one run.
    pub(super) fn key(&self) -> String {
        let Self { program, stream_depth, memory_bytes, span, odur, carry_per_s, .. } = self;
        let (mode, threshold, seed) = (self.disk.mode, self.disk.threshold, self.disk.seed);
        let disk = self.disk_key();
        let program = if self.instances == 0 { String::new() } else { format!("{program:?}") };
        format!(
            "{disk} {mode} {odur} {threshold:?} {seed} {program} {stream_depth} {memory_bytes} \
             {span:?} {carry_per_s:?}"
        )
    }
}
