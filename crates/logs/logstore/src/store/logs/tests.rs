//! Which logs have room.

use super::*;

fn regions() -> Vec<Extent> {
    (0..5).map(|i| Extent::new(i * 1000 + 900, 100)).collect()
}

#[test]
fn room_leaves_the_largest_record_out() {
    let mut logs = Logs::new(&regions(), Sectors(10), RecordShape::in_log(Sectors(1)));
    assert_eq!(logs.room(), 5 * 89);
    logs.with(LogId(2), Log::retire);
    assert_eq!(logs.room(), 4 * 89);
}

#[test]
fn the_logs_of_each_device_are_counted_by_address() {
    let on = |device, start| (Device(device), Extent::new(start, 100));
    let regions = [on(0, 100), on(0, 900), on(1, 100), on(1, 500), on(2, 100)];
    let logs = Logs::on_devices(&regions, Sectors(10), RecordShape::in_log(Sectors(1)));
    let count = |device, at| logs.count_until(Device(device), Lba(at));
    assert_eq!([count(0, 99), count(0, 100), count(0, 9999)], [0, 1, 2]);
    assert_eq!([count(1, 0), count(1, 400), count(1, 500)], [2, 3, 4]);
    assert_eq!([count(2, 0), count(2, 9999)], [4, 5]);
}

#[test]
fn logs_on_a_device_that_is_shut_take_nothing_until_it_is_another_one() {
    let on = |device| move |start| (Device(device), Extent::new(start, 100));
    let regions: Vec<_> = (0..2).flat_map(|d| [100, 300].map(on(d))).collect();
    let mut logs = Logs::on_devices(&regions, Sectors(10), RecordShape::in_log(Sectors(1)));
    logs.with(LogId(2), Log::retire);
    assert_eq!((logs.room(), logs.room_without(Device(1))), (3 * 89, 2 * 89));
    logs.shut(Device(1));
    assert_eq!(logs.room(), 2 * 89);
    assert!(!logs.is_blank(LogId(3)) && !logs.takes(LogId(3), Sectors(1)));
    assert!(!logs.is_open(LogId(3)) && logs.blank().is_shut(Device(1)));
    logs.forget(Device(1));
    assert_eq!((logs.room(), logs.any_retired()), (2 * 89, false));
    logs.open_again(Device(1));
    assert_eq!(logs.room(), 4 * 89);
    logs.grow(&[on(2)(100)]);
    assert_eq!((logs.count(), logs.room()), (5, 5 * 89));
    assert!(logs.takes(LogId(4), Sectors(1)));
}

#[test]
fn all_of_the_last_log_is_room() {
    let mut logs = Logs::new(&regions()[..2], Sectors(60), RecordShape::in_log(Sectors(1)));
    assert_eq!(logs.room(), 2 * 39);
    logs.with(LogId(1), Log::retire);
    assert_eq!(logs.room(), 99, "all but the record that begins it");
    assert!(logs.is_open(LogId(0)) && !logs.is_open(LogId(1)));
    logs.with(LogId(0), Log::retire);
    assert_eq!(logs.room(), 0);
    let one = Logs::new(&regions()[..1], Sectors(60), RecordShape::in_log(Sectors(1)));
    assert_eq!(one.room(), 99);
}
