use super::*;
use crate::profile::find;

fn mechanism() -> Mechanism {
    Mechanism::new(&find("cheetah-15k5").unwrap().unwrap(), RandomTerms::OFF, 1)
}

fn run(mechanism: &mut Mechanism, at: Time, extent: Extent, write: bool) -> Access {
    let first = mechanism.geometry().locate(extent.start);
    mechanism.access(at, &first, extent, write)
}

#[test]
fn an_access_is_seek_and_rotation_and_transfer() {
    let mut mechanism = mechanism();
    let start = Time(123_456_789);
    let access = run(&mut mechanism, start, Extent::new(100_000_000, 8), false);
    let sum = start + access.seek + access.rotation + access.transfer;
    assert_eq!(sum, access.end);
    assert!(access.rotation <= mechanism.spindle().period());
    let place = mechanism.geometry().locate(Lba(100_000_007));
    assert_eq!(mechanism.position().cylinder, place.cylinder);
}

#[test]
fn positioning_predicts_what_an_access_takes() {
    let mut mechanism = mechanism();
    let mut at = Time(5);
    for step in 0..2_000_u64 {
        let extent = Extent::new(step * 79_903_517 % 286_000_000, 8);
        let write = step % 3 == 0;
        let place = mechanism.geometry().locate(extent.start);
        let predicted = mechanism.positioning(at, &place, write, Nanos(0));
        let access = run(&mut mechanism, at, extent, write);
        assert_eq!(access.seek + access.rotation, predicted);
        at = access.end + Nanos(13_000);
    }
}

#[test]
fn a_track_takes_its_share_of_a_revolution() {
    let mut mechanism = mechanism();
    let access = run(&mut mechanism, Time(0), Extent::new(0, 600), false);
    assert!(access.transfer.0.abs_diff(mechanism.spindle().period().0 / 2) < 2);
}

#[test]
fn streaming_from_where_the_last_access_ended_costs_nothing_but_transfer() {
    let mut mechanism = mechanism();
    let mut at = run(&mut mechanism, Time(0), Extent::new(0, 64), false).end;
    for step in 1..5_000_u64 {
        let access = run(&mut mechanism, at, Extent::new(step * 64, 64), false);
        let skew = mechanism.spindle().period().0 * 2 / 5;
        let wait = access.seek + access.rotation;
        assert!(wait.0 <= skew, "step {step} lost {wait:?}");
        at = access.end;
    }
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let profile = find("cheetah-15k5").unwrap().unwrap();
    let times = |seed| {
        let mut mechanism = Mechanism::new(&profile, RandomTerms::ON, seed);
        let mut at = Time(0);
        for step in 0..500_u64 {
            at =
                run(&mut mechanism, at, Extent::new(step * 79_903_517 % 286_000_000, 8), false).end;
        }
        at
    };
    assert_eq!(times(3), times(3));
    assert_ne!(times(3), times(4));
}

#[test]
fn a_write_that_cuts_a_physical_sector_takes_a_revolution_more() {
    let profile = find("exos-x20").unwrap().unwrap();
    let took = |start, write| {
        let mut mechanism = Mechanism::new(&profile, RandomTerms::OFF, 1);
        run(&mut mechanism, Time(5), Extent::new(start, 8), write).rewrite
    };
    let revolution = Mechanism::new(&profile, RandomTerms::OFF, 1).spindle().period();
    assert_eq!(took(8_000_000, true), Nanos(0));
    assert_eq!(took(8_000_001, true), revolution);
    assert_eq!(took(8_000_001, false), Nanos(0));
}
