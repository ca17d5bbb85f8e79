//! Images with structures of every kind.

use std::mem::discriminant;

use manylogs_block::Rng;
use manylogs_ext4::{Error, Ext4, FileKind, Ino, New};
use manylogs_ext4check::{Structure, Survey};
use manylogs_sim::{DiskImage, Survival};

use crate::ext4::images::ImageSource;
use crate::ext4::judge::content;
use crate::ext4::world::{SMALL_MIB, World};

/// An image and its structures.
#[derive(Clone, Debug)]
pub(crate) struct Filled {
    pub(crate) name: String,
    pub(crate) image: DiskImage,
    pub(crate) survey: Survey,
    /// Its structures by their kind.
    pub(crate) kinds: Vec<Vec<Structure>>,
    /// Whether nothing is left to replay.
    pub(crate) is_at_rest: bool,
}

/// Fills an image through the driver. Returns one that was unmounted, and one with much to replay.
///
/// # Errors
/// The error of the driver or of a check.
pub(crate) fn filled(name: &str, image: &DiskImage) -> Result<[Filled; 2], String> {
    let world = World::new(1, SMALL_MIB, image.clone());
    let done = world.run(async |fs: Ext4| {
        fill(&fs).await?;
        fs.unmount().await
    });
    done.and_then(|done| done).map_err(|error| format!("{name}: {error}"))?;
    let rested = world.settled();
    let world = World::new(2, SMALL_MIB, rested.clone());
    let done = world.run(async |fs: Ext4| leave(&fs).await);
    done.and_then(|done| done).map_err(|error| format!("{name}: {error}"))?;
    let crashed = world.disk.after_power_cut(Survival::Nothing, &mut Rng::new(1));
    Ok([Filled::of(name, rested)?, Filled::of(&format!("{name}, crashed"), crashed)?])
}

impl Filled {
    fn of(name: &str, image: DiskImage) -> Result<Self, String> {
        let filled = Self::unchecked(name, image)?;
        if filled.is_at_rest
            && let Some(finding) = filled.survey.report.findings.first()
        {
            return Err(format!("{name}: {finding}"));
        }
        Ok(filled)
    }

    /// An image that may be damaged.
    pub(super) fn unchecked(name: &str, image: DiskImage) -> Result<Self, String> {
        let survey = Survey::of(&ImageSource::new(&image, SMALL_MIB));
        let survey = survey.map_err(|error| format!("{name}: {error}"))?;
        let is_at_rest = !survey.report.needs_recovery;
        let mut kinds: Vec<Vec<Structure>> = Vec::new();
        for structure in &survey.structures {
            // A block of the log that was never written is no structure.
            let (block, _) = survey.place(*structure);
            let extent = manylogs_block::Extent::new(block.0 * 8, 8);
            if matches!(structure, Structure::Log(_)) && image.read(extent).is_zero() {
                continue;
            }
            let same = |kind: &&mut Vec<Structure>| {
                kind.first().is_some_and(|first| discriminant(first) == discriminant(structure))
            };
            match kinds.iter_mut().find(same) {
                Some(kind) => kind.push(*structure),
                None => kinds.push(vec![*structure]),
            }
        }
        Ok(Self { name: name.to_owned(), image, survey, kinds, is_at_rest })
    }
}

/// Makes small and large directories, sparse and fragmented files, links, and special files.
async fn fill(fs: &Ext4) -> Result<(), Error> {
    let plain = |kind| New::plain(kind, 0o755);
    let dir = fs.create(Ino::ROOT, b"dir", plain(FileKind::Directory)).await?.ino;
    for number in 0..200 {
        let name = format!("{number} {}", "n".repeat(100));
        fs.create(dir, name.as_bytes(), plain(FileKind::File)).await?;
    }
    let file = fs.create(Ino::ROOT, b"sparse", plain(FileKind::File)).await?.ino;
    for part in 0..20 {
        fs.write(file, part * 40_000, content(part, 300)).await?;
    }
    let other = fs.create(Ino::ROOT, b"whole", plain(FileKind::File)).await?.ino;
    fs.write(other, 0, content(99, 50_000)).await?;
    fs.link(other, dir, b"other name").await?;
    for (name, len) in [("short", 20), ("long", 300)] {
        let link = New { target: vec![b'l'; len].into(), ..plain(FileKind::Symlink) };
        fs.create(Ino::ROOT, name.as_bytes(), link).await?;
    }
    fs.create(Ino::ROOT, b"pipe", plain(FileKind::Fifo)).await?;
    let sub = fs.create(dir, b"sub", plain(FileKind::Directory)).await?.ino;
    fs.create(sub, b"leaf", plain(FileKind::File)).await?;
    Ok(())
}

/// Leaves transactions that are not at home, with revokes, an orphan, and blocks used again.
async fn leave(fs: &Ext4) -> Result<(), Error> {
    let new = New::plain(FileKind::Directory, 0o755);
    for number in 0..6 {
        let name = format!("new {number}").into_bytes();
        let dir = fs.create(Ino::ROOT, &name, new.clone()).await?.ino;
        let file = fs.create(dir, b"file", New::plain(FileKind::File, 0o600)).await?.ino;
        fs.write(file, 0, content(number, 9000)).await?;
        fs.sync(file).await?;
        if number % 2 == 0 {
            fs.open(file);
            fs.unlink(dir, b"file").await?;
            fs.remove_directory(Ino::ROOT, &name).await?;
            fs.sync(Ino::ROOT).await?;
        }
    }
    Ok(())
}
