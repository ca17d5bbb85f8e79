//! Mounting with a journal that a crash left.

use std::process::Command;

use crate::common::{Judged, SMALL, SMALL_MIB, World, has, mkfs};
use manylogs_block::Rng;
use manylogs_ext4::{Ext4, FileKind, Ino, New};
use manylogs_sim::Survival;

/// The number of the next transaction in the journal's superblock.
fn next_number(world: &World) -> u64 {
    let (_dir, path) = world.saved();
    let said = Command::new("dumpe2fs").arg("-h").arg(path).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("Journal sequence:")).unwrap();
    u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap()
}

/// Blocks of a torn transaction may lie where the next transaction with its number would be
/// written. The next number is beyond it, and beyond all that the log can have. A torn transaction of ours lacks its commit block. One of a kernel that writes the
/// commit block first (`journal_async_commit`) may have it.
#[test]
fn the_number_of_a_torn_transaction_is_not_used_again() {
    const COMMITS: u64 = 3;
    if !has("dumpe2fs") {
        manylogs_testkit::skip("needs dumpe2fs");
        return;
    }
    let Some(image) = mkfs(SMALL_MIB, SMALL) else { return };
    let world = World::new(1, SMALL_MIB, image);
    assert_eq!(world.run(async |fs: Ext4| fs.unmount().await), Ok(Ok(())));
    let first = next_number(&world);
    let world = World::new(1, SMALL_MIB, world.settled());
    let synced = world.run(async |fs: Ext4| {
        for number in 0..COMMITS {
            let (name, new) = (number.to_string(), New::plain(FileKind::File, 0o600));
            fs.create(Ino::ROOT, name.as_bytes(), new).await?;
            fs.sync_all().await?;
        }
        Ok::<_, manylogs_ext4::Error>(())
    });
    assert_eq!(synced, Ok(Ok(())));
    let crashed = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
    let world = World::new(1, SMALL_MIB, crashed);
    assert_eq!(world.run(async |fs: Ext4| fs.unmount().await), Ok(Ok(())));
    let next = next_number(&world);
    assert!(next > first + COMMITS, "{next} after {COMMITS} commits from {first} on");
}
