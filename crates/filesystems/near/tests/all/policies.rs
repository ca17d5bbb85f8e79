//! When logged versions go home and when a log is moved, below a mounted file system, and what the
//! counters of `fs status` show of it.

use std::rc::Rc;

use crate::common::{file, images, with};
use manylogs_block::{Handle, Nanos, to_usize};
use manylogs_ext4::{Ino, SinkStats};
use manylogs_near::{Granularity, Near};
use manylogs_torture::ext4::content;

const PAGE: u64 = 4096;
/// Most records of the file's times in one test.
const TIMES_MOST: u64 = 4;

const fn minutes(count: u64) -> Nanos {
    Nanos::from_secs(60 * count)
}

const fn hours(count: u64) -> Nanos {
    minutes(60 * count)
}

/// A file of a number of pages whose content is known.
struct File {
    near: Rc<Near>,
    ino: Ino,
    pages: Vec<u64>,
}

impl File {
    /// Makes a file whose content is at home, then applies `settings` and overwrites each page.
    async fn made(near: &Rc<Near>, pages: u64, settings: &str) -> Self {
        let fs = near.fs();
        let ino = file(fs, b"file").await;
        fs.write(ino, 0, content(0, to_usize(pages * PAGE))).await.unwrap();
        fs.sync_all().await.unwrap();
        set(near, "checkpoint=full").await;
        near.volume().checkpoint().await.unwrap();
        set(near, settings).await;
        let mut this = Self { near: Rc::clone(near), ino, pages: vec![0; to_usize(pages)] };
        for page in 0..pages {
            this.overwrite(page, page + 1).await;
        }
        this
    }

    /// Overwrites a page, durably.
    async fn overwrite(&mut self, page: u64, seed: u64) {
        let fs = self.near.fs();
        fs.write(self.ino, page * PAGE, content(seed, to_usize(PAGE))).await.unwrap();
        fs.sync_content(self.ino).await.unwrap();
        self.pages[to_usize(page)] = seed;
    }

    async fn is_intact(&self) {
        for (page, seed) in (0..).zip(&self.pages) {
            let found = self.near.fs().read(self.ino, page * PAGE, to_usize(PAGE)).await.unwrap();
            assert_eq!(found, content(*seed, to_usize(PAGE)), "page {page}");
        }
    }
}

async fn set(near: &Near, pairs: &str) {
    let mut settings = near.volume().settings();
    pairs.split(' ').for_each(|pair| settings.assign(pair).unwrap());
    near.volume().set(&settings).await.unwrap();
}

fn stats(near: &Near) -> SinkStats {
    near.fs().journal_stats()
}

/// A checkpoint window of one hour that begins `hours` from now, as a setting.
fn window(clock: &Handle, hours: u64) -> String {
    let minutes = clock.time_of_day().seconds() / 60;
    let at = |hours: u64| {
        let minutes = (minutes + 60 * hours) % (24 * 60);
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    };
    format!("checkpoint={}-{}", at(hours), at(hours + 1))
}

/// Checks that everything is in the logs, one record for each sync, and nothing has gone home. The
/// file's times may follow in records of their own.
fn all_is_logged(near: &Near, before: SinkStats, syncs: u64) {
    let now = stats(near);
    assert!((syncs..=syncs + TIMES_MOST).contains(&(now.records - before.records)), "{now:?}");
    assert_eq!(now.flushes, before.flushes);
    assert!(now.log_bytes - before.log_bytes >= syncs * 2 * PAGE, "{now:?}");
    assert_eq!(now.home_bytes, before.home_bytes, "{now:?}");
}

/// Checks that all logged versions are at home.
fn all_is_home(near: &Near, before: SinkStats, pages: u64) {
    let now = stats(near);
    assert_eq!(now.at_risk_bytes, 0, "{now:?}");
    assert!(now.home_bytes - before.home_bytes >= pages * PAGE, "{now:?}");
}

#[test]
fn in_the_off_hours_what_is_logged_goes_home_and_not_before() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, _, clock: Handle| {
        let mut file = File::made(&near, 20, &window(&clock, 2)).await;
        let (before, begun) = (stats(&near), clock.now());
        for page in 0..20 {
            file.overwrite(page, 100 + page).await;
        }
        clock.sleep(hours(1)).await;
        all_is_logged(&near, before, 20);
        clock.sleep(minutes(62)).await;
        all_is_home(&near, before, 20);
        // Behind the window nothing goes home until it comes again.
        clock.sleep(hours(1)).await;
        let before = stats(&near);
        file.overwrite(3, 1000).await;
        all_is_logged(&near, before, 1);
        clock.sleep((begun + hours(25)).since(clock.now())).await;
        all_is_logged(&near, before, 1);
        clock.sleep(minutes(63)).await;
        all_is_home(&near, before, 1);
        file.is_intact().await;
    });
}

