//! `manylogs serve --nbd` with TLS: nbdkit with our plugin, as a child.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use manylogs_serve::control::{Order, connect};
use manylogs_serve::{ServeError, Stack, notify};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::beside;
use super::nbd::{address_failure, bind, check_security, remove_socket, uri};
use super::serve::{options, serve_failure};
use crate::args::nbd::{Address, NbdArgs};
use crate::args::serve::{LogFormatArg, OnOff, ServeArgs};
use crate::args::volume::BackendArg;
use crate::failure::Failure;
use crate::output::print;

/// Requests of one connection under way: each occupies a thread of nbdkit, and what arrives
/// together shares records.
const THREADS: &str = "64";
/// How often a starting server is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The plugin as cargo builds it, and as nbdkit names plugins.
const BUILT: &str = "libmanylogs_nbdkit.so";
const INSTALLED: &str = "nbdkit-manylogs-plugin.so";

/// Whether the export is nbdkit's: it has TLS, and whoever names its plugin wants it.
pub(super) fn is_wanted(args: &NbdArgs) -> bool {
    args.has_tls() || args.nbdkit_plugin.is_some()
}

/// Serves until nbdkit ends.
pub(super) fn run(args: &ServeArgs, address: &Address) -> Result<(), Failure> {
    check_security(&args.nbd, address)?;
    let metrics = beside::metrics_listener(args)?;
    let (signals, signalled) = sync_channel(8);
    ctrlc::set_handler(move || {
        let _ = signals.try_send(());
    })
    .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
    let plugin = plugin(&args.nbd)?;
    check_device(args)?;
    // Finds out whether the address is free, and why not: nbdkit binds it itself.
    drop(bind(address)?);
    remove_socket(address);
    beside::start(&args.volume.device, metrics)?;
    let mut child = command(args, address, &plugin).spawn().map_err(spawn_failure)?;
    let status = forward(&child, &args.volume.device, signalled)
        .and_then(|()| announce(&mut child, args, address))
        .and_then(|()| child.wait().map_err(Failure::failed));
    // nbdkit leaves it, and the next server would have to find out that it is stale.
    remove_socket(address);
    ended(status?)
}

/// Opens the device and closes it again: nbdkit has one exit code for all that can be wrong.
fn check_device(args: &ServeArgs) -> Result<(), Failure> {
    let failed = |error| serve_failure(ServeError::Stack(error));
    let mut stack = Stack::open(&options(args)?.stack).map_err(failed)?;
    if args.raw { Ok(()) } else { stack.lock().map_err(failed) }
}

/// The plugin's file.
fn plugin(args: &NbdArgs) -> Result<PathBuf, Failure> {
    if let Some(given) = &args.nbdkit_plugin {
        let found = given.is_file().then(|| std::path::absolute(given).ok()).flatten();
        return found.ok_or_else(|| Failure::input(format!("no plugin at {}", given.display())));
    }
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let beside = program.parent().unwrap_or(Path::new("."));
    let mut places = vec![beside.join(BUILT), beside.join("../lib/nbdkit/plugins").join(INSTALLED)];
    places.extend(plugin_dir()?.map(|dir| dir.join(INSTALLED)));
    let found = places.iter().find(|place| place.is_file());
    found.cloned().ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let places = places.join(", ");
        Failure::failed(format!("no plugin for nbdkit at {places}; give --nbdkit-plugin"))
    })
}

/// Where nbdkit looks for plugins.
fn plugin_dir() -> Result<Option<PathBuf>, Failure> {
    let said = Command::new("nbdkit").arg("--dump-config").output().map_err(spawn_failure)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(said.lines().find_map(|line| line.strip_prefix("plugindir=")).map(PathBuf::from))
}

fn spawn_failure(error: io::Error) -> Failure {
    Failure::failed(match error.kind() {
        io::ErrorKind::NotFound => {
            "nbdkit is not installed (Debian: apt install nbdkit)".to_owned()
        }
        _ => format!("cannot run nbdkit: {error}"),
    })
}

