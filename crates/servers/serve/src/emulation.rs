//! A modelled drive between the device and the volume, so that applications run at the drive's
//! speed.

use std::rc::Rc;

use manylogs_block::{BlockDevice, Nanos};
use manylogs_disk::{EmulatedDrive, LinkSettings, Options, Profile};
use manylogs_operate::Emulated;
use manylogs_storage::{Reactor, prefer_this_thread};

use crate::engine::ServeError;
use crate::stack::Stack;

/// For this long before a timer is due the thread polls the clock instead of sleeping: about the
/// time that the kernel takes to wake a thread.
const SPIN: Nanos = Nanos(100_000);

/// The drive to emulate.
#[derive(Clone, Debug)]
pub struct Emulation {
    /// The model.
    pub profile: Profile,
    /// Whether the drive is fitted to the content ([`Profile::fitted`]): a small image then spans
    /// the whole drive. Otherwise the content is the beginning of the drive.
    pub fit: bool,
    /// Whether the drive acknowledges writes from a volatile cache; `None` takes the profile's
    /// setting.
    pub write_cache: Option<bool>,
    /// The drive's link to the host, where it differs from the profile's.
    pub link: LinkSettings,
}

impl Emulation {
    /// Puts the drive over the device of `stack`.
    ///
    /// # Errors
    /// If the content does not fit the drive, or no drive that small can be modelled.
    pub(crate) fn put_over(&self, stack: &mut Stack) -> Result<Emulated, ServeError> {
        let emulated = self.over(&stack.reactor, Rc::clone(&stack.device))?;
        stack.device = Rc::new(emulated.drive.clone());
        Ok(emulated)
    }

    /// The drive with the content of a device and the clock of `reactor`. Raises the priority of
    /// the calling thread.
    ///
    /// # Errors
    /// If the content does not fit the drive, or no drive that small can be modelled.
    pub fn over(
        &self,
        reactor: &Reactor,
        content: Rc<dyn BlockDevice>,
    ) -> Result<Emulated, ServeError> {
        let capacity = content.capabilities().capacity;
        let profile = if self.fit { self.profile.fitted(capacity)? } else { self.profile.clone() };
        let usual = Options::of(&profile);
        let write_cache = self.write_cache.unwrap_or(usual.write_cache);
        let options = Options { write_cache, link: self.link.over(usual.link), ..usual };
        let drive = EmulatedDrive::new(reactor.handle(), &profile, &options, content)?;
        reactor.spin_before_timers(SPIN);
        // Without the privilege the drive may answer late; its report of lateness shows that.
        let _ = prefer_this_thread();
        Ok(Emulated { drive, name: self.profile.model.clone() })
    }
}
