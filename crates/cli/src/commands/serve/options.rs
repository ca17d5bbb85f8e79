//! Translates the arguments of `manylogs serve` for the engine, metrics and the watch.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use manylogs_operate::log::{Level, line};
use manylogs_operate::watch;
use manylogs_serve::{
    Emulation, EngineOptions, NbdAddress, RESTART_PATIENCE, Recognised, StackOptions,
    answer_scrapes,
};
use manylogs_storage::OpenMode;

use super::failure::{key_failure, listen_failure};
use crate::args::nbd::NbdArgs;
use crate::args::serve::ServeArgs;
use crate::commands::drive::choose::recognised;
use crate::commands::{drive, link};
use crate::failure::Failure;

/// The engine that `args` ask for.
pub(super) fn engine(args: &ServeArgs) -> Result<EngineOptions, Failure> {
    let profile = args.emulate.as_deref().map(drive).transpose()?;
    let write_cache = args.write_cache.wish();
    let (link, notes) = link::emulated(args.drive_link, profile.as_ref(), write_cache)?;
    for note in notes {
        line(Level::Warning, Some(&args.volume.device), &note, &[]);
    }
    let fit = !args.no_fit;
    let emulation = profile.map(|profile| Emulation { profile, fit, write_cache, link });
    let path = &args.volume.device;
    let recognised = match emulation {
        None if !args.raw && args.chain.is_none() => recognised(args.drive.as_deref(), path)?,
        _ => None,
    };
    Ok(EngineOptions {
        recognised: recognised.map(|(profile, words)| Recognised { profile, words }),
        stack: StackOptions {
            backend: args.volume.backend.into(),
            patience: RESTART_PATIENCE,
            ..StackOptions::new(&args.volume.device, OpenMode::Exclusive)
        },
        table: args.volume.table.as_ref().map(|table| table.0.clone()),
        give_up_table: args.volume.give_up_table,
        raw: args.raw,
        chain: args.chain.clone(),
        borrowing: args.borrow.borrowing().map_err(key_failure)?,
        emulation,
    })
}

/// The disks in use: the device, or all drives of the chain.
pub(super) fn disks(args: &ServeArgs) -> Vec<PathBuf> {
    match &args.chain {
        Some(chain) => chain.members.clone(),
        None => vec![args.volume.device.clone()],
    }
}

/// Refuses a network address without TLS unless the user insists: any client can overwrite
/// everything.
pub(super) fn check_security(args: &NbdArgs, address: &NbdAddress) -> Result<(), Failure> {
    if matches!(address, NbdAddress::Unix(_)) || args.tls().is_some() || args.nbd_insecure {
        return Ok(());
    }
    Err(Failure::input(
        "whoever reaches the TCP port could overwrite everything: give --tls-certificates or \
         --tls-psk, or --nbd-insecure if the network is yours",
    ))
}

/// Takes the port for metrics before the device is opened, so that a port in use is reported at
/// once.
pub(super) fn metrics_listener(args: &ServeArgs) -> Result<Option<TcpListener>, Failure> {
    args.metrics.as_ref().map(|address| address.bind().map_err(listen_failure)).transpose()
}

/// Starts the metrics and the watch over the server's health. The server is this process or its
/// child.
pub(super) fn start_beside(device: &Path, metrics: Option<TcpListener>) -> Result<(), Failure> {
    if let Some(listener) = metrics {
        // Logged because the system may have chosen the port.
        let url = format!("http://{}/metrics", listener.local_addr().map_err(Failure::failed)?);
        let message = format!("metrics at {url}");
        line(Level::Info, Some(device), &message, &[("url", url.into())]);
        answer_scrapes(listener, device.to_owned()).map_err(Failure::failed)?;
    }
    watch(device.to_owned()).map_err(Failure::failed)
}