#[test]
fn every_ten_minutes_what_is_logged_goes_home() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, _, clock: Handle| {
        let mut file = File::made(&near, 20, "checkpoint=every:10min").await;
        for turn in 0..3 {
            // Waits for the next pass: there is none while nothing is logged.
            file.overwrite(10, 50 + turn).await;
            let passes = near.volume().stats().checkpoints;
            while near.volume().stats().checkpoints == passes {
                clock.sleep(Nanos::from_secs(1)).await;
            }
            assert_eq!(stats(&near).at_risk_bytes, 0);
            let before = stats(&near);
            file.overwrite(turn, 100 + turn).await;
            clock.sleep(minutes(9)).await;
            all_is_logged(&near, before, 1);
            clock.sleep(minutes(2)).await;
            all_is_home(&near, before, 1);
        }
        file.is_intact().await;
    });
}

#[test]
fn when_nobody_syncs_what_is_logged_goes_home() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, _, clock: Handle| {
        let mut file = File::made(&near, 20, "checkpoint=full idle=200ms").await;
        near.volume().checkpoint().await.unwrap();
        set(&near, "checkpoint=idle").await;
        let before = stats(&near);
        for turn in 0..100 {
            file.overwrite(turn % 20, 100 + turn).await;
            clock.sleep(Nanos::from_millis(50)).await;
        }
        all_is_logged(&near, before, 100);
        clock.sleep(Nanos::from_secs(5)).await;
        all_is_home(&near, before, 20);
        file.is_intact().await;
    });
}

#[test]
fn full_logs_are_emptied_while_syncs_go_on() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, _, clock: Handle| {
        let mut file = File::made(&near, 1200, "checkpoint=full").await;
        let logs: u64 = near.volume().layout().regions().iter().map(|log| log.len.bytes()).sum();
        let before = stats(&near);
        let mut turns = 0;
        while stats(&near).log_bytes - before.log_bytes < 3 * logs {
            file.overwrite(turns * 77 % 1200, 1000 + turns).await;
            turns += 1;
            assert!(stats(&near).at_risk_bytes < logs);
        }
        let now = stats(&near);
        assert!((turns..=turns + TIMES_MOST).contains(&(now.records - before.records)), "{now:?}");
        assert_eq!(now.flushes, before.flushes);
        assert!(near.volume().stats().checkpoints >= 2);
        assert!(now.home_bytes > before.home_bytes);
        file.is_intact().await;
        // While logs are not full, nothing goes home.
        clock.sleep(minutes(1)).await;
        let before = stats(&near);
        clock.sleep(hours(30)).await;
        assert_eq!(stats(&near).home_bytes, before.home_bytes);
    });
}

#[test]
fn a_full_log_moves_to_an_empty_one_when_nobody_syncs() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, _, clock: Handle| {
        // A log that is fuller than 30 % is moved.
        let mut file = File::made(&near, 100, "checkpoint=full swap=30%").await;
        let fullest = |near: &Near| {
            let logs = near.volume().log_occupancy();
            logs.iter().map(|log| log.used.0 as f64 / log.region.len.0 as f64).fold(0.0, f64::max)
        };
        let before = stats(&near);
        let mut turns = 0;
        while fullest(&near) < 0.35 {
            file.overwrite(turns % 100, 1000 + turns).await;
            turns += 1;
        }
        assert_eq!(near.volume().stats().log_swaps, 0);
        clock.sleep(minutes(1)).await;
        let volume = near.volume().stats();
        assert_eq!(volume.log_swaps, 1);
        assert!(fullest(&near) < 0.35);
        // A swap brings nothing home: logged versions stay logged.
        all_is_logged(&near, before, turns);
        file.is_intact().await;
        clock.sleep(hours(1)).await;
        assert_eq!(near.volume().stats().log_swaps, 1, "it would move to and fro");
    });
}

#[test]
fn a_limited_checkpoint_takes_its_time() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near, _, clock: Handle| {
        let file = File::made(&near, 128, "checkpoint=full checkpoint-rate=64K").await;
        let before = stats(&near);
        set(&near, "checkpoint=every:1s").await;
        let begun = clock.now();
        while stats(&near).at_risk_bytes > 0 {
            clock.sleep(Nanos::from_millis(100)).await;
        }
        all_is_home(&near, before, 128);
        // 512 KiB at 64 KiB a second; a part of it goes at once.
        let took = clock.now().since(begun);
        assert!((Nanos::from_secs(6)..Nanos::from_secs(14)).contains(&took), "{took:?}");
        file.is_intact().await;
    });
}
