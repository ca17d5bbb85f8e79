//! The file system with one journal or another.

use std::rc::Rc;

use manylogs::OpenOptions;
use manylogs_block::{BlockDevice, Handle, Lba};
use manylogs_ext4::{Copies, Ext4, Mode, Options};
use manylogs_near::{Near, NearError, NearOptions};

use crate::adopt::{self, Site, Volumes};
use crate::{JournalMode, MountError};

/// A mounted file system.
pub(crate) enum Mounted {
    /// Its journal is ext4's own.
    Own(Ext4),
    /// It is adopted: its journal is in logs near the head.
    Near(Near),
}

impl Mounted {
    /// Mounts it in the mode that is wanted, or in the one that fits the file system.
    pub(crate) async fn mount(
        wanted: Option<JournalMode>,
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        options: Options,
    ) -> Result<Self, MountError> {
        use JournalMode::{Adaptive, Data, Manylogs, Ordered};
        let is_adopted = Copies::read(Rc::clone(&device)).await?.marks().is_adopted();
        match (wanted.unwrap_or(if is_adopted { Manylogs } else { Ordered }), is_adopted) {
            (Ordered, false) => Self::own(Mode::Ordered, device, runtime, options).await,
            (Data, false) => Self::own(Mode::Data, device, runtime, options).await,
            (mode @ (Ordered | Data), true) => Err(MountError::Adopted(mode)),
            (mode @ (Manylogs | Adaptive), false) => Err(MountError::NotAdopted(mode)),
            (_, true) if options.read_only => Err(MountError::LogsAreWritten),
            (Manylogs, true) => Self::near(None, device, runtime, options).await,
            (Adaptive, true) => {
                let middle = Lba(device.capabilities().capacity.0 / 2);
                Self::near(Some(middle), device, runtime, options).await
            }
        }
    }

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
        options: Options,
    ) -> Result<Self, MountError> {
        let clock = Rc::clone(&options.clock);
        let site = Site { device: Rc::clone(&device), runtime: runtime.clone(), clock };
        // Every mark is complete before the first record.
        let opened = adopt::open(&site, &Volumes).await?;
        let open = OpenOptions { logs_near, ..Volumes::open_options(&opened.logs)? };
        let near = NearOptions { open, ..NearOptions::default() };
        let mounted = Near::mount(runtime, device, &near, options).await;
        Ok(Self::Near(mounted.map_err(MountError::of_logs)?.0))
    }

    pub(crate) const fn fs(&self) -> &Ext4 {
        match self {
            Self::Own(fs) => fs,
            Self::Near(near) => near.fs(),
        }
    }

    /// The log file is in use.
    pub(crate) const fn is_adopted(&self) -> bool {
        matches!(self, Self::Near(_))
    }

    /// Makes everything durable. What is logged stays so.
    pub(crate) async fn unmount(self) -> Result<(), MountError> {
        match self {
            Self::Own(fs) => Ok(fs.unmount().await?),
            Self::Near(near) => near.unmount().await.map_err(MountError::of_logs),
        }
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
