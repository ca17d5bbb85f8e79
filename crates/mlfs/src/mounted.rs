//! The file system with one journal or another.

use std::rc::Rc;

use manylogs::{OpenOptions, PhaseProbe, Volume};
use manylogs_block::{BlockDevice, Handle, Lba, Request, Sectors};
use manylogs_ext4::{BlockNo, Copies, Ext4, Mode, Options, Summary};
use manylogs_filters::Overlay;
use manylogs_near::{Near, NearError, NearOptions};
use manylogs_plant::{Bug, is};

use crate::adopt::{self, Site, Volumes};
use crate::{JournalMode, MountError};

/// Sectors that a recovery in memory changes at most: 1 GiB, the largest journal that mkfs makes.
/// What is in logs stays there and takes no memory.
const CHANGED_MOST: Sectors = Sectors(1 << 21);

/// A mounted file system, adopted or not.
#[derive(Debug)]
pub struct Mounted {
    mode: JournalMode,
    journal: Journal,
}

/// Where the journal is.
#[derive(Debug)]
enum Journal {
    /// It is ext4's own.
    Own(Ext4),
    /// The file system is adopted: it is in logs near the head.
    Near(Near),
}

impl Mounted {
    /// Mounts it in the mode that is wanted, or in the one that fits the file system. `probe`
    /// counts what the volume of its logs writes, if it has one.
    ///
    /// If it is to be read only, whatever a recovery writes stays in memory: nothing on the device
    /// is changed.
    pub async fn mount(
        wanted: Option<JournalMode>,
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        probe: PhaseProbe,
        options: Options,
    ) -> Result<Self, MountError> {
        use JournalMode::{Adaptive, Data, Manylogs, Ordered};
        let device = if options.read_only { to_read(device, &runtime) } else { device };
        let is_adopted = Copies::read(Rc::clone(&device)).await?.marks().is_adopted();
        let mode = wanted.unwrap_or(if is_adopted { Manylogs } else { Ordered });
        let mounted = match (mode, is_adopted) {
            (Ordered, false) => Journal::own(Mode::Ordered, device, runtime, options).await,
            (Data, false) => Journal::own(Mode::Data, device, runtime, options).await,
            (mode @ (Ordered | Data), true) => Err(MountError::Adopted(mode)),
            (mode @ (Manylogs | Adaptive), false) => Err(MountError::NotAdopted(mode)),
            (Manylogs, true) => Journal::near(None, device, runtime, probe, options).await,
            (Adaptive, true) => {
                let middle = Lba(device.capabilities().capacity.0 / 2);
                Journal::near(Some(middle), device, runtime, probe, options).await
            }
        };
        Ok(Self { mode, journal: mounted? })
    }

    /// The mode.
    #[must_use]
    pub const fn mode(&self) -> JournalMode {
        self.mode
    }

    /// The file system.
    #[must_use]
    pub const fn fs(&self) -> &Ext4 {
        match &self.journal {
            Journal::Own(fs) => fs,
            Journal::Near(near) => near.fs(),
        }
    }

    /// The volume of its logs, which are in use.
    #[must_use]
    pub const fn volume(&self) -> Option<&Volume> {
        match &self.journal {
            Journal::Own(_) => None,
            Journal::Near(near) => Some(near.volume()),
        }
    }

    /// Makes everything durable. What is logged stays so.
    ///
    /// # Errors
    /// Those of the device: the next mount recovers then.
    pub async fn unmount(self) -> Result<(), MountError> {
        match self.journal {
            Journal::Own(fs) => Ok(fs.unmount().await?),
            Journal::Near(near) => near.unmount().await.map_err(MountError::of_logs),
        }
    }
}

impl Journal {
    async fn own(
        mode: Mode,
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        options: Options,
    ) -> Result<Self, MountError> {
        if options.read_only && needs_recovery(&device).await? {
            let writing = Options { read_only: false, ..options.clone() };
            let recovering = Rc::clone(&device);
            Ext4::mount_in(mode, recovering, runtime.clone(), writing).await?.unmount().await?;
        }
        Ok(Self::Own(Ext4::mount_in(mode, device, runtime, options).await?))
    }

    /// All records go to the logs near `logs_near`, or each to the log nearest the head.
    async fn near(
        logs_near: Option<Lba>,
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        probe: PhaseProbe,
        options: Options,
    ) -> Result<Self, MountError> {
        let clock = Rc::clone(&options.clock);
        let site = Site { device: Rc::clone(&device), runtime: runtime.clone(), clock };
        if is(Bug::MlfsMarksBeforeChecks) {
            adopt::locate(&site, &Volumes).await?.complete().await?;
        }
        // Everything is read that could refuse the mount before anything is written.
        let located = adopt::locate(&site, &Volumes).await?;
        located.check(&site, &Volumes).await?;
        let to_read = options.read_only;
        // Opened to read it takes no sequences for records, as a drain does not.
        let (from, to_drain) = (Volumes::open_options(&located.logs)?, to_read);
        let open = OpenOptions { logs_near, probe, to_read, to_drain, ..from };
        let near = NearOptions { open, ..NearOptions::default() };
        let opening = Near::read(runtime, device, &near).await.map_err(MountError::of_logs)?;
        // Every mark is complete before the first record.
        located.complete().await?;
        let mounted = opening.begin(options).await;
        Ok(Self::Near(mounted.map_err(MountError::of_logs)?.0))
    }
}

/// A device that can be recovered without being changed.
fn to_read(device: Rc<dyn BlockDevice>, runtime: &Handle) -> Rc<dyn BlockDevice> {
    Rc::new(Overlay::new(runtime.clone(), device, CHANGED_MOST))
}

/// Whether its journal must be replayed.
async fn needs_recovery(device: &Rc<dyn BlockDevice>) -> Result<bool, MountError> {
    let block = device.submit(Request::Read { extent: BlockNo(0).sectors() }).await;
    let block = block.map_err(manylogs_ext4::Error::from)?.to_bytes().unwrap_or_default();
    Ok(Summary::of(&block).is_ok_and(|summary| summary.needs_recovery))
}

impl MountError {
    fn of_logs(error: NearError) -> Self {
        match error {
            NearError::FileSystem(error) => Self::FileSystem(error),
            error => Self::Logs(error),
        }
    }
}
