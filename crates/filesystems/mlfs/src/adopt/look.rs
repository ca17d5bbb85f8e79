//! Examines an adopted file system without changing it.

use std::rc::Rc;

use manylogs_ext4::{Copies, Marks};

use super::open::{Located, find};
use super::{AdoptError, LogEngine, Logs, Site};

/// The marks and logs that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// What the superblock and its copies say.
    pub marks: Marks,
    /// The logs.
    pub logs: LogState,
    /// Why a mount would refuse it although the logs are sound.
    pub refused: Option<AdoptError>,
}

/// The state of the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogState {
    /// The file system is not adopted, so there are no logs.
    None,
    /// They are where the pointer says, and everything in them is also at home.
    Drained(Logs),
    /// They are where the pointer says, and are not drained.
    InUse(Logs),
    /// An opening would refuse them.
    Unusable(AdoptError),
}

/// Looks at the marks and logs of a file system. Nobody may write to it meanwhile.
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
