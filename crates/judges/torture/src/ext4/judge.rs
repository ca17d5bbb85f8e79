//! Judges the state that a crash left.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use manylogs_block::Rng;
use manylogs_ext4::{Ext4, FileKind, Ino, Mode};
use manylogs_ext4check::check;
use manylogs_sim::{DiskImage, Survival};

use super::images::{ImageSource, command, image_dir, load, save};
use super::model::{Found, Model};
use super::world::{JournalAt, SMALL_MIB, World};
use crate::volume::disks::DiskImages;

/// The longest file of a client.
pub(super) const FILE_MOST: usize = 4 << 20;

/// Where an array bears the loss of members, one crash in this number takes some with it.
const LOSSES: u64 = 3;

/// One drained file system in this number is also compared as plain ext4.
const DRAINED_EVERY: u64 = 3;

/// The content of a client's directory.
pub(super) type Held = (Found, BTreeMap<Ino, Vec<u8>>);
/// The directories of all clients.
pub(super) type AllHeld = Vec<Option<Held>>;

/// The result of a program.
#[derive(Clone, Debug)]
pub struct Said {
    /// The exit code, or -1.
    pub code: i32,
    /// Its standard output and standard error.
    pub text: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e2fsck: {}: {}", self.code, self.text)
    }
}

/// Runs e2fsck. The code is -1 if it cannot be run.
#[must_use]
pub fn e2fsck(options: &[&str], path: &Path) -> Said {
    match command("e2fsck").args(options).arg(path).output() {
        Ok(out) => Said {
            code: out.status.code().unwrap_or(-1),
            text: String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        },
        Err(error) => Said { code: -1, text: format!("{error}: install e2fsprogs") },
    }
}

/// Bytes that differ between files and between places in a file.
#[must_use]
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> =
        (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// The state that a crash left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It can be mounted and changed.
    Usable,
    /// Every log near the head has failed: nothing can be changed until it is plain ext4 again.
    WithoutLogs,
}

/// Mounts the crashed image, recovers it with our own code, compares the files, and brings
/// everything home. Nothing may be left to repair then. If `sampled`, e2fsck judges that as well.
pub(super) fn by_ourselves(
    image: &DiskImages,
    journal: &JournalAt,
    models: &[&Model],
    seed: u64,
    sampled: bool,
) -> Result<Left, String> {
    let world = World::of(seed, SMALL_MIB, image.clone());
    let dirs: Vec<_> = models.iter().map(|model| model.dir).collect();
    let mode = match journal {
        JournalAt::Near { .. } => journal.in_some_mode(&mut Rng::new(seed)),
        JournalAt::Own { .. } => journal.clone(),
    };
    let mounting = world.mounting(&mode);
    let found = world.sim.block_on(world.user, async move {
        let mounted = mounting.await.map_err(|error| format!("mount: {error}"))?;
        let found = read_all(mounted.fs(), &dirs).await;
        let left = if mounted.is_without_logs() { Left::WithoutLogs } else { Left::Usable };
        mounted.leave().await?;
        Ok::<_, String>((found?, left))
    });
    let (found, left, settled) = match (found, journal) {
        (Err(error), JournalAt::Near { anchors, .. }) => {
            let drained = world.sim.block_on(world.user, world.draining(*anchors));
            drained.map_err(|other| format!("{error}; {other}"))?;
            let (found, settled) = use_plain(&world.settled(), models, seed)?;
            (found, Left::WithoutLogs, settled)
        }
        (mounted, _) => {
            let (found, left) = mounted?;
            (found, left, world.settled())
        }
    };
    compare(models, &found)?;
    let settled = match journal {
        JournalAt::Own { mode, .. } if *mode == Mode::Lazy => {
            if sampled {
                replayed_by_e2fsck(&settled, &[]).map_err(|error| format!("left: {error}"))?;
            }
            let (found, settled) = use_plain(&settled, models, seed)?;
            compare(models, &found).map_err(|error| format!("replayed: {error}"))?;
            settled
        }
        JournalAt::Near { .. } if seed.is_multiple_of(DRAINED_EVERY) => {
            let (found, settled) = use_plain(&settled, models, seed)?;
            compare(models, &found).map_err(|error| format!("drained: {error}"))?;
            settled
        }
        _ => settled,
    };
    nothing_is_wrong(&settled)?;
    if sampled {
        let dir = image_dir().map_err(|error| error.to_string())?;
        let path = dir.path().join("image");
        save(&settled, SMALL_MIB, &path).map_err(|error| error.to_string())?;
        let said = e2fsck(&["-fn"], &path);
        if said.code != 0 {
            return Err(format!("after a mount, only e2fsck -fn finds: {said}"));
        }
    }
    Ok(left)
}

/// Checks that our own check finds nothing.
pub(crate) fn nothing_is_wrong(image: &DiskImage) -> Result<(), String> {
    let report = check(&ImageSource::new(image, SMALL_MIB)).map_err(|error| error.to_string())?;
    if report.is_spotless() && !report.needs_recovery {
        return Ok(());
    }
    let findings: Vec<String> = report.findings.iter().take(8).map(ToString::to_string).collect();
    Err(format!("after a mount: {}", findings.join("; ")))
}

/// Lets e2fsck replay the crashed image; it may clear orphans. After that neither e2fsck nor our
/// own check may find anything, and the files must be as promised.
pub(super) fn by_e2fsck(image: &DiskImage, models: &[&Model], seed: u64) -> Result<(), String> {
    let replayed = replayed_by_e2fsck(image, &[])?;
    compare(models, &use_plain(&replayed, models, seed)?.0)
}

