//! Records a block device: what `manylogs record` does, for the sample trace's script.
//!
//! `trace_record DEVICE OUT.trace.zst SECONDS`

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use manylogs_workload::record::{RecordOptions, record};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, out, seconds] = arguments.as_slice() else {
        return Err("usage: trace_record DEVICE OUT.trace.zst SECONDS".into());
    };
    let duration = Some(Duration::from_secs(seconds.parse()?));
    let options = RecordOptions { duration, ..RecordOptions::default() };
    let mut out = zstd::Encoder::new(File::create(PathBuf::from(out))?, 19)?;
    let stop = AtomicBool::new(false);
    let summary = record(device.as_ref(), &options, &mut out, &stop, &mut |progress| {
        eprint!("\r{progress:?}");
    })?;
    out.finish()?;
    eprintln!("\n{summary:?}");
    Ok(())
}
