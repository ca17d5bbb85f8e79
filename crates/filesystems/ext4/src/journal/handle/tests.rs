//! Handles that are dropped without being finished.

use manylogs_torture::ext4::{SMALL_MIB, SMALL_OPTIONS, World, has_program, mkfs};

use super::*;
use crate::ops::{Ext4, Options};
use crate::units::Timestamp;

/// The blocks that it would have freed are in use, and a task that finds the disk full does not
/// wait for them.
#[test]
fn an_update_that_is_given_up_holds_no_block_back() {
    if !has_program("mkfs.ext4") {
        manylogs_testkit::skip("needs mkfs.ext4");
        return;
    }
    let world = World::new(1, SMALL_MIB, mkfs(SMALL_MIB, SMALL_OPTIONS).unwrap());
    let options = Options {
        clock: Rc::new(Timestamp::default),
        read_only: false,
        durability: Default::default(),
        replay: Default::default(),
        memory: Default::default(),
    };
    let mounting = Ext4::mount(Rc::new(world.disk.clone()), world.runtime(), options);
    world.sim.block_on(world.user, async move {
        let fs = mounting.await.unwrap();
        let core = &fs.core;
        let mut handle = core.begin(8).await.unwrap();
        let start = core.take_block(&mut handle, BlockNo(0)).await.unwrap();
        handle.finish();
        let (free, run) = (core.space.free_blocks(), Run { start, blocks: 1 });
        for finishes in [false, true] {
            let mut handle = core.begin(8).await.unwrap();
            core.free(&mut handle, Ino::ROOT, run, false).await.unwrap();
            assert!(core.space.holds_back());
            if finishes {
                handle.finish();
            } else {
                drop(handle);
            }
            assert_eq!(core.space.holds_back(), finishes);
            assert_eq!(core.space.free_blocks(), free + u64::from(finishes));
        }
        fs.unmount().await.unwrap();
    });
}
