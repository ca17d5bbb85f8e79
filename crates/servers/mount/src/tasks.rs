//! Tasks of the thread that has the file system, which an unmount waits for.

use std::rc::Rc;

use manylogs_block::{Handle, Signal};

/// Counts the tasks under way. Clones count together.
#[derive(Clone)]
pub(crate) struct Tasks {
    runtime: Handle,
    under_way: Rc<()>,
    ended: Signal,
}

impl Tasks {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, under_way: Rc::default(), ended: Signal::default() }
    }

    /// Begins a task.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + 'static) {
        let (token, ended) = (Rc::clone(&self.under_way), self.ended.clone());
        self.runtime.spawn(async move {
            task.await;
            drop(token);
            ended.notify();
        });
    }

    /// Resolves when none is under way. Clones that may begin tasks are gone then.
    pub(crate) async fn none(self) {
        while Rc::strong_count(&self.under_way) > 1 {
            self.ended.wait().await;
        }
    }
}
