//! Compares our own check of a file system, however it was left, with the verdict of e2fsck once it
//! is plain ext4 again. Both read a disk in memory.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Lba, Nanos, Request, Rng, to_usize};
use manylogs_ext4::{Change, Error, Ext4, FileKind, Ino, New, Options, Run, Taken, Wanted};
use manylogs_ext4check::{Finding, Problem, check};
use manylogs_mlfs::adopt::{
    AdoptError, LogLayout, LogState, Spacing, View, Volumes, adopt, look, open, release,
};
use manylogs_near::{Near, NearOptions};
use manylogs_sim::DiskImage;

use super::history::site;
use crate::ext4::{
    self, ImageSource, Images, SMALL_MIB, World, damage_anything, e2fsck, image_dir, is_unseen,
    save,
};

/// The result of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Whether it was adopted and not released.
    pub adopted: bool,
    /// Whether it was unmounted. If not, it was killed, or its power was cut.
    pub unmounted: bool,
    /// Whether both judges found damage.
    pub damaged: bool,
    /// Whether only the check found something, where that is expected.
    pub by_check_alone: bool,
    /// Whether only e2fsck found something: a damaged copy in the journal that newer ones replace.
    pub by_e2fsck_alone: bool,
}

/// How the file system is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Unmounted,
    /// At this event of the disk.
    Crashed(u64),
}

/// Takes one of `images`, adopts it or not, uses it and leaves it somehow, damages it if `damaged`,
/// and compares the judges.
///
/// # Errors
/// The difference, if the judges differ unexpectedly.
pub fn tell(seed: u64, images: &Images, damaged: bool) -> Result<Told, String> {
    let mut rng = Rng::new(seed ^ 0x7e11_7e11);
    let mut image = images.to_adopt(to_usize(rng.below(60))).clone();
    let mut told = Told { adopted: !rng.one_in(4), ..Told::default() };
    if told.adopted {
        image = adopted(&image, rng.next_u64())?;
    }
    for _ in 0..1 + rng.below(2) {
        let end = match rng.below(3) {
            0 => End::Unmounted,
            _ => End::Crashed(1 + rng.below(400)),
        };
        told.unmounted = end == End::Unmounted;
        image = used(&image, told.adopted, end, &mut rng)?;
    }
    let mut what = String::new();
    if damaged {
        what = damage_anything(&mut image, &mut rng)?;
    }
    let ours = by_check(&image, rng.next_u64());
    let theirs = if told.adopted {
        by_e2fsck_when_released(&image, rng.next_u64())
    } else {
        by_e2fsck(&image, &["-fy"])
    };
    told.damaged = ours.is_err() && theirs.is_err();
    told.by_check_alone = match (ours, theirs) {
        (Err(Wrong { is_unseen: true, .. }), Ok(())) => true,
        (Err(wrong), Ok(())) => return Err(format!("{what}only the check finds: {}", wrong.text)),
        (Ok(()), Err(Said { is_copy: true, .. })) => {
            told.by_e2fsck_alone = true;
            false
        }
        (Ok(()), Err(Said { text, .. })) => {
            return Err(format!("{what}only e2fsck finds: {text}"));
        }
        _ => false,
    };
    Ok(told)
}

fn adopted(image: &DiskImage, seed: u64) -> Result<DiskImage, String> {
    let world = World::torn(seed, SMALL_MIB, image.clone());
    let site = site(&world);
    let layout =
        LogLayout { spacing: Spacing::Groups(1), wanted: Wanted { most: 900, least: 780 } };
    let adopting = async move { adopt(&site, &layout, &Volumes).await };
    let done = world.sim.block_on(world.user, adopting);
    done.map_err(|error| format!("adopt: {error}"))?;
    Ok(world.settled())
}

