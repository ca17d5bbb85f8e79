//! Changes without a request, which callers that cache answers must be told.

use super::Ext4;
use crate::core::Core;
use crate::units::Ino;

/// A change of an inode without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Blocks in use.
    Attributes,
    /// Content was lost, because the device refused it: reads find older content.
    Content,
}

/// The function that is called for each such change.
pub(crate) type Listener = Box<dyn Fn(Ino, Changed)>;

impl Ext4 {
    /// From now on, `tell` is called for each change that no request asked for. It is called during
    /// the change, so it must not use the file system or wait.
    pub fn tell_changes(&self, tell: impl Fn(Ino, Changed) + 'static) {
        self.core.listener.replace(Some(Box::new(tell)));
    }

    /// Ends the calls of [`Ext4::tell_changes`].
    pub fn tell_nobody(&self) {
        self.core.listener.replace(None);
    }

    /// Whether the inode has users.
    #[must_use]
    pub fn is_known(&self, ino: Ino) -> bool {
        self.core.nodes.known.is_used(ino)
    }
}

impl Core {
    pub(crate) fn tell(&self, ino: Ino, changed: Changed) {
        if let Some(tell) = &*self.listener.borrow() {
            tell(ino, changed);
        }
    }
}
