//! What a commit costs: records, flushes and bytes.

use crate::common::{Disk, file, images, with};
use manylogs_block::RequestKind;
use manylogs_ext4::{FileKind, Ino, New};
use manylogs_near::{Granularity, Near};
use manylogs_torture::ext4::content;

/// Syncs that are counted.
const SYNCS: u64 = 100;

/// The mean cost of a sync.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    records: f64,
    /// Flushes that a sync waits for.
    flushes: f64,
    /// Write requests of all kinds of work.
    writes: f64,
    /// Bytes of records, headers and padding included.
    bytes: f64,
}

/// The mean cost of a `step`, over [`SYNCS`] turns.
async fn cost<F: Future<Output = ()>>(near: &Near, disk: &Disk, step: impl Fn(u64) -> F) -> Cost {
    let counts = || {
        let stats = near.volume().stats();
        let of = |kind| disk.count(kind).requests;
        [
            stats.records,
            near.fs().journal_stats().flushes,
            of(RequestKind::Write),
            stats.record_bytes,
        ]
    };
    // The first step opens the log and reads blocks of metadata.
    step(0).await;
    let before = counts();
    for turn in 1..=SYNCS {
        step(turn).await;
    }
    let after = counts();
    let mean = |at: usize| (after[at] - before[at]) as f64 / SYNCS as f64;
    Cost { records: mean(0), flushes: mean(1), writes: mean(2), bytes: mean(3) }
}

/// Prints the figures of docs/mlfs.md.
#[test]
fn a_small_sync_is_one_record_and_no_flush() {
    let Some(images) = images() else { return };
    for granularity in [Granularity::Sectors, Granularity::Blocks] {
        with(&images, granularity, async move |near, disk, _| {
            let fs = near.fs();
            let ino = file(fs, b"file").await;
            let append = cost(&near, &disk, async |turn| {
                fs.write(ino, turn * 4096, content(turn, 4096)).await.unwrap();
                fs.sync(ino).await.unwrap();
            });
            let append = append.await;
            let overwrite = cost(&near, &disk, async |turn| {
                fs.write(ino, turn % 50 * 4096, content(turn + 1000, 4096)).await.unwrap();
                fs.sync(ino).await.unwrap();
            });
            let overwrite = overwrite.await;
            let content_only = cost(&near, &disk, async |turn| {
                fs.write(ino, turn % 50 * 4096, content(turn + 2000, 4096)).await.unwrap();
                fs.sync_content(ino).await.unwrap();
            });
            let content_only = content_only.await;
            let create = cost(&near, &disk, async |turn| {
                let name = format!("new {turn}");
                let new = New::plain(FileKind::File, 0o644);
                let ino = fs.create(Ino::ROOT, name.as_bytes(), new).await.unwrap().ino;
                fs.write(ino, 0, content(turn, 4096)).await.unwrap();
                fs.sync(ino).await.unwrap();
            });
            let create = create.await;
            println!("{granularity:?}: append {append:?}");
            println!("{granularity:?}: overwrite {overwrite:?}");
            println!("{granularity:?}: overwrite, content only {content_only:?}");
            println!("{granularity:?}: create {create:?}");
            for cost in [append, overwrite, content_only, create] {
                assert_eq!((cost.records, cost.flushes), (1.0, 0.0));
                // Now and then the root is written to open the next logs, or full logs are emptied.
                assert!(cost.writes <= 1.2, "{} writes", cost.writes);
            }
            // A header and the content, in whole physical sectors of 4096 bytes.
            assert_eq!(content_only.bytes, 8192.0);
            if granularity == Granularity::Sectors {
                assert!(append.bytes <= 8200.0 && overwrite.bytes <= 8200.0);
            }
        });
    }
}

#[test]
fn syncs_at_the_same_time_share_a_record() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, disk, _| {
        let fs = near.fs();
        let mut files = Vec::new();
        for name in 0..8 {
            files.push(file(fs, format!("file {name}").as_bytes()).await);
        }
        for (number, ino) in (0..).zip(&files) {
            fs.write(*ino, 0, content(number, 4096)).await.unwrap();
        }
        let before = near.volume().stats().records;
        let syncs: Vec<_> = files.iter().map(|ino| fs.sync(*ino)).collect();
        let mut syncs: Vec<_> = syncs.into_iter().map(Box::pin).collect();
        std::future::poll_fn(|cx| {
            syncs.retain_mut(|sync| sync.as_mut().poll(cx).is_pending());
            if syncs.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        let records = near.volume().stats().records - before;
        println!(
            "8 syncs: {records} records, {} transactions",
            near.fs().journal_stats().transactions
        );
        assert!(records <= 3, "{records} records");
        assert_eq!(disk.count(RequestKind::Flush).requests, near.fs().journal_stats().flushes + 1);
    });
}

#[test]
fn long_runs_go_home_and_are_flushed_before_their_record() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, disk, _| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        let (flushes, home) = (disk.count(RequestKind::Flush).requests, near.volume().stats());
        fs.write(ino, 0, content(1, 300_000)).await.unwrap();
        fs.sync(ino).await.unwrap();
        let now = near.volume().stats();
        assert!(now.bypassed_writes > home.bypassed_writes);
        assert_eq!(now.records, home.records + 1);
        assert_eq!(disk.count(RequestKind::Flush).requests, flushes + 1);
        assert!(now.record_bytes - home.record_bytes <= 16_384);
        // A short run over it is logged, and a long one over that goes home again.
        fs.write(ino, 4096, content(2, 4096)).await.unwrap();
        fs.sync(ino).await.unwrap();
        assert_eq!(fs.read(ino, 4096, 4096).await.unwrap(), content(2, 4096));
        fs.write(ino, 0, content(3, 300_000)).await.unwrap();
        assert_eq!(fs.read(ino, 0, 300_000).await.unwrap(), content(3, 300_000));
        fs.sync(ino).await.unwrap();
        assert_eq!(fs.read(ino, 0, 300_000).await.unwrap(), content(3, 300_000));
    });
}

#[test]
fn the_threshold_and_the_logging_are_those_that_are_set() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, _, _| {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        // The file gets one run of blocks.
        fs.write(ino, 0, content(0, 200_000)).await.unwrap();
        fs.sync(ino).await.unwrap();
        for (number, (setting, len, goes_home)) in (1..).zip([
            ("threshold=32K", 32_768, false),
            ("threshold=32K", 36_864, true),
            ("threshold=128K", 36_864, false),
            ("threshold=128K", 131_072, false),
            ("threshold=128K", 135_168, true),
            ("logging=off", 4096, true),
            ("logging=on", 4096, false),
        ]) {
            let mut settings = near.volume().settings();
            settings.assign(setting).unwrap();
            near.volume().set(&settings).await.unwrap();
            let before = near.volume().stats().bypassed_writes;
            fs.write(ino, 0, content(number, len)).await.unwrap();
            fs.sync(ino).await.unwrap();
            let home = near.volume().stats().bypassed_writes > before;
            assert_eq!(home, goes_home, "{len} bytes with {setting}");
            assert_eq!(fs.read(ino, 0, len).await.unwrap(), content(number, len));
        }
    });
}
