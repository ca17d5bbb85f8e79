//! How a panic ends a process that serves a device.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{PanicHookInfo, set_hook};
use std::sync::Once;

use manylogs_plant::{self as plant, Bug};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use manylogs_operate::log::{Level, line};

/// From now on a panic of any thread is logged and ends the process by `SIGABRT`, without
/// unwinding.
///
/// Otherwise the dead thread's requests would never be answered, and its volume could not be
/// closed: clients would hang, and no supervisor would know. The next opening recovers as after a
/// kill.
pub(crate) fn end_process_on_panic() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        set_hook(Box::new(|panic| {
            report(panic);
            if !plant::is(Bug::PanicOutlived) {
                // No core dump: it could go to the very device that this process serves. The
                // process's files stay open while the dump is written, so that clients would wait
                // for the dump and the dump for the device.
                let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
                std::process::abort();
            }
        }));
    });
}

fn report(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let why = payload.downcast_ref::<&str>().copied();
    let why = why.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let place = panic.location().map_or_else(|| "?".to_owned(), ToString::to_string);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("?");
    let message = format!(
        "panicked: thread {thread} at {place}: {why}; this is a bug. The server ends; the next \
         opening recovers what was acknowledged"
    );
    let mut fields =
        vec![("thread", thread.into()), ("place", place.into()), ("panic", why.to_owned().into())];
    // Captured only if RUST_BACKTRACE asks for it.
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        fields.push(("backtrace", trace.to_string().into()));
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{trace}\n").as_bytes());
    }
    line(Level::Error, None, &message, &fields);
}
