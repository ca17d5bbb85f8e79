//! Files that replace others, with the journal near the head: after a crash none is empty.

use std::rc::Rc;

use crate::common::images;
use manylogs::OpenOptions;
use manylogs_block::Rng;
use manylogs_ext4::{Change, Ext4, FileKind, Ino, New, Taken};
use manylogs_near::{Near, NearOptions};
use manylogs_sim::{DiskImage, Survival};
use manylogs_torture::ext4::{Images, SMALL_MIB, World, content, options};

/// Mounts a disk, runs `work`, and returns what a power cut then leaves of the disk.
fn after_power_cut<F: Future<Output = ()> + 'static>(
    images: &Images,
    image: &DiskImage,
    work: impl FnOnce(Ext4) -> F + 'static,
) -> DiskImage {
    let world = World::new(1, SMALL_MIB, image.clone());
    let (device, runtime) = (Rc::new(world.disk.clone()), world.runtime());
    let open = OpenOptions { anchors: Some(images.near(0).1), ..OpenOptions::default() };
    world.sim.block_on(world.user, async move {
        let options = options(runtime.clone());
        let near = NearOptions { open, ..NearOptions::default() };
        let (near, _) = Near::mount(runtime, device, &near, options).await.unwrap();
        work(near.fs().clone()).await;
    });
    world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1))
}

async fn file(fs: &Ext4, name: &[u8], content: Vec<u8>) -> Ino {
    let ino = fs.create(Ino::ROOT, name, New::plain(FileKind::File, 0o644)).await.unwrap().ino;
    fs.write(ino, 0, content).await.unwrap();
    ino
}

/// Lengths of content that goes into records, and of content that goes home.
const LENGTHS: [usize; 3] = [3, 30_000, 700_000];

fn nothing_is_empty() {
    let Some(images) = images() else { return };
    let (image, _) = images.near(0);
    for len in LENGTHS {
        let left = after_power_cut(&images, image, move |fs| async move {
            file(&fs, b"renamed", content(1, 5000)).await;
            let saved = file(&fs, b"saved", content(1, 5000)).await;
            fs.sync_all().await.unwrap();
            file(&fs, b"new", content(2, len)).await;
            let (from, to) = ((Ino::ROOT, &b"new"[..]), (Ino::ROOT, &b"renamed"[..]));
            fs.rename(from, to, Taken::Replaced).await.unwrap();
            let opened = fs.new_descriptor();
            fs.change(saved, Change { size: Some(0), ..Change::default() }).await.unwrap();
            fs.write(saved, 0, content(3, len)).await.unwrap();
            fs.close_opened(saved, opened).await.unwrap();
            let other = file(&fs, b"other", Vec::new()).await;
            fs.sync(other).await.unwrap();
        });
        after_power_cut(&images, &left, move |fs| async move {
            for (name, seed) in [(&b"renamed"[..], 2), (b"saved", 3)] {
                let ino = fs.lookup(Ino::ROOT, name).await.unwrap().ino;
                let found = fs.read(ino, 0, 1 << 20).await.unwrap();
                assert!(found == content(seed, len), "{seed}: {} of {len}", found.len());
            }
        });
    }
}

#[test]
fn a_file_that_replaces_another_is_not_found_empty() {
    nothing_is_empty();
}

#[cfg(feature = "plant")]
#[test]
fn bugs_of_replacing_are_noticed() {
    use manylogs_plant::{Bug, plant};
    if images().is_none() {
        return;
    }
    for bug in [Bug::Ext4RenameLeavesData, Bug::Ext4CloseLeavesData] {
        plant(Some(bug));
        let caught = std::panic::catch_unwind(nothing_is_empty).is_err();
        plant(None);
        assert!(caught, "{bug:?} is not noticed");
    }
}
