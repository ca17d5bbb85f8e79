//! The table that finds logged blocks stays within its share of memory.

use std::rc::Rc;

use crate::common::{file, images, with};
use manylogs_ext4::Part;
use manylogs_near::{Granularity, Near};
use manylogs_torture::ext4::content;

/// Does small writes with syncs. Returns how many checkpoints ran.
async fn work(near: &Near, name: &[u8]) -> u64 {
    let ino = file(near.fs(), name).await;
    for round in 0..20 {
        near.fs().write(ino, round * 8192, content(round, 4096)).await.unwrap();
        near.fs().sync(ino).await.unwrap();
    }
    near.volume().stats().checkpoints
}

#[test]
fn a_table_that_reaches_its_share_empties_the_logs_and_writers_go_on() {
    let Some(images) = images() else { return };
    with(&images, Granularity::Sectors, async |near: Rc<Near>, _, _| {
        assert_eq!(work(&near, b"first").await, 0, "there is room");
        let memory = near.fs().memory();
        let table = memory.used(Part::Table);
        assert!(table > 0, "it is counted");
        // Makes the table count as full.
        let rest = memory.hold(Part::Table, memory.most(Part::Table) - table);
        assert!(work(&near, b"second").await > 0, "the logs are emptied");
        drop(rest);
        work(&near, b"third").await;
    });
}
