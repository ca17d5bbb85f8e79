//! The time of one device and the content of another: a modelled drive that keeps what is written.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Capabilities, Completion, Handle, Request, completion};

/// Each request takes as long as `timing` takes and then does what `content` does.
pub struct Timed {
    runtime: Handle,
    timing: Rc<dyn BlockDevice>,
    content: Rc<dyn BlockDevice>,
}

impl Timed {
    /// Joins the two; both must have the same capacity, and `content` answers at once.
    #[must_use]
    pub fn new(runtime: Handle, timing: Rc<dyn BlockDevice>, content: Rc<dyn BlockDevice>) -> Self {
        Self { runtime, timing, content }
    }
}

impl BlockDevice for Timed {
    fn capabilities(&self) -> Capabilities {
        self.timing.capabilities()
    }

    fn submit(&self, request: Request) -> Completion {
        let (completer, completion) = completion();
        let timed = self.timing.submit(request.clone());
        let content = Rc::clone(&self.content);
        self.runtime.spawn(async move {
            let result = match timed.await {
                Ok(_) => content.submit(request).await,
                Err(error) => Err(error),
            };
            completer.complete(result);
        });
        completion
    }
}

impl std::fmt::Debug for Timed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timed({:?})", self.timing.capabilities())
    }
}