/// Mounts the file system, uses it and leaves it.
fn used(image: &DiskImage, adopted: bool, end: End, rng: &mut Rng) -> Result<DiskImage, String> {
    let world = World::torn(rng.next_u64(), SMALL_MIB, image.clone());
    let site = site(&world);
    let (mut own, runtime) = (Rng::new(rng.next_u64()), world.runtime());
    let work = async move {
        let options = Options {
            clock: Rc::clone(&site.clock),
            read_only: false,
            durability: Default::default(),
            replay: Default::default(),
            memory: Default::default(),
        };
        let device = Rc::clone(&site.device);
        if !adopted {
            let fs = Ext4::mount(device, site.runtime.clone(), options).await?;
            work(&fs, &mut own).await;
            return Ok(fs.unmount().await?);
        }
        let logs = open(&site, &Volumes).await?.logs;
        let near = NearOptions { open: Volumes::open_options(&logs)?, ..NearOptions::default() };
        let (near, _) = Near::mount(site.runtime.clone(), device, &near, options).await?;
        work(near.fs(), &mut own).await;
        if own.one_in(3) {
            // Long enough for idle work to bring records home.
            runtime.sleep(Nanos::from_secs(120)).await;
        }
        Ok::<_, AdoptError>(near.unmount().await?)
    };
    match end {
        End::Unmounted => {
            let done = world.sim.block_on(world.user, work);
            done.map_err(|error| format!("use: {error}"))?;
            Ok(world.settled())
        }
        End::Crashed(event) => {
            world.sim.handle(world.user).spawn(async move { drop(work.await) });
            world.sim.run_until(|| world.disk.events() >= event);
            Ok(ext4::crash(&world, rng))
        }
    }
}

