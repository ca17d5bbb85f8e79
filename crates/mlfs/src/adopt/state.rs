//! How a file system was left: one answer for all commands.

use std::fmt;
use std::path::PathBuf;

use manylogs::LeftAs;
use manylogs_ext4::{Stage, Summary};

use super::{AdoptError, Held, LogState, Looked, Site, Volumes, look};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is mounted by MLFS, on this directory if that is known.
    Mounted(Option<PathBuf>),
    /// Another program has it.
    InUse,
    /// Plain ext4 that was unmounted.
    Clean,
    /// It was unmounted, or its logs were closed, and all that it holds is at home.
    Drained,
    /// It was unmounted, and the newest version of so many bytes is in its logs alone.
    Logged(u64),
    /// Its user was killed, or the power went: the next mount recovers it. Of an adopted one so
    /// many bytes are in its logs alone.
    Killed(Option<u64>),
    /// It is on its way to MLFS or back.
    Interrupted(Stage),
    /// A mount is refused until somebody repairs it. The text says why and what to do.
    NeedsRepair(String),
}

impl State {
    /// One word, of two at most, for programs.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Mounted(_) => "mounted",
            Self::InUse => "in use",
            Self::Clean => "clean",
            Self::Drained => "drained",
            Self::Logged(_) => "logged",
            Self::Killed(_) => "killed",
            Self::Interrupted(_) => "interrupted",
            Self::NeedsRepair(_) => "needs repair",
        }
    }

    /// Bytes whose newest version is in the logs alone, as far as there are logs and nobody uses
    /// them.
    #[must_use]
    pub const fn logged_bytes(&self) -> Option<u64> {
        match self {
            Self::Drained => Some(0),
            Self::Logged(bytes) => Some(*bytes),
            Self::Killed(bytes) => *bytes,
            _ => None,
        }
    }

    /// Whether somebody has it: commands that need it alone end with the exit code 5.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self, Self::Mounted(_) | Self::InUse)
    }

    /// Whether it must be repaired: commands that need a whole one end with the exit code 3.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::NeedsRepair(_))
    }

    /// What nobody has, by its superblock, and by its logs if it is adopted.
    fn at_rest(summary: &Summary, logs: Result<Option<Held>, &AdoptError>) -> Self {
        if summary.has_errors {
            let advice = match logs {
                Ok(None) => "run e2fsck -f",
                _ => "run manylogs fs release, and then e2fsck -f",
            };
            return Self::NeedsRepair(format!("errors were found in it: {advice}"));
        }
        match (logs, summary.pointer.map(|pointer| pointer.stage)) {
            (Err(why), _) => Self::NeedsRepair(why.to_string()),
            (Ok(Some(Held { left: LeftAs::Drained, .. })), _) => Self::Drained,
            (Ok(Some(Held { left: LeftAs::Closed, bytes })), _) => Self::Logged(bytes),
            (Ok(Some(Held { left: LeftAs::Open, bytes })), _) => Self::Killed(Some(bytes)),
            (Ok(None), Some(stage)) => Self::Interrupted(stage),
            (Ok(None), None) if summary.needs_recovery => Self::Killed(None),
            (Ok(None), None) => Self::Clean,
        }
    }
}

/// What is known of a file system that nobody uses.
#[derive(Clone, Debug)]
pub struct Known {
    /// How it was left.
    pub state: State,
    /// Its marks and logs.
    pub looked: Looked,
}

/// Looks at the marks, and at the logs as far as a mount would, and changes nothing. `summary` is
/// that of the first superblock.
///
/// # Errors
/// As [`look`].
pub async fn look_closely(site: &Site, summary: &Summary) -> Result<Known, AdoptError> {
    let looked = look(site, &Volumes).await?;
    let held = match &looked.logs {
        LogState::None => Ok(None),
        LogState::Drained(_) => Ok(Some(Held { left: LeftAs::Drained, bytes: 0 })),
        LogState::InUse(logs) => Volumes::held(site, logs).await.map(Some),
        LogState::Unusable(why) => Err(why.clone()),
    };
    let state = State::at_rest(summary, held.as_ref().map(|held| *held));
    Ok(Known { state, looked })
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = |bytes: u64| format!("{} in the logs alone", size(bytes));
        match self {
            Self::Mounted(Some(on)) => write!(f, "mounted on {}", on.display()),
            Self::Mounted(None) => f.write_str("mounted"),
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

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
