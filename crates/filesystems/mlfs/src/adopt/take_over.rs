//! Takes a file system over from ext4 to MLFS.

use std::rc::Rc;

use manylogs_ext4::{
    Copies, Error, Ext4, GroupNo, LogFile, Marks, Pointer, Refusal, Run, Stage, Wanted,
};
use manylogs_plant::{Bug, is};

use super::layout::LogLayout;
use super::open::locate_by;
use super::{AdoptError, LogEngine, Logs, Site};

/// A file system that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its logs.
    pub logs: Logs,
    /// Whether this call continued an earlier attempt that was interrupted.
    pub went_on: bool,
}

/// Takes the file system over, or continues an interrupted take-over. Nothing is copied. When this
/// returns, it belongs to MLFS durably. A crash before that leaves ext4, or MLFS with empty logs.
///
/// # Errors
/// See [`AdoptError`]. After [`AdoptError::NoRoom`] and [`AdoptError::NameTaken`] it is ext4 as
/// before.
pub async fn adopt(
    site: &Site,
    layout: &LogLayout,
    engine: &impl LogEngine,
) -> Result<Adopted, AdoptError> {
    let mut copies = Copies::read(Rc::clone(&site.device)).await?;
    let marks = copies.marks();
    let stage = marks.pointer.map(|pointer| pointer.stage);
    if stage == Some(Stage::Adopted) {
        if marks.are_complete() && !marks.torn {
            return Err(AdoptError::AlreadyAdopted);
        }
        let located = locate_by(site, engine, copies).await?;
        located.check(site, engine).await?;
        let opened = located.complete().await?;
        return Ok(Adopted { logs: opened.logs, went_on: true });
    }
    copies.check_errors()?;
    if stage.is_none() {
        check_fresh(site, layout, engine, &copies, &marks).await?;
    }
    if !marks.backups_with.is_empty() {
        copies.mark_backups(false).await?;
    }
    copies.mark_primary(Some(Pointer::empty(Stage::TakingOver)), false).await?;
    let places = Places::of(layout, &copies);
    let built = build(site, &places, engine.blocks_least(), &mut copies).await;
    // The mount in `build` has written the superblock, so it is read again.
    let mut copies = Copies::read(Rc::clone(&site.device)).await?;
    let file = match built {
        Ok(file) => file,
        Err(error) => {
            if is_change_free(&error) {
                copies.mark_primary(None, false).await?;
            }
            return Err(error);
        }
    };
    let logs = Logs::of(copies.uuid(), &file);
    engine.format(site, &logs).await?;
    copies.mark_primary(Some(pointer_to(&file)), true).await?;
    copies.mark_backups(true).await?;
    Ok(Adopted { logs, went_on: stage.is_some() })
}

/// Whether the take-over ended before anything but the stage was changed.
fn is_change_free(error: &AdoptError) -> bool {
    let no_file = matches!(error, AdoptError::FileSystem(Error::NoSpace | Error::Unsupported(_)));
    no_file || matches!(error, AdoptError::NoRoom { .. } | AdoptError::NameTaken)
}

/// The pointer of a file system that is adopted.
pub(super) fn pointer_to(file: &LogFile) -> Pointer {
    let start = |run: Option<&Run>| run.map_or_else(Default::default, |run| run.start);
    Pointer {
        stage: Stage::Adopted,
        ino: Some(file.ino),
        first: start(file.runs.first()),
        last: start(file.runs.last()),
        map_sum: Pointer::sum(&file.runs),
    }
}

/// Checks that a take-over can begin: the file system is clean, the log file's name is free, and
/// there is room for logs. Nothing is written.
async fn check_fresh(
    site: &Site,
    layout: &LogLayout,
    engine: &impl LogEngine,
    copies: &Copies,
    marks: &Marks,
) -> Result<(), AdoptError> {
    if marks.primary {
        return Err(AdoptError::BitWithoutPointer);
    }
    if copies.has_foreign_pointer() {
        return Err(AdoptError::BytesTaken);
    }
    if copies.needs_recovery() {
        return Err(Refusal::NeedsCheck("it was not unmounted cleanly").into());
    }
    if copies.has_orphans() {
        return Err(Refusal::NeedsCheck("there are orphans").into());
    }
    engine.check_device(site)?;
    let fs = site.mount(true).await?;
    fs.check_log_file()?;
    let places = Places::of(layout, copies);
    match fs.log_file().await.map_err(named)? {
        // Left by an interrupted release, after which the superblock was restored.
        Some(file) if file.is_immutable => return Ok(()),
        Some(_) => return Err(AdoptError::NameTaken),
        None => {}
    }
    let mut room = 0;
    for group in &places.groups {
        room += fs.place_for_log(*group, layout.wanted).await?.map_or(0, |run| run.blocks.into());
        if room >= engine.blocks_least().max(1) {
            return Ok(());
        }
    }
    Err(places.no_room(&fs).await?)
}