/// Makes random changes of all kinds. Errors are allowed.
async fn work(fs: &Ext4, rng: &mut Rng) {
    let mut dirs = vec![Ino::ROOT];
    for _ in 0..10 + rng.below(60) {
        let dir = dirs[to_usize(rng.below(dirs.len() as u64))];
        let name = format!("{} {}", rng.below(12), "n".repeat(to_usize(rng.below(60))));
        let (name, other) = (name.as_bytes(), format!("{}", rng.below(12)));
        let new = |kind| New::plain(kind, 0o755);
        let done: Result<(), Error> = match rng.below(9) {
            0 => match fs.create(dir, name, new(FileKind::Directory)).await {
                Ok(made) => {
                    dirs.push(made.ino);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            1 => fs.unlink(dir, name).await,
            2 => fs.rename((dir, name), (Ino::ROOT, other.as_bytes()), Taken::Replaced).await,
            3 => fs.sync_all().await,
            4 => match fs.create_unnamed(dir, new(FileKind::File), true).await {
                Ok(made) => fs.write(made.ino, 0, vec![1; to_usize(rng.below(50_000))]).await,
                Err(error) => Err(error),
            },
            5 => match fs.lookup(dir, name).await {
                Ok(found) => {
                    let cut = Change { size: Some(rng.below(70_000)), ..Change::default() };
                    fs.change(found.ino, cut).await.map(drop)
                }
                Err(error) => Err(error),
            },
            _ => write(fs, (dir, name), rng).await,
        };
        drop(done);
    }
}

async fn write(fs: &Ext4, (dir, name): (Ino, &[u8]), rng: &mut Rng) -> Result<(), Error> {
    let ino = match fs.lookup(dir, name).await {
        Ok(found) => found.ino,
        Err(_) => fs.create(dir, name, New::plain(FileKind::File, 0o644)).await?.ino,
    };
    let content = vec![7; to_usize(1 + rng.below(90_000))];
    fs.write(ino, rng.below(60_000), content).await?;
    if rng.one_in(2) { fs.sync(ino).await } else { Ok(()) }
}

/// The findings of the check.
struct Wrong {
    text: String,
    /// Whether e2fsck is expected to miss all of them.
    is_unseen: bool,
}

/// The verdict of `manylogs fs check`, on the content that a mount would show.
fn by_check(image: &DiskImage, seed: u64) -> Result<(), Wrong> {
    let wrong = |error: &dyn std::fmt::Display| Wrong { text: error.to_string(), is_unseen: false };
    let (shown, logs) = shown(image, seed)?;
    let report = check(&ImageSource::new(&shown, SMALL_MIB)).map_err(|error| wrong(&error))?;
    if report.is_clean() {
        return Ok(());
    }
    let listed: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let text = format!("{}; logs: {logs:?}", listed.join("; "));
    // A release frees the blocks of the logs, whatever their bits are.
    let is_freed = |finding: &Finding| match finding.problem {
        Problem::BitClear { what: "block", number } => {
            logs.iter().any(|run| run.range().contains(&number))
        }
        _ => false,
    };
    let is_meant = |finding: &Finding| is_unseen(finding) || is_freed(finding);
    let is_unseen = report.more == 0 && report.findings.iter().all(is_meant);
    Err(Wrong { text, is_unseen })
}

/// The disk as a view shows it, and its logs. Nothing may be written to the disk itself.
fn shown(image: &DiskImage, seed: u64) -> Result<(DiskImage, Vec<Run>), Wrong> {
    let wrong = |text: String| Wrong { text, is_unseen: false };
    let world = World::torn(seed, SMALL_MIB, image.clone());
    let site = site(&world);
    let viewing = async move {
        let logs = match look(&site, &Volumes).await?.logs {
            LogState::Unusable(why) => return Err(why),
            LogState::InUse(logs) | LogState::Drained(logs) => logs.runs,
            LogState::None => Vec::new(),
        };
        let view = View::of(&site).await?;
        if view.found.has_errors {
            return Err(AdoptError::HasErrors);
        }
        let mut changes = Vec::new();
        for extent in view.differs() {
            let read = view.device().submit(Request::Read { extent }).await?;
            changes.push((extent, read));
        }
        Ok((changes, view.problem, logs))
    };
    let viewed = world.sim.block_on(world.user, viewing);
    let (changes, problem, logs) = viewed.map_err(|error| wrong(error.to_string()))?;
    let untouched = World::torn(seed, SMALL_MIB, image.clone());
    if world.settled().fingerprint() != untouched.settled().fingerprint() {
        return Err(wrong("a view has written to the disk".to_owned()));
    }
    if let Some(problem) = problem {
        // Like the kernel, a mount of plain ext4 checks descriptors before it replays the journal;
        // e2fsck replays first.
        return Err(Wrong { text: problem.to_string(), is_unseen: logs.is_empty() });
    }
    let mut shown = image.clone();
    for (Extent { start, .. }, content) in changes {
        for (lba, sector) in (start.0..).zip(content.sectors()) {
            shown.corrupt(Lba(lba), sector.ok_or_else(|| wrong("no content".to_owned()))?);
        }
    }
    Ok((shown, logs))
}

/// Lines of e2fsck about a replay, about orphans, about the superblock's counts (which are those of
/// the last unmount), about its copy of the journal's inode, which nobody reads while the inode is
/// sound, and lines without findings.
const EXPECTED: [&str; 10] = [
    "Free blocks count wrong (",
    "Free inodes count wrong (",
    "recovering journal",
    "rphan",
    "files (",
    "could be shorter",
    "Pass ",
    "e2fsck 1",
    "FILE SYSTEM WAS MODIFIED",
    "Backing up journal inode block information",
];

/// Lines of e2fsck about a copy in the journal whose checksum is wrong. It compares also those that
/// newer copies in the journal replace: nothing is lost then, and the check says nothing.
const OF_A_COPY: [&str; 2] =
    ["JBD2: Invalid checksum recovering data block", "Journal checksum error found in"];

/// The findings of e2fsck.
struct Said {
    text: String,
    /// Whether they are about copies in the journal alone.
    is_copy: bool,
}

/// The findings of e2fsck, except a replay and orphans.
fn by_e2fsck(image: &DiskImage, options: &[&str]) -> Result<(), Said> {
    let failed = |error: std::io::Error| Said { text: error.to_string(), is_copy: false };
    let dir = image_dir().map_err(failed)?;
    let path = dir.path().join("image");
    save(image, SMALL_MIB, &path).map_err(failed)?;
    let said = e2fsck(options, &path);
    let is_expected =
        |line: &str| line == "Fix? yes" || EXPECTED.iter().any(|expected| line.contains(expected));
    // It corrects bitmaps silently if it may not ask.
    let is_mending = options.contains(&"-fy");
    let is_other = |line: &&str| !line.trim().is_empty() && !is_expected(line);
    let others: Vec<&str> = said.text.lines().filter(is_other).collect();
    let is_of_copy = |line: &&str| OF_A_COPY.iter().any(|of| line.contains(of));
    let is_copy = is_mending && said.text.contains(OF_A_COPY[0]) && others.iter().all(is_of_copy);
    let is_clean = if is_mending {
        (0..=1).contains(&said.code) && others.is_empty()
    } else {
        said.code == 0 && !said.text.contains("Fix? no")
    };
    if is_clean { Ok(()) } else { Err(Said { text: said.to_string(), is_copy }) }
}

fn by_e2fsck_when_released(image: &DiskImage, seed: u64) -> Result<(), Said> {
    let world = World::torn(seed, SMALL_MIB, image.clone());
    let site = site(&world);
    let releasing = async move { release(&site, &Volumes).await };
    let released = world.sim.block_on(world.user, releasing);
    released.map_err(|error| Said { text: format!("release: {error}"), is_copy: false })?;
    by_e2fsck(&world.settled(), &["-fn"])
}
