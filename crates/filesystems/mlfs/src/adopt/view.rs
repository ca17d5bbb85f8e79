//! A file system as a mount would show it, while nothing is written to its disk.

use std::rc::Rc;

use manylogs::{OpenOptions, Volume};
use manylogs_block::{BlockDevice, Extent, IoError, Request, Sectors};
use manylogs_ext4::{BlockNo, Copies, Summary};
use manylogs_filters::Overlay;

use super::open::open;
use super::{AdoptError, Logs, Site, Volumes};

/// Sectors that a recovery changes at most: 1 GiB, the largest journal. What is in logs stays there
/// and takes no memory.
const CHANGED_MOST: Sectors = Sectors(1 << 21);

type Layer = Overlay<Rc<dyn BlockDevice>>;

/// Everything that is durable is where ext4 looks for it: the homes with the logs over them, the
/// journal replayed, orphans ended. It is plain ext4 then, of which nothing needs a recovery; if it
/// was adopted, it has a log file in which nothing counts. All of that is in memory.
///
/// Nobody may write to the disk as long as the view is in use.
pub struct View {
    /// Over the disk, if its logs are read.
    opened: Option<Opened>,
    top: Rc<Layer>,
    /// What the logs hold, if it is adopted.
    pub held: Option<Held>,
    /// What the superblock says before anything is recovered but the logs.
    pub found: Summary,
    /// Why a mount would fail although its logs can be read: the view is then what is known until
    /// there.
    pub problem: Option<AdoptError>,
}

/// What the logs of an adopted file system hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// They were closed in order, and not left by a kill or a crash.
    pub was_closed: bool,
    /// Bytes of the file system whose newest version is in a log alone.
    pub bytes: u64,
}

/// Logs that are read.
struct Opened {
    logs: Logs,
    /// What their opening changes.
    layer: Rc<Layer>,
    volume: Volume,
}

impl View {
    /// Recovers the file system of a site in memory. Errors that were found earlier do not stop
    /// that: whoever wants to know looks at the superblock.
    ///
    /// # Errors
    /// Those of reading the superblocks and of [`open`], and [`AdoptError::Damaged`] if a mount
    /// would refuse the logs.
    pub async fn of(site: &Site) -> Result<Self, AdoptError> {
        let copies = Copies::read(Rc::clone(&site.device)).await?;
        let opened = if copies.marks().is_adopted() { Some(over_logs(site).await?) } else { None };
        let (opened, held) = opened.unzip();
        let below: Rc<dyn BlockDevice> = match &opened {
            Some(opened) => Rc::new(opened.volume.clone()),
            None => Rc::clone(&site.device),
        };
        let top = Rc::new(Overlay::new(site.runtime.clone(), below, CHANGED_MOST));
        let site = site.over(Rc::clone(&top) as Rc<_>);
        let found = summary_of(&site.device).await?;
        let problem = settle(&site).await.err();
        Ok(Self { opened, top, held, found, problem })
    }

    /// What the superblock says of the whole file system, with counts that are right.
    ///
    /// # Errors
    /// Those of reading it.
    pub async fn summary(&self) -> Result<Summary, AdoptError> {
        summary_of(&self.device()).await
    }

    /// The volume of its logs, which is only read.
    #[must_use]
    pub fn volume(&self) -> Option<&Volume> {
        self.opened.as_ref().map(|opened| &opened.volume)
    }

    /// The device as it would be.
    #[must_use]
    pub fn device(&self) -> Rc<dyn BlockDevice> {
        Rc::clone(&self.top) as Rc<_>
    }

    /// Where it may differ from the disk: extents by address, which do not overlap. What the logs
    /// themselves hold is left out: nobody can read that through them.
    #[must_use]
    pub fn differs(&self) -> Vec<Extent> {
        let mut all = self.top.changed();
        if let Some(Opened { logs, layer, volume }) = &self.opened {
            all.extend(layer.changed().into_iter().filter(|extent| !logs.have(*extent)));
            all.extend(volume.table().iter().map(|mapped| mapped.extent));
        }
        all.sort_unstable();
        let mut apart: Vec<Extent> = Vec::new();
        for extent in all {
            match apart.last_mut() {
                Some(last) if extent.start <= last.end() => {
                    *last = Extent::between(last.start, last.end().max(extent.end()));
                }
                _ => apart.push(extent),
            }
        }
        apart
    }
}

async fn summary_of(device: &Rc<dyn BlockDevice>) -> Result<Summary, AdoptError> {
    let read = device.submit(Request::Read { extent: BlockNo(0).sectors() }).await?;
    Ok(Summary::of(&read.to_bytes().ok_or(IoError::Unsupported)?)?)
}

/// Opens the logs, whatever that writes.
async fn over_logs(site: &Site) -> Result<(Opened, Held), AdoptError> {
    let device = Rc::clone(&site.device);
    let layer = Rc::new(Overlay::new(site.runtime.clone(), device, CHANGED_MOST));
    let site = site.over(Rc::clone(&layer) as Rc<_>);
    let logs = open(&site, &Volumes).await?.logs;
    let options = OpenOptions { to_read: true, to_drain: true, ..Volumes::open_options(&logs)? };
    let device = Rc::clone(&site.device);
    let (volume, report) = Volume::open(site.runtime.clone(), device, &options).await?;
    let bytes = volume.table().iter().map(|mapped| mapped.extent.len.bytes()).sum();
    Ok((Opened { logs, layer, volume }, Held { was_closed: report.was_closed, bytes }))
}

/// Makes it plain ext4, mounts it and unmounts it.
async fn settle(site: &Site) -> Result<(), AdoptError> {
    let mut copies = Copies::read(Rc::clone(&site.device)).await?;
    if copies.check_errors().is_err() {
        copies.forget_errors().await?;
    }
    if copies.marks().is_adopted() {
        copies.mark_primary(None, false).await?;
    }
    Ok(site.mount(false).await?.unmount().await?)
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("opened", &self.opened.is_some())
            .field("top", &self.top)
            .field("problem", &self.problem)
            .finish()
    }
}
