//! A drive of one's own: `cargo run --example own_drive`.
//!
//! A drive is a profile. Most drives need no code: `manylogs drive show NAME` prints a profile,
//! `--drive FILE.toml` takes a TOML file of that form, and `manylogs drive validate` compares it
//! with measured service times. This example changes a profile: what would the 20 TB drive be like
//! if it turned twice as fast?

#![allow(clippy::print_stdout, reason = "what an example is for")]

use std::error::Error;
use std::sync::Arc;

use manylogs_disk::profile;
use manylogs_lab::replay::{
    DriveSettings, Durability, LatencyClass, NamedPolicy, Plan, Workload, run,
};
use manylogs_lab::synthetic::Synthetic;
use manylogs_workload::BoxedSource;

fn main() -> Result<(), Box<dyn Error>> {
    let own = profile::find("exos-x20")?.ok_or("no such drive")?;
    let mut fast = own.clone();
    fast.name = "exos-x20 at 14,400 rpm".to_owned();
    fast.spindle.revolution_us /= 2.0;
    let open = || Ok(Box::new(Synthetic::reader_and_writers(1, 5_000)) as BoxedSource);
    let workload = Workload::measure(Arc::new(open))?;
    for profile in [own, fast] {
        let drive = DriveSettings::new(Arc::new(profile), false);
        let plan = Plan::new(workload.clone(), drive, Durability::All);
        for name in ["nologging", "mlb"] {
            let outcome = run(&plan, &NamedPolicy::parse(name)?, &Arc::default())?;
            let ms = outcome.recorder.latencies(&LatencyClass::DURABLE).mean_us() / 1e3;
            println!("{}, {name}: data is durable after {ms:.2} ms", plan.drive.profile.name);
        }
    }
    Ok(())
}
