//! Histories that once showed a fault of the volume, each with a description of the fault.

use manylogs_torture::{Plan, run_plan};

/// A description, the plan, and whether images are damaged too.
type Story = (&'static str, Plan, bool);

fn stories() -> Vec<Story> {
    let medium = |seed| Plan::plain(seed).with_trouble();
    vec![
        ("a gentle pass waited for idleness that pending writes prevent", medium(50034), false),
        ("passes over a table apart with one log made no room for ever", medium(40353), false),
        ("one writer starved beside failing checkpoints", Plan::plain(23_418_008_978), false),
        ("no log accepted records, and three writes waited", Plan::plain(880_000_002_616), false),
        ("the same", Plan::plain(880_000_003_451), false),
        ("a growing device got a log in home space", Plan::plain(39).growing(), false),
        (
            "what could not be read opened as older data",
            Plan::plain(28).with_trouble_at_opening(),
            false,
        ),
        (
            "a stale superblock let an opening hide data of a volume that grew",
            Plan::of_seed(2349),
            true,
        ),
        ("an unreadable snapshot made the volume unopenable", Plan::plain(3), true),
        ("a pass with a limited rate was not hurried", Plan::plain(20).rate_limited(), false),
        ("a pass that took no time let no write run", Plan::troubled(10).sparse(), false),
        ("the same", Plan::troubled(23).sparse(), false),
        ("a device grew by less than a root", Plan::troubled(504).sparse(), false),
        ("both roots torn while growing by little", Plan::troubled(31_076_565).sparse(), false),
        (
            "a full log that cannot be read was moved again",
            Plan::troubled(31_003_178).sparse(),
            false,
        ),
        ("a flush brought back what a crash took", Plan::troubled(31_007_998).sparse(), false),
        ("a read-only volume looked for work for hours", Plan::troubled(20_587).sparse(), false),
        ("writes starved while a pass began again and again", Plan::troubled(99).sparse(), false),
        (
            "a log began anew below the copy of a displaced version",
            Plan::troubled(42_028_182).sparse(),
            false,
        ),
        (
            "a write of a pass that had failed landed on newer data",
            Plan::troubled(51_027_209).sparse(),
            false,
        ),
        (
            "passes took no time while a read kept the only log full",
            Plan::troubled(52_018_933).sparse(),
            false,
        ),
        (
            "a pass renewed the same few of many lost blocks again and again",
            Plan::troubled(54_070_836).sparse(),
            false,
        ),
    ]
}

#[test]
fn what_once_went_wrong_goes_right() {
    for (story, plan, faults) in stories() {
        assert_eq!(run_plan(&plan, faults).err(), None, "{story}");
    }
}
