//! Chains of mirrored pairs: what an opening settles, copies that go on after a crash, and damage
//! that one half has and the other has not.

use crate::common::{PIECE, SEGMENT, World, device, holds, write};
use manylogs_block::{BlockDevice, Extent, IoError, Nanos, Payload, Request, Sectors, to_usize};
use manylogs_gecko::{Chain, ChainSettings, Copied, HalfState, Standing};

const PER_DRIVE: u64 = 60;
/// Where the first segment of a drive begins: see `docs/format.md`.
const FIRST_SEGMENT: u64 = 64;
/// Sectors of the segments.
const SEGMENTS: std::ops::Range<u64> = FIRST_SEGMENT..FIRST_SEGMENT + PER_DRIVE * SEGMENT.0;
const PIECES: u64 = 240;

fn in_virtual_time<T: 'static, F: Future<Output = T> + 'static>(
    test: impl FnOnce(World) -> F + 'static,
) -> T {
    let settings = ChainSettings {
        buffer: Sectors(8),
        copy_noted: Sectors(4 * SEGMENT.0),
        degraded: true,
        ..ChainSettings::default()
    };
    crate::common::in_virtual_time(PER_DRIVE, settings, test)
}

/// A chain of two pairs; the fifth drive is spare.
async fn created(world: &World) -> Chain {
    world.create(4, true, PIECES).await
}

impl World {
    /// Where on a drive a piece lies that was written with this tag.
    async fn place_of(&self, disk: usize, tag: u64) -> Extent {
        self.find(disk, tag).await.unwrap()
    }

    async fn find(&self, disk: usize, tag: u64) -> Option<Extent> {
        let extent = Extent::new(0, self.disks[disk].capabilities().capacity.0);
        let content = self.disks[disk].submit(Request::Read { extent }).await.unwrap();
        let wanted = Payload::tags(tag, Sectors(1));
        let is_it = |at: &u64| content.slice(Sectors(*at), Sectors(1)) == wanted;
        let start = (FIRST_SEGMENT..extent.len.0).find(is_it)?;
        Some(Extent::new(start, PIECE.0))
    }

    async fn spoil(&self, disk: usize, extent: Extent) {
        let write = Request::write_fua(extent, Payload::tags(1 << 40, extent.len));
        self.disks[disk].submit(write).await.unwrap();
    }

    async fn is_spoilt(&self, disk: usize, extent: Extent) -> bool {
        let read = self.disks[disk].submit(Request::Read { extent }).await.unwrap();
        read == Payload::tags(1 << 40, extent.len)
    }
}

/// A tag that no other version of the piece has.
const fn tag(version: u64, piece: u64) -> u64 {
    (version << 20) + (piece << 8)
}

async fn fill(chain: &Chain, version: u64) {
    for piece in 0..PIECES {
        write(chain, piece, tag(version, 0)).await;
    }
}

/// The pieces that read as something else than this version, or not at all.
async fn wrong(chain: &Chain, version: u64) -> Vec<u64> {
    let mut wrong = Vec::new();
    for piece in 0..PIECES {
        if !holds(chain, piece, tag(version, 0)).await {
            wrong.push(piece);
        }
    }
    wrong
}

fn current(chain: &Chain) -> usize {
    let is_current = |half: &HalfState| matches!(half.standing, Standing::Current(_));
    chain.halves().iter().filter(|half| is_current(half)).count()
}

/// Progress of the copy; `None` if no drive joins.
fn copied(chain: &Chain) -> Option<Copied> {
    chain.halves().iter().find_map(|half| match half.standing {
        Standing::Joining(copied) => Some(copied.unwrap_or_default()),
        _ => None,
    })
}

#[test]
fn an_opening_settles_nothing_after_a_close_and_little_after_a_crash() {
    in_virtual_time(|world| async move {
        let chain = created(&world).await;
        fill(&chain, 1).await;
        chain.close().await.unwrap();
        let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
        assert_eq!(chain.figures().settled, Sectors(0), "the chain was closed in order");
        assert_eq!(wrong(&chain, 1).await, []);
        fill(&chain, 2).await;
        let world = world.crashed();
        let chain = world.open(&[3, 2, 1, 0]).await.unwrap();
        assert_eq!(wrong(&chain, 2).await, []);
        let settled = chain.figures().settled;
        // Each of more than 70 full segments would add its first record and its last one.
        let all = Sectors(70 * 2 * PIECE.0);
        assert!(settled.0 > 0 && settled.0 < all.0 / 2, "{settled:?} were settled");
    });
}

