//! The trait that every device and layer implements, and its requests.

use std::rc::Rc;

use thiserror::Error;

use crate::{Completion, Extent, ExtentKind, Extents, Geometry, Payload, Sectors};
use crate::{PowerCommand, PowerState};

/// Capabilities of a device, after nbdkit's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Size of the device.
    pub capacity: Sectors,
    /// The unit that the medium writes. On a single drive a write of a whole aligned unit is atomic
    /// (see [`Capabilities::untorn`]); a smaller one makes the drive read and rewrite the rest of
    /// the unit.
    pub physical_sector: Sectors,
    /// The longest aligned write that a crash leaves whole or undone. Of several drives the one
    /// with the shortest physical sector decides, while [`Capabilities::physical_sector`] is that
    /// of the one with the longest.
    pub untorn: Sectors,
    /// Whether the medium turns: position matters.
    pub rotational: bool,
    /// Whether an acknowledged write may still be lost with the power until a flush.
    pub volatile_cache: bool,
    /// Whether a durable write costs one command; else the device writes and flushes.
    pub native_fua: bool,
    /// Whether discarded sectors are given up by the device; else a discard only costs time.
    pub discard: bool,
    /// Whether zeroes can cost less than writing them: see [`Request::WriteZeroes`].
    pub fast_zero: bool,
}

/// Hints of the submitter about a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    #[default]
    None,
    /// The data needs durability but no place (the Manylogs paper, section IV-D, `O_DUR`).
    DurabilityOnly,
}

/// One request to a device. Extents are never empty and payloads match their extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the extent.
    Read {
        /// Extent to read.
        extent: Extent,
    },
    /// Write the extent.
    Write {
        /// Extent concerned.
        extent: Extent,
        /// Content, exactly as long as the extent.
        payload: Payload,
        /// Durable when acknowledged (forced unit access).
        fua: bool,
        /// See [`Hint`].
        hint: Hint,
    },
    /// Make durable every write acknowledged before this was submitted.
    Flush,
    /// The content is no longer needed. A device with [`Capabilities::discard`] then reads zeroes.
    Discard {
        /// Extent to discard.
        extent: Extent,
        /// Durable when acknowledged, whatever the discard does to the content.
        fua: bool,
    },
    /// Read zeroes from now on.
    WriteZeroes {
        /// Extent to zero.
        extent: Extent,
        /// Durable when acknowledged.
        fua: bool,
        /// Fail with [`IoError::Unsupported`] if zeroing would cost as much as writing zeroes. A
        /// device without [`Capabilities::fast_zero`] always fails it.
        if_fast: bool,
    },
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// [`Request::Read`].
    Read,
    /// [`Request::Write`].
    Write,
    /// [`Request::Flush`].
    Flush,
    /// [`Request::Discard`].
    Discard,
    /// [`Request::WriteZeroes`].
    WriteZeroes,
}

impl RequestKind {
    /// Every kind, in the order of their declaration.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes];
    /// The kinds that may change content.
    pub const CHANGES: &'static [Self] = &[Self::Write, Self::Discard, Self::WriteZeroes];

    /// Whether such a request may change content.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

impl Request {
    /// Kind of the request.
    #[must_use]
    pub const fn kind(&self) -> RequestKind {
        match self {
            Self::Read { .. } => RequestKind::Read,
            Self::Write { .. } => RequestKind::Write,
            Self::Flush => RequestKind::Flush,
            Self::Discard { .. } => RequestKind::Discard,
            Self::WriteZeroes { .. } => RequestKind::WriteZeroes,
        }
    }

    /// The extent the request names, if it names one.
    #[must_use]
    pub const fn extent(&self) -> Option<Extent> {
        match self {
            Self::Read { extent }
            | Self::Write { extent, .. }
            | Self::Discard { extent, .. }
            | Self::WriteZeroes { extent, .. } => Some(*extent),
            Self::Flush => None,
        }
    }

    /// A durable write without a hint.
    #[must_use]
    pub const fn write_fua(extent: Extent, payload: Payload) -> Self {
        Self::Write { extent, payload, fua: true, hint: Hint::None }
    }

