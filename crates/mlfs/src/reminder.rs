//! Asking the kernel to forget inodes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use manylogs_ext4::{Ext4, Ino};
use manylogs_fuse::{Errno, NodeId, Pruner};

use crate::convert::to_node;

/// A thread that asks: the kernel takes locks for that, and whoever holds them may wait for an
/// answer of the file system's thread.
pub(crate) struct Reminder {
    asks: Sender<Vec<NodeId>>,
    /// It has not answered the last question, or cannot be asked.
    busy: Arc<AtomicBool>,
}

impl Reminder {
    pub(crate) fn start(pruner: Pruner) -> io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let busy = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&busy);
        let named = thread::Builder::new().name("mlfs-remind".to_owned());
        // It ends when nobody asks any more. Nobody waits for that: it may be in the kernel.
        named.spawn(move || answer(&pruner, &asked, &told))?;
        Ok(Self { asks, busy })
    }

    /// Asks the kernel to forget some inodes, if it knows too many.
    pub(crate) fn remind(&self, fs: &Ext4) {
        if self.busy.load(Ordering::Acquire) {
            return;
        }
        let too_many: Vec<Ino> = fs.to_forget();
        if too_many.is_empty() {
            return;
        }
        self.busy.store(true, Ordering::Release);
        let nodes = too_many.into_iter().map(to_node).collect();
        // Nobody listens any more where the kernel cannot be asked.
        drop(self.asks.send(nodes));
    }
}

fn answer(pruner: &Pruner, asked: &Receiver<Vec<NodeId>>, busy: &AtomicBool) {
    for nodes in asked {
        if pruner.prune(&nodes) == Err(Errno::INVAL) {
            // Kernels before Linux 6.18 cannot be asked: they forget as their own memory needs.
            return;
        }
        busy.store(false, Ordering::Release);
    }
}
