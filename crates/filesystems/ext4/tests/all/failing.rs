//! A device that fails now and then: nothing hangs, errors are reported, and the file system stays
//! consistent.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Judged, SMALL, SMALL_MIB, World, content, mkfs, mount};
use manylogs_block::{Extent, IoError, Request, Rng, to_usize};
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};
use manylogs_sim::Survival;

/// Runs, each with its own seed.
const RUNS: u64 = 60;
const STEPS: u64 = 300;

/// Creates, writes and removes files. Returns how many operations failed.
async fn work(fs: &Ext4, seed: u64) -> u64 {
    let (mut rng, mut files, mut failed) = (Rng::new(seed), Vec::new(), 0);
    for step in 0..STEPS {
        let picked = to_usize(rng.below(files.len().max(1) as u64));
        let done: Result<(), Error> = match (rng.below(6), files.get(picked).copied()) {
            (0, _) | (_, None) => {
                let (name, new) = (step.to_string(), New::plain(FileKind::File, 0o600));
                let made = fs.create(Ino::ROOT, name.as_bytes(), new).await;
                made.map(|made| files.push((step, made.ino)))
            }
            (1, Some((name, _))) => {
                files.swap_remove(picked);
                fs.unlink(Ino::ROOT, name.to_string().as_bytes()).await
            }
            (2, Some((_, ino))) => fs.sync(ino).await,
            (3, Some((_, ino))) => fs.read(ino, 0, 100_000).await.map(drop),
            (_, Some((_, ino))) => {
                let bytes = content(step, to_usize(1 + rng.below(30_000)));
                fs.write(ino, rng.below(100_000), bytes).await
            }
        };
        failed += u64::from(done.is_err());
    }
    failed
}

#[test]
fn a_failing_device_leaves_a_file_system() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let (mut failed, mut aborted) = (0, 0);
    for seed in 0..RUNS {
        let world = World::new(seed, SMALL_MIB, image.clone());
        let (mut rng, armed) = (Rng::new(seed), Rc::new(Cell::new(false)));
        let is_armed = Rc::clone(&armed);
        let one_in = 20 + 60 * (seed % 10);
        world.disk.fail_requests(Box::new(move |request| {
            let extent = request.extent().unwrap_or(Extent::new(0, 1));
            let fails = is_armed.get() && rng.one_in(one_in);
            fails.then_some(match request {
                Request::Flush => IoError::FlushFailed,
                _ => IoError::Transient { extent },
            })
        }));
        let mounting = mount(Rc::new(world.disk.clone()), world.runtime());
        let ended = world.sim.block_on(world.user, async move {
            let fs = mounting.await.unwrap();
            armed.set(true);
            let failed = work(&fs, seed).await;
            (failed, fs.unmount().await.is_err())
        });
        failed += ended.0;
        aborted += u64::from(ended.1);
        let mut rng = Rng::new(seed);
        let left = world.disk.after_power_cut(Survival::Random, &mut rng);
        let again = World::new(seed + 1, SMALL_MIB, left);
        let unmounted = again.run(async |fs| fs.unmount().await);
        assert_eq!(unmounted, Ok(Ok(())), "seed {seed}");
        again.check();
    }
    println!("{RUNS} runs, {failed} operations failed, {aborted} file systems became read-only");
    assert!(failed > 0 && aborted > 0);
}

/// Content that could not be written is lost, and the unmount reports it.
#[test]
fn an_unmount_that_loses_content_fails() {
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    world.disk.fail_requests(Box::new(|request| {
        let Request::Write { extent, payload, .. } = request else { return None };
        let fails = payload.to_bytes()?.starts_with(&content(1, 4096)[..512]);
        fails.then_some(IoError::Transient { extent: *extent })
    }));
    let unmounted = world.run(async |fs: Ext4| {
        let ino = fs.create(Ino::ROOT, b"file", New::plain(FileKind::File, 0o600)).await?.ino;
        fs.write(ino, 0, content(1, 4096)).await?;
        fs.unmount().await
    });
    assert!(matches!(unmounted, Ok(Err(Error::Io(_)))), "{unmounted:?}");
}
