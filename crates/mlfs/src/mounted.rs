//! The file system with one journal or another.

use std::rc::Rc;

use manylogs::OpenOptions;
use manylogs_block::{BlockDevice, Handle};
use manylogs_ext4::{Ext4, Mode, Options};
use manylogs_near::{Near, NearError, NearOptions};

use crate::{MountError, NearJournal};

/// A mounted file system.
pub(crate) enum Mounted {
    /// Its journal is ext4's own.
    Own(Ext4),
    /// Its journal is in logs near the head.
    Near(Near),
}

impl Mounted {
    pub(crate) async fn mount(
        near: Option<NearJournal>,
        mode: Mode,
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        options: Options,
    ) -> Result<Self, MountError> {
        let Some(NearJournal { anchors, logs_near }) = near else {
            return Ok(Self::Own(Ext4::mount_in(mode, device, runtime, options).await?));
        };
        let open = OpenOptions { anchors: Some(anchors), logs_near, ..OpenOptions::default() };
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
