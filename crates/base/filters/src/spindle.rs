//! A spindle that stands by command.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Handle, IoError, Nanos, PowerCommand,
    PowerState, Request, completion,
};

/// A device whose power is commanded. In standby, and while it starts, it fails all requests, as
/// SCSI drives do that were stopped. Clones are the same device.
pub struct Spindle<B>(Rc<Shared<B>>);

struct Shared<B> {
    below: B,
    runtime: Handle,
    spin_up: Nanos,
    state: Cell<PowerState>,
    /// How often it was started.
    starts: Cell<u64>,
    faults: RefCell<Option<PowerFaults>>,
}

/// Says which error a command ends with, if it is not carried out.
type PowerFaults = Box<dyn FnMut(PowerCommand) -> Option<IoError>>;

impl<B> Clone for Spindle<B> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<B: fmt::Debug> fmt::Debug for Spindle<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { below, spin_up, state, starts, .. } = &*self.0;
        f.debug_struct("Spindle")
            .field("below", below)
            .field("spin_up", spin_up)
            .field("state", state)
            .field("starts", starts)
            .finish_non_exhaustive()
    }
}

impl<B> Spindle<B> {
    /// A spindle that turns, and takes `spin_up` to start.
    pub fn new(runtime: Handle, below: B, spin_up: Nanos) -> Self {
        let (state, starts) = (Cell::default(), Cell::default());
        let faults = RefCell::default();
        Self(Rc::new(Shared { below, runtime, spin_up, state, starts, faults }))
    }

    /// The same spindle, which stands now.
    #[must_use]
    pub fn standing(self) -> Self {
        self.0.state.set(PowerState::Standby);
        self
    }

    /// From now on commands fail of which `faults` says so.
    pub fn fail_power(&self, faults: impl FnMut(PowerCommand) -> Option<IoError> + 'static) {
        self.0.faults.replace(Some(Box::new(faults)));
    }

    /// The device below.
    #[must_use]
    pub fn below(&self) -> &B {
        &self.0.below
    }

    /// What the spindle does.
    #[must_use]
    pub fn state(&self) -> PowerState {
        self.0.state.get()
    }

    /// How often it was started.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.0.starts.get()
    }
}

impl<B: BlockDevice + 'static> BlockDevice for Spindle<B> {
    fn capabilities(&self) -> Capabilities {
        self.0.below.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        match self.0.state.get() {
            PowerState::Awake => self.0.below.submit(request),
            PowerState::SpinningUp | PowerState::Standby => {
                let extent = request.extent().unwrap_or_default();
                Completion::ready(Err(IoError::Transient { extent }))
            }
        }
    }

    fn extents(&self, within: Extent) -> Completion<Extents> {
        self.0.below.extents(within)
    }

    fn power(&self, command: PowerCommand) -> Completion<PowerState> {
        let fault = self.0.faults.borrow_mut().as_mut().and_then(|fails| fails(command));
        if let Some(error) = fault {
            return Completion::ready(Err(error));
        }
        let (shared, (completer, answer)) = (Rc::clone(&self.0), completion());
        match command {
            PowerCommand::Check => return Completion::ready(Ok(shared.state.get())),
            PowerCommand::Standby if shared.state.get() == PowerState::Awake => {
                let flushed = shared.below.submit(Request::Flush);
                self.0.runtime.spawn(async move {
                    let stopped = flushed.await.map(|_| PowerState::Standby);
                    shared.state.set(stopped.clone().unwrap_or_default());
                    completer.complete(stopped);
                });
            }
            PowerCommand::Wake if shared.state.get() == PowerState::Standby => {
                shared.state.set(PowerState::SpinningUp);
                shared.starts.set(shared.starts.get() + 1);
                self.0.runtime.spawn(async move {
                    shared.runtime.sleep(shared.spin_up).await;
                    shared.state.set(PowerState::Awake);
                    completer.complete(Ok(PowerState::Awake));
                });
            }
            PowerCommand::Standby | PowerCommand::Wake => {
                return Completion::ready(Ok(shared.state.get()));
            }
        }
        answer
    }
}
