//! Options of a drive beyond its profile.

use manylogs_block::Nanos;

use crate::link::Link;
use crate::mechanics::RandomTerms;
use crate::profile::Profile;
use crate::queue::Policy;
use crate::shingled::CachePlacement;

/// Settings of a run; [`Options::of`] gives those of the profile.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seed of the random terms.
    pub seed: u64,
    /// Angle under the heads at time zero, in revolutions. The drives of one machine differ in it.
    pub phase: f64,
    /// Which random terms take part.
    pub terms: RandomTerms,
    /// Number of commands the drive accepts at a time, 1 to 32.
    pub depth: u32,
    /// Order in which the queue is served.
    pub policy: Policy,
    /// A command that waited this long goes first.
    pub age_limit: Nanos,
    /// Whether commands with priority are served before all others. A drive without this option
    /// treats them like any other command.
    pub priority: bool,
    /// Whether writes are acknowledged from the volatile cache.
    pub write_cache: bool,
    /// The link to the host.
    pub link: Link,
    /// Whether the drive reads ahead.
    pub read_ahead: bool,
    /// Where a shingled drive puts which writes.
    pub placement: CachePlacement,
}

impl Options {
    /// The drive as `profile` describes it, with seed 1.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        Self {
            seed: 1,
            phase: 0.0,
            terms: RandomTerms::ON,
            depth: profile.queue.depth,
            policy: Policy::from_name(&profile.queue.policy).unwrap_or(Policy::Fcfs),
            age_limit: Nanos::from_secs_f64(profile.queue.age_limit_ms / 1e3),
            priority: false,
            write_cache: profile.cache.write_cache,
            link: profile.link(),
            read_ahead: true,
            placement: CachePlacement::Streams,
        }
    }

    /// Options for measurements: one command at a time, no caches.
    #[must_use]
    pub fn bare(profile: &Profile) -> Self {
        Self { depth: 1, write_cache: false, read_ahead: false, ..Self::of(profile) }
    }
}
