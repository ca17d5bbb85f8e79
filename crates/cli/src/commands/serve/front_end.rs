//! The front end that the arguments ask for: a loop device, a file, a ublk device, NBD.

use manylogs_operate::log::{Level, line};
use manylogs_operate::runtime_dir::{mount_point, ublk_note};
use manylogs_serve::{Engine, FrontEnd, FuseFile, LoopDevice, LoopFrontEnd, NbdFrontEnd, Shown};
use manylogs_storage::prefer_this_thread;
use manylogs_ublk::{Cache, UblkDevice, UblkOptions, identity};

use super::failure::{fuse_failure, link_failure, ublk_failure};
use crate::args::serve::ServeArgs;
use crate::failure::Failure;

/// Checks that the front end of `args` is available, as far as possible without the engine.
pub(super) fn check(args: &ServeArgs) -> Result<(), Failure> {
    if args.ublk {
        return manylogs_ublk::check().map_err(ublk_failure);
    }
    if args.as_loop || args.file || args.nbd.nbd.is_some() {
        return Ok(());
    }
    Err(Failure::input(
        "give --loop or --ublk for a block device, --file for a file, or --nbd ADDRESS",
    ))
}

/// Shows the device of `engine`. `gone` is called if another program removes the front end.
pub(super) fn show(
    args: &ServeArgs,
    engine: &Engine,
    gone: impl FnOnce() + Send + 'static,
) -> Result<Shown, Failure> {
    let front_end: Box<dyn FrontEnd> = if let Some(address) = &args.nbd.nbd {
        Box::new(NbdFrontEnd::new(address, engine))
    } else if args.ublk {
        Box::new(ublk(args, engine, gone)?)
    } else {
        file(args, engine)?
    };
    let shown = Shown::new(front_end, args.link.as_deref(), engine.about().volume);
    shown.map_err(link_failure)
}

fn ublk(
    args: &ServeArgs,
    engine: &Engine,
    gone: impl FnOnce() + Send + 'static,
) -> Result<UblkDevice, Failure> {
    let (about, at) = (engine.about(), &args.volume.device);
    let note = ublk_note(at).map_err(Failure::failed)?;
    let options = UblkOptions {
        port: engine.port(),
        capabilities: about.capabilities,
        cache: if args.write_back { Cache::WriteBack } else { Cache::WriteThrough },
        identity: identity(&note, about.volume),
        note,
    };
    let device = UblkDevice::start(options, gone).map_err(ublk_failure)?;
    if device.is_recovered() {
        let message = format!("{} goes on: its server was killed", device.path().display());
        line(Level::Info, Some(at), &message, &[]);
    }
    Ok(device)
}

/// A file, or a loop device over it.
fn file(args: &ServeArgs, engine: &Engine) -> Result<Box<dyn FrontEnd>, Failure> {
    if args.emulate.is_some() {
        // Threads that carry the drive's requests must not be late either; they inherit the
        // priority. If it is refused the drive may answer late, and its report shows that.
        let _ = prefer_this_thread();
    }
    let about = engine.about();
    let place = mount_point(&args.volume.device).map_err(Failure::failed)?;
    let file = FuseFile::mount(engine.port(), about.capabilities, &place).map_err(fuse_failure)?;
    if !args.as_loop {
        return Ok(Box::new(file));
    }
    let device = LoopDevice::attach(file.path(), about.capabilities.rotational);
    Ok(Box::new(LoopFrontEnd { device: device.map_err(Failure::failed)?, file }))
}
