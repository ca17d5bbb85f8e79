//! A ublk device: making it, taking it over, ending it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use libublk::ctrl::{UblkCtrl, UblkCtrlBuilder};
use libublk::io::UblkDev;
use libublk::{UblkError as LibraryError, UblkFlags, sys};
use manylogs_block::Sectors;

use crate::limits::Limits;
use crate::queue::{self, Context};
use crate::{Cache, UblkError, UblkOptions, check, identity};

/// Name under which the program registers its devices.
const NAME: &str = "manylogs";
/// Queue depth: enough to fill the queues of a drive and of the engine.
const DEPTH: u16 = 128;
/// Longest request.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Longest discard: a request's length in bytes has 32 bits.
const DISCARD_SECTORS_MAX: u32 = u32::MAX >> 9;
/// Preferred granularity of discards.
const DISCARD_BYTES: u32 = 4096;

/// A block device. If it is not stopped, it stays in the kernel without a server.
pub struct UblkDevice {
    ctrl: UblkCtrl,
    path: PathBuf,
    note: PathBuf,
    recovered: bool,
    /// Set when this side ends the device.
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl UblkDevice {
    /// Makes a device, or takes over the one that a killed server of the same volume (on the same
    /// disk) has left. `gone` is called if another program removes the device.
    ///
    /// # Errors
    /// See [`UblkError`].
    pub fn start(
        options: UblkOptions,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<Self, UblkError> {
        check()?;
        let orphan = orphan(&options)?;
        let recovered = orphan.is_some();
        let ctrl = match orphan {
            Some(ctrl) => ctrl,
            None => add(&options)?,
        };
        match Self::serve(&ctrl, &options, gone) {
            Ok((thread, stopping)) => Ok(Self {
                path: PathBuf::from(ctrl.get_bdev_path()),
                ctrl,
                note: options.note,
                recovered,
                stopping,
                thread,
            }),
            Err(error) => {
                // A device that was taken over stays: its users may still get a new server.
                if !recovered {
                    let _ = ctrl.kill_dev();
                    let _ = ctrl.del_dev_async();
                    let _ = fs::remove_file(&options.note);
                }
                Err(error)
            }
        }
    }

    fn serve(
        ctrl: &UblkCtrl,
        options: &UblkOptions,
        gone: impl FnOnce() + Send + 'static,
    ) -> Result<(JoinHandle<()>, Arc<AtomicBool>), UblkError> {
        let parameters = |dev: &mut UblkDev| {
            describe(dev, options);
            Ok(())
        };
        let dev = UblkDev::new(NAME.to_owned(), parameters, ctrl);
        let dev = Arc::new(dev.map_err(|error| failed("open the character device", &error))?);
        let stopping = Arc::new(AtomicBool::new(false));
        let context = Context {
            port: options.port.clone(),
            capacity: options.capabilities.capacity,
            cache: options.cache,
        };
        let (ready, is_ready) = sync_channel(1);
        let spawned = std::thread::Builder::new().name("ublk".to_owned()).spawn({
            let (dev, stopping) = (Arc::clone(&dev), Arc::clone(&stopping));
            move || {
                queue::serve(&dev, &context, move |begun| {
                    let _ = ready.send(begun);
                });
                // The character device is closed before the end is reported.
                drop(dev);
                if !stopping.load(Ordering::SeqCst) {
                    gone();
                }
            }
        });
        let thread = spawned.map_err(|error| failed("start a thread", &error.into()))?;
        let begun = is_ready.recv().unwrap_or(Err(LibraryError::QueueIsDown));
        begun
            .and_then(|()| ctrl.start_dev(&dev).map(drop))
            .map_err(|error| failed("start the device", &error))?;
        Ok((thread, stopping))
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the device was taken over from a server that was killed.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Ends the device after answering the requests in flight. If it is `in_use`, its users see
    /// errors from then on, and the device's name is taken until the last user has closed it.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn stop(self, in_use: bool) -> Result<(), UblkError> {
        self.stopping.store(true, Ordering::SeqCst);
        self.ctrl.kill_dev().map_err(|error| failed("stop the device", &error))?;
        let _ = self.thread.join();
        let removed = if in_use { self.ctrl.del_dev_async() } else { self.ctrl.del_dev() };
        let _ = fs::remove_file(&self.note);
        removed.map(drop).map_err(|error| failed("remove the device", &error))
    }
}

impl std::fmt::Debug for UblkDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UblkDevice").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A new device, not started.
fn add(options: &UblkOptions) -> Result<UblkCtrl, UblkError> {
    let recovery = sys::UBLK_F_USER_RECOVERY | sys::UBLK_F_USER_RECOVERY_REISSUE;
    let mut wanted = u64::from(sys::UBLK_F_USER_COPY);
    if options.cache == Cache::WriteThrough {
        wanted |= u64::from(recovery);
    }
    let added = UblkCtrlBuilder::default()
        .name(NAME)
        .depth(DEPTH)
        .io_buf_bytes(REQUEST_BYTES_MAX)
        .ctrl_flags(wanted)
        .ctrl_target_flags(options.identity)
        .dev_flags(UblkFlags::UBLK_DEV_F_ADD_DEV)
        .build();
    let ctrl = added.map_err(|error| failed("add a device", &error))?;
    // Dropping the value would wait for the device's users. The device is removed once they have
    // closed it.
    ctrl.disown();
    // The kernel clears flags that it does not know.
    let granted = ctrl.dev_info().flags;
    let noted = if granted & wanted == wanted {
        let id = ctrl.dev_info().dev_id.to_string();
        fs::write(&options.note, id).map_err(|error| failed("note the device", &error.into()))
    } else {
        Err(UblkError::TooOld("copy on demand or recover devices"))
    };
    if let Err(error) = noted {
        let _ = ctrl.del_dev();
        return Err(error);
    }
    Ok(ctrl)
}

/// Removes the device that a killed server left, even if it is in use: its users see errors.
/// Returns the device's name, if there was one.
///
/// # Errors
/// If the driver refuses.
pub fn remove_orphan(note: &Path) -> Result<Option<PathBuf>, UblkError> {
    let Some(ctrl) = noted(note) else { return Ok(None) };
    let info = ctrl.dev_info();
    let same_place = info.ublksrv_flags >> 32 == identity(note, None) >> 32;
    if !same_place || u32::from(info.state) == sys::UBLK_S_DEV_LIVE {
        return Ok(None);
    }
    remove(&ctrl)?;
    let _ = fs::remove_file(note);
    Ok(Some(PathBuf::from(ctrl.get_bdev_path())))
}

fn remove(ctrl: &UblkCtrl) -> Result<(), UblkError> {
    ctrl.kill_dev().map_err(|error| failed("stop the old device", &error))?;
    // Does not wait until its users have closed it.
    ctrl.del_dev_async().map_err(|error| failed("remove the old device", &error))?;
    Ok(())
}

/// The device that a killed server of the same volume has left, if its users can go on with it. A
/// device that cannot be taken over is removed.
fn orphan(options: &UblkOptions) -> Result<Option<UblkCtrl>, UblkError> {
    let Some(ctrl) = noted(&options.note) else { return Ok(None) };
    let info = ctrl.dev_info();
    if info.ublksrv_flags != options.identity {
        return Ok(None);
    }
    let path = || PathBuf::from(ctrl.get_bdev_path());
    let recoverable = u64::from(sys::UBLK_F_USER_RECOVERY | sys::UBLK_F_USER_COPY);
    let dead = u32::from(info.state) == sys::UBLK_S_DEV_DEAD;
    if dead || info.flags & recoverable != recoverable {
        remove(&ctrl)?;
        return Ok(None);
    }
    if options.cache != Cache::WriteThrough {
        return Err(UblkError::OtherCache { path: path() });
    }
    let mut parameters = sys::ublk_params {
        len: u32::try_from(size_of::<sys::ublk_params>()).unwrap_or(u32::MAX),
        ..Default::default()
    };
    let told = ctrl.get_params(&mut parameters);
    told.map_err(|error| failed("ask for the old device's size", &error))?;
    let (is, capacity) = (Sectors(parameters.basic.dev_sectors), options.capabilities.capacity);
    if is > capacity {
        return Err(UblkError::Smaller { path: path(), is, capacity });
    }
    // The library waits here while the kernel still cleans up after the killed server.
    let taken =
        ctrl.start_user_recover().map_err(|error| failed("take the device over", &error))?;
    if taken < 0 {
        let busy = io::Error::from(io::ErrorKind::ResourceBusy);
        return Err(failed("take the device over", &busy.into()));
    }
    Ok(Some(ctrl))
}

/// The device of the noted number, if it exists. It may belong to another program by now.
fn noted(note: &Path) -> Option<UblkCtrl> {
    let id: i32 = fs::read_to_string(note).ok()?.trim().parse().ok()?;
    // The library reports on standard error that its own file about the device is missing. We make
    // no such file, because its directory is writable for everybody.
    Path::new(&format!("/sys/class/ublk-char/ublkc{id}")).exists().then_some(())?;
    let opened = UblkCtrlBuilder::default()
        .name(NAME)
        .id(id)
        .depth(DEPTH)
        .io_buf_bytes(REQUEST_BYTES_MAX)
        .dev_flags(UblkFlags::UBLK_DEV_F_RECOVER_DEV)
        .build();
    opened.ok()
}

/// Fills in the device's size and parameters for the kernel.
fn describe(dev: &mut UblkDev, options: &UblkOptions) {
    let limits = Limits::of(&options.capabilities, options.cache);
    let capacity = options.capabilities.capacity;
    dev.tgt.dev_size = capacity.bytes();
    // One entry more than requests, for the wait for answers.
    dev.tgt.cq_depth = DEPTH * 2;
    dev.tgt.params = sys::ublk_params {
        types: sys::UBLK_PARAM_TYPE_BASIC | sys::UBLK_PARAM_TYPE_DISCARD,
        basic: sys::ublk_param_basic {
            attrs: limits.attributes,
            logical_bs_shift: limits.logical_shift,
            physical_bs_shift: limits.physical_shift,
            io_opt_shift: limits.physical_shift,
            io_min_shift: limits.physical_shift,
            max_sectors: REQUEST_BYTES_MAX >> 9,
            dev_sectors: capacity.0,
            ..Default::default()
        },
        discard: sys::ublk_param_discard {
            discard_granularity: DISCARD_BYTES,
            max_discard_sectors: if limits.discard { DISCARD_SECTORS_MAX } else { 0 },
            max_write_zeroes_sectors: DISCARD_SECTORS_MAX,
            max_discard_segments: 1,
            ..Default::default()
        },
        ..Default::default()
    };
}

fn failed(what: &'static str, error: &LibraryError) -> UblkError {
    let reason = match error {
        LibraryError::UringIOError(number) | LibraryError::OtherError(number) => {
            io::Error::from_raw_os_error(-number).to_string()
        }
        error => error.to_string(),
    };
    UblkError::Command { what, reason }
}
