//! What is known of an adopted file system without changing anything.

use std::rc::Rc;

use manylogs_ext4::{Copies, Marks};

use super::open::{Located, find};
use super::{AdoptError, LogEngine, Logs, Site};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// What the superblock and its copies say.
    pub marks: Marks,
    /// The logs.
    pub logs: LogState,
    /// Why a mount would refuse it although the logs are sound, if it would.
    pub refused: Option<AdoptError>,
}

/// What was found of the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It is not adopted: there are none.
    None,
    /// They are where the pointer says, and nothing is in them that is not at home.
    Drained(Logs),
    /// They are where the pointer says, and hold what is not at home.
    InUse(Logs),
    /// An opening would refuse them.
    Unusable(AdoptError),
}

/// Looks at a file system that nobody writes to.
///
/// # Errors
/// Those of reading the superblocks.
pub async fn look(site: &Site, engine: &impl LogEngine) -> Result<Looked, AdoptError> {
    let copies = Copies::read(Rc::clone(&site.device)).await?;
    let marks = copies.marks();
    let pointer = marks.pointer.filter(|_| marks.is_adopted());
    let Some(pointer) = pointer else {
        return Ok(Looked { marks, logs: LogState::None, refused: None });
    };
    let logs = match find(site, &pointer).await {
        Ok(file) => {
            let logs = Logs::of(copies.uuid(), &file);
            match engine.is_drained(site, &logs).await {
                Ok(true) => LogState::Drained(logs),
                Ok(false) if !marks.primary => LogState::Unusable(AdoptError::BitTakenAway),
                Ok(false) => LogState::InUse(logs),
                Err(error) => LogState::Unusable(error),
            }
        }
        Err(AdoptError::LogsMoved(_)) if !marks.primary => {
            LogState::Unusable(AdoptError::UsedSince)
        }
        Err(error) => LogState::Unusable(error),
    };
    let refused = match &logs {
        LogState::Drained(found) | LogState::InUse(found) => {
            let (found, marks) = (found.clone(), marks.clone());
            Located { copies, marks, pointer, logs: found }.check(site, engine).await.err()
        }
        LogState::None | LogState::Unusable(_) => None,
    };
    Ok(Looked { marks, logs, refused })
}
