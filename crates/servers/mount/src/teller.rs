//! Telling the kernel to forget what it keeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use manylogs_ext4::{Changed, Ext4, Ino};
use manylogs_fuse::{Errno, Names, NodeId, Notifier, Reply};
use manylogs_plant::{Bug, is};

use crate::convert::to_node;

/// What takes locks of names.
enum OfNames {
    /// Inodes that nobody uses.
    Inodes(Vec<NodeId>),
    /// What a name stands for.
    Name(NodeId, Vec<u8>),
}

/// What takes locks of inodes and pages.
enum OfInodes {
    Attributes(NodeId),
    Content(NodeId),
    /// The list of a directory, before its end is told.
    List(NodeId, Reply<Names>),
}

/// Threads that tell: the kernel takes locks for that, and whoever holds them may wait for an
/// answer of the file system's thread. Who has a directory locked may wait for the end of its list,
/// which another thread tells than the one that waits for such locks.
#[derive(Clone)]
pub(crate) struct Teller {
    names: Sender<OfNames>,
    inodes: Sender<OfInodes>,
    /// The kernel has not answered the last question to forget inodes, or cannot be asked.
    busy: Arc<AtomicBool>,
}

/// What a teller has to tell, before there is a session.
pub(crate) struct ToTell {
    names: Receiver<OfNames>,
    inodes: Receiver<OfInodes>,
    busy: Arc<AtomicBool>,
}

impl ToTell {
    /// Tells from now on, in threads that end when nobody has anything to tell any more. Nobody
    /// waits for that: they may be in the kernel.
    pub(crate) fn start(self, notifier: Notifier) -> io::Result<()> {
        let Self { names, inodes, busy } = self;
        let (name, other) = (|name: &str| thread::Builder::new().name(name.to_owned()), notifier);
        let notifier = other.clone();
        name("mlfs-names").spawn(move || tell_of_names(&notifier, &names, &busy))?;
        name("mlfs-inodes").spawn(move || tell_of_inodes(&other, inodes))?;
        Ok(())
    }
}

impl Teller {
    pub(crate) fn new() -> (Self, ToTell) {
        let ((names, of_names), (inodes, of_inodes)) = (mpsc::channel(), mpsc::channel());
        let busy = Arc::new(AtomicBool::new(false));
        let to_tell = ToTell { names: of_names, inodes: of_inodes, busy: Arc::clone(&busy) };
        (Self { names, inodes, busy }, to_tell)
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
        // Nobody listens any more only at the end.
        drop(self.names.send(OfNames::Inodes(nodes)));
    }

    /// An inode changed, though nobody asked for that.
    pub(crate) fn changed(&self, ino: Ino, what: Changed) {
        let node = to_node(ino);
        drop(self.inodes.send(match what {
            Changed::Attributes => OfInodes::Attributes(node),
            Changed::Content => OfInodes::Content(node),
        }));
    }

    /// Nobody knows what became of a name: the kernel asks again, of the directory and its list as
    /// well. Whoever asked for the change has the directory locked until it is answered, so that
    /// the name can be told no sooner.
    pub(crate) fn unknown(&self, dir: Ino, name: &[u8]) {
        if !is(Bug::MlfsMissingStays) {
            drop(self.names.send(OfNames::Name(to_node(dir), name.to_vec())));
            drop(self.inodes.send(OfInodes::Content(to_node(dir))));
        }
    }

    /// Tells the end of a list, once the kernel has forgotten what it has of it.
    pub(crate) fn end_forgotten(&self, dir: Ino, reply: Reply<Names>) {
        drop(self.inodes.send(OfInodes::List(to_node(dir), reply)));
    }
}

// What fails is not known to the kernel, or the session has ended.

fn tell_of_names(notifier: &Notifier, told: &Receiver<OfNames>, busy: &AtomicBool) {
    for tell in told {
        match tell {
            OfNames::Name(dir, name) => drop(notifier.forget_name(dir, &name)),
            // Kernels before Linux 6.18 cannot be asked: they forget as their own memory needs.
            OfNames::Inodes(nodes) if notifier.prune(&nodes) == Err(Errno::INVAL) => {}
            OfNames::Inodes(_) => busy.store(false, Ordering::Release),
        }
    }
}

fn tell_of_inodes(notifier: &Notifier, told: Receiver<OfInodes>) {
    for tell in told {
        match tell {
            OfInodes::Attributes(node) => drop(notifier.forget_attributes(node)),
            OfInodes::Content(node) => drop(notifier.forget_content(node)),
            OfInodes::List(node, reply) => {
                let _ = notifier.forget_content(node);
                reply.send(&Names::with_room(0));
            }
        }
    }
}
