//! The occupancy of the logs along the disk.

use manylogs::Volume;
use manylogs_block::Sectors;

use super::Stretch;

/// Number of stretches of the disk in a status.
const STRETCHES: usize = 64;

/// The stretch, of `count`, that a device address lies in.
fn stretch_of(at: u64, device: Sectors, count: usize) -> usize {
    let index = u128::from(at) * count as u128 / u128::from(device.0.max(1));
    usize::try_from(index).unwrap_or(usize::MAX).min(count.saturating_sub(1))
}

/// Occupancy of the logs along the disk.
pub(crate) fn occupancy(volume: &Volume) -> Vec<Stretch> {
    let (layout, mut stretches) = (volume.layout(), vec![Stretch::default(); STRETCHES]);
    for region in layout.regions() {
        let index = stretch_of(region.start.0, layout.device(), STRETCHES);
        stretches[index].log_bytes += region.len.bytes();
    }
    for log in volume.log_occupancy() {
        let index = stretch_of(log.region.start.0, layout.device(), STRETCHES);
        stretches[index].used_bytes += log.used.bytes();
        stretches[index].live_bytes += log.live.bytes();
    }
    stretches
}
