//! Standby by command, and what ends it.

use manylogs_block::{Nanos, PowerState, PowerTimes};

use super::*;
use crate::profile::PowerTable;

const SECOND: Nanos = Nanos::from_secs(1);
/// Spin-up time of the drive below: the default of profiles.
const SPIN_UP: Nanos = Nanos::from_secs(10);

fn at(seconds: u64) -> Time {
    Time(seconds * SECOND.0)
}

fn asleep() -> Drive {
    let mut drive = drive("cheetah-15k5", |_| {});
    serve(&mut drive, Time(0), read(1, 1000, 8));
    assert!(drive.standby(at(100)));
    drive
}

#[test]
fn a_read_wakes_the_drive_and_waits_for_the_spin_up() {
    let mut drive = asleep();
    assert_eq!(drive.power_state(at(150)), PowerState::Standby);
    // The same sectors: a drive that stands has nothing in its buffer.
    let done = serve(&mut drive, at(200), read(2, 1000, 8));
    assert!(done.at >= at(200) + SPIN_UP && done.at < at(211), "{done:?}");
    let times = drive.power_times(at(300));
    assert_eq!((times.standby, times.spin_up, times.starts), (Nanos(100 * SECOND.0), SPIN_UP, 1));
    assert_eq!(times.total(), Nanos(300 * SECOND.0));
    assert_eq!(drive.power_state(at(300)), PowerState::Awake);
}

#[test]
fn a_flush_of_a_clean_cache_wakes_nobody() {
    let mut drive = asleep();
    let done = serve(&mut drive, at(200), flush(2));
    assert!(done.at < at(201), "{done:?}");
    assert_eq!(drive.power_state(at(201)), PowerState::Standby);
}

#[test]
fn a_drive_with_work_does_not_stop() {
    let mut drive = drive("cheetah-15k5", |options| options.write_cache = true);
    drive.submit(Time(0), write(1, 1000, 8)).unwrap();
    assert!(!drive.standby(Time(0)), "a command is under way");
    drive.advance(Time(100_000), &mut |_| {});
    assert!(!drive.standby(Time(100_000)), "the cache holds a write");
    finish(&mut drive);
    assert!(drive.standby(at(1)));
}

#[test]
fn waking_early_spares_the_wait() {
    let mut drive = asleep();
    assert_eq!(drive.wake(at(200)), at(210));
    assert_eq!(drive.power_state(at(205)), PowerState::SpinningUp);
    let done = serve(&mut drive, at(211), read(2, 1000, 8));
    assert!(done.at < at(212), "{done:?}");
    assert_eq!(drive.power_times(at(300)).starts, 1);
}

#[test]
fn energy_is_what_the_states_cost() {
    let hour = Nanos(3600 * SECOND.0);
    let table = PowerTable { active_w: 8.0, idle_w: 5.0, standby_w: 1.0, ..PowerTable::default() };
    let times = PowerTimes { active: hour, idle: hour, standby: hour, ..PowerTimes::default() };
    assert!((table.watt_hours(&times) - 14.0).abs() < 1e-9);
}
