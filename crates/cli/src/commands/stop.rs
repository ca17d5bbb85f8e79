//! `manylogs stop`: returns within so many seconds, or says why the server has not ended.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use manylogs_operate::control::{Control, ControlError, Order, connect};
use manylogs_operate::runtime_dir::ublk_note;

use super::serve::{control_failure, ublk_failure};
use super::volume::stay_logged;
use super::write_cache;
use crate::args::serve::StopArgs;
use crate::failure::Failure;
use crate::output::print;

/// How long a server that has not ended may take to say why.
const REASON_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &StopArgs) -> Result<(), Failure> {
    let mut server = match connect(&args.device) {
        Err(error @ ControlError::NotServed { .. }) => {
            let settled = write_cache::settle(&args.device);
            let removed = if args.force { remove_orphan(&args.device)? } else { None };
            let done = match removed {
                Some(removed) => format!("removed {}", removed.display()),
                None if settled => "put back what a killed one had changed".to_owned(),
                None => return Err(control_failure(error)),
            };
            return print(&format!("{}: no server, {done}\n", args.device.display()));
        }
        connected => connected.map_err(control_failure)?,
    };
    let (began, patience) = (Instant::now(), Duration::from_secs(args.timeout_s));
    let device = &args.device;
    let left = server
        .ask_within(&Order::Stop { force: args.force }, Some(patience))
        .map_err(|error| not_ended(device, &server, began, error))?;
    let bytes = |name: &str| left[name].as_u64().unwrap_or(0);
    let left = stay_logged(bytes("at_risk_bytes"), bytes("zeroed_bytes"));
    // The device is free when its server is gone.
    let pid = server.pid();
    let rest = patience.saturating_sub(began.elapsed());
    server.wait_for_end(rest).map_err(|error| {
        let message = format!("the volume is closed, but {}", told(device, pid, began, &error));
        Failure::failed(message)
    })?;
    print(&format!("{}: closed, {left}\n", device.display()))
}

/// Removes the ublk device that a killed server of the device at `path` left; returns its name.
fn remove_orphan(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let note = ublk_note(path).map_err(Failure::failed)?;
    manylogs_ublk::remove_orphan(&note).map_err(ublk_failure)
}

fn not_ended(device: &Path, server: &Control, began: Instant, error: ControlError) -> Failure {
    match error {
        ControlError::Silent { .. } => Failure::failed(told(device, server.pid(), began, &error)),
        error => control_failure(error),
    }
}

/// Why a server has not ended: by its own status, or by the state of its process.
fn told(device: &Path, pid: Option<i32>, began: Instant, error: &ControlError) -> String {
    let status = connect(device)
        .and_then(|mut server| server.ask_within(&Order::Status, Some(REASON_PATIENCE)));
    let why = match status {
        Ok(status) => match status["stopping"].as_str() {
            Some(why) => why.to_owned(),
            None => "it answers, but has not begun to stop".to_owned(),
        },
        Err(_) => error.to_string(),
    };
    let (name, seconds) = (device.display(), began.elapsed().as_secs());
    let kill = pid.map_or_else(String::new, |pid| {
        format!(
            ". It goes on as soon as it can. kill -9 {pid} ends it as a crash does: the next \
             opening recovers what was flushed"
        )
    });
    format!("{name}: the server has not ended after {seconds} s: {why}{kill}")
}
