//! A block of a journal is damaged: what it held must be there, or its loss must be told.

use std::rc::Rc;

use manylogs_block::Rng;
use manylogs_ext4::{Ext4, JournalRepaired, Mode};
use manylogs_sim::DiskImage;

use super::judge::{compare, read_all, use_plain};
use super::model::Model;
use super::raw_log::{RawLog, flipped};
use super::world::{JournalAt, SMALL_MIB, World, options};

/// One judged state in this number is damaged as well.
const EVERY: u64 = 8;

/// What became of the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The log is empty, or its blocks have no checksums, or it is not this state's turn.
    Spared,
    /// Everything is there.
    Whole,
    /// An error told of it.
    Told,
}

/// Damages a block of the journal in the crashed image, and uses it: a mount or a read fails, or
/// all files are as promised. What a mount refuses is repaired then, and must be marked.
pub(super) fn use_broken(
    image: &DiskImage,
    journal: &JournalAt,
    models: &[&Model],
) -> Result<Broken, String> {
    let JournalAt::Own { log, mode: Mode::Lazy } = journal else { return Ok(Broken::Spared) };
    let mut rng = Rng::new(image.fingerprint() ^ 0x0b0b);
    if !rng.one_in(EVERY) {
        return Ok(Broken::Spared);
    }
    let raw = RawLog::at(image, SMALL_MIB, &log.blocks())?;
    let Some(block) = raw.pick(&mut rng).filter(|_| raw.has_checksums) else {
        return Ok(Broken::Spared);
    };
    let image = flipped(image, SMALL_MIB, block.place, &mut rng);
    let outcome = use_one(&image, journal, models, &mut rng);
    outcome.map_err(|problem| format!("{block:?} is damaged: {problem}"))
}

fn use_one(
    image: &DiskImage,
    journal: &JournalAt,
    models: &[&Model],
    rng: &mut Rng,
) -> Result<Broken, String> {
    let world = World::new(rng.next_u64(), SMALL_MIB, image.clone());
    let dirs: Vec<_> = models.iter().map(|model| model.dir).collect();
    let mounting = world.mounting(&journal.in_some_mode(rng));
    let mounted = world.sim.block_on(world.user, async move {
        let mounted = mounting.await.ok()?;
        let found = read_all(mounted.fs(), &dirs).await;
        let left = mounted.leave().await;
        Some(found.map(|found| (found, left)))
    });
    let Some(read) = mounted else {
        repair(image, models, rng.next_u64())?;
        return Ok(Broken::Told);
    };
    let Ok((found, left)) = read else { return Ok(Broken::Told) };
    compare(models, &found).map_err(|wrong| format!("nothing tells of it: {wrong}"))?;
    if left.is_err() {
        return Ok(Broken::Told);
    }
    // What nobody has read is told of at the latest when the journal is replayed.
    let Ok((found, _)) = use_plain(&world.settled(), models, rng.next_u64()) else {
        return Ok(Broken::Told);
    };
    compare(models, &found).map_err(|wrong| format!("replayed, nothing tells of it: {wrong}"))?;
    Ok(Broken::Whole)
}

/// Repairs a journal that a mount refused. If something is lost, the file system must say after
/// that that it has errors; else all files must be as promised.
fn repair(image: &DiskImage, models: &[&Model], seed: u64) -> Result<(), String> {
    let world = World::new(seed, SMALL_MIB, image.clone());
    let (device, runtime) = (Rc::new(world.disk.clone()), world.runtime());
    let options = options(runtime.clone());
    let repairing = Ext4::repair_journal(device, runtime, options);
    match world.sim.block_on(world.user, repairing) {
        Ok(JournalRepaired::Lossy(_) | JournalRepaired::ErrorsNoted) => {}
        Ok(JournalRepaired::Whole) => {
            let (found, _) = use_plain(&world.settled(), models, seed)?;
            return compare(models, &found).map_err(|wrong| format!("repaired: {wrong}"));
        }
        Ok(JournalRepaired::Empty) => return Err("a repair finds no journal".to_owned()),
        Err(error) => return Err(format!("repair: {error}")),
    }
    let again = World::new(seed, SMALL_MIB, world.settled());
    match again.run(async |fs: Ext4| fs.unmount().await) {
        Ok(_) => Err("a repair that lost something did not note it".to_owned()),
        Err(_) => Ok(()),
    }
}
