//! Compares a volume's answers about its extents with the content that reads find.

use std::rc::Rc;

use crate::common::{DEVICE, bytes, config, in_virtual_time, low_byte, read, write};
use manylogs::{OpenOptions, Volume};
use manylogs_block::{
    BlockDevice, Extent, ExtentKind, Extents, IoError, MemoryDevice, Request, Rng,
};

/// All extents of the volume, from as many answers as it takes.
async fn all_extents(volume: &Volume) -> Extents {
    let capacity = volume.capabilities().capacity;
    let whole = Extent { len: capacity, ..Extent::default() };
    let mut all = Extents::default();
    let mut next = whole.start;
    while next < whole.end() {
        let known = volume.extents(Extent::between(next, whole.end())).await.unwrap();
        assert!(!known.whole().is_empty() && known.whole().start == next, "{known:?}");
        known.iter().for_each(|(extent, kind)| all.push(extent, kind));
        next = known.whole().end();
    }
    all
}

fn kind_at(extents: &Extents, sector: u64) -> ExtentKind {
    extents.iter().find(|(extent, _)| extent.range().contains(&sector)).unwrap().1
}

#[test]
fn home_log_buffer_and_zeroes_are_told_apart() {
    in_virtual_time(|runtime| async move {
        let device = Rc::new(MemoryDevice::new(DEVICE));
        let volume = Volume::create(runtime, device, &config()).await.unwrap();
        volume.submit(write(3500, &bytes(1, 200), true)).await.unwrap();
        volume.submit(write(3510, &bytes(2, 8), true)).await.unwrap();
        volume.submit(write(3520, &bytes(3, 8), false)).await.unwrap();
        let discard = Request::Discard { extent: Extent::new(3600, 20), fua: false };
        volume.submit(discard).await.unwrap();
        for round in ["buffered", "logged"] {
            let known = volume.extents(Extent::new(3490, 220)).await.unwrap();
            let kinds = [3490, 3500, 3510, 3520, 3610, 3700].map(|at| kind_at(&known, at));
            use ExtentKind::{Data, Hole, Logged};
            assert_eq!(kinds, [Hole, Data, Logged, Logged, Hole, Hole], "{round}");
            volume.submit(Request::Flush).await.unwrap();
        }
        volume.checkpoint().await.unwrap();
        let known = volume.extents(Extent::new(3490, 220)).await.unwrap();
        assert_eq!(kind_at(&known, 3510), ExtentKind::Data, "it is home");
        assert_eq!(kind_at(&known, 3610), ExtentKind::Hole, "and so is the hole");
        let refused = volume.extents(Extent::new(volume.capabilities().capacity.0, 1)).await;
        assert!(matches!(refused, Err(IoError::OutOfRange { .. })));
        volume.close().await.unwrap();
        assert_eq!(volume.extents(Extent::new(3600, 20)).await, Err(IoError::Gone));
    });
}

#[test]
fn what_is_said_to_be_zeroes_reads_as_zeroes_whatever_was_done() {
    for seed in 0..8 {
        in_virtual_time(move |runtime| async move {
            let device = Rc::new(MemoryDevice::new(DEVICE));
            let volume = Volume::create(runtime, device, &config()).await.unwrap();
            let capacity = volume.capabilities().capacity.0;
            let mut rng = Rng::new(seed);
            for step in 0..300 {
                let longest = if rng.one_in(3) { 600 } else { 20 };
                let len = 1 + rng.below(longest);
                let start = rng.below(capacity - len);
                let (extent, fua) = (Extent::new(start, len), rng.one_in(2));
                match rng.below(20) {
                    0..10 => volume.submit(write(start, &bytes(low_byte(step), len), fua)).await,
                    10..13 => volume.submit(Request::Discard { extent, fua }).await,
                    13..16 => {
                        let if_fast = rng.one_in(2);
                        volume.submit(Request::WriteZeroes { extent, fua, if_fast }).await
                    }
                    16 => {
                        volume.checkpoint().await.map(|_| <_>::default()).map_err(|_| IoError::Gone)
                    }
                    _ => volume.submit(Request::Flush).await,
                }
                .unwrap();
                if rng.one_in(30) {
                    check(&volume).await;
                }
            }
            check(&volume).await;
        });
    }
}

/// Reads everything: extents that are called zeroes must be zero, and the table must agree on
/// logged ones.
async fn check(volume: &Volume) {
    let all = all_extents(volume).await;
    for (extent, kind) in all.iter() {
        let found = volume.submit(Request::Read { extent }).await.unwrap();
        assert!(!kind.reads_as_zeroes() || found.is_zero(), "{extent} is said to be {kind:?}");
    }
    for mapped in volume.table() {
        let wanted = if mapped.zeroes { ExtentKind::Hole } else { ExtentKind::Logged };
        let (first, last) = (mapped.extent.start.0, mapped.extent.end().0 - 1);
        assert_eq!([first, last].map(|at| kind_at(&all, at)), [wanted; 2], "{mapped:?}");
    }
}

#[test]
fn a_durable_discard_outlives_the_process() {
    in_virtual_time(|runtime| async move {
        let device = Rc::new(MemoryDevice::new(DEVICE));
        let volume = Volume::create(runtime.clone(), device.clone(), &config()).await.unwrap();
        volume.submit(write(100, &bytes(1, 8), true)).await.unwrap();
        volume.submit(Request::Discard { extent: Extent::new(100, 8), fua: true }).await.unwrap();
        // The process ends here and loses its memory.
        drop(volume);
        let (volume, _) = Volume::open(runtime, device, &OpenOptions::default()).await.unwrap();
        assert!(volume.submit(read(100, 8)).await.unwrap().is_zero());
    });
}
