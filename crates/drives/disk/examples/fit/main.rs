//! Re-derives the fitted numbers of `profiles/cheetah-15k5.toml` from measured requests.
//!
//! `cargo run --release -p manylogs-disk --example fit -- measured-first-half.trace`
//!
//! Only odd-numbered records are used; `docs/drive-model.md` tells the method. Each step prints
//! what it found in the form in which the profile holds it.
#![allow(clippy::print_stdout, reason = "a report is what this program is for")]
#![allow(missing_docs, reason = "a program, not a library")]

mod idle;
mod observed;
mod phase;
mod slips;
mod timing;

use std::error::Error;
use std::path::Path;

use manylogs_disk::profile;
use manylogs_disk::validate::read_trace;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: fit MEASURED-TRACE")?;
    let records = read_trace(Path::new(&path))?;
    let mut drive = profile::find("cheetah-15k5")?.ok_or("no profile cheetah-15k5")?;
    drive.geometry.slips.clear();
    let mut observed = observed::Observed::new(&records);

    let period_us = phase::period_us(&drive, &observed);
    println!("revolution_us = {period_us:.4}   # {:.2} rpm", 60e6 / period_us);
    drive.spindle.revolution_us = period_us;
    let origin = phase::origin(&drive, &observed);
    drive.geometry.slips = slips::fit(&drive, &observed, origin);
    slips::print(&drive.geometry.slips);
    let ends = phase::ends(&drive, &observed, origin);
    println!("{ends:#?}");
    phase::report(&drive, &observed, origin, &ends);
    observed.subtract_ends(&ends);
    timing::fit(&drive, &observed);
    idle::fit(&profile::find("cheetah-15k5")?.ok_or("no profile cheetah-15k5")?, &records);
    Ok(())
}
