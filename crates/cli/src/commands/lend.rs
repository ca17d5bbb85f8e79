//! `manylogs lend` and `manylogs stores`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use manylogs::Volume;
use manylogs_block::{Nanos, Sectors};
use manylogs_everest::{BaseLabel, OffloadError, Offloaded, store_name};
use manylogs_operate::control::{ControlSocket, Order, connect};
use manylogs_operate::log::{Level, line, set_format};
use manylogs_operate::runtime_dir::store_socket;
use manylogs_operate::status::OffloadStatus;
use manylogs_serve::{
    Ending, Engine, Guard, Identity, LendOptions, NbdAddress, RESTART_PATIENCE, Shown,
    StackOptions, StoreAddress, StoreFrontEnd, notify, peer_at,
};
use manylogs_storage::{Contents, ImageError, OpenMode, create_image, survey};
use serde_json::json;

use super::serve::{
    control_failure, key_failure, listen_failure, offload_failure, on_signal, serve_failure,
};
use super::volume::{Session, human, in_use, span};
use super::{everest, live};
use crate::args::stores::{LendArgs, StoresArgs, StoresAsk};
use crate::args::volume::{BackendArg, VolumeArgs};
use crate::failure::Failure;
use crate::output::{counted, print};

/// Least size of a store: in smaller ones the logs are too short.
const SIZE_LEAST: Sectors = Sectors(16 * 2048);
/// The name of a store's content.
const STORE: &str = "a lent store";

pub(crate) fn run(args: &LendArgs) -> Result<(), Failure> {
    set_format(args.log_format.into());
    let path = &args.device;
    if let Some(address) = &args.listen {
        peer_at(address, !args.allowed.is_empty()).map_err(Failure::input)?;
    }
    let guard = match args.allowed.clone() {
        allowed if allowed.is_empty() => None,
        allowed => Some(Guard { identity: identity(&args.key)?, allowed }),
    };
    let prepared = prepare(args)?;
    let lent = lend(args, prepared.make, guard);
    if lent.is_err() && prepared.created {
        // A file without a store is useless.
        let _ = std::fs::remove_file(path);
    }
    lent
}

/// The key of this machine.
fn identity(path: &Path) -> Result<Identity, Failure> {
    Identity::of_file(path).map_err(key_failure)
}

/// What is to be lent.
struct Prepared {
    /// The file was just created.
    created: bool,
    /// A store must be made there.
    make: bool,
}

fn prepare(args: &LendArgs) -> Result<Prepared, Failure> {
    let path = &args.device;
    let shown = path.display();
    if !path.exists() {
        let Some(size) = args.size else {
            let message = format!("{shown} does not exist: give --size to make a file to lend");
            return Err(Failure::input(message));
        };
        if size < SIZE_LEAST {
            let least = human(SIZE_LEAST.bytes());
            return Err(Failure::input(format!("--size: a store has at least {least}")));
        }
        return match create_image(path, size, false) {
            Ok(()) => Ok(Prepared { created: true, make: true }),
            Err(ref error @ ImageError::Io { ref source, .. }) => {
                Err(Failure::of_io(source, error))
            }
            Err(error) => Err(Failure::failed(error)),
        };
    }
    let holds = survey(path).map_err(|error| Failure::at(path, &error))?;
    let make = match &holds {
        Contents::Known(names) if names.contains(&STORE) && !args.force => false,
        Contents::Empty => true,
        _ if args.force => true,
        other => {
            return Err(Failure::Busy(format!(
                "{shown} holds {other}: it would be lost; give --force if that is meant"
            )));
        }
    };
    Ok(Prepared { created: false, make })
}