    /// Zeroing at any cost: it does not fail where zeroing is slow.
    #[must_use]
    pub const fn write_zeroes(extent: Extent, fua: bool) -> Self {
        Self::WriteZeroes { extent, fua, if_fast: false }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// The request reaches beyond the device, is empty, or has a payload of another length.
    #[error("request for {extent} does not fit a device of {} sectors", capacity.0)]
    OutOfRange {
        /// The request's extent.
        extent: Extent,
        /// Size of the device.
        capacity: Sectors,
    },
    /// The device says that its medium cannot be read or written there.
    #[error("medium error at {extent}")]
    Medium {
        /// Extent concerned.
        extent: Extent,
    },
    /// The request failed, and the device did not say that its medium is bad: a cable, a path, a
    /// time-out or a lack of memory. The same request may succeed later.
    #[error("I/O error at {extent}: the device does not say that its medium is bad there")]
    Transient {
        /// The request's extent.
        extent: Extent,
    },
    /// What was read is not what was written: its checksum is wrong.
    #[error("checksum mismatch at {extent}: what is stored is not what was written")]
    Checksum {
        /// The sectors whose content is damaged.
        extent: Extent,
    },
    /// The device accepts no more writes.
    #[error("device is read-only: {reason}")]
    ReadOnly {
        /// Why it became so.
        reason: &'static str,
    },
    /// The storage behind the device has no room: a full file system under an image, or a full pool
    /// under a thin volume.
    #[error("no space left to store {extent}: free some below the device, then write again")]
    NoSpace {
        /// What could not be written.
        extent: Extent,
    },
    /// The device is shorter than when it was opened.
    #[error("device ends before {extent}: it was truncated while in use")]
    Shrunk {
        /// Sectors that are missing, or the extent of the request.
        extent: Extent,
    },
    /// The device cannot carry out such a request, or not with such content.
    #[error("device does not support the request")]
    Unsupported,
    /// A flush failed, this one or an earlier one. Writes acknowledged before it may be lost: the
    /// kernel forgets such data, and a later flush that succeeds proves nothing.
    #[error("a flush failed: writes acknowledged before it may be lost; open the device again")]
    FlushFailed,
    /// The device is gone, or its server stopped.
    #[error("device is gone")]
    Gone,
}

impl IoError {
    /// Whether the error concerns these sectors only: requests for others may succeed.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Medium { .. } | Self::Transient { .. })
    }

    /// Whether the error says that what was stored is damaged. Other errors, as of a disk that was
    /// pulled, say nothing about it.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Medium { .. } | Self::Checksum { .. })
    }
}

/// A block device or a layer over one; single-threaded.
///
/// `submit` starts the operation before it returns and never blocks. The device owns the request
/// until it completes: dropping the [`Completion`] abandons the answer, not the I/O. Requests in
/// flight together may take effect in any order; a sector is atomic, a request is not.
pub trait BlockDevice {
    /// Capabilities of the device. They are constant while it is open, but `capacity` may grow.
    fn capabilities(&self) -> Capabilities;

    /// Starts `request`.
    fn submit(&self, request: Request) -> Completion;

    /// Starts `request` before others that the device has not begun, if the device has priorities;
    /// else the same as [`BlockDevice::submit`]. A flush covers the same writes either way.
    fn submit_urgent(&self, request: Request) -> Completion {
        self.submit(request)
    }

    /// Whether [`BlockDevice::submit_urgent`] makes a difference. Constant while it is open.
    fn has_priorities(&self) -> bool {
        false
    }

    /// Kinds of the sectors of `within`, as far as they are known without reading.
    ///
    /// The answer begins where `within` begins. It may end before `within` does, but has at least
    /// one sector: the caller asks again for the rest. Sectors that the answer calls zeroes read as
    /// zeroes at some time between the question and the answer.
    ///
    /// A device that knows nothing says that all of it is data.
    ///
    /// # Errors
    /// The answer is [`IoError::OutOfRange`] if `within` is empty or reaches beyond the device.
    fn extents(&self, within: Extent) -> Completion<Extents> {
        let inside = self.capabilities().check(&Request::Read { extent: within });
        Completion::ready(inside.map(|()| Extents::of(within, ExtentKind::Data)))
    }

    /// Whether the device must be reset before it is written again, like the zones of a
    /// host-managed shingled drive: see [`BlockDevice::reset`]. Constant while it is open.
    fn is_reset_first(&self) -> bool {
        false
    }

