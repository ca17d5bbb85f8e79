//! Access to the array below a volume.

use std::rc::Rc;

use manylogs_array::{Columns, Said};
use manylogs_block::BlockDevice;
use manylogs_engine::Member;

use crate::ondisk::layout::Layout;

/// `device` with the shape that its user has said it has, if it says none itself.
pub(crate) fn as_said(device: &Rc<dyn BlockDevice>, layout: &Layout) -> Rc<dyn BlockDevice> {
    let said = layout.columns().filter(|_| layout.is_said() && device.geometry().is_none());
    match said {
        Some(geometry) => Rc::new(Said::new(Rc::clone(device), geometry)),
        None => Rc::clone(device),
    }
}

/// `device` as a volume with this layout uses it: if the volume was made for an array, each log is
/// one run of addresses. The geometry in the volume's superblock gives the places of its logs. The
/// present geometry only decides whether requests are scheduled column by column. On an array with
/// parity they are not: every record goes to all drives.
pub(crate) fn arranged(device: Member, layout: &Layout) -> Member {
    let Some(map) = layout.column_map() else { return device };
    let each = device.device().geometry() == Some(*map.geometry()) && map.geometry().parity == 0;
    let columns = Rc::new(Columns::new(Rc::clone(device.device()), map));
    device.arranged(columns, each)
}

/// As [`arranged`], for callers that only read.
pub(crate) fn arranged_reads(device: &Rc<dyn BlockDevice>, layout: &Layout) -> Rc<dyn BlockDevice> {
    match layout.column_map() {
        Some(map) => Rc::new(Columns::new(Rc::clone(device), map)),
        None => Rc::clone(device),
    }
}

/// Whether the volume was made for an array, and the device has another geometry now.
pub(crate) fn is_reshaped(device: &Rc<dyn BlockDevice>, layout: &Layout) -> bool {
    layout.columns().is_some_and(|columns| device.geometry() != Some(columns))
}
