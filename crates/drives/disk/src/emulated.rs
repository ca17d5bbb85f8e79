//! A modelled drive with content. On a real clock it emulates the drive.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Handle, IoResult, PowerCommand,
    PowerState, Request, Sectors, completion,
};

use crate::device::ModelledDrive;
use crate::drive::Options;
use crate::lateness::{Cause, Lateness, LatenessReport};
use crate::profile::Profile;

/// The content is larger than the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the content has {} bytes and the drive {}: take a smaller one, or fit the drive to it",
    content.bytes(),
    drive.bytes()
)]
pub struct ContentTooLarge {
    /// Size of the content.
    pub content: Sectors,
    /// Size of the drive.
    pub drive: Sectors,
}

/// A modelled drive that keeps written data. Clones are the same drive.
///
/// A request goes to the content and to the model at the same time, and is answered when both are
/// done: at the model's time, if the content is faster. [`EmulatedDrive::lateness`] tells how often
/// it was not. Errors of the content are passed on, in the drive's time.
///
/// The content is the beginning of the drive: an image of a tenth of the drive's size is its first,
/// fastest tenth, with short seeks. To use the whole drive, take a sparse image of the drive's
/// size. [`Profile::fitted`] makes a small drive with the times of a large one.
///
/// What the drive promises:
///
/// * Overlapping requests in flight together take effect in the content's order. A request that is
///   submitted after the answer to another sees its effect.
/// * The model's cache decides what is durable: without a write cache every answered write is
///   durable (if the content has a volatile cache, it gets FUA writes), with one a write may need a
///   flush. Data in the modelled cache is in the content already and is not lost with it.
/// * This kind of drive does not discard and says so. A discard is still passed to the content,
///   which may give up space, and takes no time of the model. Zeroing takes the time of a write.
#[derive(Clone)]
pub struct EmulatedDrive(Rc<Shared>);

struct Shared {
    runtime: Handle,
    model: ModelledDrive,
    content: Rc<dyn BlockDevice>,
    capabilities: Capabilities,
    /// Whether the content has to make durable what the drive does not cache.
    durable_writes: bool,
    lateness: RefCell<Lateness>,
}

impl EmulatedDrive {
    /// The drive that `profile` describes over `content`, its tasks on the node of `runtime`.
    ///
    /// # Errors
    /// If the content is larger than the drive.
    pub fn new(
        runtime: Handle,
        profile: &Profile,
        options: &Options,
        content: Rc<dyn BlockDevice>,
    ) -> Result<Self, ContentTooLarge> {
        let model = ModelledDrive::new(runtime.clone(), profile, options);
        let (told, below) = (model.capabilities(), content.capabilities());
        if below.capacity > told.capacity {
            return Err(ContentTooLarge { content: below.capacity, drive: told.capacity });
        }
        Ok(Self(Rc::new(Shared {
            runtime,
            model,
            content,
            capabilities: Capabilities { capacity: below.capacity, ..told },
            durable_writes: below.volatile_cache && !told.volatile_cache,
            lateness: RefCell::default(),
        })))
    }

    /// The model, to observe it or to read its counters.
    #[must_use]
    pub fn model(&self) -> &ModelledDrive {
        &self.0.model
    }

    /// How much later than the model's own times requests were answered since
    /// [`EmulatedDrive::forget_lateness`], or from the beginning.
    #[must_use]
    pub fn lateness(&self) -> LatenessReport {
        self.0.lateness.borrow().report()
    }

    /// Resets the lateness, for example after the warm-up of a run.
    pub fn forget_lateness(&self) {
        self.0.lateness.take();
    }
}

impl BlockDevice for EmulatedDrive {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    fn submit(&self, request: Request) -> Completion {
        let shared = &self.0;
        if let Err(error) = shared.capabilities.check(&request) {
            return Completion::ready(Err(error));
        }
        if matches!(request, Request::Discard { .. }) {
            return shared.content.submit(shared.as_stored(request));
        }
        let due = Rc::new(Cell::default());
        let timed = shared.model.submit_noting(&request, Rc::clone(&due));
        let stored = shared.content.submit(shared.as_stored(request));
        let (completer, completion) = completion();
        let drive = Rc::clone(shared);
        shared.runtime.spawn(async move {
            let modelled = timed.await;
            let (result, cause) = answer_of_content(stored).await;
            completer.complete(modelled.and(result));
            let late = drive.runtime.now().since(due.get());
            drive.lateness.borrow_mut().record(late, cause);
        });
        completion
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.content.extents(within)
    }

    fn power(&self, command: PowerCommand) -> Completion<PowerState> {
        self.0.model.power(command)
    }
}

impl Shared {
    /// The request as the content gets it.
    fn as_stored(&self, mut request: Request) -> Request {
        if let Request::Write { fua, .. }
        | Request::WriteZeroes { fua, .. }
        | Request::Discard { fua, .. } = &mut request
        {
            *fua |= self.durable_writes;
        }
        request
    }
}

/// The answer of the content to a request that the model has completed, and whether model or
/// content ended last.
async fn answer_of_content(mut stored: Completion) -> (IoResult, Cause) {
    let there = poll_fn(|cx| Poll::Ready(Pin::new(&mut stored).poll(cx))).await;
    match there {
        Poll::Ready(result) => (result, Cause::Timer),
        Poll::Pending => (stored.await, Cause::Content),
    }
}

impl std::fmt::Debug for EmulatedDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmulatedDrive")
            .field("capabilities", &self.0.capabilities)
            .field("lateness", &self.lateness())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
