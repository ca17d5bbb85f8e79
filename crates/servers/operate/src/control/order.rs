//! What an operator can order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Orders of an operator to a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Return the [`crate::status::Status`].
    Status,
    /// Change settings, each given as `key=value`, and return all settings. The volume keeps the
    /// changes.
    Set {
        /// The changes; empty to return the settings only.
        changes: Vec<String>,
    },
    /// Write all logged versions home, now.
    Checkpoint,
    /// Write metadata that stays in the journal anew, in the order of a walk of the tree.
    Arrange,
    /// Read all metadata that stays in the journal, and write anew what is damaged and known.
    Scrub,
    /// Write a table snapshot.
    Snapshot,
    /// Borrow one more store, now and at every opening.
    AddStore {
        /// Its address, as `manylogs lend` prints it.
        address: String,
    },
    /// Empty a store in the background, and return once it takes no more writes, durably.
    EvacuateStore {
        /// Its name.
        store: String,
    },
    /// Give a store up, and return when it holds nothing any more, or nothing that can be read.
    RemoveStore {
        /// Its name.
        store: String,
        /// Whether what no store returns whole may be lost: otherwise it keeps the store.
        #[serde(default)]
        accept_loss: bool,
    },
    /// Forget a store that is gone for good; the ranges that only it had are listed, and lost if
    /// that is accepted.
    ForgetStore {
        /// Its name.
        store: String,
        /// Whether these ranges may be lost: otherwise nothing is changed if there are any.
        accept_loss: bool,
    },
    /// Let a drive take the place of a half of a mirrored pair of a chain, and return when it has
    /// everything.
    ReplaceMember {
        /// The half, by the path of its drive or as `PAIR.HALF`, counted from 1.
        old: String,
        /// Path of the new drive.
        new: PathBuf,
    },
    /// Add a link of these drives to a chain, and return when all labels name it.
    AddMember {
        /// Paths of the new drives: one, or two if the chain is of pairs.
        new: Vec<PathBuf>,
    },
    /// Empty a link of a chain, and return when the chain has forgotten it.
    RemoveMember {
        /// The link, by the path of a drive of it or by its number, counted from 1.
        old: String,
        /// Whether what cannot be read there may be lost.
        #[serde(default)]
        accept_loss: bool,
    },
    /// Start the count of the emulated drive's lateness anew.
    ForgetLateness,
    /// Finish what is under way, close the volume, and end.
    Stop {
        /// Do so even while the device is in use.
        force: bool,
    },
}

impl Order {
    /// The order as the log names it; `None` if it changes nothing.
    pub(super) fn named(&self) -> Option<String> {
        let named = match self {
            Self::Set { changes } if !changes.is_empty() => format!("set {}", changes.join(" ")),
            Self::Checkpoint => "checkpoint".to_owned(),
            Self::Arrange => "arrange".to_owned(),
            Self::Scrub => "scrub".to_owned(),
            Self::Snapshot => "snapshot".to_owned(),
            Self::AddStore { address } => format!("add-store {address}"),
            Self::EvacuateStore { store } => format!("evacuate-store {store}"),
            Self::RemoveStore { store, accept_loss: true } => {
                format!("remove-store {store}, accept loss")
            }
            Self::RemoveStore { store, .. } => format!("remove-store {store}"),
            Self::ForgetStore { store, accept_loss: true } => format!("forget-store {store}"),
            Self::ForgetStore { store, .. } => format!("would forget-store {store}"),
            Self::ReplaceMember { old, new } => format!("replace {old} by {}", new.display()),
            Self::AddMember { new } => {
                let new: Vec<String> = new.iter().map(|path| path.display().to_string()).collect();
                format!("add {}", new.join(" "))
            }
            Self::RemoveMember { old, accept_loss: true } => format!("remove {old}, accept loss"),
            Self::RemoveMember { old, .. } => format!("remove {old}"),
            Self::ForgetLateness => "forget-lateness".to_owned(),
            Self::Stop { .. } => "stop".to_owned(),
            Self::Status | Self::Set { .. } => return None,
        };
        Some(named)
    }
}
