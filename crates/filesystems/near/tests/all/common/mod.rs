//! A mounted image in virtual time.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::rc::Rc;

use manylogs::{Anchors, OpenOptions};
use manylogs_block::{BlockDevice, Handle};
use manylogs_ext4::{Ext4, FileKind, Ino, New};
use manylogs_ext4check::check;
use manylogs_filters::{Stop, Trace};
use manylogs_near::{Granularity, Near, NearOptions};
#[cfg(feature = "plant")]
use manylogs_plant::{Bug, plant};
use manylogs_sim::DiskImage;
use manylogs_torture::ext4::{
    ImageSource, Images, SMALL_MIB, Templates, World, has_program, options,
};

pub(crate) type Disk = Rc<Trace<Stop<Rc<dyn BlockDevice>>>>;

pub(crate) fn images() -> Option<Images> {
    if ["mkfs.ext4", "debugfs"].into_iter().all(has_program) {
        return Some(Templates::make().unwrap().images().unwrap());
    }
    manylogs_testkit::skip("needs mkfs.ext4 and debugfs");
    None
}

/// Mounts an image, calls `work` and drains the file system. Checks that it is a plain ext4 without
/// errors.
pub(crate) fn with<F: Future>(
    images: &Images,
    granularity: Granularity,
    work: impl FnOnce(Rc<Near>, Disk, Handle) -> F + 'static,
) -> F::Output
where
    F::Output: 'static,
{
    let (image, anchors) = images.near(0);
    let (done, settled) = on(image, anchors, granularity, async |near, disk, runtime| {
        let near = Rc::new(near);
        let done = work(Rc::clone(&near), disk, runtime).await;
        Rc::try_unwrap(near).unwrap().drain().await.unwrap();
        done
    });
    let report = check(&ImageSource::new(&settled, SMALL_MIB)).unwrap();
    assert!(report.is_spotless(), "{:?}", report.findings);
    done
}

/// Mounts an image and calls `work`, which leaves it. Returns the disk's content as well.
pub(crate) fn on<T: 'static>(
    image: &DiskImage,
    anchors: Anchors,
    granularity: Granularity,
    work: impl AsyncFnOnce(Near, Disk, Handle) -> T + 'static,
) -> (T, DiskImage) {
    on_with(image, anchors, NearOptions { granularity, ..NearOptions::default() }, work)
}

/// As [`on`], with other options; the anchors are added.
pub(crate) fn on_with<T: 'static>(
    image: &DiskImage,
    anchors: Anchors,
    near: NearOptions,
    work: impl AsyncFnOnce(Near, Disk, Handle) -> T + 'static,
) -> (T, DiskImage) {
    let world = World::new(2, SMALL_MIB, image.clone());
    let below: Rc<dyn BlockDevice> = Rc::new(world.disk.clone());
    let disk = Rc::new(Trace::new(Stop::new(below)));
    let runtime = world.runtime();
    let open = OpenOptions { anchors: Some(anchors), ..near.open };
    let near = NearOptions { open, ..near };
    let done = world.sim.block_on(world.user, async move {
        let device = Rc::clone(&disk) as Rc<dyn BlockDevice>;
        let mounted = Near::mount(runtime.clone(), device, &near, options(runtime.clone())).await;
        work(mounted.unwrap().0, disk, runtime).await
    });
    (done, world.settled())
}

pub(crate) async fn file(fs: &Ext4, name: &[u8]) -> Ino {
    let ino = fs.create(Ino::ROOT, name, New::plain(FileKind::File, 0o644)).await.unwrap().ino;
    fs.sync(ino).await.unwrap();
    ino
}

/// A case, and what went wrong in it, if anything did.
pub(crate) type Case = fn(&Images) -> Option<&'static str>;

/// Nothing goes wrong in any of `cases`.
pub(crate) fn all_hold(cases: &[Case]) {
    let Some(images) = images() else { return };
    for (number, case) in cases.iter().enumerate() {
        assert_eq!(case(&images), None, "case {number}");
    }
}

/// Each of `bugs` is noticed by the case with its number.
#[cfg(feature = "plant")]
pub(crate) fn all_are_noticed(bugs: &[Bug], cases: &[Case]) {
    let Some(images) = images() else { return };
    assert_eq!(bugs.len(), cases.len());
    for (bug, case) in bugs.iter().zip(cases) {
        plant(Some(*bug));
        let noticed = case(&images);
        plant(None);
        assert!(noticed.is_some(), "{bug:?} is not noticed");
    }
}