fn command(args: &ServeArgs, address: &Address, plugin: &Path) -> Command {
    let mut command = Command::new("nbdkit");
    // If this process is killed the volume is still closed in order.
    command.args(["--foreground", "--exit-with-parent", "--threads", THREADS]);
    match address {
        Address::Unix(path) => command.arg("--unix").arg(path),
        Address::Tcp { host, port } => {
            command.args(["--ipaddr", host, "--port", &port.to_string()])
        }
    };
    if let Some(dir) = &args.nbd.tls_certificates {
        command.args(["--tls=require", "--tls-verify-peer", "--tls-certificates"]).arg(dir);
    }
    if let Some(file) = &args.nbd.tls_psk {
        command.args(["--tls=require", "--tls-psk"]).arg(file);
    }
    command.arg("--filter=blocksize").arg(plugin);
    command.arg(parameter("device", &args.volume.device));
    // Parts of sectors, which NBD's clients may ask for, are read, changed and written.
    command.arg("minblock=512");
    let backend = match args.volume.backend {
        BackendArg::Auto => "auto",
        BackendArg::Uring => "uring",
        BackendArg::Threads => "threads",
    };
    command.arg(format!("backend={backend}"));
    if let Some(table) = &args.volume.table {
        command.arg(parameter("table", &table.0));
    }
    command.arg(format!("give-up-table={}", args.volume.give_up_table));
    command.arg(format!("raw={}", args.raw));
    let log_format = match args.log_format {
        LogFormatArg::Text => "text",
        LogFormatArg::Logfmt => "logfmt",
        LogFormatArg::Json => "json",
    };
    command.arg(format!("log-format={log_format}"));
    if let Some(drive) = &args.emulate {
        command.arg(format!("emulate={drive}")).arg(format!("fit={}", !args.no_fit));
    }
    if let Some(cache) = args.write_cache {
        command.arg(format!("write-cache={}", cache == OnOff::On));
    }
    command
}

fn parameter(key: &str, path: &Path) -> OsString {
    let mut parameter = OsString::from(format!("{key}="));
    parameter.push(path);
    parameter
}

/// Passes signals on as orders to end: nbdkit itself would wait for its clients to leave. While
/// nobody takes orders yet it gets the signal, by a descriptor: the number may be another
/// process's by then.
fn forward(child: &Child, device: &Path, signalled: Receiver<()>) -> Result<(), Failure> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::failed("nbdkit has no process id"))?;
    let child = pidfd_open(pid, PidfdFlags::empty()).map_err(Failure::failed)?;
    let device = device.to_owned();
    thread::spawn(move || {
        for () in signalled {
            notify("STOPPING=1");
            let stop = Order::Stop { force: true };
            if connect(&device).and_then(|mut server| server.ask(&stop)).is_err() {
                let _ = pidfd_send_signal(&child, Signal::TERM);
            }
        }
    });
    Ok(())
}

/// Prints where to connect, once that is possible: nbdkit listens before it starts the engine, and
/// the engine answers orders once it serves. Returns early if nbdkit ends.
fn announce(child: &mut Child, args: &ServeArgs, address: &Address) -> Result<(), Failure> {
    let pid = u64::from(child.id());
    loop {
        if child.try_wait().map_err(Failure::failed)?.is_some() {
            return Ok(());
        }
        let status = connect(&args.volume.device).and_then(|mut server| server.ask(&Order::Status));
        if status.is_ok_and(|status| status["pid"].as_u64() == Some(pid)) {
            make_private(address)?;
            print(&format!("{}\n", uri(address, args.nbd.has_tls())))?;
            notify("READY=1");
            return Ok(());
        }
        thread::sleep(LOOK);
    }
}

/// nbdkit sets its own umask. Others could not connect before either, as that takes the right to
/// write.
fn make_private(address: &Address) -> Result<(), Failure> {
    let Address::Unix(path) = address else { return Ok(()) };
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, private).map_err(|error| address_failure(address, &error))
}

fn ended(status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "nbdkit ended with {status}: if it does not say why above, the next opening recovers what \
         was acknowledged"
    )))
}
