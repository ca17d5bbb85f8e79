//! Clients that write runs: consecutive small writes without FUA, which the volume takes home
//! together.

use manylogs::VolumeConfig;
use manylogs_block::{Extent, Hint, Payload, Request, Rng, Sectors};

use crate::volume::clients::World;

/// The most writes of a run.
const WRITES_MAX: u64 = 16;

/// The length from which on consecutive writes are a run, for plans with runs.
pub(crate) fn length_of(rng: &mut Rng) -> Sectors {
    Sectors(8 << rng.below(3))
}

impl World {
    /// Writes a run. Now and then overwrites a part of it, or flushes.
    pub(crate) async fn write_run(&self, run: Sectors) -> Result<(), String> {
        let config = self.volume.config();
        let buffer = Sectors(config.buffer.0.max(run.0 + self.below(64)));
        let config = VolumeConfig { run, buffer, ..config };
        if let Err(error) = self.volume.reconfigure(&config) {
            return if self.troubled { Ok(()) } else { Err(format!("maintenance: {error}")) };
        }
        let step = self.plan.disk.physical_sector.0;
        let len = step * (1 + self.below((config.threshold.0 / step).max(1)));
        let writes = 2 + self.below(WRITES_MAX);
        let room = self.volume.layout().capacity().0 - len * writes;
        let start = self.below(room / step) * step;
        for index in 0..writes {
            self.write_at(Extent::new(start + index * len, len)).await?;
            match self.below(16) {
                0 => self.flush().await?,
                1 => self.write_at(Extent::new(start + self.below(len * (index + 1)), 1)).await?,
                _ => {}
            }
        }
        Ok(())
    }

    async fn write_at(&self, extent: Extent) -> Result<(), String> {
        let payload = Payload::tags(self.next_tags(extent.len.0), extent.len);
        let content = payload.clone();
        let request = Request::Write { extent, payload: content, fua: false, hint: Hint::None };
        self.answered(self.send(extent, &payload, request, false)).await
    }
}
