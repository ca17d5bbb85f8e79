use super::*;

fn tiny() -> VolumeConfig {
    VolumeConfig {
        threshold: Sectors(8),
        record: Sectors(32),
        log: Sectors(64),
        placement: LogPlacement::EveryGroup(Sectors(256)),
        ..VolumeConfig::default()
    }
}

fn layouts() -> Vec<Layout> {
    let single = VolumeConfig { placement: LogPlacement::Single(0.3), ..tiny() };
    let mut out = Vec::new();
    for config in [tiny(), single] {
        for device in [2000, 4097, 10_001] {
            for physical in [1, 8] {
                out.push(Layout::of(&config, Sectors(device), Sectors(physical)).unwrap());
            }
        }
    }
    let grown: Vec<Layout> =
        out.iter().map(|layout| layout.grown(Sectors(layout.device().0 * 3)).unwrap()).collect();
    out.extend(grown);
    out
}

#[test]
fn structures_logs_and_homes_never_overlap() {
    for layout in layouts() {
        let mut all: Vec<Extent> = layout.superblocks().to_vec();
        all.extend(layout.roots());
        all.extend(layout.snapshots());
        all.extend(layout.regions());
        all.extend(layout.homes.iter().map(|(_, home)| *home));
        all.sort();
        for pair in all.windows(2) {
            assert!(!pair[0].overlaps(pair[1]), "{} and {}", pair[0], pair[1]);
        }
        assert!(all.last().unwrap().end().0 <= layout.device().0);
        assert_eq!(layout.parts.check(Sectors(1)), Ok(()));
    }
}

#[test]
fn every_exported_sector_has_one_home_outside_the_logs() {
    for layout in layouts() {
        let whole = Extent::new(0, layout.capacity().0);
        let mut next = Lba(0);
        for piece in layout.home(whole) {
            assert!(piece.start >= next && !layout.is_log(piece.start));
            next = piece.end();
        }
        for at in 0..layout.capacity().0 {
            let one: Vec<_> = layout.home(Extent::new(at, 1)).collect();
            assert_eq!(one.len(), 1);
            assert!(!layout.is_log(one[0].start));
        }
    }
}

#[test]
fn what_is_exported_keeps_its_home_when_the_device_grows() {
    for physical in [1, 8] {
        let before = Layout::of(&tiny(), Sectors(5003), Sectors(physical)).unwrap();
        let after = before.grown(Sectors(9001)).unwrap();
        assert!(after.regions().len() > before.regions().len());
        for at in (0..before.capacity().0).map(|at| Extent::new(at, 1)) {
            assert!(before.home(at).eq(after.home(at)));
        }
        assert!(before.grown(Sectors(5003)).is_err());
    }
}

#[test]
fn no_new_log_takes_home_space_however_little_the_device_grows() {
    // The second configuration has logs that are longer than the home space between them.
    let dense = VolumeConfig {
        threshold: Sectors(4),
        record: Sectors(4),
        log: Sectors(48),
        placement: LogPlacement::EveryGroup(Sectors(64)),
        ..VolumeConfig::default()
    };
    for config in [tiny(), dense] {
        for device in (3000..3300).step_by(8) {
            let before = Layout::of(&config, Sectors(device), Sectors(8)).unwrap();
            for more in (8..600).step_by(8) {
                let after = before.grown(Sectors(device + more)).unwrap();
                let whole = Extent::new(0, before.capacity().0);
                assert!(after.capacity() >= before.capacity(), "{device} + {more}");
                let homes: Vec<Extent> = before.home(whole).collect();
                let same: Vec<Extent> = after.home(whole).collect();
                // The last piece may have become part of a longer one.
                assert_eq!(homes, same, "{device} + {more}");
                assert_eq!(after.parts.check(Sectors(8)), Ok(()));
            }
        }
    }
}

#[test]
fn the_paper_layout_reserves_a_tenth() {
    let device = Sectors(1_953_525_168);
    let layout = Layout::of(&VolumeConfig::default(), device, Sectors(1)).unwrap();
    let share = layout.capacity().0 as f64 / device.0 as f64;
    assert!((0.89..0.90).contains(&share), "{share}");
    assert_eq!(layout.regions().len(), 9532);
}

#[test]
fn a_petabyte_has_a_layout() {
    let group = LogPlacement::EveryGroup(Sectors(2048 * 1024));
    let config = VolumeConfig { placement: group, ..VolumeConfig::default() };
    let layout = Layout::of(&config, Sectors((1 << 50) / 512), Sectors(8)).unwrap();
    assert_eq!(layout.regions().len(), (1 << 20) - 80);
    let last = Extent::new(layout.capacity().0 - 1, 1);
    assert_eq!(layout.home(last).count(), 1);
}

#[test]
fn a_volume_grows_only_as_often_as_its_superblock_can_say() {
    let mut layout = Layout::of(&tiny(), Sectors(10_000), Sectors(1)).unwrap();
    let refused = (0..400).find_map(|i| {
        let device = layout.device() + Sectors(200 + i % 100);
        layout.grown(device).map(|grown| layout = grown).err()
    });
    assert!(matches!(refused, Some(VolumeError::GrewTooOften)), "{refused:?}");
    assert!(layout.parts().runs.len() <= 120);
}

#[test]
fn a_volume_may_grow_by_whole_groups_for_ever() {
    let mut layout = Layout::of(&tiny(), Sectors(10_000), Sectors(1)).unwrap();
    let runs = layout.parts().runs.len();
    for grown in 1..=500 {
        layout = layout.grown(Sectors(10_000 + 256 * grown)).unwrap();
    }
    assert_eq!(layout.parts().runs.len(), runs);
    assert_eq!(layout.parts().check(Sectors(1)), Ok(()));
}

#[test]
fn on_an_array_homes_begin_at_a_stripe() {
    let config = VolumeConfig::default();
    for (columns, chunk, first) in
        [(4, 128, 0), (8, 1024, 0), (3, 8, 8), (64, 128, 4096), (2, 128, 16)]
    {
        let first = Sectors(first);
        let array = Geometry { chunk: Sectors(chunk), columns, copies: 1, parity: 0, first };
        let config = config.on_columns(columns);
        let layout = Layout::on_array(&config, Sectors(1 << 30), Sectors(8), Some(array)).unwrap();
        let home = layout.homes()[0].1.start;
        assert_eq!(array.stripe_from(home), home, "{array:?}");
        assert_eq!(layout.parts().check(Sectors(8)), Ok(()));
    }
    // Behind an odd beginning no length of the snapshots fits; the volume works nevertheless.
    let array =
        Geometry { chunk: Sectors(128), columns: 4, copies: 1, parity: 0, first: Sectors(8) };
    let layout = Layout::on_array(&config, Sectors(1 << 30), Sectors(8), Some(array)).unwrap();
    assert_eq!(layout.parts().check(Sectors(8)), Ok(()));
}
