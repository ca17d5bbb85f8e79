//! A policy of one's own: `cargo run --example own_policy`.
//!
//! A policy is a device over a device. This one appends small writes at the end of the drive and
//! does not remember where, like a single log without headers. A policy that the program itself
//! should offer is a name in `crates/systems/manylogs/src/settings/policy.rs`.

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use manylogs_block::{BlockDevice, Capabilities, Completion, Extent, Lba, Request, Time};
use manylogs_disk::device::ModelledDrive;
use manylogs_disk::{Options, profile};
use manylogs_lab::replay::{
    Durability, LatencyClass, Progress, PumpSettings, Recorder, SMALL_WRITE, Workload, pump,
};
use manylogs_lab::synthetic::Synthetic;
use manylogs_sim::{Sim, TaskOrder};
use manylogs_workload::BoxedSource;

/// The log: 1 GiB.
const LOG: u64 = 1 << 21;

/// Small writes go to the end of the drive.
struct ToTheEnd<B> {
    below: B,
    written: Cell<u64>,
}

impl<B: BlockDevice> BlockDevice for ToTheEnd<B> {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let request = match request {
            Request::Write { extent, payload, fua, hint } if extent.len <= SMALL_WRITE => {
                let from = self.capabilities().capacity.0 - LOG;
                let at = self.written.get() % (LOG - SMALL_WRITE.0);
                self.written.set(at + extent.len.0);
                let extent = Extent { start: Lba(from + at), len: extent.len };
                Request::Write { extent, payload, fua, hint }
            }
            other => other,
        };
        self.below.submit(request)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let profile = profile::find("exos-x20")?.ok_or("no such drive")?;
    let open = || Ok(Box::new(Synthetic::reader_and_writers(1, 5_000)) as BoxedSource);
    let workload = Workload::measure(Arc::new(open))?;
    for own in [false, true] {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let (disk, host) = (sim.node(), sim.node());
        let options = Options { write_cache: false, ..Options::of(&profile) };
        let drive = ModelledDrive::new(sim.handle(disk), &profile, &options);
        let device: Rc<dyn BlockDevice> = match own {
            true => Rc::new(ToTheEnd { below: drive, written: Cell::new(0) }),
            false => Rc::new(drive),
        };
        let recorder = Rc::new(RefCell::new(Recorder::default()));
        let settings = PumpSettings::new(Durability::All);
        let (runtime, load, notes) = (sim.handle(host), workload.clone(), Rc::clone(&recorder));
        let progress = Arc::<Progress>::default();
        let report = sim.block_on(host, async move {
            pump(runtime, device, (&load, 1.0), settings, notes, progress).await
        })?;
        let ms = recorder.borrow().latencies(&LatencyClass::DURABLE).mean_us() / 1e3;
        let seconds = report.last_completion.since(Time(0)).as_secs_f64();
        let name = if own { "to the end" } else { "plain drive" };
        println!("{name}: data is durable after {ms:.2} ms; {seconds:.0} s of replay");
    }
    Ok(())
}