/// Maps [`Error::Exists`]: a file with the log file's name that is no log file is in the way.
fn named(error: Error) -> AdoptError {
    match error {
        Error::Exists => AdoptError::NameTaken,
        other => other.into(),
    }
}

/// Where room for logs is searched in one file system.
struct Places {
    layout: LogLayout,
    groups: Vec<GroupNo>,
    blocks_per_group: u32,
    all_groups: u32,
}

impl Places {
    fn of(layout: &LogLayout, copies: &Copies) -> Self {
        let (blocks_per_group, all_groups) = copies.groups();
        let groups = layout.groups(blocks_per_group, all_groups).collect();
        Self { layout: *layout, groups, blocks_per_group, all_groups }
    }

    /// The error that there is no room, with the free runs that were found.
    async fn no_room(&self, fs: &Ext4) -> Result<AdoptError, AdoptError> {
        let least_blocks = self.layout.wanted.least;
        let any = Wanted { most: u32::MAX, least: 1 };
        let mut longest: Option<Run> = None;
        for group in &self.groups {
            let found = fs.place_for_log(*group, any).await?;
            longest = longest.into_iter().chain(found).max_by_key(|run| run.blocks);
        }
        let mut elsewhere = None;
        for group in (0..self.all_groups).map(GroupNo) {
            if elsewhere.is_none() && !self.groups.contains(&group) {
                elsewhere = fs.place_for_log(group, self.layout.wanted).await?;
            }
        }
        Ok(AdoptError::NoRoom { least_blocks, longest, elsewhere })
    }

    /// Whether an existing log file can be kept and extended.
    fn keep(&self, file: &LogFile) -> bool {
        file.is_immutable && self.layout.fits(&file.runs, self.blocks_per_group, self.all_groups)
    }
}

/// Allocates the log file, or extends an existing one, and makes it durable at home.
async fn build(
    site: &Site,
    places: &Places,
    needed: u64,
    copies: &mut Copies,
) -> Result<LogFile, AdoptError> {
    let mut fs = site.mount(false).await?;
    let mut found = fs.log_file().await;
    if let Ok(Some(file)) = &found
        && !places.keep(file)
    {
        fs.remove_log_file().await?;
        // Its blocks are free for others when the removal is durable.
        fs.unmount().await?;
        fs = site.mount(false).await?;
        found = Ok(None);
    }
    let built = match found {
        Ok(found) => grow(&fs, places, found).await,
        Err(error) => Err(named(error)),
    };
    if let Ok(Some(file)) = &built
        && is(Bug::MlfsPointerEarly)
    {
        copies.mark_primary(Some(pointer_to(file)), true).await?;
    }
    let built = match built {
        Ok(Some(file)) if file.blocks() >= needed.max(1) => Ok(file),
        Ok(file) => {
            if file.is_some() {
                fs.remove_log_file().await?;
            }
            Err(places.no_room(&fs).await?)
        }
        Err(error) => Err(error),
    };
    fs.unmount().await?;
    built
}

/// Adds the logs that are missing; `None` if there is no room for any.
async fn grow(
    fs: &Ext4,
    places: &Places,
    found: Option<LogFile>,
) -> Result<Option<LogFile>, AdoptError> {
    let per_group = u64::from(places.blocks_per_group);
    let last = found.as_ref().and_then(|file| file.runs.last()).copied();
    let done = last.map_or(0, |run| run.start.0 / per_group + 1);
    let mut ino = found.map(|file| file.ino);
    for group in places.groups.iter().filter(|group| u64::from(group.0) >= done) {
        let Some(run) = fs.place_for_log(*group, places.layout.wanted).await? else { continue };
        let file = match ino {
            Some(ino) => ino,
            None => *ino.insert(fs.create_log_file().await.map_err(named)?),
        };
        match fs.add_log(file, run).await {
            Err(Error::NoSpace) => break,
            added => added?,
        }
    }
    fs.log_file().await.map_err(named)
}
