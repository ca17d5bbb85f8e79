//! `manylogs format`.

use std::path::Path;
use std::rc::Rc;

use manylogs::{CreateOptions, LogPlacement, Volume, VolumeConfig, measure_scattered};
use manylogs_block::{BlockDevice, Geometry, Sectors};
use manylogs_disk::Profile;
use manylogs_everest::Offloaded;
use manylogs_storage::{Contents, ImageError, OpenMode, Zones, create_image, survey, zones};

use super::said_array;
use super::status::array;
use super::{Session, human, id_text, table};
use crate::args::volume::{EverestArg, FormatArgs, Nvram};
use crate::commands::drive::choose::for_format;
use crate::commands::gecko;
use crate::commands::lend::make_base;
use crate::failure::Failure;
use crate::output::print;

/// Least size of a volume: smaller ones would have no room for data.
const SIZE_LEAST: Sectors = Sectors(16 * 2048);
/// Largest size that certainly fits the format's numbers.
const SIZE_MOST: Sectors = Sectors(1 << 42);

pub(crate) fn run(args: &FormatArgs) -> Result<(), Failure> {
    if args.gecko.gecko {
        return gecko::format::run(args);
    }
    if args.label.len() > 32 {
        return Err(Failure::input("--label: at most 32 bytes"));
    }
    let created = prepare(args, &args.volume.device)?;
    let result = format(args);
    if result.is_err() && created {
        // An image without a volume is useless.
        let _ = std::fs::remove_file(&args.volume.device);
    }
    result
}

/// Creates the image, or checks that the device exists; returns whether a file was created. An
/// existing image is refused without --force.
pub(crate) fn prepare(args: &FormatArgs, path: &Path) -> Result<bool, Failure> {
    if let Some(size) = args.size {
        if size < SIZE_LEAST || size > SIZE_MOST {
            return Err(Failure::input(format!(
                "--size: a volume has between {} and {}",
                human(SIZE_LEAST.bytes()),
                human(SIZE_MOST.bytes())
            )));
        }
        return match create_image(path, size, args.sparse) {
            Ok(()) => Ok(true),
            Err(ImageError::Exists { .. }) if args.force => Ok(false),
            Err(ImageError::Exists { .. }) => Err(Failure::Busy(format!(
                "{} exists already: choose another name, or give --force if what it holds may be \
                 lost",
                path.display()
            ))),
            Err(ref error @ ImageError::Io { ref source, .. }) => {
                Err(Failure::of_io(source, error))
            }
            Err(error) => Err(Failure::failed(error)),
        };
    }
    if !path.exists() {
        return Err(Failure::input(format!(
            "{} does not exist: give --size to create an image",
            path.display()
        )));
    }
    Ok(false)
}

fn format(args: &FormatArgs) -> Result<(), Failure> {
    let session = Session::open_with(&args.volume, OpenMode::Exclusive, args.physical_sector)?;
    let path = session.path().to_owned();
    refuse_contents(&path, args.force)?;
    let capacity = session.device.capabilities().capacity;
    if capacity < SIZE_LEAST || capacity > SIZE_MOST {
        return Err(Failure::input(format!(
            "{} has {}: a volume has between {} and {}",
            path.display(),
            human(capacity.bytes()),
            human(SIZE_LEAST.bytes()),
            human(SIZE_MOST.bytes())
        )));
    }
    let said = known_array(args, &session, &path)?;
    if args.everest == Some(EverestArg::Disk) {
        let size = make_base(&session, Rc::clone(&session.device), &path)?;
        return print(&format!(
            "{}: base volume\nfor data   {}\n",
            path.display(),
            human(size.bytes())
        ));
    }
    let drive = for_format(args.drive.as_deref(), &path)?;
    let config = config(args, kind(args, &session, drive.as_ref())?, capacity);
    config.validate().map_err(Failure::input)?;
    let volume = create(args, &session, &config, said)?;
    base(&session, &volume, args.everest.is_some())?;
    let closing = volume.clone();
    let closed = session.run(async move { closing.close().await });
    closed.map_err(|error| session.failure(&error))?;
    let layout = volume.layout();
    let logs = layout.log_sectors().bytes();
    print(&format!(
        "{}: volume {}\n\
         for data   {} ({:.1} % of the device)\n\
         logs       {} of {} each, {} in all ({:.1} %)\n\
         small      writes up to {} are logged\n\
         sectors    512 bytes logical, {} physical\n",
        path.display(),
        id_text(&volume.id()),
        human(layout.capacity().bytes()),
        100.0 * layout.capacity().bytes() as f64 / capacity.bytes() as f64,
        layout.regions().len(),
        human(layout.regions()[0].len.bytes()),
        human(logs),
        100.0 * logs as f64 / capacity.bytes() as f64,
        human(volume.config().threshold.bytes()),
        session.device.capabilities().physical_sector.bytes(),
    ))?;
    if let Some(array) = array(&session, layout) {
        print(&format!("array      {}\nmkfs       {}\n", array.words(), array.mkfs()))?;
    }
    drive.map_or(Ok(()), |(_, said)| print(&format!("drive      {said}\n")))
}

/// Writes the volume, with a table in a file if that is wanted. A new file of a table goes again if
/// there is no volume for it.
fn create(
    args: &FormatArgs,
    session: &Session,
    config: &VolumeConfig,
    said: Option<Geometry>,
) -> Result<Volume, Failure> {
    let file = args.volume.table.as_ref();
    let new_file = file.map(|Nvram(path)| path).filter(|path| path.symlink_metadata().is_err());
    let size = args.table_size.unwrap_or(table::SIZE);
    let table = |place| table::create(place, session.path(), size, args.force);
    let options = CreateOptions {
        label: args.label.clone(),
        nvram: file.map(table).transpose()?,
        zero: args.zero,
        said,
        ..CreateOptions::default()
    };
    let (runtime, device, config) = (session.runtime(), Rc::clone(&session.device), *config);
    let created =
        session.run(async move { Volume::create_with(runtime, device, &config, &options).await });
    created.map_err(|error| {
        if let Some(path) = new_file {
            let _ = std::fs::remove_file(path);
        }
        session.failure(&error)
    })
}

