//! The status of a volume.

use manylogs::{Cause, Class, ClassStats, Health, PhaseProbe, ScheduleStats, Volume};

use crate::status::{
    ArrayStatus, KeptMetadata, Reason, TurnStatus, VolumeStatus, WaitStatus, id_text, occupancy,
    seconds,
};

/// Larger tables are not walked through for a status.
const WALKED_EXTENTS: u64 = 200_000;

/// The state of a volume whose writes `probe` counts.
pub(crate) fn volume_status(volume: &Volume, probe: &PhaseProbe) -> VolumeStatus {
    let stats = volume.stats();
    let schedule = volume.schedule();
    let capacity = volume.layout().capacity().0;
    let (health, read_only) = match volume.health() {
        Health::Good => ("good", None),
        Health::Degraded => ("degraded", None),
        Health::ReadOnly(reason) => ("read-only", Some(reason.to_owned())),
    };
    let estimate = volume.drain_estimate();
    let is_walked = stats.mapped_extents <= WALKED_EXTENTS;
    let zeroed_bytes = is_walked.then(|| volume.zeroed_bytes());
    VolumeStatus {
        id: id_text(&volume.id()),
        label: volume.label().to_owned(),
        health: health.to_owned(),
        read_only,
        at_risk_bytes: stats.logged_at_risk_bytes,
        zeroed_bytes,
        volatile_bytes: stats.volatile_bytes,
        drain_estimate_s: seconds(estimate.time),
        drain_seen: estimate.is_seen,
        logged_writes: stats.logged_writes,
        logged_bytes: stats.logged_bytes,
        bypassed_writes: stats.bypassed_writes,
        records: stats.records,
        record_bytes: stats.record_bytes,
        record_mean_us: (stats.records_ended > 0)
            .then(|| stats.record_ns as f64 / 1e3 / stats.records_ended as f64),
        starved_writes: stats.starved_writes,
        threshold_bytes: stats.threshold_bytes,
        sent_home_writes: stats.sent_home_writes,
        mapped_extents: stats.mapped_extents,
        table_bytes: stats.mapping_table_bytes,
        log_swaps: stats.log_swaps,
        checkpoints: stats.checkpoints,
        failed_checkpoints: stats.failed_checkpoints,
        checkpoint_progress: (stats.checkpoint_at > 0)
            .then(|| stats.checkpoint_at as f64 / capacity as f64),
        retired_logs: stats.retired_logs,
        kept_extents: stats.kept_extents,
        lost_extents: stats.lost_extents,
        unread_extents: stats.unread_extents,
        o_dur_live_bytes: stats.o_dur_live_bytes,
        o_dur_home_bytes: stats.o_dur_home_bytes,
        o_dur_moved_bytes: stats.o_dur_moved_bytes,
        o_dur_pinned_bytes: stats.o_dur_pinned_bytes,
        kept_metadata: KeptMetadata::of(&stats),
        array: ArrayStatus::of(volume),
        written: reasons(probe),
        occupancy: occupancy(volume),
        turns: turns(&schedule),
        waits_for: schedule.waits_for.map(|cause| cause.name().to_owned()),
        waited: waited(&schedule),
    }
}

fn reasons(probe: &PhaseProbe) -> Vec<Reason> {
    let written = probe.written().filter(|(_, written)| written.requests > 0);
    let reason = |(phase, written): (manylogs::Phase, manylogs::Written)| Reason {
        phase: phase.name().to_owned(),
        requests: written.requests,
        bytes: written.bytes,
    };
    written.map(reason).collect()
}

fn waited(schedule: &ScheduleStats) -> Vec<WaitStatus> {
    let by_cause = Cause::ALL.into_iter().zip(schedule.waited_ns);
    by_cause
        .map(|(cause, waited_ns)| WaitStatus { cause: cause.name().to_owned(), waited_ns })
        .collect()
}

fn turns(schedule: &ScheduleStats) -> Vec<TurnStatus> {
    let by_class = Class::ALL.into_iter().zip(schedule.classes);
    let turn = |(class, stats): (Class, ClassStats)| TurnStatus {
        class: class.name().to_owned(),
        requests: stats.requests,
        held: stats.held,
        held_ns: stats.held_ns,
        held_max_ns: stats.held_max_ns,
        waiting: stats.waiting,
    };
    by_class.map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_scheduler_counts_is_told_by_class_and_cause() {
        let mut schedule = ScheduleStats { waited_ns: [30, 40], ..ScheduleStats::default() };
        schedule.classes[Class::Stream as usize] =
            ClassStats { requests: 9, held: 4, held_ns: 70, held_max_ns: 50, waiting: 2 };
        let told = turns(&schedule);
        let classes: Vec<&str> = told.iter().map(|turn| turn.class.as_str()).collect();
        assert_eq!(classes, ["record", "small", "stream", "background"]);
        let class = "stream".to_owned();
        let stream =
            TurnStatus { class, requests: 9, held: 4, held_ns: 70, held_max_ns: 50, waiting: 2 };
        assert_eq!(told[2], stream);
        let wait = |cause: &str, waited_ns| WaitStatus { cause: cause.to_owned(), waited_ns };
        assert_eq!(waited(&schedule), [wait("record", 30), wait("room", 40)]);
    }
}
