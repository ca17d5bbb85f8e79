//! Finds out the state of a file system, for all commands alike.

use std::path::{Path, PathBuf};

use manylogs_ext4::Summary;
use manylogs_mlfs::adopt::{Known as AtRest, Looked, Site, State, look_closely};
use manylogs_operate::status::Status;
use manylogs_storage::{OpenMode, Reactor};

use super::mounted::{is_directory, resolved, source_of};
use super::status::first_block;
use super::{adopt, contents, marks};
use crate::commands::live;
use crate::commands::serve::control_failure;
use crate::failure::Failure;

/// A file system and its state.
pub(super) struct Known {
    /// The disk, partition or image.
    pub(super) source: PathBuf,
    pub(super) state: State,
    /// The newest known version of its superblock.
    pub(super) summary: Summary,
    /// Its marks and logs, if it has any and is not in use.
    pub(super) looked: Option<Looked>,
    /// The status of its server, if it is mounted.
    pub(super) server: Option<Status>,
}

impl Known {
    /// Looks at a mount point, or at a disk, partition or image.
    pub(super) fn of(place: &Path) -> Result<Self, Failure> {
        let mounted = mounted_source(place)?;
        let source = mounted.as_deref().unwrap_or(place);
        let server = live::server(source)?.map(|mut it| it.status().map_err(control_failure));
        let server = server.transpose()?.filter(|status| status.file_system.is_some());
        let served = server.as_ref().and_then(|status| status.file_system.as_ref());
        // A read-only mount's server takes no orders.
        let on = match (served, &mounted) {
            (Some(served), _) => Some(PathBuf::from(&served.mounted_on)),
            (None, Some(_)) => Some(resolved(place)?),
            (None, None) => None,
        };
        let Some(on) = on else { return Self::without_server(source) };
        let has_logs = server.as_ref().is_some_and(|status| status.volume.is_some());
        let logged = served.filter(|_| has_logs).map(|served| served.bytes_at_risk);
        let mut summary = summary_of(source)?;
        // The superblock on the disk has the free space at the time of the mount.
        let now = rustix::fs::statvfs(&on).map_err(Failure::failed)?;
        (summary.free_blocks, summary.free_inodes) = (now.f_bfree, now.f_ffree);
        let state = State::Mounted { on, logged };
        Ok(Self { source: source.to_owned(), state, summary, looked: None, server })
    }

    fn without_server(source: &Path) -> Result<Self, Failure> {
        let first = summary_of(source)?;
        match adopt::open(source, OpenMode::ReadOnly) {
            Ok((reactor, site)) => Self::at_rest(source, (&reactor, &site), first),
            Err(Failure::Busy(_)) => {
                let (source, state) = (source.to_owned(), State::InUse);
                Ok(Self { source, state, summary: first, looked: None, server: None })
            }
            Err(failure) => Err(failure),
        }
    }

    /// Looks at a disk that the caller has locked; `first` is its superblock.
    pub(super) fn at_rest(
        source: &Path,
        (reactor, site): (&Reactor, &Site),
        first: Summary,
    ) -> Result<Self, Failure> {
        let (state, summary, looked) = if marks::is_marked(&first) {
            let site = site.clone();
            let found = reactor.block_on(async move { look_closely(&site, first).await });
            let AtRest { state, summary, looked } =
                found.map_err(|error| adopt::failure(source, &error))?;
            (state, summary, Some(looked))
        } else {
            (State::of_superblock(&first), first, None)
        };
        Ok(Self { source: source.to_owned(), state, summary, looked, server: None })
    }

    /// Where it is mounted.
    pub(super) fn mounted_on(&self) -> Option<&Path> {
        match &self.state {
            State::Mounted { on, .. } => Some(on),
            _ => None,
        }
    }
}

/// The source of the mount on a directory; `None` if `place` is no directory.
fn mounted_source(place: &Path) -> Result<Option<PathBuf>, Failure> {
    if !is_directory(place) {
        return Ok(None);
    }
    let none = || {
        let place = place.display();
        Failure::input(format!("{place}: no file system of manylogs is mounted there"))
    };
    source_of(place)?.ok_or_else(none).map(Some)
}

fn summary_of(source: &Path) -> Result<Summary, Failure> {
    Summary::of(&first_block(source)?).map_err(|error| {
        let is_other = contents::is_other(&error);
        let named = || Failure::input(format!("{}: {error}", source.display()));
        if is_other { contents::no_ext4(source) } else { named() }
    })
}
