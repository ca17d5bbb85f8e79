//! `manylogs record`: the load of a disk of this machine, as a trace.

use std::fs;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use manylogs_disk::LinkKind;
use manylogs_storage::{Transport, identify};
use manylogs_workload::BlockEvent;
use manylogs_workload::record::{
    RecordError, RecordOptions, RecordProgress, RecordSummary, RecordedDrive, record,
};

use crate::args::{EventArg, RecordArgs};
use crate::commands::link::link_of;
use crate::commands::measured::stopped_by_ctrl_c;
use crate::failure::Failure;
use crate::output::{Output, print};

pub(crate) fn run(args: &RecordArgs) -> Result<(), Failure> {
    let output = Output::reserve(&args.output)?;
    let options = RecordOptions {
        duration: args.seconds.map(Duration::from_secs),
        event: match args.event {
            EventArg::Queue => BlockEvent::Queue,
            EventArg::Issue => BlockEvent::Issue,
        },
        drive: noted(&args.device),
        ..RecordOptions::default()
    };
    let stop = stopped_by_ctrl_c()?;
    let (partial, file) = output.create()?;
    let terminal = std::io::stderr().is_terminal();
    let mut show = |progress: RecordProgress| show(terminal, &progress);
    let recorded = record(&args.device, &options, BufWriter::new(file), &stop, &mut show);
    if terminal {
        eprintln!();
    }
    match recorded {
        Ok(summary) => {
            output.adopt(&partial)?;
            print(&told(args, &summary))
        }
        Err(error) => {
            // The partial recording is useless; a failure to remove it is not reported.
            let _ = fs::remove_file(partial);
            Err(failure(&error))
        }
    }
}

/// The identity of the disk, noted in the trace so that the user need not name the drive for a
/// replay. Empty for a virtual disk, whose name is the hypervisor's, and for NVMe.
fn noted(device: &Path) -> RecordedDrive {
    let Ok(disk) = identify(device) else { return RecordedDrive::default() };
    if disk.is_virtual() || disk.transport == Transport::Nvme {
        return RecordedDrive::default();
    }
    let link = link_of(&disk.transport).map_or("", LinkKind::name).to_owned();
    // The rotation speed that a RAID controller reports is not a drive's.
    let rpm = disk.rpm.filter(|_| !matches!(disk.transport, Transport::Raid(_)));
    RecordedDrive { model: disk.model, serial: disk.serial, rpm, link }
}

fn failure(error: &RecordError) -> Failure {
    match error {
        RecordError::NotBlockDevice { .. } => Failure::input(error),
        RecordError::NotRoot { .. } => Failure::Permission(error.to_string()),
        RecordError::Tracefs { source, .. } => Failure::of_io(source, error),
        _ => Failure::failed(error),
    }
}

fn show(terminal: bool, progress: &RecordProgress) {
    if terminal {
        let lost =
            if progress.lost > 0 { format!(", {} lost", progress.lost) } else { String::new() };
        let seconds = progress.elapsed.as_secs();
        eprint!("\r{seconds} s: {} requests{lost}  (Ctrl-C ends the recording)", progress.requests);
        // An error only loses the progress display.
        let _ = std::io::stderr().flush();
    }
}

fn told(args: &RecordArgs, summary: &RecordSummary) -> String {
    let file = args.output.display();
    let mut text = format!(
        "{} requests in {:.1} s recorded to {file}\n",
        summary.requests,
        summary.span.as_secs_f64()
    );
    if summary.lost + summary.unreadable > 0 {
        text += &format!(
            "warning: {} events lost by the kernel's buffer, {} not understood\n",
            summary.lost, summary.unreadable
        );
    }
    text + &format!("next: manylogs replay {file} --report report.html\n")
}
