//! What could not be written for good, and who has been told so.
//!
//! As with the kernel's own file systems, everybody who had the file open hears of a loss once,
//! at the next sync or close; if nobody had, the first who syncs does.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// One opening of a file, of those that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Descriptor(pub u64);

/// Of one file, or of all.
#[derive(Debug, Default)]
pub(crate) struct Losses(RefCell<Option<Box<Loss>>>);

/// The last loss.
#[derive(Debug)]
struct Loss {
    error: Error,
    /// How many there were.
    number: u64,
    /// Descriptors up to this one were there.
    newest: u64,
    is_known: bool,
    /// The number of the last loss that each heard of.
    told: BTreeMap<Descriptor, u64>,
}

impl Losses {
    /// Something is lost while descriptors up to `newest` are there.
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

    /// The loss, to whoever has not heard of it: `None` is everybody who is not told apart.
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

    /// The descriptor is no more.
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
        // Whoever came later hears only of what nobody knows.
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
