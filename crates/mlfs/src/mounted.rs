//! The file system with one journal or another.

use std::rc::Rc;

use manylogs::{OpenOptions, PhaseProbe, Volume};
use manylogs_block::{BlockDevice, Handle, Lba};
use manylogs_ext4::{Copies, Ext4, Mode, Options};
use manylogs_near::{Near, NearError, NearOptions};
use manylogs_plant::{Bug, is};

use crate::adopt::{self, Site, Volumes};
use crate::{JournalMode, MountError};

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
    pub async fn mount(
        wanted: Option<JournalMode>,
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        probe: PhaseProbe,
        options: Options,
    ) -> Result<Self, MountError> {
        use JournalMode::{Adaptive, Data, Manylogs, Ordered};
        let is_adopted = Copies::read(Rc::clone(&device)).await?.marks().is_adopted();
        let mode = wanted.unwrap_or(if is_adopted { Manylogs } else { Ordered });
        let mounted = match (mode, is_adopted) {
            (Ordered, false) => Journal::own(Mode::Ordered, device, runtime, options).await,
            (Data, false) => Journal::own(Mode::Data, device, runtime, options).await,
            (mode @ (Ordered | Data), true) => Err(MountError::Adopted(mode)),
            (mode @ (Manylogs | Adaptive), false) => Err(MountError::NotAdopted(mode)),
            (_, true) if options.read_only => Err(MountError::LogsAreWritten),
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
        let open = OpenOptions { logs_near, probe, ..Volumes::open_options(&located.logs)? };
        let near = NearOptions { open, ..NearOptions::default() };
        let opening = Near::read(runtime, device, &near).await.map_err(MountError::of_logs)?;
        // Every mark is complete before the first record.
        located.complete().await?;
        let mounted = opening.begin(options).await;
        Ok(Self::Near(mounted.map_err(MountError::of_logs)?.0))
    }
}

impl MountError {
    fn of_logs(error: NearError) -> Self {
        match error {
            NearError::FileSystem(error) => Self::FileSystem(error),
            error => Self::Logs(error),
        }
    }
}
