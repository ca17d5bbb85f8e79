//! Prints the validation of the Cheetah profile as JSON.
//!
//! `cargo run --release -p manylogs-disk --example validate -- TRACE [odd|even|all] [SEED]`
#![allow(clippy::print_stdout, reason = "a report is what this program is for")]

use std::error::Error;
use std::path::Path;

use manylogs_disk::profile;
use manylogs_disk::validate::{Chosen, read_trace, report};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: validate MEASURED-TRACE [odd|even|all] [SEED]")?;
    let chosen = match arguments.next().as_deref() {
        Some("all") => Chosen::All,
        Some("odd") => Chosen::Odd,
        _ => Chosen::Even,
    };
    let seed = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let records = read_trace(Path::new(&path))?;
    let drive = profile::find("cheetah-15k5")?.ok_or("no profile cheetah-15k5")?;
    println!("{}", serde_json::to_string_pretty(&report(&drive, &records, chosen, seed))?);
    Ok(())
}