/// The array that the device is by its user's word, if Linux does not know it.
fn known_array(
    args: &FormatArgs,
    session: &Session,
    path: &Path,
) -> Result<Option<Geometry>, Failure> {
    if args.everest == Some(EverestArg::Disk) {
        return match args.array {
            Some(_) => {
                let message = "--array goes with a volume: leave it out, or --everest disk";
                Err(Failure::input(message))
            }
            None => Ok(None),
        };
    }
    if session.device.geometry().is_some() && args.array.is_none() {
        return Ok(None);
    }
    said_array::geometry(path, args.array.as_ref())
}

/// Refuses a device with content, unless `force` says that the content may be lost.
pub(crate) fn refuse_contents(path: &Path, force: bool) -> Result<(), Failure> {
    let holds = survey(path).map_err(|error| {
        Failure::of_io(&error, format!("cannot read {}: {error}", path.display()))
    })?;
    if holds == Contents::Empty || force {
        return Ok(());
    }
    Err(Failure::Busy(format!(
        "{} holds {holds}: it would be lost; give --force if that is meant",
        path.display()
    )))
}

/// Refuses a disk with zones that the host must manage.
pub(crate) fn refuse_zoned(path: &Path, why: &str) -> Result<(), Failure> {
    match zones(path) {
        Some(Zones { managed_by_host: true, .. }) => Err(Failure::input(format!(
            "{} is a zoned disk that the host must manage: {why}, which such a disk refuses",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Makes the volume a base volume, or erases the remains of an earlier base volume on this disk.
fn base(session: &Session, volume: &Volume, wanted: bool) -> Result<(), Failure> {
    let device: Rc<dyn BlockDevice> = Rc::new(volume.clone());
    if wanted {
        return make_base(session, device, session.path()).map(drop);
    }
    let (runtime, looked_at) = (session.runtime(), Rc::clone(&device));
    let found = session.run(async move { Offloaded::identify(&runtime, looked_at).await });
    if matches!(found, Ok(None)) {
        return Ok(());
    }
    let erased = session.run(Offloaded::erase(device));
    erased.map_err(|error| session.failure(&error.into()))
}

/// Which drives the volume is laid out for.
#[derive(Clone, Copy)]
enum Kind {
    Conventional,
    Shingled(Sectors),
}

/// The kind of the drive: as the user says, by the kernel's zones, by its profile, or as measured.
fn kind(
    args: &FormatArgs,
    session: &Session,
    drive: Option<&(Profile, String)>,
) -> Result<Kind, Failure> {
    let path = session.path().display();
    let zones = zones(session.path());
    refuse_zoned(session.path(), "a volume writes in place")?;
    let zone = zones.map(|zones| zones.len);
    if let (Some(band), Some(zone)) = (args.band, zone)
        && band != zone
    {
        return Err(Failure::input(format!(
            "--band {}: the disk says that its zones are {} long; leave --band out",
            human(band.bytes()),
            human(zone.bytes())
        )));
    }
    let band = args.band.or(zone).unwrap_or(VolumeConfig::BAND);
    if args.shingled {
        return Ok(Kind::Shingled(band));
    }
    if args.conventional {
        return Ok(Kind::Conventional);
    }
    if let Some((profile, _)) = drive
        && profile.shingled.is_some()
    {
        eprintln!(
            "manylogs: {path}: {} is a shingled drive by its profile, and the volume is laid out \
             for one (--conventional if it is none)",
            profile.name
        );
        return Ok(Kind::Shingled(band));
    }
    if zone.is_some() {
        eprintln!(
            "manylogs: {path}: the kernel says that the disk has zones of {}: this is a shingled \
             drive, and the volume is laid out for one (--conventional if it is none)",
            human(band.bytes())
        );
        return Ok(Kind::Shingled(band));
    }
    let (runtime, device) = (session.runtime(), Rc::clone(&session.device));
    let measured = session.run(async move { measure_scattered(&runtime, &device).await });
    // A disk with unreadable places can be formatted all the same.
    let Ok(Some(times)) = measured else { return Ok(Kind::Conventional) };
    if !times.looks_shingled() {
        return Ok(Kind::Conventional);
    }
    eprintln!(
        "manylogs: {path}: 128 scattered reads took {:.0} ms, the writes of the same {:.0} ms: \
         this is a shingled drive, and the volume is laid out for one (--conventional if it is \
         none)",
        times.reads.as_secs_f64() * 1e3,
        times.writes.as_secs_f64() * 1e3
    );
    Ok(Kind::Shingled(band))
}

/// The defaults for the device, with the user's changes.
fn config(args: &FormatArgs, kind: Kind, capacity: Sectors) -> VolumeConfig {
    let mut config = match kind {
        Kind::Shingled(band) => VolumeConfig::for_shingled(capacity, band),
        Kind::Conventional => VolumeConfig::for_device(capacity),
    };
    if let Some(log) = args.log {
        config = config.with_log(log);
    }
    if let Some(group) = args.group {
        config.placement = LogPlacement::EveryGroup(group);
    }
    if let Some(threshold) = args.threshold {
        config.threshold = threshold;
        config.record = config.record.max(threshold);
    }
    config.close_hole = args.close_hole;
    config
}
