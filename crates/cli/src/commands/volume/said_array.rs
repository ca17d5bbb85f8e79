//! `format --array`: the array that a device is by its user's word.

use std::path::Path;

use manylogs_block::{Geometry, Sectors};
use manylogs_lab::{Level, Shape};
use manylogs_storage::{SaidArray, guessed_array, optimal_io, said_array};

use super::human;
use super::set::in_words;
use crate::failure::Failure;

/// The shape of the array that the user says the device at `path` is; `None` if the user says
/// nothing, or what the kernel says as well.
///
/// # Errors
/// If the array has no columns, if the kernel knows better, or if the device's blocks would lie on
/// two drives.
pub(super) fn geometry(path: &Path, said: Option<&Shape>) -> Result<Option<Geometry>, Failure> {
    let Some(shape) = said else {
        hint(path);
        return Ok(None);
    };
    if shape.level == Level::Raid1 {
        let message = format!("--array {shape}: all drives hold the same: leave it out");
        return Err(Failure::input(message));
    }
    if !shape.known {
        let message = format!("--array {shape}: the placement is for models: leave it out");
        return Err(Failure::input(message));
    }
    let (parity, copies, columns) = (shape.parity(), shape.copies(), shape.columns());
    let first = Sectors(0);
    let array = Geometry { chunk: shape.chunk, columns, copies, parity, first };
    let place = path.display();
    if let Err(wrong) = array.check() {
        return Err(Failure::input(format!("--array {shape}: this is {wrong}")));
    }
    match said_array(path, array) {
        SaidArray::Possible(array) => {
            compare(path, &array);
            Ok(Some(array))
        }
        SaidArray::Known(known) if known == Geometry { first: known.first, ..array } => Ok(None),
        SaidArray::Known(known) => Err(Failure::input(format!(
            "--array {shape} is {}, and the kernel says that {place} is {}: leave --array out",
            in_words(Some(array)),
            in_words(Some(known))
        ))),
        SaidArray::Joined(joined) => Err(Failure::input(format!(
            "--array {shape} is {}, and the kernel says that {place} is {joined}: leave it out",
            in_words(Some(array))
        ))),
        SaidArray::Askew => Err(Failure::input(format!(
            "--array {shape}: {place} does not begin at a multiple of 4 KiB of the array: choose \
             another partition"
        ))),
    }
}

/// Tells what the device shows of its stripe, if the user has said another one.
fn compare(path: &Path, array: &Geometry) {
    if let Some((optimal, _)) = optimal_io(path).filter(|(optimal, _)| *optimal != array.stripe()) {
        eprintln!(
            "manylogs: {}: the device shows {} as its best length of requests, and a stripe of \
             this array has {}: the array as given counts",
            path.display(),
            human(optimal.bytes()),
            human(array.stripe().bytes())
        );
    }
}

/// Tells of a device that may be a controller's array.
fn hint(path: &Path) {
    let Some(guess) = guessed_array(path) else { return };
    eprintln!(
        "manylogs: {}: the device shows {} as its best length of requests, {} times {}: it may be \
         a controller's array of so many columns, and the volume takes it for one drive (--array, \
         as raid5:{}:chunk={}K, if it is one)",
        path.display(),
        human(guess.stripe().bytes()),
        guess.columns,
        human(guess.chunk.bytes()),
        guess.columns + guess.parity,
        guess.chunk.bytes() >> 10
    );
}
