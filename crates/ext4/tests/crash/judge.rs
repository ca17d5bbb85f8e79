//! Judging what a crash left.

use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::Rng;
use manylogs_ext4::{Ext4, FileKind, Ino};
use manylogs_sim::{DiskImage, Survival};

use crate::common::{SMALL_MIB, World, e2fsck, load, mount, names, save};
use crate::model::{Found, Model};

/// What a client's directory holds.
type Held = (Found, BTreeMap<Ino, Vec<u8>>);

/// Mounts what a crash left, replays it by our own code, and compares; then e2fsck looks for what
/// is left to be repaired.
pub(crate) fn by_ourselves(image: &DiskImage, models: &[Model], seed: u64) -> Result<(), String> {
    let world = World::new(seed, SMALL_MIB, image.clone());
    let dirs: Vec<_> = models.iter().map(|model| model.dir).collect();
    let found = world.run(async move |fs: Ext4| {
        let found = read_all(&fs, &dirs).await;
        fs.unmount().await.map_err(|error| format!("unmount: {error}"))?;
        found
    });
    let found = found.map_err(|error| format!("mount: {error}"))??;
    compare(models, &found)?;
    let (_dir, path) = world.saved();
    let (code, said) = e2fsck(&["-fn"], &path);
    if code == 0 { Ok(()) } else { Err(format!("after a mount, e2fsck -fn: {code}: {said}")) }
}

/// e2fsck replays what a crash left, and may clear orphans; then it finds nothing, and we find what
/// was promised.
pub(crate) fn by_e2fsck(image: &DiskImage, models: &[Model], seed: u64) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    save(image, SMALL_MIB, &path);
    let (code, said) = e2fsck(&["-fp"], &path);
    // A tree that is deeper than it must be is no damage.
    let expected = ["recovering journal", "rphan", "files (", "could be shorter"];
    let is_expected = |line: &str| expected.iter().any(|expected| line.contains(expected));
    let other = said.lines().find(|line| !line.is_empty() && !is_expected(line));
    if code > 1 || other.is_some() {
        return Err(format!("e2fsck -fp: {code}: {said}"));
    }
    let (code, said) = e2fsck(&["-fn"], &path);
    if code != 0 {
        return Err(format!("after e2fsck -fp, e2fsck -fn: {code}: {said}"));
    }
    let world = World::new(seed, SMALL_MIB, load(&path));
    let dirs: Vec<_> = models.iter().map(|model| model.dir).collect();
    let found = world.run(async move |fs: Ext4| read_all(&fs, &dirs).await);
    compare(models, &found.map_err(|error| format!("mount: {error}"))??)
}

/// Crashes somewhere in the replay of what a crash left, or in what follows.
pub(crate) fn crash_in_recovery(image: &DiskImage, rng: &mut Rng) -> DiskImage {
    let world = World::new(rng.next_u64(), SMALL_MIB, image.clone());
    let mounting = mount(Rc::new(world.disk.clone()), world.runtime());
    world.sim.handle(world.user).spawn(async move { drop(mounting.await) });
    let at = 1 + rng.below(120);
    world.sim.run_until(|| world.disk.events() >= at);
    world.disk.after_power_cut(survival(rng), rng)
}

pub(crate) fn survival(rng: &mut Rng) -> Survival {
    match rng.below(4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Random,
    }
}

async fn read_all(fs: &Ext4, dirs: &[Option<Ino>]) -> Result<Vec<Option<Held>>, String> {
    let mut found = Vec::new();
    for dir in dirs {
        found.push(match dir {
            Some(dir) => Some(read_dir(fs, *dir).await?),
            None => None,
        });
    }
    Ok(found)
}

async fn read_dir(fs: &Ext4, dir: Ino) -> Result<Held, String> {
    let (mut all, mut contents) = (Found::new(), BTreeMap::new());
    for (name, ino) in names(fs, dir).await {
        let attributes = fs.attributes(ino).await.map_err(|error| error.to_string())?;
        if attributes.kind == FileKind::File {
            let content = fs.read(ino, 0, 1 << 20).await.map_err(|error| error.to_string())?;
            contents.insert(ino, content.to_vec());
        }
        all.insert(name, ino);
    }
    Ok((all, contents))
}

fn compare(models: &[Model], found: &[Option<Held>]) -> Result<(), String> {
    for (number, (model, found)) in models.iter().zip(found).enumerate() {
        let Some((names, contents)) = found else { continue };
        model.check(names, contents).map_err(|wrong| format!("client {number}: {wrong}"))?;
    }
    Ok(())
}
