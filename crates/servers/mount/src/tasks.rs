//! Tasks of the file system's thread, which an unmount waits for.

use std::rc::Rc;

use manylogs_block::Handle;
use manylogs_operate::UnderWay;

/// Begins tasks, and counts those that have not ended. Clones share the count.
#[derive(Clone)]
pub(crate) struct TaskGroup {
    runtime: Handle,
    under_way: Rc<UnderWay>,
}

impl TaskGroup {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, under_way: Rc::default() }
    }

    /// Begins a task.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + 'static) {
        let token = self.under_way.enter(self.runtime.now());
        self.runtime.spawn(async move {
            task.await;
            drop(token);
        });
    }

    /// Waits until none is under way.
    pub(crate) async fn none(&self) {
        self.under_way.none().await;
    }
}
