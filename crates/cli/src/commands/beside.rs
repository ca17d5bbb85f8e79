//! What runs beside a front end: metrics, and the watch over the server's health.

use std::net::TcpListener;
use std::path::Path;

use manylogs_serve::log::{Level, line};
use manylogs_serve::{answer_scrapes, watch};

use super::nbd::address_failure;
use crate::args::nbd::Address;
use crate::args::serve::ServeArgs;
use crate::failure::Failure;

/// A port for metrics, taken before the device is opened: that it is another's is known at once.
pub(super) fn metrics_listener(args: &ServeArgs) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = &args.metrics else { return Ok(None) };
    let listener = TcpListener::bind((address.host.as_str(), address.port)).map_err(|error| {
        let (host, port) = (address.host.clone(), address.port);
        address_failure(&Address::Tcp { host, port }, &error)
    })?;
    Ok(Some(listener))
}

/// Starts all of it for the server that this process is, or is the parent of.
pub(super) fn start(device: &Path, metrics: Option<TcpListener>) -> Result<(), Failure> {
    if let Some(listener) = metrics {
        // The port may have been left to the system.
        let url = format!("http://{}/metrics", listener.local_addr().map_err(Failure::failed)?);
        let message = format!("metrics at {url}");
        line(Level::Info, Some(device), &message, &[("url", url.into())]);
        answer_scrapes(listener, device.to_owned()).map_err(Failure::failed)?;
    }
    watch(device.to_owned()).map_err(Failure::failed)
}
