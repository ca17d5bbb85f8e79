//! `manylogs stores BASE forget STORE` and `remove STORE`, which may lose data.

use std::fmt::Write as _;
use std::rc::Rc;

use manylogs_block::BlockDevice;
use manylogs_everest::{BaseLabel, Forgotten, Offloaded, StoreId};
use manylogs_operate::control::{Order, connect};
use manylogs_serve::{StackError, forgotten_answer, parse_store};
use manylogs_storage::{OpenMode, VolumeLock};
use serde_json::Value;

use super::everest::label_of;
use super::live;
use super::serve::{control_failure, offload_failure};
use super::volume::{Session, human, in_use, stack_failure};
use crate::args::stores::StoresArgs;
use crate::args::volume::{BackendArg, VolumeArgs};
use crate::failure::Failure;
use crate::output::{counted, print};

/// Forgets a store that is gone for good, by the base volume's server if it is served.
pub(super) fn run(args: &StoresArgs, store: &str) -> Result<(), Failure> {
    let name = || Failure::input(format!("{store}: a store's name has 32 digits, 0 to f"));
    let id = parse_store(store).ok_or_else(name)?;
    let answer = match live::server(&args.device)? {
        Some(mut server) => {
            let (store, accept_loss) = (store.to_owned(), args.accept_loss);
            server.ask(&Order::ForgetStore { store, accept_loss }).map_err(control_failure)?
        }
        None => forgotten_answer(store, &closed(args, id)?),
    };
    let when = "give --accept-loss if it is gone for good (what is lost reads as errors then";
    match told(args, &answer)? {
        Some(loss) => Err(Failure::Loss(format!(
            "{}: forgetting store {store} loses {loss}: {when} until it is written)",
            args.device.display()
        ))),
        None if args.json => Ok(()),
        None => print(&format!("store {store} is forgotten\n")),
    }
}

/// Empties a store of a base volume that is served, and drops it.
pub(super) fn remove(args: &StoresArgs, store: &str) -> Result<(), Failure> {
    let (named, accept_loss) = (store.to_owned(), args.accept_loss);
    let mut server = connect(&args.device).map_err(control_failure)?;
    let order = Order::RemoveStore { store: named, accept_loss };
    let answer = server.ask(&order).map_err(control_failure)?;
    let when = "mend that store's disk and try again, or give --accept-loss (they stay read errors";
    match told(args, &answer)? {
        Some(loss) => Err(Failure::Loss(format!(
            "{}: no store returns {loss} whole, so store {store} cannot be emptied: {when} until \
             they are written)",
            args.device.display()
        ))),
        None if args.json => Ok(()),
        None => print(&format!("store {store} holds nothing any more\n")),
    }
}

/// Prints an answer. Returns how much is lost if that was not accepted.
fn told(args: &StoresArgs, answer: &Value) -> Result<Option<String>, Failure> {
    let lost = lost_of(answer);
    match args.json {
        true => print(&(serde_json::to_string_pretty(answer).unwrap_or_default() + "\n"))?,
        false => print(&listed(&lost))?,
    }
    let bytes = human(lost.iter().map(|(_, bytes)| bytes).sum());
    let loss = format!("{bytes} in {}", counted(lost.len() as u64, "range"));
    Ok((answer["forgotten"] == false).then_some(loss))
}

/// Forgets a store of a base volume that is not served, on a disk or on a volume.
fn closed(args: &StoresArgs, store: StoreId) -> Result<Forgotten, Failure> {
    let volume = VolumeArgs {
        device: args.device.clone(),
        backend: BackendArg::Auto,
        table: None,
        give_up_table: false,
    };
    let asked = (store, args.accept_loss);
    let mut session = Session::open(&volume, OpenMode::Exclusive)?;
    let disk = Rc::clone(&session.device);
    if let Some(label) = label_of(&session, Rc::clone(&disk))? {
        return forget(&session, &label, disk, asked);
    }
    let (opened, _) = session.open_volume()?;
    let device: Rc<dyn BlockDevice> = Rc::new(opened.clone());
    let none = || Failure::input(format!("{} is no base volume", args.device.display()));
    let label = label_of(&session, Rc::clone(&device)).and_then(|label| label.ok_or_else(none));
    let done = label.and_then(|label| forget(&session, &label, device, asked));
    let closed = session.run(async move { opened.close().await });
    let done = done?;
    closed.map_err(|error| session.failure(&error))?;
    Ok(done)
}

fn forget(
    session: &Session,
    label: &BaseLabel,
    device: Rc<dyn BlockDevice>,
    (store, accept): (StoreId, bool),
) -> Result<Forgotten, Failure> {
    let path = session.path();
    let lock = VolumeLock::take(label.id, path);
    let _lock = lock.map_err(|error| in_use(path, stack_failure(StackError::from(error))))?;
    let runtime = session.runtime();
    let done =
        session.run(async move { Offloaded::forget_closed(&runtime, device, store, accept).await });
    done.map_err(|error| offload_failure(path, &error))
}

/// The lost ranges of an answer: first byte, and bytes.
fn lost_of(answer: &Value) -> Vec<(u64, u64)> {
    let number = |range: &Value, key: &str| range[key].as_u64().unwrap_or_default();
    let range = |range: &Value| (number(range, "start_bytes"), number(range, "bytes"));
    answer["lost"].as_array().map(|ranges| ranges.iter().map(range).collect()).unwrap_or_default()
}

/// Lost ranges, a line each: their first bytes and lengths.
pub(crate) fn listed(lost: &[(u64, u64)]) -> String {
    lost.iter().fold(String::new(), |mut out, (start, bytes)| {
        let _ = writeln!(out, "lost: {bytes} bytes from byte {start}");
        out
    })
}
