//! `manylogs scrub` of a chain of drives that nobody serves.

use std::path::Path;

use indicatif::ProgressBar;
use manylogs_gecko::{ChainSettings, Scrubbed};
use manylogs_serve::ServedChain;

use super::{human, members, members_failure};
use crate::failure::Failure;
use crate::output::print;

/// Reads all content of the chain of `device` from every half, and mends halves; false if the
/// device is no member of a chain.
pub(crate) fn run(device: &Path, bar: &ProgressBar) -> Result<bool, Failure> {
    let found = ServedChain::of(device, &[], ChainSettings::default());
    let Some(chain) = found.map_err(members_failure)? else { return Ok(false) };
    let scrubbed = members::while_open(&chain, |stack, opened| {
        let (working, shown) = (opened.clone(), bar.clone());
        let scrubbed = stack.run(async move {
            let progress = |done, total| {
                shown.set_length(total);
                shown.set_position(done);
            };
            working.scrub(progress).await
        });
        scrubbed.map_err(Failure::failed)
    });
    bar.finish_and_clear();
    let scrubbed = scrubbed?;
    told(device, &scrubbed).map(|()| true)
}

fn told(device: &Path, scrubbed: &Scrubbed) -> Result<(), Failure> {
    let Scrubbed { read, mended, damaged } = scrubbed;
    let mut out = format!(
        "{} of the log read of each half; {mended} mended, {} damaged\n",
        human(read.bytes()),
        damaged.len()
    );
    for extent in damaged {
        out += &format!("damaged: exported sectors {}+{}\n", extent.start.0, extent.len.0);
    }
    print(&out)?;
    match damaged.is_empty() {
        true => Ok(()),
        false => Err(Failure::Loss(format!(
            "{}: no half holds these blocks whole: overwrite or discard them",
            device.display()
        ))),
    }
}