fn lend(args: &LendArgs, make: bool, guard: Option<Guard>) -> Result<(), Failure> {
    let path = &args.device;
    let address = match &args.listen {
        Some(address) => address.clone(),
        None => NbdAddress::Unix(store_socket(path).map_err(Failure::failed)?),
    };
    let ending = Ending::default();
    on_signal(ending.on_signal())?;
    let options = LendOptions {
        stack: StackOptions {
            backend: args.backend.into(),
            patience: RESTART_PATIENCE,
            ..StackOptions::new(path, OpenMode::Exclusive)
        },
        make,
        size: args.size,
        each_percent: args.each,
        share_percent: args.share,
        guard,
    };
    let key = options.guard.as_ref().map(|guard| guard.identity.public());
    let listener = address.bind().map_err(listen_failure)?;
    let engine = Engine::lend(options, listener).map_err(|error| {
        address.remove_socket();
        in_use(path, serve_failure(error))
    })?;
    let control = ControlSocket::listen(path, ending.obey(engine.port())).map_err(|error| {
        let message = format!("{}: cannot make the control socket: {error}", path.display());
        Failure::of_io(&error, message)
    })?;
    let store = engine.about().volume;
    let size = human(engine.about().capabilities.capacity.bytes());
    let message = format!("lends {size} at {address}");
    line(Level::Info, Some(path), &message, &[]);
    let shown = show(&engine, StoreAddress { at: address, store, key })?;
    print(&format!("{}\n", shown.name()))?;
    io::stdout().flush().map_err(Failure::failed)?;
    notify("READY=1");
    let end = ending.wait(&shown, path);
    notify("STOPPING=1");
    let left = end.leave(path, engine, shown);
    drop(control);
    left.map_err(serve_failure)?;
    line(Level::Info, Some(path), "closed: what it holds stays there", &[]);
    Ok(())
}

/// What clients name.
fn show(engine: &Engine, address: StoreAddress) -> Result<Shown, Failure> {
    let connections: Arc<AtomicUsize> = engine.connections();
    let front_end = StoreFrontEnd::new(address, connections);
    Shown::new(Box::new(front_end), None, None).map_err(Failure::failed)
}

/// `manylogs stores`: the stores of a base volume, by its server, or by its header if it is not
/// served.
pub(crate) fn stores(args: &StoresArgs) -> Result<(), Failure> {
    if args.accept_loss && !matches!(args.ask, Some(StoresAsk::Forget | StoresAsk::Remove)) {
        return Err(Failure::input("--accept-loss is for forget STORE and remove STORE"));
    }
    if args.ask == Some(StoresAsk::Key) {
        return print(&format!("{}\n", identity(&args.key)?.public()));
    }
    if let Some(ask @ (StoresAsk::Add | StoresAsk::Evacuate)) = args.ask {
        return change(args, ask);
    }
    if args.ask == Some(StoresAsk::Forget) {
        return super::forget::run(args, named(args)?);
    }
    if args.ask == Some(StoresAsk::Remove) {
        return super::forget::remove(args, named(args)?);
    }
    if args.store.is_some() {
        return Err(Failure::input("only add, evacuate, remove and forget take a store"));
    }
    if let Some(mut server) = live::server(&args.device)? {
        let status = live::ask(&mut server)?;
        let none = || Failure::input(format!("{} is no base volume", args.device.display()));
        let offload = status.offload.ok_or_else(none)?;
        return match args.json {
            true => print(&pretty(&json!(offload))),
            false => print(&text(&offload)),
        };
    }
    let volume = VolumeArgs {
        device: args.device.clone(),
        backend: BackendArg::Auto,
        table: None,
        give_up_table: false,
    };
    let label = closed(&volume)?;
    let stores: Vec<String> = label.stores.iter().map(store_name).collect();
    if args.json {
        let mut value = everest::base_json(&label);
        value["listed"] = json!(stores);
        return print(&pretty(&value));
    }
    let lost = everest::lost_lines(&label);
    match stores[..] {
        [] => print(&format!("no store holds anything of it\n{lost}")),
        _ => print(
            &(stores.iter().fold(String::new(), |mut out, store| {
                let _ = writeln!(out, "{store}  may hold newer data: serve it with this store");
                out
            }) + &lost),
        ),
    }
}

/// The store that is added, evacuated, removed or forgotten.
fn named(args: &StoresArgs) -> Result<&str, Failure> {
    let none = || Failure::input("name the store: manylogs stores BASE lists them");
    args.store.as_deref().ok_or_else(none)
}

