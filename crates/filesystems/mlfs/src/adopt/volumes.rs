//! The engine of MLFS: a volume whose logs and structures lie in the log file.

use manylogs::{
    Anchors, DrainOptions, Identity, LeftAs, OpenOptions, Volume, VolumeError, identify_at,
};
use manylogs_block::Extent;
use manylogs_ext4::Run;
use manylogs_near::{LOG_LEAST, NearError, Placed, RECORD_LEAST, format, format_config};

use super::{AdoptError, BLOCK_SECTORS, LogEngine, Logs, Site};

/// Unit of an anchor's wanted length, in blocks: 1 MiB.
const ANCHOR_UNIT: u64 = 256;
/// Least blocks of a log: the rest of a run beside its anchor is a log if it has as many (2 MiB).
const LOG_BLOCKS: u64 = LOG_LEAST.0 / BLOCK_SECTORS;

/// The engine of MLFS: see the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Volumes;

impl Volumes {
    /// The places of the volume's structures and logs. The first run begins with the first anchor,
    /// and the last run ends with the other. Each anchor has room for a snapshot of full logs,
    /// unless its run is too short.
    ///
    /// # Errors
    /// [`AdoptError::NoEngine`] if the runs are too short for that.
    pub fn placed(logs: &Logs) -> Result<Placed, AdoptError> {
        let (Some(first), Some(last)) = (logs.runs.first(), logs.runs.last()) else {
            return Err(AdoptError::NoEngine);
        };
        let wanted = logs.blocks().div_ceil(256).next_multiple_of(ANCHOR_UNIT);
        let mut ranges: Vec<std::ops::Range<u64>> =
            logs.runs.iter().map(|run| run.range()).collect();
        let share = |run: &Run| if logs.runs.len() == 1 { run.blocks / 4 } else { run.blocks };
        let head = wanted.min(share(first).into());
        let tail = wanted.min(share(last).into());
        let end = ranges.len() - 1;
        ranges[0].start += head;
        ranges[end].end -= tail;
        let anchors = Anchors {
            first: sectors(first.range().start..first.range().start + head),
            last: sectors(last.range().end - tail..last.range().end),
        };
        ranges.retain(|range| range.end.saturating_sub(range.start) >= LOG_BLOCKS);
        if ranges.is_empty() {
            return Err(AdoptError::NoEngine);
        }
        let logs = ranges.into_iter().map(sectors).collect();
        Ok(Placed { logs, anchors, columns: None })
    }

    /// How the volume is opened.
    ///
    /// # Errors
    /// As [`Volumes::placed`].
    pub fn open_options(logs: &Logs) -> Result<OpenOptions, AdoptError> {
        let anchors = Some(Self::placed(logs)?.anchors);
        Ok(OpenOptions { anchors, record_least: RECORD_LEAST, ..OpenOptions::default() })
    }

    /// Reads what the structures in the logs say of the volume.
    ///
    /// # Errors
    /// [`AdoptError::NoEngine`] if there are none, and those of the device.
    pub async fn identity(site: &Site, logs: &Logs) -> Result<Identity, AdoptError> {
        let anchors = Some(Self::placed(logs)?.anchors);
        identify_at(&site.device, anchors).await.map_err(|error| match error {
            VolumeError::Io(error) => error.into(),
            _ => AdoptError::NoEngine,
        })
    }

    async fn open_and_drain(site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        let options = OpenOptions { to_drain: true, ..Self::open_options(logs)? };
        let device = std::rc::Rc::clone(&site.device);
        let (volume, _) = Volume::open(site.runtime.clone(), device, &options).await?;
        volume.drain(&DrainOptions::default()).await?;
        Ok(())
    }
}

fn sectors(blocks: std::ops::Range<u64>) -> Extent {
    Extent::new(blocks.start * BLOCK_SECTORS, (blocks.end - blocks.start) * BLOCK_SECTORS)
}

impl LogEngine for Volumes {
    fn check_device(&self, site: &Site) -> Result<(), AdoptError> {
        let sector = site.device.capabilities().physical_sector;
        if sector.0 > BLOCK_SECTORS {
            return Err(AdoptError::LargeSectors { bytes: sector.bytes() });
        }
        Ok(())
    }

    async fn check(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        let identity = Self::identity(site, logs).await?;
        let (device, logs) = (site.device.capabilities().physical_sector, identity.physical);
        if device > logs {
            return Err(VolumeError::LogsOfShorterSectors { device, logs }.into());
        }
        Ok(())
    }

    fn blocks_least(&self) -> u64 {
        2 * ANCHOR_UNIT + LOG_BLOCKS
    }

    async fn format(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        let placed = Self::placed(logs)?.on_array(site.device.geometry());
        let config = format_config(&placed)?;
        let device = std::rc::Rc::clone(&site.device);
        format(site.runtime.clone(), device, &placed, &config).await?;
        // Only a drain notes that nothing is in the logs.
        Self::open_and_drain(site, logs).await
    }

    async fn is_drained(&self, site: &Site, logs: &Logs) -> Result<bool, AdoptError> {
        Ok(Self::identity(site, logs).await?.left == LeftAs::Drained)
    }

    async fn drain(&self, site: &Site, logs: &Logs) -> Result<(), AdoptError> {
        if self.is_drained(site, logs).await? {
            return Ok(());
        }
        Self::open_and_drain(site, logs).await
    }
}

/// Whether records are damaged or cannot be read, or the structures that lead to them.
pub(crate) const fn is_damage(error: &VolumeError) -> bool {
    use VolumeError::{Damaged, Lost, NoRoot, Superblock};
    matches!(error, Damaged { .. } | Lost { .. } | Superblock | NoRoot)
}

impl From<VolumeError> for AdoptError {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Io(error) => error.into(),
            short @ VolumeError::LogsOfShorterSectors { .. } => {
                Self::ShortSectors(short.to_string())
            }
            damage if is_damage(&damage) => Self::Damaged(damage.to_string()),
            other => Self::Engine(other.to_string()),
        }
    }
}

impl From<NearError> for AdoptError {
    fn from(error: NearError) -> Self {
        match error {
            NearError::Volume(error) => error.into(),
            NearError::FileSystem(error) => error.into(),
            other => Self::Engine(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylogs_ext4::BlockNo;

    fn placed(runs: &[(u64, u32)]) -> Result<Placed, AdoptError> {
        let run = |(start, blocks): &(u64, u32)| Run { start: BlockNo(*start), blocks: *blocks };
        Volumes::placed(&Logs { uuid: [0; 16], runs: runs.iter().map(run).collect() })
    }

    #[test]
    fn anchors_are_at_both_ends_of_the_file() {
        let two = placed(&[(1000, 2560), (9000, 2560)]).unwrap();
        assert_eq!(two.anchors.first, sectors(1000..1256));
        assert_eq!(two.anchors.last, sectors(11_304..11_560));
        assert_eq!(two.logs, [sectors(1256..3560), sectors(9000..11_304)]);
        let one = placed(&[(1000, 1024)]).unwrap();
        assert_eq!(one.logs, [sectors(1256..1768)]);
        assert_eq!(placed(&[(1000, 900)]), Err(AdoptError::NoEngine));
        assert_eq!(placed(&[]), Err(AdoptError::NoEngine));
    }

    #[test]
    fn many_logs_have_long_anchors_which_may_take_a_whole_run() {
        let runs: Vec<(u64, u32)> = (0..2000).map(|at| (at * 262_144, 2560)).collect();
        let placed = placed(&runs).unwrap();
        assert_eq!(placed.anchors.first, sectors(0..2560));
        assert_eq!(placed.logs.len(), 1998);
    }
}
