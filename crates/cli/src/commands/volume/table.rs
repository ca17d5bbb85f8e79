//! The file that stands for non-volatile RAM.

use std::path::Path;
use std::rc::Rc;

use manylogs_block::{Nvram, Sectors, to_usize};
use manylogs_storage::MappedNvram;

use crate::args::volume::Nvram as Place;
use crate::failure::Failure;

/// Default size of a table's file: enough for more than a million logged extents.
pub(crate) const SIZE: Sectors = Sectors(64 * 2048);

/// Maps the file. If the table is given up, a lost file is replaced.
pub(crate) fn open(Place(path): &Place, give_up: bool) -> Result<Rc<dyn Nvram>, Failure> {
    let mapped = if give_up && !path.exists() {
        MappedNvram::create(path, to_usize(SIZE.bytes()))
    } else {
        MappedNvram::open(path)
    };
    rc(mapped, path)
}

/// Creates the file for a new volume.
pub(crate) fn create(
    Place(path): &Place,
    device: &Path,
    size: Sectors,
    force: bool,
) -> Result<Rc<dyn Nvram>, Failure> {
    if path.canonicalize().is_ok_and(|path| device.canonicalize().is_ok_and(|it| it == path)) {
        return Err(Failure::input(format!(
            "--table: {} is the volume's own device",
            path.display()
        )));
    }
    let used = path.metadata().is_ok_and(|metadata| metadata.len() > 0);
    if used && !force {
        return Err(Failure::Busy(format!(
            "{} is there already, and may hold a volume's table: give --force to overwrite it",
            path.display()
        )));
    }
    rc(MappedNvram::create(path, to_usize(size.bytes())), path)
}

fn rc(mapped: std::io::Result<MappedNvram>, path: &Path) -> Result<Rc<dyn Nvram>, Failure> {
    match mapped {
        Ok(mapped) => Ok(Rc::new(mapped)),
        Err(error) => Err(Failure::of_io(&error, format!("{}: {error}", path.display()))),
    }
}