/// Returns the content of the clients' directories on a plain ext4, and the disk after its unmount.
pub(super) fn use_plain(
    image: &DiskImage,
    models: &[&Model],
    seed: u64,
) -> Result<(AllHeld, DiskImage), String> {
    let world = World::new(seed, SMALL_MIB, image.clone());
    let dirs: Vec<_> = models.iter().map(|model| model.dir).collect();
    let found = world.run(async move |fs: Ext4| {
        let found = read_all(&fs, &dirs).await?;
        fs.unmount().await.map_err(|error| format!("unmount: {error}"))?;
        Ok::<_, String>(found)
    });
    let found = found.map_err(|error| format!("mount: {error}"))??;
    Ok((found, world.settled()))
}

/// The crashed image after a replay by e2fsck, which may clear orphans and print the lines in
/// `more`. Neither e2fsck nor our own check may find anything else.
pub(crate) fn replayed_by_e2fsck(image: &DiskImage, more: &[&str]) -> Result<DiskImage, String> {
    let dir = image_dir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    save(image, SMALL_MIB, &path).map_err(|error| error.to_string())?;
    let said = e2fsck(&["-fp"], &path);
    // A tree that is deeper than necessary is not damage.
    let expected = ["recovering journal", "rphan", "files (", "could be shorter"];
    let is_expected =
        |line: &str| expected.iter().chain(more).any(|expected| line.contains(expected));
    let other = said.text.lines().find(|line| !line.is_empty() && !is_expected(line));
    if !(0..=1).contains(&said.code) || other.is_some() {
        return Err(format!("-fp: {said}"));
    }
    let said = e2fsck(&["-fn"], &path);
    if said.code != 0 {
        return Err(format!("after -fp, -fn: {said}"));
    }
    let replayed = load(&path).map_err(|error| error.to_string())?;
    nothing_is_wrong(&replayed).map_err(|wrong| format!("replayed by e2fsck: {wrong}"))?;
    Ok(replayed)
}

/// Crashes somewhere in the recovery of a crashed image, or soon after.
pub(super) fn crash_in_recovery(
    image: &DiskImages,
    journal: &JournalAt,
    rng: &mut Rng,
) -> DiskImages {
    let world = World::of(rng.next_u64(), SMALL_MIB, image.clone());
    let mounting = world.mounting(journal);
    world.sim.handle(world.user).spawn(async move {
        if let Ok(mounted) = mounting.await {
            drop(mounted.leave().await);
        }
    });
    let at = 1 + rng.below(120);
    world.sim.run_until(|| world.disks.events() >= at);
    crash_disks(&world, rng)
}

/// Kills the user of the disk, or cuts the disk's power.
pub(crate) fn crash(world: &World, rng: &mut Rng) -> DiskImage {
    crash_disks(world, rng).first().clone()
}

/// As [`crash`], of all members of an array. One crash in [`LOSSES`] takes members with it, where
/// the array bears that.
pub(super) fn crash_disks(world: &World, rng: &mut Rng) -> DiskImages {
    let disks = &world.disks;
    if disks.may_lose()
        && rng.one_in(LOSSES)
        && let Some(images) = disks.after_loss(rng, |rng| survival(rng).unwrap_or(Survival::Random))
    {
        return images;
    }
    match survival(rng) {
        None => disks.after_kill(rng),
        Some(of_first) => {
            let of_others = |rng: &mut Rng| survival(rng).unwrap_or(Survival::Random);
            disks.after_power_cut(of_first, rng, of_others)
        }
    }
}

/// What a power cut leaves of a cache; `None` if the user is killed instead.
fn survival(rng: &mut Rng) -> Option<Survival> {
    match rng.below(6) {
        0 => None,
        1 => Some(Survival::Nothing),
        2 => Some(Survival::Everything),
        _ => Some(Survival::Random),
    }
}

/// Reads the clients' directories, and all files in them.
pub(super) async fn read_all(fs: &Ext4, dirs: &[Option<Ino>]) -> Result<AllHeld, String> {
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
    let told = |error: manylogs_ext4::Error| error.to_string();
    for (name, ino) in names(fs, dir).await.map_err(told)? {
        // A listed file must also be found by its name: an index must lead to it.
        if fs.lookup(dir, &name).await.map_err(told)?.ino != ino {
            return Err(format!("{ino}: its name leads elsewhere"));
        }
        let attributes = fs.attributes(ino).await.map_err(told)?;
        if attributes.kind == FileKind::File {
            contents.insert(ino, fs.read(ino, 0, FILE_MOST).await.map_err(told)?.to_vec());
        }
        all.insert(name, ino);
    }
    Ok((all, contents))
}

/// All names of a directory except `.` and `..`.
///
/// # Errors
/// Those of listing it.
pub async fn names(fs: &Ext4, dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>, manylogs_ext4::Error> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let listed = fs.list(dir, cookie).await?;
        let Some(last) = listed.last() else { break };
        cookie = last.next;
        let own = |name: &[u8]| name == b"." || name == b"..";
        let others = listed.into_iter().filter(|listed| !own(&listed.name));
        names.extend(others.map(|listed| (listed.name, listed.ino)));
    }
    names.sort();
    Ok(names)
}

pub(super) fn compare(models: &[&Model], found: &[Option<Held>]) -> Result<(), String> {
    for (number, (model, found)) in models.iter().zip(found).enumerate() {
        let Some((names, contents)) = found else { continue };
        let checked = model.check(names, contents);
        checked.map_err(|wrong| format!("client {number}: {wrong}"))?;
    }
    Ok(())
}

/// Draws true once in `every` times; never if that is zero.
pub(crate) fn is_due(rng: &mut Rng, every: u64) -> bool {
    every > 0 && rng.one_in(every)
}
