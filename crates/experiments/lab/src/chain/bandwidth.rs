//! What one drive writes sequentially.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{BlockDevice, Extent, Payload, Request, Sectors};
use manylogs_disk::device::ModelledDrive;
use manylogs_sim::{Sim, TaskOrder};

use crate::replay::DriveSettings;

/// Length of a write.
const WRITE: Sectors = Sectors(8192);
/// Writes in flight.
const DEPTH: u64 = 2;

/// Bytes a second that a drive takes when it is written from its start to `end`, in writes of
/// 4 MiB, two in flight, its cache as in the settings.
pub(super) fn sequential_bytes_s(drive: &DriveSettings, end: Sectors, seed: u64) -> f64 {
    let sim = Sim::new(seed, TaskOrder::Fifo);
    let (host, node) = (sim.node(), sim.node());
    let device = ModelledDrive::new(sim.handle(node), &drive.profile, &drive.options(seed));
    let end = end.min(device.capabilities().capacity).0.max(WRITE.0) / WRITE.0 * WRITE.0;
    let next = Rc::new(Cell::new(0));
    let running = Rc::new(Cell::new(DEPTH));
    for _ in 0..DEPTH {
        let (device, next, running) = (device.clone(), Rc::clone(&next), Rc::clone(&running));
        sim.handle(host).spawn(async move {
            while next.get() < end {
                let extent = Extent::new(next.get(), WRITE.0);
                next.set(next.get() + WRITE.0);
                // A modelled drive does not fail.
                let _ = device.submit(Request::write_fua(extent, Payload::zeroes(WRITE))).await;
            }
            running.set(running.get() - 1);
        });
    }
    let began = sim.now();
    sim.run_until(|| running.get() == 0);
    Sectors(end).bytes() as f64 / sim.now().since(began).as_secs_f64()
}
