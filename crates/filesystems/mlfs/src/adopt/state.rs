//! The state in which a file system was left, the same for all commands.

use std::fmt;
use std::path::PathBuf;

use manylogs_ext4::{Error, Stage, Summary};

use super::{AdoptError, Held, LogState, Looked, Site, View, Volumes, look};

/// The state of a file system, in use or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is mounted by MLFS.
    Mounted {
        /// The directory that it is mounted on.
        on: PathBuf,
        /// Bytes whose newest version is only in its logs, if it is adopted and its server tells.
        logged: Option<u64>,
    },
    /// Another program uses it.
    InUse,
    /// Plain ext4 that was unmounted.
    Clean,
    /// It was unmounted, or its logs were closed, and all that it holds is at home.
    Drained,
    /// It was unmounted, and the newest version of this number of bytes is only in its logs.
    Logged(u64),
    /// Its server was killed or the power was cut: the next mount recovers it. If it is adopted,
    /// the newest version of this number of bytes is only in its logs.
    Killed(Option<u64>),
    /// A take-over or a release was interrupted.
    Interrupted(Stage),
    /// A mount is refused until it is repaired. The text says why and what to do.
    NeedsRepair(String),
}

impl State {
    /// The state in one or two words, for programs.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Mounted { .. } => "mounted",
            Self::InUse => "in use",
            Self::Clean => "clean",
            Self::Drained => "drained",
            Self::Logged(_) => "logged",
            Self::Killed(_) => "killed",
            Self::Interrupted(_) => "interrupted",
            Self::NeedsRepair(_) => "needs repair",
        }
    }

    /// Bytes whose newest version is only in the logs; `None` if there are no logs or this is
    /// unknown.
    #[must_use]
    pub const fn logged_bytes(&self) -> Option<u64> {
        match self {
            Self::Drained => Some(0),
            Self::Logged(bytes) => Some(*bytes),
            Self::Mounted { logged: bytes, .. } | Self::Killed(bytes) => *bytes,
            _ => None,
        }
    }

    /// Whether it is in use: commands that need it for themselves end with the exit code 5.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self, Self::Mounted { .. } | Self::InUse)
    }

    /// Whether it must be repaired: commands that need a sound one end with the exit code 3.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::NeedsRepair(_))
    }

    /// The state of an unused file system by its superblock, if it is plain ext4 or was interrupted
    /// on its way.
    #[must_use]
    pub fn of_superblock(summary: &Summary) -> Self {
        match summary.pointer.map(|pointer| pointer.stage) {
            _ if summary.has_errors => Self::errors("run e2fsck -f"),
            Some(stage) => Self::Interrupted(stage),
            None if summary.needs_recovery => Self::Killed(None),
            None => Self::Clean,
        }
    }

    /// The state of an unused file system by its logs.
    fn of_view(view: &View, held: Held) -> Self {
        match &view.problem {
            _ if view.found.has_errors => Self::with_errors(),
            Some(why) => Self::NeedsRepair(why.to_string()),
            None if held.was_closed => Self::Logged(held.bytes),
            None => Self::Killed(Some(held.bytes)),
        }
    }

    fn with_errors() -> Self {
        Self::errors("run manylogs fs release, and then e2fsck -f")
    }

    fn errors(advice: &str) -> Self {
        Self::NeedsRepair(format!("errors were found in it earlier: {advice}"))
    }
}

/// All that is known of a file system that nobody uses.
#[derive(Clone, Debug)]
pub struct Known {
    /// How it was left.
    pub state: State,
    /// Its marks and logs.
    pub looked: Looked,
    /// What its newest superblock says. For an adopted one the free counts are those after a
    /// recovery.
    pub summary: Summary,
}

/// Looks at the marks, and at the logs as far as a mount would. Nothing is written. `first` is the
/// superblock on the disk.
///
/// # Errors
/// As [`look`], and those of the device.
pub async fn look_closely(site: &Site, first: Summary) -> Result<Known, AdoptError> {
    let looked = look(site, &Volumes).await?;
    let (state, summary) = match &looked.logs {
        LogState::None => (State::of_superblock(&first), first),
        LogState::Drained(_) if first.has_errors => (State::with_errors(), first),
        LogState::Drained(_) => (State::Drained, first),
        LogState::Unusable(why) => (State::NeedsRepair(why.to_string()), first),
        LogState::InUse(_) => match View::of(site).await {
            Ok(view) => {
                let held = view.held.unwrap_or(Held { was_closed: true, bytes: 0 });
                // The view is plain ext4, but the disk is not: these fields are the disk's.
                let Summary { pointer, features, refusal, .. } = first;
                let seen = view.summary().await?;
                (State::of_view(&view, held), Summary { pointer, features, refusal, ..seen })
            }
            Err(error @ AdoptError::FileSystem(Error::Io(_))) => return Err(error),
            Err(why) => (State::NeedsRepair(why.to_string()), first),
        },
    };
    Ok(Known { state, looked, summary })
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = |bytes: u64| format!("{} in the logs alone", size(bytes));
        match self {
            Self::Mounted { on, logged } => {
                write!(f, "mounted on {}", on.display())?;
                match logged {
                    None => Ok(()),
                    Some(0) => f.write_str(": everything is at home"),
                    Some(bytes) => write!(f, ", with {}", alone(*bytes)),
                }
            }
            Self::InUse => f.write_str("in use by another program"),
            Self::Clean => f.write_str("clean"),
            Self::Drained => f.write_str("drained: everything is at home"),
            Self::Logged(bytes) => write!(f, "unmounted, with {}", alone(*bytes)),
            Self::Killed(held) => {
                f.write_str("left by a kill or a crash: the next mount recovers it")?;
                held.map_or(Ok(()), |bytes| write!(f, "; {}", alone(bytes)))
            }
            Self::Interrupted(Stage::GivingBack) => {
                f.write_str("giving it back was interrupted: run manylogs fs release again")
            }
            Self::Interrupted(_) => f.write_str(
                "taking it over was interrupted: run manylogs fs adopt again, or undo it with \
                 manylogs fs release",
            ),
            Self::NeedsRepair(why) => write!(f, "needs repair: {why}"),
        }
    }
}

/// A number of bytes as text for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
