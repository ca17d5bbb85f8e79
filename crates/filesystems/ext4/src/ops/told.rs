//! What changes without a request, for whoever keeps answers.

use super::Ext4;
use crate::core::Core;
use crate::units::Ino;

/// What changed of an inode though nobody asked for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Blocks in use.
    Attributes,
    /// Content was lost, as the device refuses it: what was there before is read.
    Content,
}

/// Who hears of it.
pub(crate) type Listener = Box<dyn Fn(Ino, Changed)>;

impl Ext4 {
    /// From now on `tell` hears of each change that no request asked for. It is called while the
    /// change goes on: it must not use the file system, nor wait.
    pub fn tell_changes(&self, tell: impl Fn(Ino, Changed) + 'static) {
        self.core.listener.replace(Some(Box::new(tell)));
    }

    /// Nobody hears of them any more.
    pub fn tell_nobody(&self) {
        self.core.listener.replace(None);
    }

    /// Whether the inode has users.
    #[must_use]
    pub fn is_known(&self, ino: Ino) -> bool {
        self.core.known.is_used(ino)
    }
}

impl Core {
    pub(crate) fn tell(&self, ino: Ino, changed: Changed) {
        if let Some(tell) = &*self.listener.borrow() {
            tell(ino, changed);
        }
    }
}