#[test]
fn a_copy_goes_on_after_a_crash_but_not_if_the_drive_was_away() {
    in_virtual_time(|world| async move {
        let chain = created(&world).await;
        fill(&chain, 1).await;
        let (joining, spare) = (chain.clone(), device(&world.disks[4]));
        world.user.spawn(async move {
            // It never ends: the crash comes before.
            let _ = joining.replace((0, 1), (spare, 4)).await;
        });
        while copied(&chain).is_none_or(|copied| copied.done < 15) {
            world.user.sleep(Nanos::from_micros(100)).await;
        }
        let world = world.crashed();
        let chain = world.open(&[0, 1, 2, 3, 4]).await.unwrap();
        let resumed = first_progress(&world, &chain).await;
        assert!(resumed.done >= 12, "{resumed:?} was noted before the crash");
        // The drive misses what is written now.
        let world = world.crashed();
        let away = world.open(&[0, 1, 2, 3]).await.unwrap();
        fill(&away, 2).await;
        let world = world.crashed();
        let chain = world.open(&[0, 1, 2, 3, 4]).await.unwrap();
        let resumed = first_progress(&world, &chain).await;
        assert!(resumed.done < 5, "{resumed:?} is believed of a drive that missed an opening");
        while copied(&chain).is_some() {
            world.user.sleep(Nanos::from_millis(1)).await;
        }
        assert_eq!(current(&chain), 4);
        // The drive has everything by itself.
        let world = world.crashed();
        let chain = world.open(&[4, 2]).await.unwrap();
        assert_eq!(wrong(&chain, 2).await, []);
    });
}

/// The progress of the copy when it has copied something since the opening.
async fn first_progress(world: &World, chain: &Chain) -> Copied {
    loop {
        match copied(chain) {
            Some(copied) if copied.done > 0 => return copied,
            Some(_) => world.user.sleep(Nanos::from_micros(50)).await,
            None => return Copied::default(),
        }
    }
}

/// Pieces of which alternately one half or the other is spoilt, and where they lie.
const SPOILT: u64 = 24;

async fn spoil_alternately(world: &World, version: u64) -> Vec<(usize, Extent)> {
    let mut spoilt = Vec::new();
    for piece in 0..SPOILT {
        // The first pieces lie on the first link: its halves are the drives 0 and 1.
        let half = to_usize(piece % 2);
        let place = world.place_of(half, tag(version, piece)).await;
        world.spoil(half, place).await;
        spoilt.push((half, place));
    }
    spoilt
}

async fn mended(world: &World, spoilt: &[(usize, Extent)]) -> usize {
    let mut mended = 0;
    for (half, place) in spoilt {
        mended += usize::from(!world.is_spoilt(*half, *place).await);
    }
    mended
}

#[test]
fn what_one_half_returns_damaged_is_read_from_the_other_and_mended() {
    in_virtual_time(|world| async move {
        let chain = created(&world).await;
        fill(&chain, 1).await;
        let spoilt = spoil_alternately(&world, 1).await;
        assert_eq!(wrong(&chain, 1).await, []);
        // Each piece is read from one half; those that the other half spoilt are not noticed.
        let mended = mended(&world, &spoilt).await;
        assert!(mended >= to_usize(SPOILT / 4), "{mended} of {SPOILT} pieces are mended");
        assert_eq!(current(&chain), 4, "no half left");
    });
}

#[test]
fn a_scrub_mends_both_halves_and_tells_what_is_lost() {
    in_virtual_time(|world| async move {
        let chain = created(&world).await;
        fill(&chain, 1).await;
        let spoilt = spoil_alternately(&world, 1).await;
        let scrubbed = chain.scrub(|_, _| {}).await.unwrap();
        assert_eq!(mended(&world, &spoilt).await, to_usize(SPOILT));
        assert_eq!((scrubbed.mended, scrubbed.damaged), (SPOILT, vec![]));
        assert!(scrubbed.read.0 >= PIECES * PIECE.0);
        let lost = PIECES - 1;
        for half in 0..4 {
            if let Some(place) = world.find(half, tag(1, lost)).await {
                world.spoil(half, place).await;
            }
        }
        let scrubbed = chain.scrub(|_, _| {}).await.unwrap();
        assert_eq!(scrubbed.damaged, [Extent::new(PIECE.0 * lost, PIECE.0)]);
    });
}

