//! Losses: data that was given up because it could not be written, and which descriptors were told.
//!
//! As with the kernel's own file systems, every descriptor that was open at a loss is told of it
//! once, at the next sync or close. If none was open, the first sync is told.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// One opening of a file, by which callers of sync are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Descriptor(pub u64);

/// The losses of one file, or of all files.
#[derive(Debug, Default)]
pub(crate) struct Losses(RefCell<Option<Box<Loss>>>);

/// The last loss.
#[derive(Debug)]
struct Loss {
    error: Error,
    /// Number of losses so far.
    number: u64,
    /// The newest descriptor that was open at the last loss.
    newest: u64,
    is_known: bool,
    /// For each descriptor, the number of the last loss that it was told of.
    told: BTreeMap<Descriptor, u64>,
}

impl Losses {
    /// Notes a loss. Descriptors up to `newest` were given out by then.
    pub(crate) fn note(&self, error: &Error, newest: u64) {
        let mut slot = self.0.borrow_mut();
        let old = slot.take();
        let (number, told) = old.map_or_else(Default::default, |old| (old.number, old.told));
        let (error, number) = (error.clone(), number + 1);
        *slot = Some(Box::new(Loss { error, number, newest, is_known: false, told }));
    }

    /// How many losses there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.borrow().as_ref().map_or(0, |loss| loss.number)
    }

    /// Whether there is a loss that nobody was told of.
    pub(crate) fn are_unknown(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|loss| !loss.is_known)
    }

    /// Returns the last loss as an error, unless `to` was told of it. `None` stands for all callers
    /// without a descriptor.
    ///
    /// # Errors
    /// That of the device.
    pub(crate) fn tell(&self, to: Option<Descriptor>) -> Result<()> {
        let mut slot = self.0.borrow_mut();
        let Some(loss) = slot.as_mut() else { return Ok(()) };
        let knows = match to {
            Some(to) if to.0 <= loss.newest => loss.told.get(&to) == Some(&loss.number),
            _ => loss.is_known,
        };
        if knows {
            return Ok(());
        }
        loss.is_known = true;
        if let Some(to) = to {
            loss.told.insert(to, loss.number);
        }
        Err(loss.error.clone())
    }

    /// Forgets a descriptor that was closed.
    pub(crate) fn forget(&self, descriptor: Descriptor) {
        if let Some(loss) = self.0.borrow_mut().as_mut() {
            loss.told.remove(&descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_hears_of_a_loss_once() {
        let losses = Losses::default();
        let (one, two, later) = (Some(Descriptor(1)), Some(Descriptor(2)), Some(Descriptor(3)));
        assert_eq!(losses.tell(one), Ok(()));
        losses.note(&Error::NoSpace, 2);
        assert!(losses.are_unknown());
        for to in [two, one] {
            assert_eq!((losses.tell(to), losses.tell(to)), (Err(Error::NoSpace), Ok(())));
        }
        // A descriptor opened later is told only of a loss that nobody was told of.
        assert_eq!((losses.tell(later), losses.tell(None)), (Ok(()), Ok(())));
        losses.note(&Error::TooLarge, 3);
        assert_eq!((losses.tell(None), losses.tell(None)), (Err(Error::TooLarge), Ok(())));
        for to in [one, two, later] {
            assert_eq!((losses.tell(to), losses.tell(to)), (Err(Error::TooLarge), Ok(())));
        }
        losses.note(&Error::NoSpace, 3);
        assert_eq!(
            (losses.tell(Some(Descriptor(4))), losses.tell(None)),
            (Err(Error::NoSpace), Ok(()))
        );
    }
}
