//! Reads and writes in sectors of 512 bytes on a device with larger logical sectors: reads are
//! widened, and a write of a part of a logical sector reads the sector and writes all of it.

use std::rc::Rc;

use manylogs_block::{Extent, IoError, IoResult, Payload, Sectors};
use manylogs_plant::{self as plant, Bug};

use crate::device::Core;
use crate::file_io::WriteMode;
use crate::gate::Claim;
use crate::transfer::{Transfer, Work};

/// Reads `extent`.
pub(crate) fn read(core: Rc<Core>, extent: Extent, then: impl FnOnce(IoResult) + 'static) {
    let covering = core.access.covering(extent);
    let work = Work::Read(Payload::default());
    if covering == extent {
        return Transfer::start(core, extent, work, then);
    }
    let before = covering.start.distance(extent.start);
    let cut = move |whole: IoResult| then(whole.map(|whole| whole.slice(before, extent.len)));
    Transfer::start(core, covering, work, cut);
}

/// Calls `then` when no other request changes the logical sectors of `extent`. None may change them
/// until the claim is dropped. There is no claim if every request is for whole logical sectors
/// anyway.
pub(crate) fn claim(core: &Core, extent: Extent, then: impl FnOnce(Option<Claim>) + 'static) {
    if core.access.unit().0 == 1 || plant::is(Bug::PartialWithoutGate) {
        return then(None);
    }
    core.gate.claim(core.access.covering(extent), move |claim| then(Some(claim)));
}

/// Writes `payload` to `extent` when no other request changes its logical sectors. A failure to
/// read the rest of a logical sector fails the write: the drive could not write the sector either.
pub(crate) fn write(
    core: Rc<Core>,
    extent: Extent,
    payload: Payload,
    mode: WriteMode,
    then: impl FnOnce(IoResult) + 'static,
) {
    let this = Rc::clone(&core);
    claim(&core, extent, move |claim| {
        write_claimed(this, extent, payload, mode, move |result| {
            drop(claim);
            then(result);
        });
    });
}

fn write_claimed(
    core: Rc<Core>,
    extent: Extent,
    payload: Payload,
    mode: WriteMode,
    then: impl FnOnce(IoResult) + 'static,
) {
    let covering = core.access.covering(extent);
    if covering == extent {
        return Transfer::start(core, extent, Work::Write { payload, mode }, then);
    }
    read_around(Rc::clone(&core), extent, move |around| match around {
        Ok((mut content, behind)) => {
            content.append(payload);
            content.append(behind);
            let work = Work::Write { payload: content, mode };
            Transfer::start(core, covering, work, then);
        }
        Err(error) => then(Err(error)),
    });
}

/// Reads the parts before and behind `extent` in its first and last logical sector.
fn read_around(
    core: Rc<Core>,
    extent: Extent,
    then: impl FnOnce(Result<(Payload, Payload), IoError>) + 'static,
) {
    let covering = core.access.covering(extent);
    let before = Extent::between(covering.start, extent.start);
    let behind = Extent::between(extent.end(), covering.end());
    if plant::is(Bug::PartialWithoutNeighbours) {
        return then(Ok((Payload::zeroes(before.len), Payload::zeroes(behind.len))));
    }
    if covering.len == core.access.unit() {
        return read(core, covering, move |whole| {
            let to_behind = covering.start.distance(behind.start);
            then(whole.map(|whole| {
                let first = whole.slice(Sectors(0), before.len);
                (first, whole.slice(to_behind, behind.len))
            }));
        });
    }
    read_some(Rc::clone(&core), before, move |first| match first {
        Ok(first) => read_some(core, behind, move |last| then(last.map(|last| (first, last)))),
        Err(error) => then(Err(error)),
    });
}

/// Reads `extent`, unless it is empty.
fn read_some(core: Rc<Core>, extent: Extent, then: impl FnOnce(IoResult) + 'static) {
    if extent.is_empty() {
        return then(Ok(Payload::default()));
    }
    read(core, extent, then);
}
