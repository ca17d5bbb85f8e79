//! Reads that are repeated while a device fails for a moment.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Copies, Extent, Extents, Geometry, Handle, IoError,
    IoResult, Nanos, Request, completion,
};
use manylogs_plant::{self as plant, Bug};

/// Pause before the second attempt. It doubles with each attempt.
const FIRST_WAIT: Nanos = Nanos::from_millis(100);
/// Attempts at a read, which span 6.3 s.
const TRIES: u32 = 7;
/// Total time that all reads may wait. After it no read is tried again.
const WAIT_IN_ALL: Nanos = Nanos::from_secs(60);

/// A device whose reads are tried again while they end with [`IoError::Transient`]: up to seven
/// times within 6.3 s, and all reads together wait at most a minute. All other requests pass
/// unchanged. Recovery reads through it, because data that cannot be read for a moment must not
/// count as lost.
pub struct PatientReads {
    device: Rc<dyn BlockDevice>,
    runtime: Handle,
    left: Rc<Cell<Nanos>>,
    /// Maps the error of a read's last attempt.
    last_word: fn(IoError) -> IoError,
}

impl PatientReads {
    /// A read that fails at every attempt keeps its last error.
    #[must_use]
    pub fn new(device: Rc<dyn BlockDevice>, runtime: Handle) -> Rc<Self> {
        Self::with(device, runtime, |error| error)
    }

    /// A read that fails at every attempt counts as a medium error: for an owner who gives up data
    /// that cannot be read.
    #[must_use]
    pub fn giving_up(device: Rc<dyn BlockDevice>, runtime: Handle) -> Rc<Self> {
        Self::with(device, runtime, |error| match error {
            IoError::Transient { extent } => IoError::Medium { extent },
            error => error,
        })
    }

    fn with(
        device: Rc<dyn BlockDevice>,
        runtime: Handle,
        last_word: fn(IoError) -> IoError,
    ) -> Rc<Self> {
        let left = Rc::new(Cell::new(WAIT_IN_ALL));
        Rc::new(Self { device, runtime, left, last_word })
    }
}

/// Takes `span` from the waiting time that is left; false if less is left.
fn may_wait(left: &Cell<Nanos>, span: Nanos) -> bool {
    let enough = left.get() >= span;
    if enough {
        left.set(Nanos(left.get().0 - span.0));
    }
    enough
}

async fn read_again(
    device: Rc<dyn BlockDevice>,
    runtime: Handle,
    left: Rc<Cell<Nanos>>,
    request: Request,
    first: Completion,
) -> IoResult {
    let mut result = first.await;
    let mut wait = FIRST_WAIT;
    for _ in 1..TRIES {
        let passing = matches!(result, Err(IoError::Transient { .. }));
        if !passing || !may_wait(&left, wait) || plant::is(Bug::ReadsNotTriedAgain) {
            break;
        }
        runtime.sleep(wait).await;
        wait = Nanos(2 * wait.0);
        result = device.submit(request.clone()).await;
    }
    result
}

impl BlockDevice for PatientReads {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let first = self.device.submit(request.clone());
        if !matches!(request, Request::Read { .. }) {
            return first;
        }
        let (completer, answer) = completion();
        let (device, runtime) = (Rc::clone(&self.device), self.runtime.clone());
        let (left, last_word) = (Rc::clone(&self.left), self.last_word);
        self.runtime.spawn(async move {
            let result = read_again(device, runtime, left, request, first).await;
            completer.complete(result.map_err(last_word));
        });
        answer
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.device.extents(within)
    }

    fn geometry(&self) -> Option<Geometry> {
        self.device.geometry()
    }

    fn has_copies(&self) -> bool {
        self.device.has_copies()
    }

    fn copies(&self) -> Copies {
        let patient = |device| -> Rc<dyn BlockDevice> {
            Rc::new(Self {
                device,
                runtime: self.runtime.clone(),
                left: Rc::clone(&self.left),
                last_word: self.last_word,
            })
        };
        self.device.copies().into_iter().map(patient).collect()
    }
}

impl std::fmt::Debug for PatientReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PatientReads").field("left", &self.left).finish_non_exhaustive()
    }
}