/// One half has lost the content of a piece, and the other one the header of a record beside it.
#[test]
fn what_has_no_checksum_is_not_mended_from_another_half() {
    in_virtual_time(|world| async move {
        let chain = created(&world).await;
        fill(&chain, 1).await;
        let content = world.place_of(0, tag(1, 2)).await;
        let beside = world.place_of(1, tag(1, 3)).await;
        let header = Extent::new(beside.start.0 - 8, 8);
        world.spoil(0, content).await;
        world.spoil(1, header).await;
        assert_eq!(chain.scrub(|_, _| {}).await.unwrap().mended, 1);
        assert!(!world.is_spoilt(0, content).await, "the content is mended");
        assert!(!world.is_spoilt(0, header).await, "the only whole header is overwritten");
    });
}

#[test]
fn bad_sectors_are_read_from_the_other_half_and_written_anew() {
    in_virtual_time(|world| async move {
        let chain = created(&world).await;
        fill(&chain, 1).await;
        let mut places = Vec::new();
        for half in 0..2 {
            places.push(world.place_of(half, tag(1, half as u64)).await);
        }
        for (half, place) in places.iter().copied().enumerate() {
            let mut is_bad = true;
            world.disks[half].fail_requests(Box::new(move |request| match request {
                Request::Read { extent } if is_bad && extent.overlaps(place) => {
                    Some(IoError::Medium { extent: place })
                }
                Request::Write { extent, .. } if extent.overlaps(place) => {
                    is_bad = false;
                    None
                }
                _ => None,
            }));
        }
        assert_eq!(wrong(&chain, 1).await, []);
        // One of the two was read from the half that could not read it.
        let mut mended = 0;
        for (half, extent) in places.into_iter().enumerate() {
            let read = world.disks[half].submit(Request::Read { extent }).await;
            mended += u32::from(read.is_ok());
        }
        assert!(mended > 0, "no bad sector was written anew");
        assert_eq!(current(&chain), 4, "a medium error makes no half leave");
    });
}

#[test]
fn a_half_that_cannot_be_mended_leaves() {
    in_virtual_time(|world| async move {
        let chain = created(&world).await;
        fill(&chain, 1).await;
        spoil_alternately(&world, 1).await;
        for half in 0..2 {
            world.disks[half].fail_requests(Box::new(|request| match request {
                // Labels can be written.
                Request::Write { extent, .. } if SEGMENTS.contains(&extent.start.0) => {
                    Some(IoError::Medium { extent: *extent })
                }
                _ => None,
            }));
        }
        let wrong = wrong(&chain, 1).await;
        assert_eq!(current(&chain), 3, "one half failed to be mended");
        // What the half that stayed has lost is lost now, and reads of it fail.
        assert!(wrong.len() <= to_usize(SPOILT / 2), "{wrong:?}");
    });
}

#[test]
fn an_opening_mends_what_a_half_has_lost() {
    for before in [0, 1] {
        in_virtual_time(move |mut world| async move {
            // With summaries an opening does not read the records.
            world.summaries = false;
            let chain = created(&world).await;
            fill(&chain, 1).await;
            chain.close().await.unwrap();
            // The payload of a record, or its header: without that it is unknown what was there.
            let place = world.place_of(0, tag(1, 3)).await;
            let start = place.start.0 - before * 8;
            world.spoil(0, Extent::new(start, 8)).await;
            let chain = world.open(&[0, 1, 2, 3]).await.unwrap();
            assert_eq!(wrong(&chain, 1).await, []);
            chain.close().await.unwrap();
            let chain = world.open(&[0, 2]).await.unwrap();
            assert_eq!(wrong(&chain, 1).await, [], "the half was mended");
        });
    }
}

#[cfg(feature = "plant")]
#[test]
fn planted_bugs_are_noticed() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use manylogs_plant::{Bug, plant};

    let cases: [(Bug, fn()); 5] = [
        (Bug::UncheckedPartsMended, what_has_no_checksum_is_not_mended_from_another_half),
        (Bug::OtherCopyNotAsked, what_one_half_returns_damaged_is_read_from_the_other_and_mended),
        (Bug::DamageNotMended, what_one_half_returns_damaged_is_read_from_the_other_and_mended),
        (Bug::OpeningMendsNothing, an_opening_mends_what_a_half_has_lost),
        (Bug::AbsentHalfGoesOn, a_copy_goes_on_after_a_crash_but_not_if_the_drive_was_away),
    ];
    for (bug, case) in cases {
        plant(Some(bug));
        let noticed = catch_unwind(AssertUnwindSafe(case)).is_err();
        plant(None);
        assert!(noticed, "{bug:?} is not noticed");
    }
}
