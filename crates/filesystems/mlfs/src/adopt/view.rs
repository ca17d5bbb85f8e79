//! A file system as a mount would show it, without a write to its disk.

use std::rc::Rc;

use manylogs::{OpenOptions, Volume};
use manylogs_block::{BlockDevice, Extent, IoError, Request, Sectors};
use manylogs_ext4::{BlockNo, Copies, Summary};
use manylogs_filters::Overlay;

use super::open::open;
use super::{AdoptError, Logs, Site, Volumes};

/// Most sectors that a recovery changes: 1 GiB, the largest journal. Versions in the logs stay
/// there and take no memory.
const CHANGED_MOST: Sectors = Sectors(1 << 21);

type Layer = Overlay<Rc<dyn BlockDevice>>;

/// A recovered file system: logged versions are read in place of their homes, the journal is
/// replayed, and orphans are deleted or cut. It is plain ext4 that needs no recovery. If it was
/// adopted, its log file is there, but has no live records. All changes are in memory.
///
/// Nobody may write to the disk while the view is in use.
pub struct View {
    /// The opened logs, over the disk, if it is adopted.
    opened: Option<Opened>,
    top: Rc<Layer>,
    /// State of the logs, if it is adopted.
    pub held: Option<Held>,
    /// What the superblock says after the recovery of the logs, before that of the journal.
    pub found: Summary,
    /// Why a mount would fail although its logs can be read. The view is then recovered only up to
    /// that failure.
    pub problem: Option<AdoptError>,
}

/// State of the logs of an adopted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whether they were closed in order, not left by a kill or a crash.
    pub was_closed: bool,
    /// Bytes of the file system whose newest version is only in a log.
    pub bytes: u64,
}

/// The opened logs.
struct Opened {
    logs: Logs,
    /// Holds the changes of their opening in memory.
    layer: Rc<Layer>,
    volume: Volume,
}

impl View {
    /// Recovers the file system of a site in memory, even if errors were found in it earlier:
    /// [`View::found`] tells whether.
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

    /// The superblock's summary of the whole file system, with free counts after the recovery.
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

    /// The device as it would be after a recovery.
    #[must_use]
    pub fn device(&self) -> Rc<dyn BlockDevice> {
        Rc::clone(&self.top) as Rc<_>
    }

    /// Where the view may differ from the disk: extents in order of address, which do not overlap.
    /// Changes within the logs are left out.
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

/// Opens the logs; writes of the opening stay in memory.
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

/// Makes the view plain ext4, then mounts and unmounts it, which recovers it.
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
