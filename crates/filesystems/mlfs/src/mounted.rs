//! The file system with one journal or another.

use std::rc::Rc;

use manylogs::{OpenOptions, PhaseProbe, Volume};
use manylogs_block::{BlockDevice, Handle, Lba};
use manylogs_ext4::{Copies, Ext4, Mode, Options};
use manylogs_near::{Near, NearError, NearOptions};
use manylogs_plant::{Bug, is};

use crate::adopt::{self, Site, View, Volumes};
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
    /// Ext4's own journal.
    Own(Ext4),
    /// The journal is in logs near the head: the file system is adopted.
    Near(Near),
    /// No journal: the file system is mounted read-only, on a view of the device.
    None(Ext4, Box<View>),
}

impl Mounted {
    /// Mounts the file system in the `wanted` mode, or by default in the mode that fits it. `probe`
    /// counts the writes of the volume of its logs, if it has one.
    ///
    /// If it is read-only, the writes of a recovery stay in memory: the device is not changed.
    pub async fn mount(
        wanted: Option<JournalMode>,
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        probe: PhaseProbe,
        options: Options,
    ) -> Result<Self, MountError> {
        use JournalMode::{Adaptive, AdaptiveJbd2, Data, Lazy, Manylogs, ManylogsLazy, Ordered};
        let copies = Copies::read(Rc::clone(&device)).await?;
        let is_adopted = copies.marks().is_adopted();
        let mode = wanted.unwrap_or(if is_adopted { Manylogs } else { Ordered });
        match (mode.is_near(), is_adopted) {
            (false, true) => return Err(MountError::Adopted(mode)),
            (true, false) => return Err(MountError::NotAdopted(mode)),
            _ => {}
        }
        if options.read_only {
            copies.check_errors()?;
        }
        let journal = match mode {
            _ if options.read_only => Journal::none(device, runtime, options).await,
            Ordered => Journal::own(Mode::Ordered, device, runtime, options).await,
            Lazy => Journal::own(Mode::Lazy, device, runtime, options).await,
            Data => Journal::own(Mode::Data, device, runtime, options).await,
            AdaptiveJbd2 => Journal::own(Mode::Runs, device, runtime, options).await,
            Manylogs | ManylogsLazy | Adaptive => {
                Journal::near(mode, device, runtime, probe, options).await
            }
        };
        Ok(Self { mode, journal: journal? })
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
            Journal::Own(fs) | Journal::None(fs, _) => fs,
            Journal::Near(near) => near.fs(),
        }
    }

    /// The volume of its logs, if it is adopted.
    #[must_use]
    pub fn volume(&self) -> Option<&Volume> {
        match &self.journal {
            Journal::Own(_) => None,
            Journal::Near(near) => Some(near.volume()),
            Journal::None(_, view) => view.volume(),
        }
    }

    /// Whether the logs may keep files that need durability and no place.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        matches!(self.journal, Journal::Near(_))
    }

    /// Makes everything durable. Logged versions stay in the logs.
    ///
    /// # Errors
    /// Those of the device: the next mount recovers then.
    pub async fn unmount(self) -> Result<(), MountError> {
        match self.journal {
            Journal::Own(fs) | Journal::None(fs, _) => Ok(fs.unmount().await?),
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

    /// Mounts on a view: logged versions are read in place of their homes, and the journal is
    /// replayed in memory.
    async fn none(
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        options: Options,
    ) -> Result<Self, MountError> {
        let clock = Rc::clone(&options.clock);
        let mut view = View::of(&Site { device, runtime: runtime.clone(), clock }).await?;
        if let Some(problem) = view.problem.take() {
            return Err(problem.into());
        }
        let fs = Ext4::mount(view.device(), runtime, options).await?;
        Ok(Self::None(fs, Box::new(view)))
    }

    /// Each record goes to the log nearest the head; in the mode `adaptive` all go to the logs in
    /// the middle.
    async fn near(
        mode: JournalMode,
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
        // Everything that could refuse the mount is read before anything is written.
        let located = adopt::locate(&site, &Volumes).await?;
        located.check(&site, &Volumes).await?;
        let middle = Lba(device.capabilities().capacity.0 / 2);
        let logs_near = (mode == JournalMode::Adaptive).then_some(middle);
        let open = OpenOptions { logs_near, probe, ..Volumes::open_options(&located.logs)? };
        let keeps_metadata = mode == JournalMode::ManylogsLazy;
        let near = NearOptions { open, keeps_metadata, ..NearOptions::default() };
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
