//! Rows that were on their way home at a crash: see [`RowImage`].

use std::rc::Rc;

use manylogs_block::{BlockDevice, Completion, IoError, Request};
use manylogs_engine::{Phase, all_written};
use manylogs_logstore::Incarnation;
use manylogs_plant::{self as plant, Bug};

use crate::lifecycle::columns::arranged_reads;
use crate::ondisk::row_image::{ImageOf, RowImage, array_of_homes};
use crate::ondisk::superblock::Superblock;
use crate::state::Inner;

/// Number of writes under way together.
const AT_A_TIME: usize = 64;

/// The image of the incarnation that a crash has ended, if it was still needed.
///
/// # Errors
/// If the device fails. An image that the medium cannot return counts as none.
pub(crate) async fn find(
    device: &Rc<dyn BlockDevice>,
    superblock: &Superblock,
    incarnation: Incarnation,
) -> Result<Option<RowImage>, IoError> {
    let layout = &superblock.layout;
    let room = layout.images();
    let Some(array) = layout.columns().filter(|_| !room.is_empty()) else { return Ok(None) };
    if plant::is(Bug::RowsNotMended) {
        return Ok(None);
    }
    let device = arranged_reads(device, layout);
    let of = ImageOf { volume: superblock.volume, incarnation };
    RowImage::read(&device, room, of, (array_of_homes(array), layout.capacity())).await
}

/// Writes the rows home once more; they are durable when this returns. The image counts until the
/// opening is counted in the root. So a crash meanwhile changes nothing of what the next opening
/// finds. A home that the medium cannot write stays as it is: what was going there is in the logs
/// still.
///
/// # Errors
/// Those of the device, if the medium is not at fault.
pub(crate) async fn put_home(inner: &Inner, image: &RowImage) -> Result<(), IoError> {
    let Some(array) = inner.layout.columns().map(array_of_homes) else { return Ok(()) };
    let mut writes: Vec<Completion> = Vec::new();
    let mut result = Ok(());
    for (extent, content) in image.parts(array) {
        writes.extend(inner.submit_home(Phase::Recovery, extent, &content, false));
        if writes.len() >= AT_A_TIME {
            result = result.and(all_written(std::mem::take(&mut writes), None).await);
        }
    }
    result.and(all_written(writes, None).await)?;
    inner.device.submit(Phase::Recovery, Request::Flush).await.map(drop)
}
