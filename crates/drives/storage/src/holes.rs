//! Finds the holes of a file.

use std::fs::File;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use manylogs_block::{
    Completion, Extent, ExtentKind, Extents, Lba, SECTOR_BYTES, Sectors, completion,
};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::device::Core;
use crate::failure::is_unsupported;
use crate::file_io::Op;

/// The most parts in one answer: an answer may end early, and the search occupies a thread.
const PARTS_MAX: usize = 1024;

/// [`manylogs_block::BlockDevice::extents`] for a file.
pub(crate) fn extents(core: &Rc<Core>, within: Extent) -> Completion<Extents> {
    let (completer, answer) = completion();
    let found = Arc::new(Mutex::new(Extents::default()));
    let slot = Arc::clone(&found);
    let look = move |file: &File| {
        let known = parts(file, within)?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    };
    let this = Rc::clone(core);
    Rc::clone(core).start(Op::Call(Box::new(look)), move |done| {
        let known = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        let result = done.result.map(|_| known);
        completer.complete(result.map_err(|errno| this.failure(errno, within, false)));
    });
    answer
}

/// The parts of `within` as the file system reports them. A file system that cannot tell reports
/// all of it as data.
fn parts(file: &File, within: Extent) -> Result<Extents, Errno> {
    let mut known = Extents::default();
    let mut at = within.start;
    for _ in 0..PARTS_MAX / 2 {
        // A sector that is partly data counts as data.
        let data = find(file, SeekFrom::Data(at.0 * SECTOR_BYTES), within)?;
        let data = Lba(data / SECTOR_BYTES).max(at);
        known.push(Extent::between(at, data), ExtentKind::Hole);
        if data >= within.end() {
            break;
        }
        let hole = find(file, SeekFrom::Hole(data.0 * SECTOR_BYTES), within)?;
        at = Lba(Sectors::from_bytes_ceil(hole).0).min(within.end());
        known.push(Extent::between(data, at), ExtentKind::Data);
        if at >= within.end() {
            break;
        }
    }
    Ok(known)
}

/// The byte at which data or a hole begins, at most the end of `within`. No other call uses the
/// file position that this sets.
fn find(file: &File, what: SeekFrom, within: Extent) -> Result<u64, Errno> {
    let end = within.end().0 * SECTOR_BYTES;
    match (seek(file, what), what) {
        (Ok(found), _) => Ok(found.min(end)),
        // The rest is a hole, unless the file was cut short.
        (Err(Errno::NXIO), _) if file.metadata().is_ok_and(|it| it.len() >= end) => Ok(end),
        (Err(errno), SeekFrom::Data(at)) if is_unsupported(errno) => Ok(at),
        (Err(errno), _) if is_unsupported(errno) => Ok(end),
        (Err(errno), _) => Err(errno),
    }
}