/// `manylogs stores BASE add` and `evacuate`.
fn change(args: &StoresArgs, ask: StoresAsk) -> Result<(), Failure> {
    let given = named(args)?.to_owned();
    let (order, done) = match ask {
        StoresAsk::Evacuate => (Order::EvacuateStore { store: given }, "takes no more writes"),
        _ => {
            let address: StoreAddress = given.parse().map_err(Failure::input)?;
            let address = address.absolute().to_string();
            (Order::AddStore { address }, "is borrowed from now on")
        }
    };
    let mut server = connect(&args.device).map_err(control_failure)?;
    let answer = server.ask(&order).map_err(control_failure)?;
    if args.json {
        return print(&pretty(&answer));
    }
    let left = match answer["held_bytes"].as_u64() {
        None => String::new(),
        Some(0) => {
            ", and has nothing that is needed; manylogs stores tells when it is empty".to_owned()
        }
        Some(bytes) => format!(
            ": {} go home, or to other stores; manylogs stores {} tells how much is left",
            human(bytes),
            args.device.display()
        ),
    };
    print(&format!("store {} {done}{left}\n", answer["store"].as_str().unwrap_or("?")))
}

/// The label of a base volume that is not served, on a disk or on a volume.
fn closed(args: &VolumeArgs) -> Result<BaseLabel, Failure> {
    let session = Session::open(args, OpenMode::ReadOnly)?;
    if let Some(label) = everest::label_of(&session, session.reads())? {
        return Ok(label);
    }
    let none = || Failure::input(format!("{} is no base volume", args.device.display()));
    everest::on_volume(&session)?.ok_or_else(none)
}

/// Refuses if stores may hold the newest data of the volume.
pub(crate) fn refuse_if_borrowing(session: &Session, volume: &Volume) -> Result<(), Failure> {
    let (runtime, device) = (session.runtime(), Rc::new(volume.clone()));
    let label = session.run(async move { Offloaded::identify(&runtime, device).await });
    let path = session.path();
    let label = label.map_err(|error| offload_failure(path, &error))?;
    match label.and_then(|label| label.stores.first().copied()) {
        None => Ok(()),
        Some(store) => Err(offload_failure(path, &OffloadError::MissingStore { store })),
    }
}

fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// The stores in words.
pub(crate) fn text(offload: &OffloadStatus) -> String {
    let mut out = format!(
        "stores          {}: {}\n\
         held there      {}, of which {} have one copy; {} went there, {} home\n",
        offload.state,
        offload.why,
        human(offload.held_bytes),
        human(offload.only_copy_bytes),
        counted(offload.offloaded_writes, "write"),
        offload.home_writes
    );
    if let Some(seconds) = offload.oldest_s {
        let age = span(Nanos::from_secs_f64(seconds));
        let _ = writeln!(out, "oldest          of what only stores have was written {age} ago");
    }
    if offload.lost_bytes > 0 {
        let lost = human(offload.lost_bytes);
        let _ = writeln!(out, "lost            {lost} read as errors until they are written");
    }
    for store in &offload.stores {
        let away = match store.seen_s {
            seconds if seconds > 0.0 => format!(", not reached for {seconds:.0} s"),
            _ => String::new(),
        };
        let left = store.left_from_bytes.filter(|from| *from > 0);
        let of = left.map(|from| format!(" of {}", human(from))).unwrap_or_default();
        let _ = writeln!(
            out,
            "  {} {:<8} {}{of} held, a request waits {:.1} ms, at {}{away}",
            store.name,
            store.state,
            human(store.held_bytes),
            store.wait_ms,
            store.address
        );
    }
    out
}

/// Makes a base volume of the device of `session`, or of the volume on it.
pub(crate) fn make_base(
    session: &Session,
    device: Rc<dyn manylogs_block::BlockDevice>,
    path: &Path,
) -> Result<Sectors, Failure> {
    let (runtime, base) = (session.runtime(), Rc::clone(&device));
    let made = session.run(async move { Offloaded::create(&runtime, base).await });
    made.map_err(|error| offload_failure(path, &error))?;
    Ok(Offloaded::capacity_on(&*device))
}
