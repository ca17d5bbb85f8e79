//! `manylogs serve --nbd` with TLS: nbdkit serves as a child process, with our plugin.

use std::ffi::OsString;
use std::sync::mpsc::sync_channel;

use manylogs_operate::status::DiskStatus;
use manylogs_serve::nbdkit::{Nbdkit, NbdkitOptions, find_plugin};
use manylogs_serve::{NbdAddress, ServeError, Stack, notify};

use super::failure::{listen_failure, nbdkit_failure, serve_failure};
use super::options;
use crate::args::serve::{LogFormatArg, ServeArgs};
use crate::args::volume::BackendArg;
use crate::commands::{md, write_cache};
use crate::failure::Failure;
use crate::output::print;

/// Serves until nbdkit ends.
pub(super) fn run(args: &ServeArgs, address: &NbdAddress) -> Result<(), Failure> {
    options::check_security(&args.nbd, address)?;
    let metrics = options::metrics_listener(args)?;
    if !args.borrow.stores.is_empty() {
        return Err(Failure::input("--store: nbdkit's plugin takes none; serve without TLS"));
    }
    if args.drive.is_some() {
        return Err(Failure::input("--drive: nbdkit's plugin takes none; leave it out"));
    }
    let (signals, signalled) = sync_channel(8);
    super::on_signal(move || {
        let _ = signals.try_send(());
    })?;
    let plugin = find_plugin(args.nbd.nbdkit_plugin.as_deref()).map_err(nbdkit_failure)?;
    check_device(args)?;
    // Checks that the address is free, for a good error message; nbdkit binds it itself.
    drop(address.bind().map_err(listen_failure)?);
    address.remove_socket();
    let device = &args.volume.device;
    let cache = write_cache::hold(device, args.write_cache, args.emulate.is_some())?;
    if args.emulate.is_none() {
        write_cache::say(device, DiskStatus::at(device).as_ref());
        md::say(device);
    }
    options::start_beside(device, metrics)?;
    let options = NbdkitOptions {
        address: address.clone(),
        plugin,
        tls: args.nbd.tls(),
        device: args.volume.device.clone(),
        parameters: parameters(args),
    };
    let mut nbdkit = Nbdkit::start(&options, signalled).map_err(nbdkit_failure)?;
    if nbdkit.wait_until_serving().map_err(nbdkit_failure)? {
        print(&format!("{}\n", address.uri(options.tls.is_some())))?;
        notify("READY=1");
    }
    let ended = nbdkit.wait().map_err(nbdkit_failure);
    cache.release();
    ended
}

/// Opens the device and closes it again, for a good error message: nbdkit has one exit code for all
/// failures.
fn check_device(args: &ServeArgs) -> Result<(), Failure> {
    let failed = |error| serve_failure(ServeError::Stack(error));
    let stack_options = options::engine(args)?.stack;
    let mut stack = Stack::open(&stack_options).map_err(failed)?;
    if let Some(chain) = &args.chain {
        for member in chain.members.iter().skip(1) {
            stack.beside(member, &stack_options).map_err(failed)?;
        }
        return stack.lock_as(chain.id).map_err(failed);
    }
    if args.raw { Ok(()) } else { stack.lock().map_err(failed) }
}

/// The parameters for the plugin.
fn parameters(args: &ServeArgs) -> Vec<(&'static str, OsString)> {
    let backend = match args.volume.backend {
        BackendArg::Auto => "auto",
        BackendArg::Uring => "uring",
        BackendArg::Threads => "threads",
    };
    let log_format = match args.log_format {
        LogFormatArg::Text => "text",
        LogFormatArg::Logfmt => "logfmt",
        LogFormatArg::Json => "json",
    };
    let mut parameters = vec![
        ("backend", backend.into()),
        ("give-up-table", args.volume.give_up_table.to_string().into()),
        ("raw", args.raw.to_string().into()),
        ("log-format", log_format.into()),
    ];
    if let Some(chain) = &args.chain {
        parameters.extend(chain.members.iter().map(|member| ("member", member.clone().into())));
        parameters.push(("cleaning", chain.settings.cleaning.name().into()));
        let memory = chain.settings.cache.bytes().to_string();
        parameters.push(("cache-memory", memory.into()));
        let starts = chain.settings.sleep.map(|sleep| sleep.wakes_a_day.to_string());
        parameters.extend(starts.map(|starts| ("wake-budget", starts.into())));
        parameters.extend(chain.cache.iter().map(|ssd| ("cache", ssd.clone().into())));
    }
    if let Some(table) = &args.volume.table {
        parameters.push(("table", table.0.clone().into()));
    }
    if let Some(drive) = &args.emulate {
        parameters.push(("emulate", drive.into()));
        parameters.push(("fit", (!args.no_fit).to_string().into()));
    }
    if let Some(on) = args.write_cache.wish().filter(|_| args.emulate.is_some()) {
        parameters.push(("write-cache", on.to_string().into()));
    }
    let settings = args.drive_link.settings();
    if let Some(kind) = settings.kind {
        parameters.push(("drive-link", kind.name().into()));
    }
    if let Some(fua) = settings.fua {
        parameters.push(("drive-fua", fua.to_string().into()));
    }
    parameters
}