    /// Lets `extent` be written again, from its beginning. The caller has no read or write of it
    /// under way and needs its content no more. The whole content is then gone or the whole content
    /// is still there, also after a crash.
    ///
    /// # Errors
    /// The answer is [`IoError::Unsupported`] if the device needs no resets, or none at `extent`.
    fn reset(&self, _extent: Extent) -> Completion {
        Completion::ready(Err(IoError::Unsupported))
    }

    /// How the device deals its addresses out to several drives; `None` if it is one drive, or if
    /// this is unknown. It is advice about speed: no promise of the device depends on it. Constant
    /// while the device is open.
    fn geometry(&self) -> Option<Geometry> {
        None
    }

    /// Whether several drives hold the content of each sector. Then a crash may leave a write that
    /// was in flight on some of them only, and which content is read may change until the array has
    /// brought them in step. False if that is unknown. Constant while the device is open.
    fn has_copies(&self) -> bool {
        self.geometry().is_some_and(|geometry| geometry.copies > 1)
    }

    /// Each copy of the content, where they can be told apart: what one returns damaged, another
    /// may hold whole. The first is the one that is read while copies may differ. Empty if there
    /// are none, or if only the device itself knows them. Changes go to the device itself, but for
    /// those that make a copy the same as another.
    fn copies(&self) -> Copies {
        Copies::new()
    }

    /// Carries out a command about the drive's power, and answers the state after it. For standby
    /// no other request is under way; what was acknowledged is on the medium when the drive
    /// stands. No content changes, so a crash leaves what it leaves without the command.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] if nothing commands its power: a file, a virtual disk, an array.
    fn power(&self, _command: PowerCommand) -> Completion<PowerState> {
        Completion::ready(Err(IoError::Unsupported))
    }
}

/// Devices that each hold the whole content of another one.
pub type Copies = Vec<Rc<dyn BlockDevice>>;

/// A shared device is a device: a layer need not know which others use the device below it.
impl<D: BlockDevice + ?Sized> BlockDevice for Rc<D> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        (**self).submit(request)
    }

    fn submit_urgent(&self, request: Request) -> Completion {
        (**self).submit_urgent(request)
    }

    fn has_priorities(&self) -> bool {
        (**self).has_priorities()
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        (**self).extents(within)
    }

    fn is_reset_first(&self) -> bool {
        (**self).is_reset_first()
    }

    fn reset(&self, extent: Extent) -> Completion {
        (**self).reset(extent)
    }

    fn geometry(&self) -> Option<Geometry> {
        (**self).geometry()
    }

    fn has_copies(&self) -> bool {
        (**self).has_copies()
    }

    fn copies(&self) -> Copies {
        (**self).copies()
    }

    fn power(&self, command: PowerCommand) -> Completion<PowerState> {
        (**self).power(command)
    }
}

impl Capabilities {
    /// The request that makes `extent` read as zeroes at the least cost. That is a discard if the
    /// device gives up discarded sectors but would write zeroes to the medium.
    #[must_use]
    pub const fn zeroing(&self, extent: Extent) -> Request {
        if self.discard && !self.fast_zero {
            Request::Discard { extent, fua: false }
        } else {
            Request::write_zeroes(extent, false)
        }
    }

    /// Checks that `request` names a non-empty extent inside the device and a payload that fits,
    /// and does not insist on zeroing being fast where it never is.
    ///
    /// # Errors
    /// [`IoError::OutOfRange`] or [`IoError::Unsupported`] if not.
    pub fn check(&self, request: &Request) -> Result<(), IoError> {
        let Some(extent) = request.extent() else { return Ok(()) };
        let fits = extent.start.0.checked_add(extent.len.0).is_some_and(|e| e <= self.capacity.0);
        let whole = match request {
            Request::Write { payload, .. } => payload.len() == extent.len,
            _ => true,
        };
        if !fits || !whole || extent.is_empty() {
            return Err(IoError::OutOfRange { extent, capacity: self.capacity });
        }
        match request {
            Request::WriteZeroes { if_fast: true, .. } if !self.fast_zero => {
                Err(IoError::Unsupported)
            }
            _ => Ok(()),
        }
    }
}
