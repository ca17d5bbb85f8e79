//! Changes of a closed volume between two incarnations: it grows, is repaired, gets other settings,
//! or follows its array to another shape.

use std::cell::RefCell;
use std::rc::Rc;

use manylogs::{DrainOptions, OpenOptions, PhaseProbe, Settings, Volume, VolumeError};
use manylogs_block::{BlockDevice, Handle};

use crate::volume::incarnation::Watch;
use crate::volume::kept::Kept;
use crate::volume::machine::Machine;
use crate::volume::plan::Between;

/// Parameters of the task.
pub(crate) struct Work {
    pub(crate) between: Between,
    pub(crate) runtime: Handle,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) kept: Rc<RefCell<Kept>>,
    /// Whether the device has failed before: the volume may then refuse writes.
    pub(crate) troubled: bool,
    pub(crate) watch: Watch,
}

impl Work {
    pub(crate) async fn run(self) {
        let device = self.machine.device(&PhaseProbe::default());
        let done = match self.between {
            Between::Grow(_) => match Volume::grow(device).await {
                // A larger device does not always have room for more.
                Err(VolumeError::CannotGrow { .. }) => Ok(()),
                other => other.map(drop),
            },
            Between::Repair => {
                let options = OpenOptions { nvram: self.machine.nvram(), ..OpenOptions::default() };
                Volume::repair_with(self.runtime.clone(), device, &options).await.map(drop)
            }
            Between::Set => {
                let change = self.kept.borrow_mut().begin(self.settings);
                let done =
                    Volume::set_closed(device, &self.settings, &OpenOptions::default()).await;
                self.kept.borrow_mut().end(change, done.is_ok());
                done
            }
            Between::Geometry => self.follow_array(device).await,
        };
        match done {
            Err(error) if !self.troubled => {
                self.watch.note(format!("{:?}: {error}", self.between));
            }
            _ => self.watch.ended.set(true),
        }
    }

    async fn follow_array(&self, device: Rc<dyn BlockDevice>) -> Result<(), VolumeError> {
        let options = OpenOptions { to_drain: true, ..OpenOptions::default() };
        let (volume, _) = self.machine.open(self.runtime.clone(), options).await?;
        volume.drain(&DrainOptions::default()).await?;
        drop(volume);
        Volume::set_geometry(device).await.map(drop)
    }
}
