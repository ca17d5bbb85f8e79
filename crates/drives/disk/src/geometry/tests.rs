use proptest::prelude::*;

use super::*;
use crate::profile::find;

fn cheetah() -> Geometry {
    Geometry::new(&find("cheetah-15k5").unwrap().unwrap().geometry)
}

/// Cylinder and head of every track of a zone, found by walking the serpentine as documented.
fn walk(first_cylinder: u32, cylinders: u32, heads: u32) -> Vec<(u32, u32)> {
    let mut bands: Vec<(u32, u32)> = Vec::new();
    let mut left = cylinders;
    let mut start = first_cylinder;
    while left > 0 {
        let length = if left < 65 + 35 { left } else { 65 };
        let length = if (65 + 31..65 + 35).contains(&left) { 65 } else { length };
        bands.push((start, length));
        start += length;
        left -= length;
    }
    let mut tracks = Vec::new();
    for (index, &(start, length)) in bands.iter().enumerate() {
        for run in 0..heads {
            let head = if index % 2 == 0 { run } else { heads - 1 - run };
            let inwards = (start..start + length).map(|c| (c, head));
            if run % 2 == 0 {
                tracks.extend(inwards);
            } else {
                tracks.extend(inwards.rev());
            }
        }
    }
    tracks
}

#[test]
fn capacity_is_exact_and_the_last_sector_is_on_the_last_cylinders() {
    let geometry = cheetah();
    assert_eq!(geometry.capacity_sectors(), 286_749_488);
    assert_eq!(geometry.zones().map(|zone| zone.len.0).sum::<u64>(), 286_749_488);
    let last = geometry.locate(Lba(286_749_487));
    assert!(last.cylinder > 72_171 - 100, "{last:?}");
    assert_eq!(geometry.locate(Lba(0)).cylinder, 0);
}

#[test]
fn tracks_follow_the_serpentine() {
    let geometry = cheetah();
    for (zone, first_cylinder, end) in [(0, 0, 7801), (6, 36_401, 41_301), (13, 67_201, 71_001)] {
        let tracks = walk(first_cylinder, end - first_cylinder, 4);
        let entry = &geometry.zones[zone];
        for (number, &(cylinder, head)) in (0_u32..).zip(&tracks) {
            let track = entry.track(number, 4, geometry.skew);
            assert_eq!((track.cylinder, track.head), (cylinder, head), "track {number}");
        }
    }
}

#[test]
fn addresses_far_apart_share_a_cylinder() {
    // One band: head 0 runs in over 65 cylinders and head 1 back out. So an address 150,000 sectors
    // on is on the same cylinder, and a seek by address distance would be wrong.
    let geometry = cheetah();
    let (first, second) = (geometry.locate(Lba(0)), geometry.locate(Lba(155_900)));
    assert_eq!((first.cylinder, first.head), (0, 0));
    assert_eq!((second.cylinder, second.head), (0, 1));
}

#[test]
fn skews_are_those_of_the_profile() {
    let geometry = cheetah();
    let start = |track| geometry.zones[0].track(track, 4, geometry.skew).start;
    let skew = |track| start(track).until(start(track + 1)).0 as f64 / 4_294_967_296.0;
    assert!((skew(0) - 0.141_666_7).abs() < 1e-6, "next track");
    assert!((skew(64) - 0.191_666_7).abs() < 1e-6, "next head");
    assert!((skew(259) - 0.370_833_3).abs() < 1e-6, "next band");
    for track in 0..20_000 {
        let behind = geometry.zones[0].skew_behind(track, 4, geometry.skew);
        assert_eq!(start(track).plus(Rotation(u64::from(behind.0))), start(track + 1), "{track}");
    }
}

proptest! {
    #[test]
    fn a_sector_is_found_again_where_it_is(lba in 0_u64..286_749_488) {
        let geometry = cheetah();
        let place = geometry.locate(Lba(lba));
        prop_assert_eq!(geometry.sector_at(place.zone, place.track, place.sector), Some(Lba(lba)));
        prop_assert!(place.cylinder < geometry.cylinders() && place.head < 4);
    }

    #[test]
    fn consecutive_sectors_pass_in_order(lba in 0_u64..286_749_487) {
        let geometry = cheetah();
        let (here, next) = (geometry.locate(Lba(lba)), geometry.locate(Lba(lba + 1)));
        prop_assume!(here.zone == next.zone);
        let slot = |place: Location| {
            place.track * geometry.sectors_per_track(place.zone) + place.sector
        };
        prop_assert!(slot(next) > slot(here), "numbering rises");
        let rotation = geometry.transfer(&here, Extent::new(lba, 1));
        let gap = here.angle.plus(rotation).until(next.angle);
        let slipped = slot(next) - slot(here) - 1;
        let room = f64::from(slipped + 1) / f64::from(geometry.sectors_per_track(here.zone));
        // On the same track the next sector follows at once (or behind slipped ones); on the next
        // track after the skew.
        let limit = if here.track == next.track { room } else { 0.371 + room };
        prop_assert!(gap.0 as f64 / 4_294_967_296.0 <= limit + 1e-6);
    }

    #[test]
    fn a_transfer_ends_where_its_last_sector_ends(lba in 0_u64..286_000_000, len in 1_u64..5000) {
        let geometry = cheetah();
        let extent = Extent::new(lba, len);
        let first = geometry.locate(extent.start);
        let last = geometry.locate(Lba(lba + len - 1));
        let end = first.angle.plus(geometry.transfer(&first, extent));
        let expected = last.angle.plus(geometry.transfer(&last, Extent::new(lba + len - 1, 1)));
        let error = end.until(expected).0.min(expected.until(end).0);
        prop_assert!(error < 4096, "off by {error} of 2^32");
    }
}
