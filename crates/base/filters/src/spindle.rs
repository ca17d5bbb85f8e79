//! A spindle that stands by command.

use std::cell::Cell;
use std::rc::Rc;

use manylogs_block::{
    BlockDevice, Capabilities, Completion, Extent, Extents, Handle, IoError, Nanos, PowerCommand,
    PowerState, Request, completion,
};

/// A device whose power is commanded. In standby, and while it starts, it fails all requests, as
/// SCSI drives do that were stopped. Clones are the same device.
#[derive(Debug)]
pub struct Spindle<B>(Rc<Shared<B>>);

#[derive(Debug)]
struct Shared<B> {
    below: B,
    runtime: Handle,
    spin_up: Nanos,
    state: Cell<PowerState>,
    /// How often it was started.
    starts: Cell<u64>,
}

impl<B> Clone for Spindle<B> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<B> Spindle<B> {
    /// A spindle that turns, and takes `spin_up` to start.
    pub fn new(runtime: Handle, below: B, spin_up: Nanos) -> Self {
        let (state, starts) = (Cell::default(), Cell::default());
        Self(Rc::new(Shared { below, runtime, spin_up, state, starts }))
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
